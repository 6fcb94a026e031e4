//! What many events may cost, and what is counted.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{refresh_scene::RefreshScene, *};
use crate::support::wire::read_whole;

/// A source that notes how many requests are in flight at the same time.
async fn counting_source(state: Arc<AtomicU64>) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, now, most) =
        (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&most);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (state, now, most) = (Arc::clone(&state), Arc::clone(&now), Arc::clone(&most));
            tokio::spawn(async move {
                let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    let Ok(read @ 1..) = stream.read(&mut chunk).await else { return };
                    head.extend_from_slice(&chunk[..read]);
                }
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                let sets = json!([{"name": "app", "state": state.load(Ordering::SeqCst)}]);
                let _ = stream.write_all(&json_response(sets.to_string())).await;
            });
        }
    });
    (address, seen)
}

/// A thousand questions know an image that is pushed. Few of them are looked at at once, callers are answered meanwhile, and each
/// ApplicationSet is told once.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_a_thousand_questions_know() {
    const QUESTIONS: usize = 1000;
    const SETS: usize = 20;
    let distribution = json!({"name": "distribution", "kind": "distribution", "token": {"file": "secret"}});
    let mut told = RefreshScene::of(json!([distribution]), json!({}), "", json!({"ttl": "1h"})).await;
    let (address, most) = counting_source(Arc::clone(&told.scene.state)).await;
    let source = told.scene.source.address.to_string();
    // The image is in the parameters, and the source is not asked for it.
    told.restart_with(&format!("{source}/{{{{ params.sha }}}}/"), &format!("{address}/"));
    let image = "registry.example.com/org/app:main";
    for n in 0..QUESTIONS {
        let set = if n < SETS { format!("set-{n}") } else { String::new() };
        if n < SETS {
            told.api.add("argocd", &set, "gateway");
        }
        assert_eq!(told.ask(&set, image, n).await.status, 200);
    }
    most.store(0, Ordering::SeqCst);
    told.scene.state.store(2, Ordering::SeqCst);
    let event = json!({"events": [{"action": "push", "request": {"host": "registry.example.com"},
        "target": {"repository": "org/app", "tag": "main"}}]});
    let bearer = format!("Bearer {SECRET}");
    let reply =
        told.scene.post("/hooks/distribution", &[("Authorization", &bearer)], event.to_string().as_bytes()).await;
    assert_eq!(reply.json(), json!({"result": "taken"}));
    let until = Instant::now() + Duration::from_mins(5);
    let changed = "appset_gateway_hook_rechecks_total{result=\"changed\"}";
    let mut answered = 0;
    while told.scene.metric(changed).await < QUESTIONS as u64 {
        assert!(Instant::now() < until, "not all are looked at");
        assert_eq!(told.ask("", image, QUESTIONS - 1).await.status, 200);
        answered += 1;
    }
    assert!(answered > 1, "callers are answered meanwhile");
    let most = most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} at once");
    let mut expected: Vec<String> = (0..SETS).map(|n| format!("argocd/set-{n}")).collect();
    expected.sort();
    told.refreshes(&expected.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Bursts about known questions make few runs. What became of each delivery is counted.
#[tokio::test(flavor = "multi_thread")]
async fn bursts_are_bounded_and_deliveries_are_counted() {
    const KNOWN: usize = 10;
    let mut registry = hook("distribution", "token");
    registry["registry"] = json!("r.example.com");
    let scene = Scene::start(json!([hook("github", "secret"), registry])).await;
    let sha = |n: usize| format!("{:040x}", n + 1);
    for n in 0..KNOWN {
        scene.ask(&sha(n), n).await;
    }
    scene.state.store(2, Ordering::SeqCst);
    let began = Instant::now();
    let deliver = async |n: usize| {
        let body = github(&sha(n % KNOWN));
        let id = format!("delivery-{n}");
        scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body)), ("X-GitHub-Delivery", &id)], &body).await
    };
    for n in 0..10 * KNOWN {
        assert_eq!(deliver(n).await.json(), json!({"result": "taken"}));
    }
    // Looks at one question are 2 s apart. The last one finds nothing new, and is repeated.
    let looks = 3 + usize::try_from(began.elapsed().as_secs() / 2).unwrap();
    sleep(Duration::from_secs(5)).await;
    let runs = scene.runs();
    assert!((2 * KNOWN..=(1 + looks) * KNOWN).contains(&runs), "{runs} runs, {looks} looks");

    assert_eq!(deliver(7).await.json(), json!({"result": "duplicate"}));
    let body = json!({"zen": "Design for failure."}).to_string();
    scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(body.as_bytes()))], body.as_bytes()).await;
    scene.post("/hooks/github", &[("X-Hub-Signature-256", "sha256=00")], body.as_bytes()).await;
    scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(b"{"))], b"{").await;
    // More events than may wait.
    let event = |n: usize| json!({"action": "push", "target": {"repository": format!("o/{n}"), "tag": "1"}});
    let bearer = format!("Bearer {SECRET}");
    let flood = json!({"events": (0..10_001).map(event).collect::<Vec<_>>()}).to_string();
    let reply = scene.post("/hooks/distribution", &[("Authorization", &bearer)], flood.as_bytes()).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    // A repeated delivery of a registry has the events' ids.
    let known = json!({"events": [{"id": "1", "action": "push", "target": {"repository": "o/1", "tag": "1"}}]});
    for expected in ["taken", "duplicate"] {
        let body = known.to_string();
        let reply = scene.post("/hooks/distribution", &[("Authorization", &bearer)], body.as_bytes()).await;
        assert_eq!(reply.json(), json!({"result": expected}));
    }
    for (hook, outcome, expected) in [
        ("github", "taken", 10 * KNOWN as u64),
        ("github", "duplicate", 1),
        ("github", "ignored", 1),
        ("github", "unproven", 1),
        ("github", "malformed", 1),
        ("distribution", "refused", 1),
        ("distribution", "taken", 1),
        ("distribution", "duplicate", 1),
    ] {
        let name = format!("appset_gateway_hook_deliveries_total{{hook=\"{hook}\",outcome=\"{outcome}\"}}");
        assert_eq!(scene.metric(&name).await, expected, "{hook} {outcome}");
    }
}

/// Whoever knows a token may send anything. Subjects that no registry can have are ignored, so they take no memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_of_a_megabyte_is_no_subject() {
    let mut mapped = hook("generic", "token");
    mapped["subjects"] = json!("body.items");
    let scene = Scene::start(json!([hook("distribution", "token"), mapped])).await;
    let (bearer, long) = (format!("Bearer {SECRET}"), "x".repeat(1_000_000));
    let target = json!({"repository": "org/app", "tag": long});
    let push = json!({"events": [{"action": "push", "request": {"host": "r.example.com"}, "target": target}]});
    let post = async |path: &str, body: &Value| {
        scene.post(path, &[("Authorization", &bearer)], body.to_string().as_bytes()).await
    };
    assert_eq!(post("/hooks/distribution", &push).await.json(), json!({"result": "ignored"}));
    for item in [
        json!({"image": format!("r.example.com/app:{long}")}),
        json!({"url": format!("https://h.example.com/{long}")}),
        json!({"route": "r", "parameters": {"x": long}}),
    ] {
        let reply = post("/hooks/generic", &json!({"items": [item]})).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().len() < 1000, "nothing of it is repeated");
    }
}

/// Thousands of subjects that select questions by their parameters cost callers nothing, and the one that is meant is found.
#[tokio::test(flavor = "multi_thread")]
async fn many_selectors_find_the_question_that_is_meant() {
    let mut mapped = hook("generic", "token");
    mapped["subjects"] = json!("body.items.map(i, {'route': 'h', 'parameters': {'sha': i}})");
    let scene = Scene::start(json!([mapped])).await;
    scene.ask(SHA, 1).await;
    scene.state.store(2, Ordering::SeqCst);
    let bearer = format!("Bearer {SECRET}");
    for part in 0..9 {
        let mut items: Vec<String> = (0..999).map(|n| format!("{part}-{n}")).collect();
        items.extend((part == 4).then(|| SHA.to_owned()));
        let body = json!({ "items": items }).to_string();
        let reply = scene.post("/hooks/generic", &[("Authorization", &bearer)], body.as_bytes()).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
    }
    scene.shows(SHA, 1, 2).await;
}

/// Deliveries come in another order than they were sent. The answer is what the source says now.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_deliveries_does_not_matter() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    scene.ask(SHA, 1).await;
    scene.state.store(3, Ordering::SeqCst);
    let body = |action: &str, conclusion: Value| {
        json!({"action": action, "workflow_run": {"head_sha": SHA, "conclusion": conclusion}}).to_string()
    };
    for (id, body) in [
        ("3", body("completed", json!("success"))),
        ("2", body("completed", json!("failure"))),
        ("1", body("requested", Value::Null)),
    ] {
        let headers = [("X-Hub-Signature-256", &*signed(body.as_bytes())), ("X-GitHub-Delivery", id)];
        assert_eq!(scene.post("/hooks/github", &headers, body.as_bytes()).await.status, 202);
        scene.shows(SHA, 1, 3).await;
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.ask(SHA, 1).await, json!("3"));
}

/// A delivery to `path` of which the head and `sent` bytes of the body are sent.
async fn begin(stream: &mut TcpStream, path: &str, headers: &str, size: usize, sent: usize) {
    let head = format!("POST {path} HTTP/1.1\r\nHost: g\r\n{headers}Content-Length: {size}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), &vec![b' '; sent]].concat()).await.unwrap();
}

/// Without a signature that may be right, a delivery is refused before its body is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_without_a_signature_is_refused_before_its_body() {
    let mut nexus = hook("nexus", "secret");
    nexus["registry"] = json!("registry.example.com");
    let hooks = json!([hook("github", "secret"), nexus, hook("gitlab", "secret")]);
    let scene = Scene::start(hooks).await;
    let (right, sha1) = ("0".repeat(64), "0".repeat(40));
    let now = unix_now();
    for (path, headers) in [
        ("/hooks/github", String::new()),
        ("/hooks/github", "X-Hub-Signature-256: sha256=00\r\n".to_owned()),
        ("/hooks/github", format!("X-Hub-Signature-256: sha256={}\r\n", "x".repeat(64))),
        ("/hooks/github", format!("X-Hub-Signature-256: {right}\r\nX-Hub-Signature-256: {right}\r\n")),
        ("/hooks/github/token", format!("X-Hub-Signature-256: {right}\r\n")),
        ("/hooks/nexus", format!("X-Nexus-Webhook-Signature: {right}\r\n")),
        ("/hooks/gitlab", format!("X-Nexus-Webhook-Signature: {sha1}\r\n")),
        ("/hooks/gitlab", format!("webhook-id: a\r\nwebhook-timestamp: {now}\r\nwebhook-signature: v1,AAAA\r\n")),
        (
            "/hooks/gitlab",
            format!("webhook-id: a\r\nwebhook-timestamp: {}\r\nwebhook-signature: v1,AAAA\r\n", now - 1000),
        ),
    ] {
        let mut stream = TcpStream::connect(scene.gateway.hooks.unwrap()).await.unwrap();
        begin(&mut stream, path, &headers, 1_000_000, 100).await;
        let reply = read_whole(&mut stream).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path} {headers}: {}", reply.text());
    }
}

/// Bodies that must prove their senders share the memory budget of unproven senders, also on a connection on which a proxy has sent a proven delivery.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_before_their_proof_are_bounded() {
    const SIZE: usize = 1_000_000;
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    let proven = json!({"zen": "Design for failure."}).to_string();
    let signature = signed(proven.as_bytes());
    let good = format!(
        "POST /hooks/github HTTP/1.1\r\nHost: g\r\nX-Hub-Signature-256: {signature}\r\nContent-Length: {}\r\n\r\n{proven}",
        proven.len()
    );
    let before = resident_mib(&scene.gateway);
    let mut streams = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(scene.gateway.hooks.unwrap()).await.unwrap();
        stream.write_all(good.as_bytes()).await.unwrap();
        assert_eq!(read_whole(&mut stream).await.status, 202);
        let wrong = format!("X-Hub-Signature-256: sha256={}\r\n", "0".repeat(64));
        begin(&mut stream, "/hooks/github", &wrong, SIZE, SIZE - 1).await;
        streams.push(stream);
    }
    let first = read_whole(&mut streams[0]).await;
    assert_eq!((first.status, first.code().as_str()), (503, "overloaded"), "{}", first.text());
    let after = resident_mib(&scene.gateway);
    assert!(after < before + 100, "{before} MiB before, {after} MiB after");
    let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signature)], proven.as_bytes()).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
}
