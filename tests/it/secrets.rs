//! A canary: secrets in every place that can hold one, every output of the program read, and no secret found.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    binary::{Gateway, command},
    upstream::{Upstream, response},
    wire::{argo_request, exchange},
};

/// Part of every secret here.
const CANARY: &str = "c4n4ry";

/// Repeats what it was sent, as careless services do.
async fn echoing(status: u16, headers: &'static str) -> Upstream {
    Upstream::start(move |request| {
        let seen = request.header("authorization").unwrap_or("none").to_owned();
        request.answer(status, headers, format!("you sent {seen}"))
    })
    .await
}

/// A registry whose token server repeats the identity token that it was sent.
async fn buying() -> Upstream {
    Upstream::start(move |request| {
        if request.target.starts_with("/token") {
            return request.answer(400, "", format!("you sent {}", String::from_utf8_lossy(&request.body)));
        }
        let realm = format!("http://{}/token", request.header("host").unwrap());
        request.answer(401, &format!("WWW-Authenticate: Bearer realm=\"{realm}\""), "")
    })
    .await
}

/// Steps of which the first finds a secret, and those after it repeat what they were given.
fn piped(upstream: &Upstream) -> Value {
    let finding = "echo \"[{\\\"found\\\": \\\"$SECRET\\\"}]\"";
    json!([
        {"script": {"command": ["sh", "-c", finding], "env": {"SECRET": {"file": "variable"}}}},
        {"merge": {"mergeKeys": ["found"], "backends": [
            {"script": {"command": ["sh", "-c", "grep -o items.* >&2; exit 1"]}},
            {"http": {"url": format!("http://{}/{{{{ items[0].found }}}}", upstream.address),
                "headers": {"Authorization": {"file": "header"}}}},
        ]}},
    ])
}

/// A route for each way to hold a secret.
fn routes(upstream: &Upstream, forge: &Upstream, host: &str, bought_from: &str) -> Value {
    let commit = "a".repeat(40);
    json!([
        {"name": "script", "backend": {"script": {"command": ["sh", "-c", "echo $SECRET >&2; echo $SECRET"],
            "env": {"SECRET": {"file": "variable"}}}}},
        {"name": "failing", "backend": {"script": {"command": ["sh", "-c", "env >&2; exit 1"],
            "env": {"SECRET": {"file": "variable"}}}}},
        {"name": "http", "backend": {"http": {"url": format!("http://{}/", upstream.address),
            "headers": {"Authorization": {"file": "header"}}}}},
        {"name": "digests", "backend": {"digests": {"images": {"a": {"image": format!("{host}/org/app:1")}}}}},
        {"name": "identity", "backend": {"digests": {"images": {"a": {"image": format!("{bought_from}/org/app:1")}}}}},
        {"name": "gated", "backend": {"digests": {"images": {"a": {"image": format!("{host}/org/app:1")}},
            "gate": {"all": [
                {"github": {"api": format!("http://{}", forge.address), "repository": "o/r", "sha": commit,
                    "workflows": ["b"], "token": {"file": "forge"}}},
                {"gitlab": {"api": format!("http://{}", forge.address), "project": "g/r", "sha": commit,
                    "tokenKind": "bearer", "token": {"file": "forge"}}},
            ]}}}},
        {"name": "piped", "backend": {"pipeline": piped(upstream)}},
        {"name": "fixed", "match": {}, "backend": {"fixed": {"parameters": [{"a": "b"}]}}},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn no_output_holds_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: String| std::fs::write(folder.path().join(name), content).unwrap();
    let upstream = echoing(500, "").await;
    let registry = echoing(401, "WWW-Authenticate: Basic realm=\"r\"").await;
    let (forge, identity) = (echoing(500, "").await, buying().await);
    let collector = Upstream::always(response(200, "", "")).await;
    write("token", format!("caller-{CANARY}"));
    write("forge", format!("forge-{CANARY}"));
    let bought_from = identity.address.to_string();
    write("header", format!("Bearer upstream-{CANARY}"));
    write("variable", format!("script-{CANARY}"));
    let host = registry.address.to_string();
    write(
        "docker.json",
        json!({"auths": {
            &host: {"username": "ci", "password": format!("registry-{CANARY}")},
            &bought_from: {"identitytoken": format!("identity-{CANARY}")},
        }})
        .to_string(),
    );
    let config = folder.path().join("gateway.yaml");
    write(
        "gateway.yaml",
        json!({
            "server": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"},
            "log": {"level": "debug"},
            "traces": {
                "endpoint": format!("http://{}", collector.address),
                "headers": {"Authorization": {"file": "header"}},
            },
            "auth": {"tokens": [{"name": "caller", "file": "token"}]},
            "registries": {
                &host: {"plainHttp": true, "dockerConfig": "docker.json"},
                &bought_from: {"plainHttp": true, "dockerConfig": "docker.json"},
            },
            "routes": routes(&upstream, &forge, &host, &bought_from),
        })
        .to_string(),
    );

    let mut seen = String::new();
    let mut gateway = Gateway::serve(&config);
    let tokens = [format!("caller-{CANARY}"), format!("wrong-{CANARY}")];
    for token in &tokens {
        for route in ["script", "failing", "http", "digests", "identity", "gated", "piped", "fixed", "none"] {
            let body = format!("{{\"input\":{{\"parameters\":{{\"password\":\"body-{CANARY}\"}}}}}}");
            let path = format!("/{route}/api/v1/getparams.execute");
            let reply = exchange(gateway.address, &argo_request(&path, token, body.as_bytes())).await;
            assert_eq!(reply.status == 200, route == "fixed" && token.starts_with("caller"), "{route}");
            seen += &String::from_utf8_lossy(&reply.raw);
        }
    }
    let metrics = exchange(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await;
    seen += &metrics.text();
    gateway.signal(Signal::SIGINT);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    assert!(log.lines().count() >= 12, "{log}");
    seen += &log;
    let traced: Vec<_> = collector.requests().into_iter().map(|request| request.body).collect();
    seen += &String::from_utf8_lossy(&traced.concat());
    assert!(["run piped", "script sh", "GET"].iter().all(|span| seen.contains(span)), "{seen}");
    for arguments in [
        vec!["check"],
        vec!["call", "script"],
        vec!["call", "failing", "-o", "json"],
        vec!["call", "http"],
        vec!["call", "digests"],
        vec!["call", "identity"],
        vec!["call", "gated", "-o", "json"],
        vec!["call", "piped"],
        vec!["call", "piped", "-o", "json"],
    ] {
        let output = command().args(&arguments).arg("-c").arg(&config).env("RUST_BACKTRACE", "1").output().unwrap();
        assert_eq!(output.status.success(), arguments == ["check"], "{arguments:?}");
        seen += &String::from_utf8_lossy(&output.stdout);
        seen += &String::from_utf8_lossy(&output.stderr);
    }
    assert!(identity.requests().iter().any(|request| String::from_utf8_lossy(&request.body).contains(CANARY)));
    assert!(!forge.requests().is_empty());
    assert!(
        forge
            .requests()
            .iter()
            .chain(&upstream.requests())
            .chain(&collector.requests())
            .all(|request| request.header("authorization").unwrap().contains(CANARY))
    );
    assert!(seen.contains("[redacted]"), "the sources did not repeat it: {seen}");
    let found: Vec<&str> = seen.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(found.is_empty(), "{found:#?}");
}
