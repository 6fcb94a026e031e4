//! Long answers, which the file and the store have in chunks.

use nix::sys::signal::Signal;

use super::*;

/// How many elements the answer has.
const COUNT: usize = 800;

/// A list of pull requests, and the digest of each.
struct Previews {
    upstream: Upstream,
    state: Arc<PreviewState>,
}

#[derive(Default)]
struct PreviewState {
    /// The number of the digest of element 7. All others have the digest 0.
    digest: AtomicUsize,
    elements: AtomicUsize,
    fails: AtomicBool,
}

impl Previews {
    async fn start() -> Self {
        let state = Arc::<PreviewState>::default();
        let seen = Arc::clone(&state);
        let upstream = Upstream::start(move |request| {
            if seen.fails.load(Ordering::SeqCst) {
                return vec![Step::Send(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n".to_vec())];
            }
            let Some(number) = request.target.strip_prefix("/element/") else {
                let items = (0..COUNT).map(|number| json!({"number": number, "sha": sha(number)}));
                return vec![Step::Send(json_response(items.collect::<Value>().to_string()))];
            };
            seen.elements.fetch_add(1, Ordering::SeqCst);
            let digest = if number == "7" { seen.digest.load(Ordering::SeqCst) } else { 0 };
            vec![Step::Send(json_response(json!([{"digest": format!("{number}-{digest}")}]).to_string()))]
        })
        .await;
        Self { upstream, state }
    }

    fn options(&self, store: &StoreServer) -> Options {
        let url = format!("http://{}", self.upstream.address);
        let each = json!({"key": ["number"], "http": {"url": format!("{url}/element/{{{{ item.number }}}}")}});
        let route = json!({
            "name": "h",
            "backend": {"pipeline": [{"http": {"url": format!("{url}/list")}}, {"each": each}]},
            "output": {"number": "{{ item.number }}", "sha": "{{ item.sha }}", "digest": "{{ digest }}", "about": "x".repeat(200)},
            "cache": {"ttl": "1h", "staleIfError": "24h", "prefetch": false},
        });
        let hook = json!({"name": "builds", "kind": "generic", "token": {"file": "admin-token"}, "subjects": "[{'commit': body.sha}]"});
        let mut server = server();
        server["hooks"] = json!("127.0.0.1:0");
        let extra = format!("hooks: {}\n", json!([hook]));
        Options { store: store_at(&store.url()), route, more: Vec::new(), extra, server }
    }
}

/// The commit of an element.
fn sha(number: usize) -> String {
    format!("{:040x}", (number + 1) * 0x9E37_79B9)
}

impl Replica {
    async fn push(&self, number: usize) {
        let body = json!({"sha": sha(number)}).to_string();
        let head = format!(
            "POST /hooks/builds HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = exchange_admin(self.gateway.hooks.unwrap(), head.as_bytes()).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
    }

    /// The digest of element 7; `None` without an answer of all elements.
    async fn digest(&self) -> Option<String> {
        let reply = self.ask("x").await;
        let sets = (reply.status == 200).then(|| reply.json()["output"]["parameters"].clone())?;
        assert_eq!(sets.as_array().unwrap().len(), COUNT);
        Some(sets[7]["digest"].as_str().unwrap().to_owned())
    }

    async fn has(&self, digest: &str) {
        within(Duration::from_secs(30), digest, async || self.digest().await.as_deref() == Some(digest)).await;
    }
}

/// How many bytes the server has read and written since it was started.
fn traffic(store: &StoreServer) -> [u64; 2] {
    let text = store.run(&["info", "stats"]);
    ["total_net_input_bytes:", "total_net_output_bytes:"].map(|name| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name));
        value.unwrap().parse().unwrap()
    })
}

/// A push for one element queries this element, and writes and reads few bytes of an answer with hundreds of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_one_element_does_not_write_all() {
    let (store, previews) = (StoreServer::start(&[]).await, Previews::start().await);
    let options = previews.options(&store);
    let mut replicas = [Replica::start(&options).await, Replica::start(&options).await];
    for replica in &replicas {
        replica.has("7-0").await;
    }
    let length = u64::try_from(replicas[0].ask("x").await.text().len()).unwrap();
    assert!(length > 200_000, "{length}");
    for number in 1..=3 {
        let queried = previews.state.elements.load(Ordering::SeqCst);
        let before = traffic(&store);
        previews.state.digest.store(number, Ordering::SeqCst);
        replicas[number % 2].push(7).await;
        for replica in &replicas {
            replica.has(&format!("7-{number}")).await;
        }
        let after = traffic(&store);
        assert_eq!(previews.state.elements.load(Ordering::SeqCst) - queried, 1);
        let passed = [0, 1].map(|at| after[at] - before[at]);
        assert!(passed.iter().all(|bytes| *bytes < length / 2), "{passed:?} bytes for a change, of {length}");
    }
    // All of it is still there after `kill -9`, while the source fails.
    previews.state.fails.store(true, Ordering::SeqCst);
    for replica in &mut replicas {
        let folder = std::mem::replace(&mut replica.folder, tempfile::tempdir().unwrap());
        replica.gateway.signal(Signal::SIGKILL);
        replica.gateway.wait(Duration::from_secs(10));
        let started = Replica::begin(folder, &options);
        started.has("7-3").await;
        *replica = started;
    }
}
