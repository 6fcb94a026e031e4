//! Passwords and tokens of registries: a credential is reread, a token is fetched once, and no message shows either.

use super::*;

#[tokio::test]
async fn a_password_opens_a_real_registry() {
    let registry = Registry::with_user().await;
    registry.push("front:feature-branch-1", "org/front:1").await;
    let digest = registry.inspect("org/front:1").await;
    let images = json!({"front": {"image": format!("{}/org/front:{{{{ params.branch }}}}", registry.host)}});
    let auth = |password: &str| json!({"auth": STANDARD.encode(format!("{USER}:{password}"))});
    for (entry, is_right) in [
        (auth(PASSWORD), true),
        (json!({"username": USER, "password": PASSWORD}), true),
        (auth("wrong-password"), false),
        (json!({"username": "nobody", "password": PASSWORD}), false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let docker_config = json!({"auths": {&registry.host: entry, "other.example": auth("other")}});
        std::fs::write(folder.path().join("docker.json"), docker_config.to_string()).unwrap();
        let host = json!({"plainHttp": true, "dockerConfig": "docker.json"});
        let app = TestApp::start_in(folder, &config(&[(&registry.host, host)], &images, json!({}))).await;
        if is_right {
            assert_eq!(branch(&app, "1").await.sets(), json!([{"front": digest}]).to_string());
            assert_eq!(branch(&app, "missing").await.sets(), "[]");
            continue;
        }
        for name in ["1", "missing"] {
            let message = refused(&branch(&app, name).await, 502, "backend_failed", "access denied (401");
            assert!(!message.contains("password"), "{message}");
        }
        // The file is reread, so a renewed credential needs no restart.
        let renewed = json!({"auths": {&registry.host: auth(PASSWORD)}});
        std::fs::write(app.folder.path().join("docker.json"), renewed.to_string()).unwrap();
        assert_eq!(branch(&app, "missing").await.sets(), "[]");
    }
    let app = TestApp::start(&config(&[(&registry.host, plain())], &images, json!({}))).await;
    refused(&branch(&app, "missing").await, 502, "backend_failed", "set `dockerConfig`");
}

/// A registry that accepts the token `good`, and whose token server answers `token`.
async fn with_tokens(token: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |request| {
        let host = request.header("host").unwrap();
        if request.target.starts_with("/token") {
            return token(request);
        }
        match request.header("authorization") {
            Some("Bearer good") => request.answer(200, &format!("Docker-Content-Digest: {}", digest(MANIFEST)), ""),
            _ => request.answer(
                401,
                &format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"fake\""),
                "",
            ),
        }
    })
    .await
}

#[tokio::test]
async fn a_token_is_fetched_once() {
    for (answer, fetched) in [
        (r#"{"token":"good"}"#, 1),
        (r#"{"access_token":"good","expires_in":300}"#, 1),
        (r#"{"token":"good","access_token":"other"}"#, 1),
    ] {
        let registry = with_tokens(move |request| request.answer(200, JSON, answer)).await;
        let app = app_of(&registry).await;
        for tag in ["1", "2", "3"] {
            let reply = app.ask_afresh("d", json!({"tag": tag})).await;
            assert_eq!(reply.sets(), json!([{"app": digest(MANIFEST).as_str()}]).to_string());
        }
        let requests = registry.requests();
        let tokens: Vec<&Request> = requests.iter().filter(|request| request.target.starts_with("/token")).collect();
        assert_eq!((tokens.len(), requests.len()), (fetched, fetched + 4), "{answer}");
        assert_eq!(tokens[0].target, "/token?service=fake&scope=repository%3Aorg%2Fapp%3Apull");
        assert_eq!(tokens[0].header("authorization"), None);
    }
    // A token that the registry no longer accepts is replaced.
    let count = AtomicUsize::new(0);
    let registry = Upstream::start(move |request| {
        let host = request.header("host").unwrap();
        let (now, digest) = (count.load(Ordering::SeqCst), digest(MANIFEST));
        if request.target.starts_with("/token") {
            return request.answer(200, JSON, format!("{{\"token\":\"t{now}\"}}"));
        }
        if request.header("authorization") == Some(&*format!("Bearer t{now}")) {
            count.fetch_add(1, Ordering::SeqCst);
            return request.answer(200, &format!("Docker-Content-Digest: {digest}"), "");
        }
        request.answer(401, &format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\""), "")
    })
    .await;
    let app = app_of(&registry).await;
    for _ in 0..3 {
        assert_eq!(app.ask_afresh("d", json!({"tag": "1"})).await.status, 200);
    }
}

#[tokio::test]
async fn a_token_server_in_trouble_is_unknown() {
    for (status, body, expected, says) in [
        (503, "", (502, "backend_failed"), "token server: it failed with 503"),
        (500, UNKNOWN, (502, "backend_failed"), "token server: it failed with 500"),
        (404, UNKNOWN, (502, "backend_output_invalid"), "token server: "),
        (401, "", (502, "backend_failed"), "token server: access denied"),
        (403, "", (502, "backend_failed"), "token server: access denied"),
        (429, "", (429, "throttled"), "token server: "),
        (302, "", (502, "backend_output_invalid"), "token server: "),
        (204, "", (502, "backend_output_invalid"), "token server: "),
        (200, "", (502, "backend_output_invalid"), "holds no token"),
        (200, "{}", (502, "backend_output_invalid"), "holds no token"),
        (200, r#"{"token":""}"#, (502, "backend_output_invalid"), "holds no token"),
        (200, r#"{"token":7}"#, (502, "backend_output_invalid"), "holds no token"),
        (200, HTML, (502, "backend_output_invalid"), "holds no token"),
        (200, r#"{"token":"not good"}"#, (502, "backend_failed"), "access denied (401"),
        (200, r#"{"token":"good\r\nX-Evil: 1"}"#, (502, "backend_failed"), "no header can carry"),
    ] {
        let registry = with_tokens(move |request| request.answer(status, JSON, body)).await;
        refused(&ask_app(&registry).await, expected.0, expected.1, says);
    }
    let registry = with_tokens(|_| vec![Step::Reset]).await;
    refused(&ask_app(&registry).await, 502, "backend_failed", "token server: ");
    for challenge in ["Bearer realm=\"ftp://h.example/\"", "Bearer realm=\"/token\"", "Bearer", "Negotiate", ""] {
        let registry =
            Upstream::start(move |request| request.answer(401, &format!("WWW-Authenticate: {challenge}\r\nX: y"), ""))
                .await;
        refused(&ask_app(&registry).await, 502, "backend_failed", "registry 127.0.0.1:");
    }
}

/// Not even a registry or token server that echoes our credential makes us show it.
#[tokio::test]
async fn no_message_shows_a_credential() {
    let basic = "WWW-Authenticate: Basic realm=\"x\"";
    for (name, path, status) in [("registry", "/v2", 403), ("registry", "/v2", 500), ("token server", "/token", 401)] {
        let registry = Upstream::start(move |request| {
            let host = request.header("host").unwrap();
            let bearer = format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\"");
            match request.header("authorization") {
                None => request.answer(401, if name == "registry" { basic } else { &bearer }, ""),
                // A `HEAD` has no body, so the response to `GET` counts.
                Some(_) if request.method == "HEAD" => request.answer(200, "", ""),
                Some(seen) if request.target.starts_with(path) => {
                    request.answer(status, "", format!("not for {seen} with hunter2"))
                }
                Some(_) => request.answer(500, "", ""),
            }
        })
        .await;
        let host = registry.address.to_string();
        let folder = tempfile::tempdir().unwrap();
        let auths = json!({"auths": {&host: {"username": "ci", "password": "hunter2"}}});
        std::fs::write(folder.path().join("docker.json"), auths.to_string()).unwrap();
        let images = json!({"app": {"image": format!("{host}/org/app:1")}});
        let entry = json!({"plainHttp": true, "dockerConfig": "docker.json"});
        let app = TestApp::start_in(folder, &config(&[(&host, entry)], &images, json!({}))).await;
        let message = refused(&app.ask_afresh("d", json!({})).await, 502, "backend_failed", "");
        assert!(!message.contains("hunter2") && !message.contains(&STANDARD.encode("ci:hunter2")), "{message}");
    }
}
