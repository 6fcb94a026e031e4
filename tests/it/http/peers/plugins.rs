//! Plugins as in production: behind nginx with TLS, and written in Go.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use super::*;
use crate::{
    http::plugin::{Running, TOKEN},
    support::authority::Ca,
};

/// A gateway whose route `h` is the plugin at `base_url`, with the CA `ours`.
async fn before(base_url: &str, ours: Option<&Ca>) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    let mut http = json!({"plugin": {"baseUrl": base_url, "token": {"file": "token"}}, "timeout": "20s"});
    if let Some(ours) = ours {
        fs::write(folder.path().join("ours.crt"), &ours.pem).unwrap();
        http["ca"] = json!("ours.crt");
    }
    let routes = json!([{"name": "h", "backend": {"http": http}, "cache": {"ttl": "0s"}}]);
    TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await
}

/// nginx with TLS before the plugin at `port`. Below `/calm/` nginx hides that the plugin is down.
async fn front(ours: &Ca, port: u16) -> Nginx {
    let directives = format!(
        "gzip on; gzip_types application/json; gzip_min_length 0;
         location / {{ proxy_pass http://127.0.0.1:{port}; }}
         location /calm/ {{ proxy_pass http://127.0.0.1:{port}/; error_page 502 =200 @calm; }}
         location @calm {{ default_type application/json; return 200 '{{\"output\":{{}}}}'; }}"
    );
    Nginx::start_tls(tempfile::tempdir().unwrap(), ours, &directives).await
}

#[tokio::test]
async fn argo_cds_example_plugin_works_behind_nginx_with_tls() {
    let ours = Ca::new("ours");
    let ask = async |fault: &str, path: &str| {
        let hello = Running::hello(fault);
        let nginx = front(&ours, hello.port).await;
        if fault == "gone" {
            drop(hello);
        }
        let app = before(&format!("https://{}{path}", nginx.address), Some(&ours)).await;
        app.ask_afresh("h", json!({"big": "x".repeat(100_000)})).await
    };
    for path in ["", "/calm"] {
        let sets = ask("none", path).await.json()["output"]["parameters"].clone();
        assert_eq!((&sets[0]["key1"], &sets[1]), (&json!("val1"), &json!({"key1": "val2"})), "{sets}");
        assert!(sets[0]["seen"].as_str().unwrap().len() > 100_000);
        assert_eq!(ask("nothing", path).await.sets(), "[]");
    }
    let (invalid, failed) = ("backend_output_invalid", "backend_failed");
    for (fault, path, code, says) in [
        ("empty", "", invalid, "the body is blank"),
        ("braces", "", invalid, "it has no `output`"),
        ("null", "", invalid, "found null"),
        ("204", "", invalid, "204 No Content"),
        ("302", "", invalid, "302"),
        ("half", "", invalid, "not one JSON document"),
        ("gone", "", failed, "502 Bad Gateway: <html>"),
        ("gone", "/calm", invalid, "`output` has no `parameters`"),
    ] {
        refused(&ask(fault, path).await, 502, code, says);
    }
    let hello = Running::hello("none");
    let nginx = front(&ours, hello.port).await;
    let app = before(&format!("https://{}", nginx.address), None).await;
    refused(&app.ask_afresh("h", json!({})).await, 502, failed, "its certificate is not trusted");
}

/// Builds hello.go into `folder`. `None` without Go.
fn build(folder: &TempDir) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http/peers/hello.go");
    let program = folder.path().join("hello");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(source).current_dir(folder);
    go.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GO111MODULE", "off"), ("CGO_ENABLED", "0")]);
    match go.stdin(Stdio::null()).output() {
        Err(error) => {
            println!("skipped: there is no `go` here ({error})");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

#[tokio::test]
async fn a_plugin_in_go_runs_unchanged_behind_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(&folder) else { return };
    let ask = async |fault: &str| {
        let plugin = Running::start(Command::new(&program).args([TOKEN, fault]).stderr(Stdio::null()));
        let app = before(&format!("http://127.0.0.1:{}", plugin.port), None).await;
        app.ask_afresh("h", json!({"names": "a,ä"})).await
    };
    assert_eq!(
        ask("none").await.sets(),
        r#"[{"name":"a","of":"test","type":"application/json"},{"name":"ä","of":"test","type":"application/json"}]"#
    );
    assert_eq!(ask("nothing").await.sets(), "[]");
    let (invalid, failed) = ("backend_output_invalid", "backend_failed");
    for (fault, code, says) in [
        ("nil", invalid, "`output.parameters` is null: Argo CD would"),
        ("return", invalid, "the body is blank: Argo CD would"),
        ("error", invalid, "not one JSON document"),
        ("twice", invalid, "not one JSON document"),
        ("moved", invalid, "; it redirects to `/api/v1/getparams.execute/`"),
        ("panic", failed, "POST http://127.0.0.1:"),
        ("cut", failed, "the answer broke off"),
    ] {
        refused(&ask(fault).await, 502, code, says);
    }
}
