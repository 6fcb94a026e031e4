//! Which credential goes to which host, and when credentials are read again.

use std::os::unix::fs::PermissionsExt;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;
use crate::support::{
    binary,
    registry::{PASSWORD, Registry, USER},
    upstream::Step,
};

const BASIC: &str = "WWW-Authenticate: Basic realm=\"x\"";

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// Registries that take their credentials from the files in `folder`, with plain HTTP to `host`.
fn with_config(folder: &Path, host: &impl ToString) -> Registries {
    build(folder, &json!({host.to_string(): {"plainHttp": true, "dockerConfig": "docker.json"}})).0
}

/// A registry that demands a password, and accepts any.
async fn with_password() -> Upstream {
    Upstream::start(|request| match request.header("authorization") {
        None => request.answer(401, BASIC, ""),
        Some(_) => found(request),
    })
    .await
}

#[tokio::test]
async fn a_real_registry_accepts_its_password() {
    let registry = Registry::with_user().await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    let reference = format!("{}/org/app:1", registry.host);
    for (password, is_right) in [(PASSWORD, true), ("wrong-password", false)] {
        let folder = docker_config(&json!({registry.host.clone(): user(USER, password)}));
        let found = look_up(&with_config(folder.path(), &registry.host), &reference).await;
        if is_right {
            expect_digest(found);
        } else {
            refused(found, ErrorKind::Denied, "401");
        }
    }
    let message = refused(look_up(&registries(&plain(&registry.host)), &reference).await, ErrorKind::Denied, "");
    assert!(message.contains("set `dockerConfig`"), "{message}");
}

#[tokio::test]
async fn the_most_specific_entry_is_sent() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let folder = docker_config(&json!({
        format!("{host}/org-a"): user("robot$ci", "a:b"),
        format!("{host}/org-a/secret"): user("secret", "s"),
        format!("http://{host}/v2/"): user("any", "x"),
        host.replace("127.", "*."): user("pattern", "p"),
        "other.example": user("other", "o"),
    }));
    let registries = with_config(folder.path(), &host);
    for (repository, expected) in [
        ("org-a/app", basic("robot$ci", "a:b")),
        ("org-a/secret/app", basic("secret", "s")),
        ("org-ab/app", basic("any", "x")),
    ] {
        expect_digest(look_up(&registries, &format!("{host}/{repository}:1")).await);
        assert_eq!(registry.requests().last().unwrap().header("authorization"), Some(&*expected), "{repository}");
    }
}

#[tokio::test]
async fn docker_hub_credentials_are_found_under_its_old_name() {
    let hub = with_password().await;
    let folder = docker_config(&json!({"https://index.docker.io/v1/": user("ci", "hub")}));
    let entry = json!({"plainHttp": true, "endpoint": hub.address.to_string(), "dockerConfig": "docker.json"});
    let (registries, _) = build(folder.path(), &json!({"docker.io": entry}));
    expect_digest(look_up(&registries, "docker.io/nginx:1").await);
    assert_eq!(hub.requests().last().unwrap().header("authorization"), Some(&*basic("ci", "hub")));
}

#[tokio::test]
async fn a_pattern_matches_parts_of_a_host() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let reference = format!("{host}/org/app:1");
    let folder = docker_config(&json!({host.replace("127.", "12*."): user("pattern", "p")}));
    expect_digest(look_up(&with_config(folder.path(), &host), &reference).await);
    assert_eq!(registry.requests().last().unwrap().header("authorization"), Some(&*basic("pattern", "p")));
    let folder = docker_config(&json!({host.replace("127.0.", "*."): user("pattern", "p")}));
    let found = look_up(&with_config(folder.path(), &host), &reference).await;
    refused(found, ErrorKind::Denied, "set `dockerConfig`");
}

/// The allowed helpers are checked again whenever the file changes.
#[tokio::test]
async fn a_changed_file_cannot_run_a_helper_that_is_not_allowed() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let folder = docker_config(&json!({host.clone(): user("ci", "hunter2")}));
    let registries = with_config(folder.path(), &host);
    expect_digest(look_up(&registries, &format!("{host}/org/app:1")).await);
    let before = registry.requests().len();
    for (file, says) in [
        (json!({"credHelpers": {&host: "evil"}}).to_string(), "not allowed to run"),
        (json!({"credsStore": "evil"}).to_string(), "not allowed to run"),
        (json!({"auths": {&host: {"auth": "hunter2"}}}).to_string(), "not base64"),
        ("hunter2".to_owned(), "not a Docker config.json"),
    ] {
        std::fs::write(folder.path().join("docker.json"), file).unwrap();
        let message = refused(look_up(&registries, &format!("{host}/org/app:1")).await, ErrorKind::Denied, says);
        assert!(message.contains("docker.json") && !message.contains("hunter2"), "{message}");
    }
    std::fs::remove_file(folder.path().join("docker.json")).unwrap();
    refused(look_up(&registries, &format!("{host}/org/app:1")).await, ErrorKind::Denied, "No such file");
    assert_eq!(registry.requests().len(), before, "it was asked without the credential");
}

/// A registry whose password expires during a request. The new password is written to the file then.
async fn expiring(folder: &Path, status: u16, to: &'static str) -> Upstream {
    let file = folder.join("docker.json");
    Upstream::start(move |request| -> Vec<Step> {
        let host = request.header("host").unwrap();
        match request.header("authorization") {
            None => request.answer(401, BASIC, ""),
            Some(seen) if seen == basic("AWS", "new") => found(request),
            Some(_) => {
                let renewed = json!({"auths": {host: user("AWS", to)}});
                std::fs::write(&file, renewed.to_string()).unwrap();
                request.answer(status, "", "")
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_expired_credential_is_reread_once() {
    for (status, to, expected) in
        [(403, "new", None), (400, "new", None), (401, "new", None), (403, "old", Some(2)), (403, "bad", Some(3))]
    {
        let folder = tempfile::tempdir().unwrap();
        let registry = expiring(folder.path(), status, to).await;
        let auths = json!({"auths": {registry.address.to_string(): user("AWS", "old")}});
        std::fs::write(folder.path().join("docker.json"), auths.to_string()).unwrap();
        let registries = with_config(folder.path(), &registry.address);
        let found = look_up(&registries, &format!("{}/org/app:1", registry.address)).await;
        match expected {
            None => assert_eq!((expect_digest(found), registry.requests().len()), (manifest_digest(), 3), "{status}"),
            Some(requests) => {
                refused(found, ErrorKind::Denied, "403");
                assert_eq!(registry.requests().len(), requests, "{status} {to}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_server_gets_the_renewed_credential_after_a_refusal() {
    for status in [400, 401, 403] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("docker.json");
        let registry = Upstream::start(move |request| {
            let host = request.header("host").unwrap();
            let seen = request.header("authorization").unwrap_or_default();
            if !request.target.starts_with("/token") {
                let bearer = format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\"");
                return if seen == "Bearer t" { found(request) } else { request.answer(401, &bearer, "") };
            }
            if seen == basic("ci", "new") {
                return request.answer(200, JSON, r#"{"token":"t"}"#);
            }
            std::fs::write(&file, json!({"auths": {host: user("ci", "new")}}).to_string()).unwrap();
            request.answer(status, JSON, r#"{"error":"invalid_grant"}"#)
        })
        .await;
        let auths = json!({"auths": {registry.address.to_string(): user("ci", "old")}});
        std::fs::write(folder.path().join("docker.json"), auths.to_string()).unwrap();
        let registries = with_config(folder.path(), &registry.address);
        expect_digest(look_up(&registries, &format!("{}/org/app:1", registry.address)).await);
    }
}

/// A helper runs as a separate process and is found by `PATH`, so this test runs the whole program.
#[tokio::test]
async fn a_helper_runs_only_if_allowed() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: String| std::fs::write(folder.path().join(name), content).unwrap();
    write("docker.json", json!({"credHelpers": {&host: "fake"}}).to_string());
    let helper = folder.path().join("docker-credential-fake");
    let says = r#"{"ServerURL":"x","Username":"helped","Secret":"s"}"#;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for (allowed, prints, exit, expected) in [
        ("[fake]", says, 0, Ok(())),
        ("[]", says, 0, Err("`fake`")),
        ("[fake]", "hunter2", 0, Err("printed no credential")),
        ("[fake]", "hunter2", 1, Err("failed for 127.0.0.1")),
        ("[fake]", "credentials not found in native keychain", 1, Err("set `dockerConfig`")),
    ] {
        let script = format!("#!/bin/sh\n[ \"$1\" = get ] && cat > asked && echo '{prints}'\nexit {exit}\n");
        write("docker-credential-fake", script);
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        write(
            "gateway.yaml",
            format!(
                "auth: {{ tokens: [ {{ name: argocd, env: PATH, routes: [\"*\"] }} ] }}\n\
                 registries: {{ \"{host}\": {{ plainHttp: true, dockerConfig: docker.json, credentialHelpers: {allowed} }} }}\n\
                 routes: [ {{ name: d, backend: {{ digests: {{ images: {{ app: {{ image: \"{host}/org/app:1\" }} }} }} }}, \
                 output: {{ app: \"{{{{ app.digest }}}}\" }} }} ]\n"
            ),
        );
        let mut command = tokio::process::Command::from(binary::command());
        command.args(["call", "-c", "gateway.yaml", "d"]).current_dir(folder.path()).env("PATH", &path);
        let output = command.output().await.unwrap();
        let combined_output =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!combined_output.contains("hunter2"), "{combined_output}");
        match expected {
            Ok(()) => {
                assert!(combined_output.contains(manifest_digest().as_str()), "{combined_output}");
                let seen = registry.requests().last().unwrap().header("authorization").map(str::to_owned);
                assert_eq!(seen, Some(basic("helped", "s")));
                assert_eq!(std::fs::read_to_string(folder.path().join("asked")).unwrap(), host);
                std::fs::remove_file(folder.path().join("asked")).unwrap();
            }
            Err(says) => {
                assert!(!output.status.success() && combined_output.contains(says), "{combined_output}");
                assert_eq!(folder.path().join("asked").exists(), allowed != "[]", "{combined_output}");
            }
        }
    }
}

/// A helper is found by `PATH`, so this test runs itself again as a process with another `PATH`.
#[tokio::test]
async fn a_helper_runs_again_when_its_credential_is_refused_or_expired() {
    const FOLDER: &str = "FOLDER_OF_A_HELPER";
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else {
        let folder = tempfile::tempdir().unwrap();
        let helper = folder.path().join("docker-credential-turns");
        let script = "#!/bin/sh\ncat > /dev/null\ncd \"$(dirname \"$0\")\" && echo asked >> asked && cat says\n";
        std::fs::write(&helper, script).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        let name = "oci::credentials::a_helper_runs_again_when_its_credential_is_refused_or_expired";
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let output =
            command.args(["--exact", name]).env("PATH", path).env(FOLDER, folder.path()).output().await.unwrap();
        let combined_output = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && combined_output.contains("1 passed"), "{combined_output}");
        return;
    };
    let wanted = Arc::new(std::sync::Mutex::new(String::new()));
    let good = Arc::clone(&wanted);
    let registry = Upstream::start(move |request| match request.header("authorization") {
        None => request.answer(401, BASIC, ""),
        Some(seen) if seen == *good.lock().unwrap() => found(request),
        Some(_) => request.answer(403, "", ""),
    })
    .await;
    let host = registry.address.to_string();
    std::fs::write(folder.join("docker.json"), json!({"credHelpers": {&host: "turns"}}).to_string()).unwrap();
    let entry = json!({"plainHttp": true, "dockerConfig": "docker.json", "credentialHelpers": ["turns"]});
    let (registries, _) = build(&folder, &json!({&host: entry}));
    let ask = async || look_up(&registries, &format!("{host}/org/app:1")).await;
    let says = |secret: &str| {
        let says = json!({"ServerURL": host, "Username": "AWS", "Secret": secret});
        std::fs::write(folder.join("says"), says.to_string()).unwrap();
    };
    let wants = |secret: &str| *wanted.lock().unwrap() = basic("AWS", secret);
    let runs = || std::fs::read_to_string(folder.join("asked")).unwrap_or_default().lines().count();
    wants("old");
    says("old");
    for _ in 0..2 {
        expect_digest(ask().await);
        assert_eq!(runs(), 1, "it is not run for each question");
    }
    // The helper's earlier answer has expired, and it has a new one.
    wants("new");
    says("new");
    for _ in 0..2 {
        expect_digest(ask().await);
        assert_eq!(runs(), 2);
    }
    for (seconds, expected) in [(298, 2), (4, 3), (290, 3)] {
        advance_seconds(seconds).await;
        expect_digest(ask().await);
        assert_eq!(runs(), expected, "{seconds} s later");
    }
    // The helper has no new credential: one more request suffices.
    wants("newer");
    refused(ask().await, ErrorKind::Denied, "403");
    assert_eq!(runs(), 4);
}

/// As Docker and the kubelet read it: an entry that cannot be read concerns its own registry.
#[tokio::test]
async fn a_file_is_read_as_docker_and_the_kubelet_read_it() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    for entry in [
        // `ci:hunter`, which needs padding.
        json!({"auth": "Y2k6aHVudGVy\n", "username": "older", "password": "p"}),
        json!({"auth": "", "username": "ci", "password": "hunter"}),
        json!({"Auth": "Y2k6aHVu\r\ndGVy"}),
    ] {
        let folder = docker_config(
            &json!({&host: entry, "bad.example": {"auth": "!"}, "worse.example": 7, "none.example": null}),
        );
        expect_digest(look_up(&with_config(folder.path(), &host), &format!("{host}/org/app:1")).await);
        assert_eq!(
            registry.requests().last().unwrap().header("authorization"),
            Some(&*basic("ci", "hunter")),
            "{entry}"
        );
    }
    let folder = docker_config(&json!({&host: {"auth": "Y2k6aHVudGVyMg"}}));
    expect_digest(look_up(&with_config(folder.path(), &host), &format!("{host}/org/app:1")).await);
    assert_eq!(registry.requests().last().unwrap().header("authorization"), Some(&*basic("ci", "hunter2")));
    let open = Upstream::start(found).await;
    let folder = docker_config(&Value::Null);
    expect_digest(look_up(&with_config(folder.path(), &open.address), &format!("{}/org/app:1", open.address)).await);
}

/// Hosts have no case.
#[tokio::test]
async fn a_registry_is_the_same_in_capitals() {
    let registry = with_password().await;
    let port = registry.address.port();
    let folder = docker_config(&json!({format!("LOCALHOST:{port}"): user("ci", "p")}));
    let (registries, _) =
        build(folder.path(), &json!({format!("Localhost:{port}"): {"plainHttp": true, "dockerConfig": "docker.json"}}));
    expect_digest(look_up(&registries, &format!("localhost:{port}/org/app:1")).await);
    expect_digest(look_up(&registries, &format!("LocalHost:{port}/org/app:1")).await);
}
