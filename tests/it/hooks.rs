//! Webhooks: a delivery is proven, and the questions that it concerns are rechecked. Signatures are made by `openssl`, and pushes are
//! told by a real docker-registry.

mod bad_days;
mod causes;
mod deliveries;
mod endings;
mod kubernetes_events;
mod limits;
mod policy;
mod probed;
mod proofs;
mod pushes;
mod refresh;
mod refresh_scene;
mod registry;
mod senders;
mod shown;

use std::{
    io::Write as _,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use self::registry::{digest_for, metric_of, registry_and_gateway, tags_for, until_quiet};
use crate::support::{
    Reply, TOKEN, TestApp,
    binary::{Gateway, command},
    contract::{self, Listener},
    issuer::unix_now,
    registry::{Notified, Registry, Setup},
    store::StoreServer,
    upstream::{Step, Upstream, json_response, response},
    wire::{argo_request, exchange, exchange_admin},
};

const SHA: &str = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d";
const SECRET: &str = "a secret of the hooks' sender";

/// A gateway with hooks, whose route `h` asks a source that counts its answers.
struct Scene {
    gateway: Gateway,
    folder: TempDir,
    source: Upstream,
    /// What the source answers; 0 for an empty list.
    state: Arc<AtomicU64>,
    /// Whether the source fails.
    is_failing: Arc<AtomicBool>,
    /// How long the source takes.
    delay_ms: Arc<AtomicU64>,
}

impl Scene {
    async fn start(hooks: Value) -> Self {
        Self::with(hooks, "").await
    }

    /// A scene with more lines in the configuration.
    async fn with(hooks: Value, more: &str) -> Self {
        Self::of(hooks, more, json!({"ttl": "1h"}), &[]).await
    }

    /// The same with these `files` beside the configuration. The route has `cache`.
    async fn of(hooks: Value, more: &str, cache: Value, files: &[(&str, &str)]) -> Self {
        let (state, is_failing) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
        let (told, fails) = (Arc::clone(&state), Arc::clone(&is_failing));
        let delay_ms = Arc::new(AtomicU64::new(0));
        let waits = Arc::clone(&delay_ms);
        let source = Upstream::start(move |_| {
            let state = told.load(Ordering::SeqCst);
            let sets = if state == 0 { json!([]) } else { json!([{"name": "app", "state": state}]) };
            let reply = json_response(sets.to_string());
            let reply = if fails.load(Ordering::SeqCst) { response(503, "", "no") } else { reply };
            let (first, rest) = reply.split_at(1);
            let delay = Duration::from_millis(waits.load(Ordering::SeqCst));
            vec![Step::Drip(first.to_vec(), delay), Step::Send(rest.to_vec())]
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("secret", SECRET)].iter().chain(files) {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let url = format!("http://{}/{{{{ params.sha }}}}/{{{{ params.n }}}}", source.address);
        let route = json!({
            "name": "h",
            "input": [{"name": "sha"}, {"name": "n"}],
            "backend": {"http": {"url": url}},
            "cache": cache,
        });
        let config = format!(
            "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", hooks: \"127.0.0.1:0\", drain: 0s }}\n\
             {}{more}hooks: {hooks}\nroutes: {}\n",
            TestApp::auth(),
            json!([route])
        );
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, config).unwrap();
        let gateway = Gateway::serve(&file);
        Self { gateway, folder, source, state, is_failing, delay_ms }
    }

    fn source_fails(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::SeqCst);
    }

    /// What a caller is answered about `sha` and `n`.
    async fn ask(&self, sha: &str, n: usize) -> Value {
        let reply = ask(&self.gateway, sha, n).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["output"]["parameters"][0]["state"].clone()
    }

    fn runs(&self) -> usize {
        self.source.requests().len()
    }

    /// Posts `body` to the hook at `path`.
    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        post(self.gateway.hooks.unwrap(), path, headers, body).await
    }

    /// Waits until a caller is answered `state`.
    async fn shows(&self, sha: &str, n: usize, state: u64) {
        let until = Instant::now() + Duration::from_secs(10);
        while self.ask(sha, n).await != json!(state.to_string()) {
            assert!(Instant::now() < until, "the answer does not change");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn metric(&self, name: &str) -> u64 {
        metric_of(&self.gateway, name).await
    }
}

async fn ask(gateway: &Gateway, sha: &str, n: usize) -> Reply {
    let body = json!({"input": {"parameters": {"sha": sha, "n": n.to_string()}}}).to_string();
    exchange(gateway.address, &argo_request("/h/api/v1/getparams.execute", TOKEN, body.as_bytes())).await
}

async fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut head =
        format!("POST {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    let request = [head.as_bytes(), b"\r\n", body].concat();
    let reply = exchange_admin(address, &request).await;
    contract::conforms(Listener::Hooks, &request, &reply);
    reply
}

/// The HMAC of `body` in hexadecimal, by an independent program.
fn openssl(digest: &str, secret: &str, body: &[u8]) -> String {
    let mut child = Command::new("openssl")
        .args(["dgst", &format!("-{digest}"), "-hmac", secret])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs the program `openssl`");
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    output.trim().rsplit(' ').next().unwrap().to_owned()
}

/// The timestamp and the signatures of Standard Webhooks for the message `msg_1`, one of them by another key.
fn standard(secret: &str, time: u64, body: &[u8]) -> (String, String) {
    let hex = openssl("sha256", secret, &[format!("msg_1.{time}.").as_bytes(), body].concat());
    let bytes: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    (time.to_string(), format!("v1,bm8= v1,{}", base64::Engine::encode(&base64::prelude::BASE64_STANDARD, bytes)))
}

fn github(sha: &str) -> Vec<u8> {
    json!({"action": "completed", "workflow_run": {"head_sha": sha, "conclusion": "success"}}).to_string().into_bytes()
}

fn signed(body: &[u8]) -> String {
    format!("sha256={}", openssl("sha256", SECRET, body))
}

fn hook(kind: &str, proof: &str) -> Value {
    json!({"name": kind, "kind": kind, proof: {"file": "secret"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_renews_the_answers_that_it_concerns_and_no_others() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    let other = "f".repeat(40);
    for n in 0..50 {
        assert_eq!(scene.ask(if n == 7 { SHA } else { &other }, n).await, json!("1"));
    }
    scene.state.store(2, Ordering::SeqCst);
    assert_eq!(scene.ask(SHA, 7).await, json!("1"), "fresh for an hour");
    let body = github(SHA);
    let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await;
    assert_eq!((reply.status, reply.json()), (202, json!({"result": "taken"})));
    scene.shows(SHA, 7, 2).await;
    assert_eq!(scene.runs(), 51, "one run for one of 50 questions");
    assert_eq!(scene.ask(&other, 8).await, json!("1"));
    assert_eq!(scene.metric("appset_gateway_hook_rechecks_total{result=\"changed\"}").await, 1);

    // Something unknown is counted and forgotten.
    let body = github(&"e".repeat(40));
    assert_eq!(scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await.status, 202);
    let body = json!({"zen": "Design for failure."}).to_string();
    let reply =
        scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(body.as_bytes()))], body.as_bytes()).await;
    assert_eq!(reply.json(), json!({"result": "ignored"}));
    sleep(Duration::from_millis(300)).await;
    assert_eq!(scene.runs(), 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_finds_nothing_new_is_repeated() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    scene.ask(SHA, 1).await;
    let body = github(SHA);
    scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await;
    while scene.runs() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
    // The source is behind its event.
    scene.state.store(2, Ordering::SeqCst);
    scene.shows(SHA, 1, 2).await;
    assert_eq!(scene.runs(), 3);
}

/// A delivery with an id counts once. A hundred events about one question are two runs, and the repeats of the second.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_deliveries_and_bursts_cost_little() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    scene.ask(SHA, 1).await;
    scene.state.store(2, Ordering::SeqCst);
    let body = github(SHA);
    let signature = signed(&body);
    let deliver = async |id: usize| {
        let id = format!("delivery-{id}");
        scene.post("/hooks/github", &[("X-Hub-Signature-256", &signature), ("X-GitHub-Delivery", &id)], &body).await
    };
    let began = Instant::now();
    let replies = join_all((0..100).map(deliver)).await;
    assert!(replies.iter().all(|reply| reply.status == 202));
    // Events that come during a look lead to one more look. Looks are 2 s apart.
    let most = 4 + usize::try_from(began.elapsed().as_secs() / 2).unwrap();
    scene.shows(SHA, 1, 2).await;
    // The second look finds what the first one has found. It is repeated after two seconds, since CI may be behind its events.
    sleep(Duration::from_secs(6)).await;
    let runs = scene.runs();
    assert!((2..=most).contains(&runs), "{runs} runs: one for the caller, up to two for the events, and one repeat");
    assert_eq!(deliver(5).await.json(), json!({"result": "duplicate"}));
    sleep(Duration::from_millis(300)).await;
    assert_eq!(scene.runs(), runs);
}

/// What a mad sender may cost: its events wait within a bound, or are refused, callers are answered meanwhile, and memory stays flat.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_events_are_bounded() {
    let scene = Scene::start(json!([hook("distribution", "token")])).await;
    for n in 0..20 {
        scene.ask(&format!("{n:040x}"), n).await;
    }
    let bearer = format!("Bearer {SECRET}");
    let burst = |first: usize| {
        let event = |n: usize| json!({"action": "push", "request": {"host": "r.example.com"}, "target": {"repository": format!("org/app-{n}"), "tag": "1"}});
        json!({"events": (first..first + 100).map(event).collect::<Vec<_>>()}).to_string()
    };
    let deliver = async |number: usize| {
        scene.post("/hooks/distribution", &[("Authorization", &bearer)], burst(number * 100).as_bytes()).await.status
    };
    let before = resident_mib(&scene.gateway);
    let statuses = join_all((0..100).map(deliver)).await;
    assert!(statuses.iter().all(|status| [202, 503].contains(status)), "{statuses:?}");
    for n in 0..20 {
        assert_eq!(scene.ask(&format!("{n:040x}"), n).await, json!("1"));
    }
    assert_eq!(scene.runs(), 20, "they concern nothing");
    let after = resident_mib(&scene.gateway);
    assert!(after < before + 64, "{before} MiB before, {after} MiB after");
}

/// The resident memory of `gateway`.
fn resident_mib(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
