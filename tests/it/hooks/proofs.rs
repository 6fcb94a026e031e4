//! Proofs of deliveries, secrets that change, and what is refused.

use super::*;
use crate::support::wire::operator_request;

#[tokio::test(flavor = "multi_thread")]
async fn each_proof_is_checked() {
    let whsec = "whsec_YSBrZXkgb2Ygc3RhbmRhcmQgd2ViaG9va3M=";
    let mut hooks = vec![
        hook("github", "secret"),
        hook("gitea", "secret"),
        hook("forgejo", "secret"),
        hook("bitbucket", "secret"),
        hook("distribution", "token"),
        hook("harbor", "token"),
        hook("quay", "pathToken"),
        json!({"name": "gitlab-token", "kind": "gitlab", "token": {"file": "secret"}}),
        json!({"name": "gitlab", "kind": "gitlab", "secret": {"file": "standard"}}),
        json!({"name": "nexus", "kind": "nexus", "secret": {"file": "secret"}, "registry": "registry.example.com"}),
        json!({"name": "own", "secret": {"file": "secret"}, "header": "X-Own", "subjects": "[]"}),
    ];
    hooks.push(json!({"name": "jfrog", "kind": "jfrog", "token": {"file": "secret"}, "registry": "r.example.com"}));
    let scene = {
        // The secret must be there when the gateway starts.
        let source = Scene::start(json!([hook("github", "secret")])).await;
        std::fs::write(source.folder.path().join("standard"), whsec).unwrap();
        let file = source.folder.path().join("gateway.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let one = json!([hook("github", "secret")]).to_string();
        std::fs::write(&file, text.replace(&one, &Value::Array(hooks).to_string())).unwrap();
        Scene { gateway: Gateway::serve(&file), ..source }
    };
    let body = br#"{"events": []}"#;
    let (sha256, sha1) = (openssl("sha256", SECRET, body), openssl("sha1", SECRET, body));
    let prefixed = format!("sha256={sha256}");
    let bearer = format!("Bearer {SECRET}");
    let key = "a key of standard webhooks";
    let (time, signature) = standard(key, unix_now(), body);
    let (old_time, old) = standard(key, unix_now() - 400, body);
    let right: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("/hooks/github", vec![("X-Hub-Signature-256", &prefixed)]),
        ("/hooks/gitea", vec![("X-Gitea-Signature", &sha256)]),
        ("/hooks/forgejo", vec![("X-Forgejo-Signature", &sha256)]),
        ("/hooks/forgejo", vec![("X-Gitea-Signature", &sha256)]),
        ("/hooks/bitbucket", vec![("X-Hub-Signature", &prefixed)]),
        ("/hooks/nexus", vec![("X-Nexus-Webhook-Signature", &sha1)]),
        ("/hooks/own", vec![("X-Own", &sha256)]),
        ("/hooks/gitlab-token", vec![("X-Gitlab-Token", SECRET)]),
        (
            "/hooks/gitlab",
            vec![("webhook-id", "msg_1"), ("webhook-timestamp", &time), ("webhook-signature", &signature)],
        ),
        ("/hooks/distribution", vec![("Authorization", &bearer)]),
        ("/hooks/harbor", vec![("Authorization", SECRET)]),
        ("/hooks/jfrog", vec![("X-JFrog-Event-Auth", SECRET)]),
    ];
    for (path, headers) in &right {
        let reply = scene.post(path, headers, body).await;
        assert_eq!(reply.status, 202, "{path}: {}", reply.text());
        let reply = scene.post(path, &[], body).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path} without a proof");
        let last = headers.len() - 1;
        let mut wrong = headers.clone();
        let changed = wrong[last].1.replace(['a', '1', 'v'], "b");
        wrong[last].1 = &changed;
        let reply = scene.post(path, &wrong, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path}: {}", reply.text());
        assert!(!reply.text().contains(SECRET), "{path}");
        if path.contains("hub") || path.contains("git") && !path.contains("token") {
            assert_eq!(scene.post(path, headers, b"{}").await.status, 403, "{path}: another body");
        }
    }
    let late = [("webhook-id", "msg_1"), ("webhook-timestamp", &*old_time), ("webhook-signature", &*old)];
    let reply = scene.post("/hooks/gitlab", &late, body).await;
    assert_eq!(reply.status, 403);
    // The reason is for operators only.
    let shown = exchange_admin(scene.gateway.admin, operator_request("GET", "/admin/events", "").as_bytes()).await;
    assert!(shown.text().contains("more than 5 minutes"), "{}", shown.text());
    // A token in the path is compared, and never shown.
    let token = SECRET.replace(' ', "%20");
    assert_eq!(scene.post(&format!("/hooks/quay/{token}"), &[], body).await.status, 202);
    for path in ["/hooks/quay", "/hooks/quay/wrong", "/hooks/github/secret-in-path", "/hooks/quay/a/secret-in-path"] {
        let status = scene.post(path, &[], body).await.status;
        assert!(status == 403 || status == 404, "{path}: {status}");
    }
    let mut gateway = scene.gateway;
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    // The path of the admin request above has a word of the body.
    let log = gateway.wait(Duration::from_secs(10)).1.replace("/admin/events", "");
    assert!(log.contains("/hooks/{name}/{token}"), "{log}");
    for secret in [SECRET, token.as_str(), "secret-in-path", "wrong\"", "events"] {
        assert!(!log.contains(secret), "the log shows {secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_changed_without_a_restart() {
    let two = json!([{"name": "github", "kind": "github", "secret": [{"file": "secret"}, {"file": "next"}]}]);
    let one = json!([hook("github", "secret")]);
    let scene = Scene::start(one.clone()).await;
    let body = github(SHA);
    let deliver = async |secret: &str| {
        let signature = format!("sha256={}", openssl("sha256", secret, &body));
        scene.post("/hooks/github", &[("X-Hub-Signature-256", &signature)], &body).await.status
    };
    std::fs::write(scene.folder.path().join("next"), "the next secret").unwrap();
    assert_eq!((deliver(SECRET).await, deliver("the next secret").await), (202, 403));
    let file = scene.folder.path().join("gateway.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&one.to_string(), &two.to_string())).unwrap();
    scene.gateway.signal(nix::sys::signal::Signal::SIGHUP);
    let until = Instant::now() + Duration::from_secs(10);
    while deliver("the next secret").await != 202 {
        assert!(Instant::now() < until, "it is not accepted");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(deliver(SECRET).await, 202, "both are valid");
    std::fs::write(scene.folder.path().join("secret"), "the next but one").unwrap();
    assert_eq!((deliver(SECRET).await, deliver("the next but one").await), (403, 202), "a changed file counts at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_delivery_is_refused_and_says_why() {
    let scene = Scene::start(json!([
        hook("github", "secret"),
        hook("distribution", "token"),
        {"name": "own", "token": {"file": "secret"}, "subjects": "body.list.map(i, {'route': 'h', 'parameters': {'n': i}}) + (has(body.url) ? [{'url': body.url}] : [])"},
    ]))
    .await;
    let bearer = format!("Bearer {SECRET}");
    let proven = ("Authorization", &*bearer);
    let large = vec![b' '; 1_100_000];
    for (path, headers, body, status, said) in [
        ("/hooks/none", vec![], &b"{}"[..], 403, "there is no such hook, or the delivery is not proven"),
        ("/elsewhere", vec![], b"{}", 404, "POST /hooks/<name>"),
        ("/hooks/distribution", vec![proven], b"{\"events\": [", 400, "it ends too early"),
        ("/hooks/distribution", vec![proven], b"nonsense secret-value", 400, "not JSON: a syntax error at line 1"),
        ("/hooks/distribution", vec![proven], b"{}", 400, "no list `events`"),
        ("/hooks/distribution", vec![proven], b"[]", 400, "not a JSON object"),
        ("/hooks/distribution", vec![proven, ("Content-Encoding", "gzip")], b"{}", 415, "compressed"),
        (
            "/hooks/distribution",
            vec![proven, ("Content-Type", "application/x-www-form-urlencoded")],
            b"a=b",
            415,
            "must be JSON",
        ),
        ("/hooks/distribution", vec![proven], &large, 413, "larger than"),
        ("/hooks/own", vec![proven], b"{\"list\": 7}", 400, "the hook's `subjects`"),
        ("/hooks/own", vec![proven], b"{}", 400, "the hook's `subjects`"),
    ] {
        let reply = scene.post(path, &headers, body).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert!(reply.message().contains(said), "{path}: {}", reply.message());
        assert!(!reply.text().contains("secret-value"));
    }
    let get = exchange_admin(scene.gateway.hooks.unwrap(), b"GET /hooks/own HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    // The mapping names questions, or a URL that answers were read from.
    scene.ask("x", 1).await;
    scene.ask("x", 2).await;
    scene.state.store(2, Ordering::SeqCst);
    let reply = scene.post("/hooks/own", &[proven], br#"{"list": ["2", "3"]}"#).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    scene.shows("x", 2, 2).await;
    assert_eq!(scene.ask("x", 1).await, json!("1"));
    sleep(Duration::from_secs(2)).await;
    scene.state.store(3, Ordering::SeqCst);
    let event = json!({"list": [], "url": format!("http://{}/x/2?of=the-query", scene.source.address)}).to_string();
    assert_eq!(scene.post("/hooks/own", &[proven], event.as_bytes()).await.status, 202);
    scene.shows("x", 2, 3).await;
    assert_eq!(scene.ask("x", 1).await, json!("1"), "it reads another URL");
}

/// Whoever proves nothing is answered the same, so that nobody learns which hooks there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_exists_and_one_that_does_not_give_one_answer() {
    let hooks = json!([
        hook("github", "secret"),
        hook("harbor", "token"),
        hook("quay", "pathToken"),
        {"name": "gitlab", "kind": "gitlab", "secret": {"file": "secret"}},
        {"name": "caller", "kind": "artifactRegistry", "caller": "push"},
    ]);
    let scene = Scene::start(hooks).await;
    let large = vec![b' '; 1_100_000];
    let chunked = |path: &str| {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
        [head.as_bytes(), format!("{:x}\r\n", large.len()).as_bytes(), &large, b"\r\n0\r\n\r\n"].concat()
    };
    for (path, headers, body) in [
        ("", vec![], &b"{}"[..]),
        ("", vec![("Authorization", "Bearer wrong")], b"{}"),
        ("", vec![("X-Hub-Signature-256", "sha256=00")], b"{}"),
        ("", vec![("Content-Type", "text/html")], b"{}"),
        ("", vec![], &large),
        ("/wrong-token", vec![], b"{}"),
        ("chunked", vec![], b""),
    ] {
        let mut answers = Vec::new();
        for name in ["none", "github", "harbor", "quay", "gitlab", "caller"] {
            let hooks = scene.gateway.hooks.unwrap();
            let reply = if path == "chunked" {
                exchange_admin(hooks, &chunked(&format!("/hooks/{name}"))).await
            } else {
                scene.post(&format!("/hooks/{name}{path}"), &headers, body).await
            };
            let mut answer = reply.json();
            answer["requestId"].take();
            answers.push((name, reply.status, answer));
        }
        for (name, status, answer) in &answers {
            assert_eq!((status, answer), (&answers[0].1, &answers[0].2), "{name}{path} {headers:?}");
        }
    }
}

/// The token of a hook may be sent to another path, or to another port. No log has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_wrong_path_is_not_logged_by_any_listener() {
    let scene = Scene::start(json!([hook("quay", "pathToken")])).await;
    let ports = [scene.gateway.address, scene.gateway.admin, scene.gateway.hooks.unwrap()];
    for path in [
        "/hooks/quay/t0ken-of-a-hook",
        "/hooks/t0ken-of-a-hook",
        "/hooks/none/t0ken-of-a-hook",
        "/quay/t0ken-of-a-hook",
        "/t0ken-of-a-hook",
        "/hooks/quay/t0ken-of-a-hook/",
        "/admin/hooks/quay/t0ken-of-a-hook",
        "/hooks/quay/%74%30ken-of-a-hook",
    ] {
        for port in ports {
            for method in ["POST", "GET"] {
                let request =
                    format!("{method} {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
                let reply = exchange_admin(port, request.as_bytes()).await;
                assert!(
                    reply.status >= 400 && !reply.text().contains("ken-of-a-hook"),
                    "{method} {path}: {}",
                    reply.text()
                );
            }
        }
    }
    let metrics = exchange_admin(scene.gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
    let mut gateway = scene.gateway;
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    let log = gateway.wait(Duration::from_secs(10)).1;
    assert!(!log.contains("ken-of-a-hook") && !metrics.contains("ken-of-a-hook"), "{log}");
    assert!(log.contains("/hooks/{name}/{token}") && log.contains("/{*path}"), "{log}");
}

#[test]
fn mistakes_in_hooks_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let hooks = json!([
        {"name": "a b", "secret": {"env": "HOME"}, "subjects": "[]"},
        {"name": "x", "kind": "github"},
        {"name": "x", "kind": "github", "secret": {"env": "HOME"}, "token": {"env": "HOME"}},
        {"name": "y", "secret": {"env": "HOME"}},
        {"name": "z", "kind": "nexus", "secret": {"env": "HOME"}},
        {"name": "v", "kind": "quay", "pathToken": {"env": "HOME"}, "header": "x"},
        {"name": "w", "secret": {"file": "nowhere"}, "header": "a b", "subjects": "["},
    ]);
    let routes = "[ { name: r, backend: { fixed: { parameters: [ { a: b } ] } } } ]";
    std::fs::write(&file, format!("{}hooks: {hooks}\nroutes: {routes}\n", TestApp::auth())).unwrap();
    let output = command().args(["check", "-c"]).arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    for expected in [
        "hooks: hooks need `server.hooks`",
        "hooks[0].name: a hook's name has",
        "hooks[1]: a hook needs exactly one of",
        "hooks[2].name: another hook is called `x`",
        "hooks[3]: this kind of hook needs `subjects`",
        "hooks[4]: this kind of sender does not name the registry",
        "hooks[5].header: a `pathToken` is in the path",
        "hooks[6].secret: cannot read the secret file",
        "hooks[6].header: `a b` is not the name of a header",
        "hooks[6].subjects:",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}
