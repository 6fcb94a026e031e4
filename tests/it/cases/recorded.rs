//! What `record` writes: whole replies, no secrets, and cases that pass.

use super::*;
use crate::support::upstream::{Step, Upstream, json_response, response};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A live source is recorded without its secrets, and the case passes without the source.
#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_case_passes_without_its_source() {
    const SECRET: &str = "the-bearer-token-of-the-source";
    let source = Upstream::start(|request| {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
        let body = json!([
            {"name": "a", "size": 1.50, "note": format!("you sent {SECRET}"), "token": "of-another-service"},
            {"name": "b: {x}", "size": "7", "note": "", "token": ""},
        ]);
        vec![Step::Send(json_response(body.to_string()))]
    })
    .await;
    let url = format!("http://{}", source.address);
    let folder = folder(&url, "");
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    // No token of a caller is needed.
    std::fs::write(folder.path().join("secrets/token"), SECRET).unwrap();
    let record = |route: &str, more: &[&str]| {
        let config = ["-c", "gateway.yaml"];
        let arguments = [&["record", route], more, &config].concat();
        command().current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let output = record("apps", &["-p", "env=prod"]);
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && printed.starts_with("cases:\n  - name: apps at "), "{printed}");
    std::fs::remove_file(folder.path().join("tests/cases.yaml")).unwrap();
    let to = ["--to", "tests/new/cases.yaml", "--name", "all: of them"];
    assert!(record("apps", &[&["-p", "env=prod"], &to[..]].concat()).status.success());
    assert!(record("script", &to).status.success());
    let unknown = record("nowhere", &to);
    assert!(unknown.status.code() == Some(1) && text(&unknown.stderr).contains("there is no route `nowhere`"));
    drop(source);
    std::fs::remove_dir_all(folder.path().join("secrets")).unwrap();
    let file = folder.path().join("tests/new/cases.yaml");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(!written.contains(SECRET) && !written.contains("of-another-service"), "{written}");
    assert!(written.contains("you sent [redacted]"), "{written}");
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}{error}{written}");
    assert!(printed.contains("2 passed, 0 failed"), "{printed}");
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    std::fs::write(folder.path().join("secrets/token"), SECRET).unwrap();
    // A file of another form is left as it is, and a list keeps its indentation.
    let flow = "cases: [ { name: a, route: script } ]\n";
    std::fs::write(&file, flow).unwrap();
    assert!(!record("script", &to).status.success());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), flow);
    std::fs::write(
        &file,
        "# mine\ncases: # all\n- name: first\n  route: script\n  expect: { parameters: [ { name: real } ] }\n",
    )
    .unwrap();
    let output = record("script", &to);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (code, printed, _) = cli(folder.path(), &["test"]);
    assert!(code == Some(0) && printed.contains("2 passed"), "{printed}");
}

/// A source that fails is recorded too: a case may be about that.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_recorded() {
    let source = Upstream::start(|_| vec![Step::Send(response(503, "Retry-After: 7", "at rest"))]).await;
    let folder = folder(&format!("http://{}", source.address), "");
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    std::fs::write(folder.path().join("secrets/token"), "the-token").unwrap();
    std::fs::remove_file(folder.path().join("tests/cases.yaml")).unwrap();
    let output = command()
        .current_dir(folder.path())
        .args(["record", "apps", "-p", "env=prod", "--to", "tests/cases.yaml", "-c", "gateway.yaml"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
    assert!(
        written.contains("        status: 503\n        headers: { retry-after: \"7\" }\n        body: at rest\n"),
        "{written}"
    );
    let (code, printed, _) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}");
}

/// A token that was issued for the call, a secret of the environment, and what a script prints of it, are in no part of a case.
#[tokio::test(flavor = "multi_thread")]
async fn issued_tokens_and_inherited_secrets_are_not_recorded() {
    const ISSUED: &str = "opaque-0123456789-issued";
    const INHERITED: &str = "a-secret-of-the-environment";
    let source = Upstream::start(|request| {
        let sent = request.header("authorization").unwrap_or_default();
        let body = if request.target.starts_with("/token") {
            json!({"access_token": ISSUED, "token_type": "Bearer", "expires_in": 60})
        } else {
            json!([{"name": "a", "said": format!("you sent {sent}"), "cred": ISSUED}])
        };
        vec![Step::Send(json_response(format!("{body:#}")))]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", source.address);
    let oauth2 =
        json!({"tokenUrl": format!("{url}/token"), "clientId": "me", "clientSecret": {"env": "CLIENT_SECRET"}});
    let http =
        json!({"name": "http", "backend": {"http": {"url": format!("{url}/list"), "credential": {"oauth2": oauth2}}}});
    let print = json!({"command": ["sh", "-c", "echo \"[{\\\"said\\\": \\\"$GITHUB_TOKEN\\\"}]\""], "inheritEnv": ["GITHUB_TOKEN"]});
    let routes = json!([http, {"name": "script", "backend": {"script": print}}]);
    let config = format!("auth: {{ tokens: [ {{ name: a, env: NOT_SET }} ] }}\nroutes: {routes}\n");
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    for route in ["http", "script"] {
        let output = command()
            .current_dir(folder.path())
            .envs([("CLIENT_SECRET", "the-secret-of-the-client"), ("GITHUB_TOKEN", INHERITED)])
            .args(["record", route, "--to", "tests/cases.yaml", "-c", "gateway.yaml"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
    for secret in [ISSUED, INHERITED, "the-secret-of-the-client"] {
        assert!(!written.contains(secret), "{secret}: {written}");
    }
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}{error}{written}");
    // A script that runs for real in a test gets no secret either.
    std::fs::write(
        folder.path().join("tests/cases.yaml"),
        "cases: [ { name: a, route: script, expect: { parameters: [] } } ]\n",
    )
    .unwrap();
    let output = command()
        .current_dir(folder.path())
        .env("GITHUB_TOKEN", INHERITED)
        .args(["test", "-o", "json", "-c", "gateway.yaml"])
        .output()
        .unwrap();
    assert!(!text(&output.stdout).contains(INHERITED));
}

/// Replies to equal requests come in their order, a source that is not there is recorded, and so are the kinds of a script's failures and
/// large replies.
#[tokio::test(flavor = "multi_thread")]
async fn sequences_faults_and_large_replies_are_recorded() {
    let large = Upstream::start(|_| {
        let items: Vec<Value> =
            (0..20_000).map(|n| json!({"name": format!("app-{n}"), "note": "x".repeat(40)})).collect();
        vec![Step::Send(json_response(json!(items).to_string()))]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let script = |print: &str| json!({"script": {"command": ["sh", "-c", print]}});
    let twice = json!({"pipeline": [
        {"name": "a", "script": {"command": ["cat", "list.json"]}},
        {"name": "b", "script": {"command": ["cat", "list.json"]}},
    ]});
    let routes = json!([
        {"name": "large", "backend": {"http": {"url": format!("http://{}/", large.address)}}},
        {"name": "gone", "backend": {"http": {"url": format!("http://{gone}/")}}},
        {"name": "wrong", "backend": script("echo no list")},
        {"name": "twice", "backend": twice},
    ]);
    std::fs::write(folder.path().join("list.json"), "[{\"name\": \"a\"}]").unwrap();
    let config = format!("auth: {{ tokens: [ {{ name: a, env: NOT_SET }} ] }}\nroutes: {routes}\n");
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    for route in ["large", "gone", "wrong", "twice"] {
        let (code, _, error) = cli(folder.path(), &["record", route, "--to", "tests/cases.yaml"]);
        assert_eq!(code, Some(0), "{route}: {error}");
    }
    let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
    assert!(written.len() > 1_200_000, "more than a configuration may have");
    assert!(written.contains("        fails: connect\n") && written.contains("        kind: invalid_output\n"));
    drop(large);
    std::fs::remove_file(folder.path().join("list.json")).unwrap();
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}{error}");
    assert!(printed.contains("4 passed"), "{printed}");
}

/// Headers that nobody reads and keys that repeat carry no secret into a case. A header that an expression reads is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn headers_and_repeated_keys_carry_no_secret() {
    let source = Upstream::start(|_| {
        let headers = "X-Session: hunter2pw\r\nX-Auth: hunter2pw\r\nX-Key: hunter2pw\r\nX-Cookies: sid=hunter2pw\r\nX-Cursor: last\r\n\
                       X-Next-Page: \r\nContent-Type: application/json";
        let body = "{\"name\":\"a\",\"token\":\"hunter2pw\",\"token\":\"\"}";
        vec![Step::Send(response(200, headers, body))]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let http = json!({
        "url": format!("http://{}/?key=hunter2pw", source.address),
        "parameters": "[{'name': body.name, 'cursor': headers['x-cursor']}]",
    });
    let routes = json!([{"name": "a", "backend": {"http": http}}]);
    let config = format!("auth: {{ tokens: [ {{ name: a, env: NOT_SET }} ] }}\nroutes: {routes}\n");
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    let (code, written, error) = cli(folder.path(), &["record", "a", "--name", "user https://u:hunter2pw@h/"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(!written.contains("hunter2pw"), "{written}");
    for header in ["x-cursor: last", "x-next-page: \"\"", "content-type: application/json"] {
        assert!(written.contains(header), "{header}: {written}");
    }
}

/// `record --to` and `test --update` write the file that was named, also through a link, and no other.
#[test]
fn only_the_named_file_is_written() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let folder = folder(URL, "cases:\n  - name: a\n    route: script\n");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("secrets")).unwrap();
    std::fs::write(at("secrets/token"), "the-token").unwrap();
    std::fs::write(at("target.txt"), "mine").unwrap();
    symlink("../target.txt", at("tests/cases.yaml.new")).unwrap();
    std::fs::rename(at("tests/cases.yaml"), at("real.yaml")).unwrap();
    std::fs::set_permissions(at("real.yaml"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../real.yaml", at("tests/cases.yaml")).unwrap();
    let (code, printed, error) = cli(folder.path(), &["test", "--update", "tests/cases.yaml"]);
    assert_eq!(code, Some(0), "{printed}{error}");
    let (code, _, error) = cli(folder.path(), &["record", "script", "--to", "tests/cases.yaml", "--name", "b"]);
    assert_eq!(code, Some(0), "{error}");
    let written = std::fs::read_to_string(at("real.yaml")).unwrap();
    assert!(written.contains("- { name: real }") && written.contains("- name: b"), "{written}");
    assert_eq!(std::fs::read_to_string(at("target.txt")).unwrap(), "mine");
    assert!(at("tests/cases.yaml").is_symlink());
    assert_eq!(at("real.yaml").metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(at("tests")).unwrap().count(), 2);
    symlink("nowhere.yaml", at("dangling.yaml")).unwrap();
    let (code, _, error) = cli(folder.path(), &["record", "script", "--to", "dangling.yaml"]);
    assert!(code == Some(1) && error.contains("it is a link to nowhere.yaml, which is not there"), "{error}");
    assert!(!at("nowhere.yaml").exists());
}
