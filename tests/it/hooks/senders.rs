//! Senders that show a JWT, test deliveries of `hook send`, and what an event would concern.

use jsonwebtoken::Algorithm;

use super::*;
use crate::support::{ADMIN_TOKEN, authority::Ca, issuer::SigningKey, wire::operator_request};

/// What `appset-gateway` prints, and whether it succeeds.
fn cli(folder: &TempDir, arguments: &[&str]) -> (bool, String) {
    let output = command().args(arguments).arg("-c").arg(folder.path().join("gateway.yaml")).output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Google Pub/Sub pushes with a JWT. A caller may send if it has the role, and the hook names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_may_show_a_jwt() {
    const GOOGLE: &str = "push@project.iam.gserviceaccount.com";
    let key = SigningKey::new("google", Algorithm::RS256);
    let images = json!({"name": "images", "kind": "artifactRegistry", "caller": "push@*.iam.gserviceaccount.com"});
    let source = Scene::start(json!([hook("github", "secret")])).await;
    let issuer = json!({"issuer": "https://accounts.example.com", "audience": "https://hooks.example.com/hooks/images",
        "algorithms": ["RS256"], "jwks": {"file": "keys"}, "name": "claims.email", "role": "sender"});
    std::fs::write(source.folder.path().join("keys"), json!({"keys": [key.jwk()]}).to_string()).unwrap();
    let file = source.folder.path().join("gateway.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace(&json!([hook("github", "secret")]).to_string(), &json!([images]).to_string());
    std::fs::write(&file, text.replace("auth: {", &format!("auth: {{ jwt: [{issuer}],"))).unwrap();
    let scene = Scene { gateway: Gateway::serve(&file), ..source };

    let now = unix_now();
    let token = |email: &str, audience: &str| {
        let claims = json!({"iss": "https://accounts.example.com", "aud": audience, "email": email, "iat": now, "exp": now + 600});
        format!("Bearer {}", key.sign(&claims))
    };
    let ours = "https://hooks.example.com/hooks/images";
    let pushed = json!({"action": "INSERT", "tag": "europe-docker.pkg.dev/project/repo/app:main"}).to_string();
    let data = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pushed);
    let body = json!({"message": {"data": data, "messageId": "1"}}).to_string();
    let post = async |authorization: &str| {
        let headers = [("Authorization", authorization)];
        let headers = if authorization.is_empty() { &headers[..0] } else { &headers[..] };
        scene.post("/hooks/images", headers, body.as_bytes()).await
    };
    for (authorization, status) in [
        (token("someone@else.example.com", ours), 403),
        (token(GOOGLE, "https://other.example.com"), 403),
        (format!("{}x", token(GOOGLE, ours)), 403),
        (format!("Bearer {TOKEN}"), 403),
        (format!("Bearer {ADMIN_TOKEN}"), 403),
        (String::new(), 403),
        (token(GOOGLE, ours), 202),
    ] {
        let reply = post(&authorization).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    // The token opens nothing else.
    let own = token(GOOGLE, ours);
    let own = own.strip_prefix("Bearer ").unwrap();
    let call = argo_request("/h/api/v1/getparams.execute", own, br#"{"input":{"parameters":{}}}"#);
    assert_eq!(exchange(scene.gateway.address, &call).await.status, 403);
    let list = operator_request("GET", "/admin/held", "").replace(ADMIN_TOKEN, own);
    assert_eq!(exchange_admin(scene.gateway.admin, list.as_bytes()).await.status, 403);

    std::fs::write(scene.folder.path().join("event"), &body).unwrap();
    std::fs::write(scene.folder.path().join("sender"), own).unwrap();
    let event = scene.folder.path().join("event").to_str().unwrap().to_owned();
    let sender = scene.folder.path().join("sender").to_str().unwrap().to_owned();
    let url = format!("http://{}", scene.gateway.hooks.unwrap());
    let send = ["hook", "send", "images", "--event", &event, "--url", &url];
    let (is_good, said) = cli(&scene.folder, &send);
    assert!(!is_good && said.contains("--sender-token-file"), "{said}");
    let (is_good, said) = cli(&scene.folder, &[&send[..], &["--sender-token-file", &sender]].concat());
    assert!(is_good && said.contains("202 Accepted: duplicate"), "{said}");
}

/// `hook send` signs as the senders do. `hook explain` and `call` tell what an event would concern.
#[tokio::test(flavor = "multi_thread")]
async fn test_deliveries_are_signed_and_explained() {
    let standard = json!({"name": "standard", "kind": "cloudEvents", "secret": {"file": "secret"}, "subjects": "[{'commit': body.sha}]"});
    let scene = Scene::start(json!([
        hook("github", "secret"),
        hook("gitea", "secret"),
        hook("harbor", "token"),
        hook("distribution", "token"),
        hook("quay", "pathToken"),
        {"name": "nexus", "kind": "nexus", "secret": {"file": "secret"}, "registry": "r.example.com"},
        {"name": "gitlab", "kind": "gitlab", "secret": {"file": "secret"}},
        {"name": "own", "secret": {"file": "secret"}, "header": "X-Own", "subjects": "[{'commit': body.workflow_run.head_sha}]"},
        {"name": "headed", "secret": {"file": "secret"}, "subjects": "[{'commit': headers['x-commit']}]"},
        standard,
    ]))
    .await;
    std::fs::write(scene.folder.path().join("event"), github(SHA)).unwrap();
    let event = scene.folder.path().join("event").to_str().unwrap().to_owned();
    let url = format!("http://{}", scene.gateway.hooks.unwrap());
    for name in ["gitea", "harbor", "quay", "nexus", "gitlab", "own", "standard"] {
        let (_, said) = cli(&scene.folder, &["hook", "send", name, "--event", &event, "--url", &url]);
        assert!(said.starts_with("202 ") || said.starts_with("400 "), "{name} is not proven: {said}");
        assert!(!said.contains(SECRET));
    }
    let explain = ["hook", "explain", "github", "--event", &event];
    let admin = format!("http://{}", scene.gateway.admin);
    let token = scene.folder.path().join("operator");
    std::fs::write(&token, ADMIN_TOKEN).unwrap();
    let at = ["--admin", &admin, "--token-file", token.to_str().unwrap()];
    let (is_good, said) = cli(&scene.folder, &[&explain[..], &at].concat());
    assert!(is_good && said.contains(&format!(r#"about      {{"commit":"{SHA}"}}"#)), "{said}");
    assert!(said.contains("it concerns no known question"), "{said}");
    scene.ask(SHA, 1).await;
    scene.ask(&"e".repeat(40), 2).await;
    let runs = scene.runs();
    let (is_good, said) = cli(&scene.folder, &[&explain[..], &at].concat());
    assert!(is_good && said.contains("concerns   h ") && said.matches("concerns").count() == 1, "{said}");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(scene.runs(), runs, "nothing is looked at");
    for (path, body, status) in [
        ("/admin/hooks/github/concerns", "{", 400),
        ("/admin/hooks/none/concerns", "{}", 404),
        ("/admin/hooks/github/concerns", r#"{"zen": 1}"#, 200),
    ] {
        let request = operator_request("POST", path, body);
        let reply = exchange_admin(scene.gateway.admin, request.as_bytes()).await;
        contract::conforms(Listener::Admin, request.as_bytes(), &reply);
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    scene.state.store(2, Ordering::SeqCst);
    let (is_good, said) = cli(&scene.folder, &["hook", "send", "github", "--event", &event, "--url", &url]);
    assert!(is_good && said == "202 Accepted: taken\n", "{said}");
    scene.shows(SHA, 1, 2).await;
    let elsewhere = scene.folder.path().join("elsewhere");
    std::fs::write(&elsewhere, github(&"d".repeat(40))).unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    for (event, concerns) in [(&*event, "concerns 1 question"), (elsewhere, "concerns 0 questions")] {
        let send = ["hook", "send", "github", "--event", event, "--url", &url];
        let (is_good, said) = cli(&scene.folder, &[&send[..], &at].concat());
        assert!(is_good && said == format!("202 Accepted: taken; {concerns}\n"), "{said}");
    }

    let of_event = format!("github={event}");
    for (sha, expected) in [(SHA, "event     concerns this call"), ("0", "event     does not concern this call")] {
        let sha = format!("sha={sha}");
        let (is_good, said) = cli(&scene.folder, &["call", "h", "-p", &sha, "-p", "n=1", "--event", &of_event]);
        assert!(is_good && said.contains(expected), "{said}");
    }
    let of_event = format!("headed={event}");
    for (commit, expected) in [(SHA, "concerns this call"), (&*"f".repeat(40), "does not concern this call")] {
        let (sha, header) = (format!("sha={SHA}"), format!("X-Commit: {commit}"));
        let call = ["call", "h", "-p", &sha, "-p", "n=1", "--event", &of_event, "--event-header", &header];
        let (is_good, said) = cli(&scene.folder, &call);
        assert!(is_good && said.contains(&format!("event     {expected}")), "{said}");
    }
    let (is_good, said) = cli(&scene.folder, &["hook", "send", "nobody", "--event", &event, "--url", &url]);
    assert!(!is_good && said.contains("there is no hook `nobody`; there are: github, gitea"), "{said}");
}

/// The hooks' listener has TLS if the main one has. `hook send` trusts the authority that it is given.
#[tokio::test(flavor = "multi_thread")]
async fn hooks_over_tls() {
    let scene = Scene::start(json!([hook("github", "secret")])).await;
    let ca = Ca::new("gateways");
    let (certificate, key) = ca.certificate(&["localhost"]);
    for (name, content) in
        [("tls.crt", certificate), ("tls.key", key), ("ca.crt", ca.pem.clone()), ("other.crt", Ca::new("others").pem)]
    {
        std::fs::write(scene.folder.path().join(name), content).unwrap();
    }
    std::fs::write(scene.folder.path().join("event"), github(SHA)).unwrap();
    let file = scene.folder.path().join("gateway.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("server: {", "server: { tls: { cert: tls.crt, key: tls.key },")).unwrap();
    let scene = Scene { gateway: Gateway::serve(&file), ..scene };
    let url = format!("https://localhost:{}", scene.gateway.hooks.unwrap().port());
    let path = |name: &str| scene.folder.path().join(name).to_str().unwrap().to_owned();
    let (event, ca, other) = (path("event"), path("ca.crt"), path("other.crt"));
    let send = ["hook", "send", "github", "--event", &event, "--url", &url];
    let (is_good, said) = cli(&scene.folder, &[&send[..], &["--ca", &ca]].concat());
    assert!(is_good && said == "202 Accepted: taken\n", "{said}");
    for untrusted in [&[][..], &["--ca", &other]] {
        let (is_good, said) = cli(&scene.folder, &[&send[..], untrusted].concat());
        assert!(!is_good && !said.contains("202"), "{said}");
    }
}
