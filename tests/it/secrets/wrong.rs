//! Secrets written into the configuration itself, by mistake: the mistake is reported without the secret.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::CANARY;
use crate::support::{
    TestApp,
    binary::{Gateway, command},
    wire::{exchange_admin, operator_request},
};

/// A configuration with `auth`, and with an `http` backend with these `keys`.
fn config(auth: &str, keys: &str) -> String {
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    let http = format!("{{ http: {{ url: \"http://h.example/\", {keys} }} }}");
    format!("{server}{auth}\nroutes:\n  - name: r\n    backend: {http}\n")
}

/// Mistakes whose messages quote the configuration, or could.
fn wrong() -> Vec<String> {
    let good = TestApp::auth();
    let tokens = |token: &str| format!("auth: {{ tokens: [ {{ name: a, {token} }} ] }}");
    let mut all = Vec::new();
    for value in [CANARY.to_owned(), format!("\"{CANARY} x\""), format!("'x {CANARY}'")] {
        for keys in [
            format!("credential: {{ bearer: {value} }}"),
            format!("credential: {{ basic: {{ username: u, password: {value} }} }}"),
            format!(
                "credential: {{ oauth2: {{ tokenUrl: \"http://t.example\", clientId: c, clientSecret: {value} }} }}"
            ),
            format!("credential: {{ githubApp: {{ id: 1, installation: 2, privateKey: {value} }} }}"),
            format!("credential: {{ token: {value} }}"),
            format!("password: {value}"),
        ] {
            all.push(config(&good, &keys));
        }
        all.push(config(&tokens(&format!("token: {value}")), ""));
        all.push(config(&tokens(&format!("sha256: {value}")), ""));
        let jwt = format!("jwt: [ {{ issuer: i, audience: a, algorithms: [HS256], secret: {value} }} ]");
        all.push(config(&good.replace("auth: {", &format!("auth: {{ {jwt},")), ""));
    }
    all.push(config(&good, "").replace("//h", &format!("//u:{CANARY}@h")));
    all.push(config(&good, &format!("credential: {{ oauth2: {{ tokenUrl: \"http://u:{CANARY}@t\", clientId: c, clientSecret: {{ file: x }} }} }}")));
    all.push(format!(
        "{}outbound: {{ proxy: {{ url: \"http://u:{CANARY}@p\", password: {CANARY} }} }}\n",
        config(&good, "")
    ));
    all.push(format!("traces: {{ endpoint: \"http://u:{CANARY}@t\" }}\n{}", config(&good, "")));
    let block = format!(
        "credential:\n          githubApp:\n            privateKey: |\n              BEGIN\n              {CANARY}\n"
    );
    all.push(config(&good, "").replace(
        "{ http: { url: \"http://h.example/\",  } }",
        &format!("\n      http:\n        url: \"http://h.example/\"\n        {block}"),
    ));
    // The rest is no valid YAML.
    all.push(config(&good, &format!("credential: {{ bearer: {CANARY} ")));
    all.push(format!("{}token: {CANARY}\n  x: ]\n", config(&good, "")));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_mistakes_are_reported_without_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config(&TestApp::auth(), "")).unwrap();
    let mut gateway = Gateway::serve(&file);
    let mut seen = String::new();
    for (index, text) in wrong().into_iter().enumerate() {
        assert!(text.contains(CANARY));
        std::fs::write(&file, &text).unwrap();
        for output in ["text", "json"] {
            let reported = command().args(["check", "-o", output, "-c"]).arg(&file).output().unwrap();
            assert_eq!(reported.status.code(), Some(78), "{text}");
            seen += &String::from_utf8_lossy(&reported.stdout);
            seen += &String::from_utf8_lossy(&reported.stderr);
        }
        gateway.signal(Signal::SIGHUP);
        let metric = "appset_gateway_config_reloads_total{outcome=\"failed\"} ";
        let failed = async || {
            let metrics = exchange_admin(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
            metrics.lines().find_map(|line| line.strip_prefix(metric)?.parse().ok()).unwrap_or(0)
        };
        let reported = async {
            while failed().await <= index {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reported).await.expect("it is looked at");
        let request = operator_request("GET", "/admin/config", "");
        let shown = exchange_admin(gateway.admin, request.as_bytes()).await;
        let problems: Value = shown.json()["lastReload"]["problems"].take();
        assert!(!problems.as_array().unwrap().is_empty(), "{text}");
        seen += &shown.text();
    }
    gateway.signal(Signal::SIGTERM);
    seen += &gateway.wait(Duration::from_secs(20)).1;
    let found: Vec<&str> = seen.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(found.is_empty(), "{found:#?}");
}
