//! Replicas with one memory: real gateway processes on a real store, which fails in every way that is known.

mod agreement;
mod faults;
mod keys;
mod links;
mod long;
mod rollout;
mod servers;
mod tampering;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN,
    binary::{Gateway, command},
    store::StoreServer,
    upstream::{Step, Upstream, json_response},
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// A source with as many parameter sets as a test wants, and none for questions that begin with `empty`. Its answers name the request, so that a caller sees which run made them.
struct Source {
    upstream: Upstream,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// How many parameter sets the answers have.
    sets: AtomicUsize,
    fails: AtomicBool,
    delay_ms: AtomicU64,
    runs: AtomicU64,
}

impl Source {
    async fn of(sets: usize) -> Self {
        let state = Arc::new(State { sets: AtomicUsize::new(sets), ..State::default() });
        let seen = Arc::clone(&state);
        let upstream = Upstream::start(move |request| seen.play(&request.target)).await;
        Self { upstream, state }
    }

    fn set(&self, sets: usize) {
        self.state.sets.store(sets, Ordering::SeqCst);
    }

    fn fail(&self, fails: bool) {
        self.state.fails.store(fails, Ordering::SeqCst);
    }

    fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(delay.as_millis().try_into().unwrap(), Ordering::SeqCst);
    }

    fn runs(&self) -> u64 {
        self.state.runs.load(Ordering::SeqCst)
    }
}

impl State {
    fn play(&self, target: &str) -> Vec<Step> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let delay = Duration::from_millis(self.delay_ms.load(Ordering::SeqCst));
        let answer = if self.fails.load(Ordering::SeqCst) {
            b"HTTP/1.1 404 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec()
        } else {
            let sets = if target.contains("q=empty") { 0 } else { self.sets.load(Ordering::SeqCst) };
            let sets = (0..sets).map(|n| json!({"name": format!("app-{n}"), "run": run}));
            json_response(Value::Array(sets.collect()).to_string())
        };
        let (first, rest) = answer.split_at(1);
        vec![Step::Drip(first.to_vec(), delay), Step::Send(rest.to_vec())]
    }
}

/// Options of a replica's configuration.
#[derive(Clone)]
struct Options {
    store: Value,
    route: Value,
    more: Vec<Value>,
    /// Further sections, as text.
    extra: String,
    server: Value,
}

impl Options {
    /// A route `h` that asks `source`, and caches an answer for `ttl`.
    fn new(store: Value, source: &Source, ttl: &str) -> Self {
        let url = format!("http://{}/list?q={{{{ params.q }}}}", source.upstream.address);
        let route = json!({
            "name": "h",
            "input": [{"name": "q"}],
            "backend": {"http": {"url": url, "timeout": "10s"}},
            "cache": {"ttl": ttl, "staleIfError": "1h"},
            "guard": {"identity": ["name"]},
        });
        Self { store, route, more: Vec::new(), extra: String::new(), server: server() }
    }

    fn guard(mut self, guard: Value) -> Self {
        self.route["guard"] = guard;
        self
    }

    fn text(&self) -> String {
        let routes: Vec<&Value> = [&self.route].into_iter().chain(&self.more).collect();
        let cache = json!({"path": "answers.redb", "shared": self.store});
        let server = &self.server;
        let hash = auth::hash_token(TOKEN);
        let caller = json!({"name": "argocd", "sha256": hash});
        let operator = json!({"name": "operator", "role": "admin", "file": "admin-token"});
        let auth = json!({"tokens": [caller, operator]});
        format!("server: {server}\nauth: {auth}\ncache: {cache}\nroutes: {}\n{}", json!(routes), self.extra)
    }
}

/// The listeners of a replica.
fn server() -> Value {
    json!({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "0s"})
}

/// The usual store of a test: one server, with time for the slow machines that tests run on.
fn store_at(url: &str) -> Value {
    json!({"url": url, "timeout": "800ms"})
}

/// A replica in a process of its own.
struct Replica {
    gateway: Gateway,
    folder: TempDir,
}

impl Replica {
    /// A replica that has been in contact with the store.
    async fn start(options: &Options) -> Self {
        let replica = Self::begin(tempfile::tempdir().unwrap(), options);
        replica.joined().await;
        replica
    }

    /// A replica that has just started, with the file in `folder`.
    fn begin(folder: TempDir, options: &Options) -> Self {
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, options.text()).unwrap();
        std::fs::write(folder.path().join("admin-token"), ADMIN_TOKEN).unwrap();
        Self { gateway: Gateway::serve(&file), folder }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("gateway.yaml")
    }

    /// Waits until it is in contact with the store, and the store is recovered.
    async fn joined(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.probe("/startupz").await != 200 || self.metric("appset_gateway_store_in_contact").await != 1 {
            assert!(Instant::now() < until, "it does not get in contact with the store");
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn probe(&self, path: &str) -> u16 {
        let request = format!("GET {path} HTTP/1.1\r\nHost: g\r\n\r\n");
        exchange_admin(self.gateway.admin, request.as_bytes()).await.status
    }

    /// The value of a metric; `None` if there is no such series.
    async fn try_metric(&self, name: &str) -> Option<u64> {
        let text = exchange(self.gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    async fn metric(&self, name: &str) -> u64 {
        self.try_metric(name).await.unwrap()
    }

    async fn ask(&self, q: &str) -> Reply {
        self.ask_route("h", q).await
    }

    async fn ask_route(&self, route: &str, q: &str) -> Reply {
        let body = json!({"input": {"parameters": {"q": q}}}).to_string();
        let path = format!("/{route}/api/v1/getparams.execute");
        exchange(self.gateway.address, &argo_request(&path, TOKEN, body.as_bytes())).await
    }

    async fn operate(&self, method: &str, path: &str, body: &str) -> Reply {
        exchange_admin(self.gateway.admin, operator_request(method, path, body).as_bytes()).await
    }

    /// The only held answer.
    async fn held(&self) -> Value {
        let list = self.operate("GET", "/admin/held", "").await.json();
        let [held] = &list["held"].as_array().unwrap()[..] else { panic!("{list}") };
        held.clone()
    }
}

/// The number of parameter sets in a success.
fn sets(reply: &Reply) -> usize {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"].as_array().unwrap().len()
}

/// The run that made the answer; 0 for an empty answer.
fn run_of(reply: &Reply) -> u64 {
    let run = &reply.json()["output"]["parameters"][0]["run"];
    run.as_str().map_or(0, |run| run.parse().unwrap())
}

/// Three replicas on one store.
async fn three(options: &Options) -> Vec<Replica> {
    let mut replicas: Vec<Replica> = (0..3).map(|_| Replica::begin(tempfile::tempdir().unwrap(), options)).collect();
    for replica in &mut replicas {
        replica.joined().await;
    }
    replicas
}

/// Waits until `reached` holds, for at most `timeout`. Returns how long it took.
async fn within(timeout: Duration, what: &str, mut reached: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !reached().await {
        assert!(began.elapsed() < timeout, "not within {timeout:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}
