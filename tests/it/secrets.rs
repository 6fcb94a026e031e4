//! A canary test: every secret contains a marker, and no output of the program contains it.

mod cleartext;
mod sources;
mod wrong;

use std::{net::SocketAddr, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jsonwebtoken::Algorithm;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use self::sources::Sources;
use crate::support::{
    Reply,
    authority::Ca,
    binary::{Gateway, command},
    issuer::SigningKey,
    signer::Signer,
    visitor::Visitor,
    wire::{argo_request, exchange_admin, read_reply},
};

/// Part of every secret that a person chose.
const CANARY: &str = "c4n4ry";

/// The value of the callers' parameters.
const PARAMETER: &str = "p4r4m3t3r";

/// The routes of [`Sources`].
const ROUTES: [&str; 13] = [
    "script", "failing", "http", "bought", "app", "basic", "shown", "proxied", "digests", "identity", "gated", "piped",
    "fixed",
];

/// The texts that must not appear: the canary, and long unique pieces of generated secrets.
struct Secrets(Vec<String>);

impl Secrets {
    /// Adds the lines of the private key in `pem`, without the last line, which may be short.
    fn of_key(&mut self, pem: &str) {
        let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with('-') && !line.is_empty()).collect();
        let whole = lines.iter().filter(|line| line.len() >= 32);
        self.0.extend(whole.map(|line| line[8..32].to_owned()));
        assert!(lines.len() > 1, "a key has lines");
    }

    /// Adds a sent `Authorization` header without its scheme. For a JWT: its claims and its signature.
    fn of_header(&mut self, value: &str) {
        let credential = value.split_once(' ').map_or(value, |(_, credential)| credential);
        let parts = credential.split('.').filter(|part| part.len() >= 8);
        self.0.extend(parts.skip(usize::from(credential.starts_with("ey"))).map(str::to_owned));
    }

    /// The lines of `seen` that contain a secret.
    fn found<'a>(&self, seen: &'a str) -> Vec<&'a str> {
        seen.lines().filter(|line| self.0.iter().any(|secret| line.contains(secret))).collect()
    }
}

/// Writes the files with secrets into `folder`.
fn write_secrets(folder: &Path, ca: &Ca, sources: &Sources) -> Secrets {
    let mut secrets = Secrets(vec![CANARY.to_owned(), STANDARD.encode(CANARY)]);
    let write = |name: &str, content: &str| std::fs::write(folder.join(name), content).unwrap();
    for (name, prefix) in [
        ("token", "caller-"),
        ("operator", "operator-"),
        ("forge", "forge-"),
        ("header", "Bearer upstream-"),
        ("variable", "script-"),
        ("client-secret", "client-"),
        ("proxy-password", "proxy-"),
        ("jwks-token", "keys-"),
        ("review-token", "review-"),
        ("jwt-secret", SHARED.strip_suffix(CANARY).unwrap()),
    ] {
        write(name, &format!("{prefix}{CANARY}"));
    }
    write("docker.json", &sources.docker_config().to_string());
    for (name, (certificate, key)) in [("tls", ca.certificate(&["localhost"])), ("own", ca.client("gateway", "o"))] {
        write(&format!("{name}.crt"), &certificate);
        write(&format!("{name}.key"), &key);
        secrets.of_key(&key);
    }
    let app = std::fs::read_to_string(Signer::new().key()).unwrap();
    write("app.pem", &app);
    secrets.of_key(&app);
    secrets
}

/// A shared key of issuer and gateway.
const SHARED: &str = "shared-and-long-enough-for-hs256-c4n4ry";

/// The whole configuration, without any secret in it.
fn config(sources: &Sources) -> Value {
    let [keys, review] = [&sources.keys, &sources.review].map(|upstream| format!("http://{}", upstream.address));
    let issuer = |name: &str, algorithm: &str, more: (&str, Value)| json!({"issuer": name, "audience": "gateway", "algorithms": [algorithm], more.0: more.1});
    json!({
        "server": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "0s", "tls": {"cert": "tls.crt", "key": "tls.key"}},
        "log": {"level": "debug"},
        "traces": {
            "endpoint": format!("http://{}", sources.collector.address),
            "headers": {"Authorization": {"file": "header"}},
        },
        "auth": {
            "tokens": [{"name": "caller", "file": "token"}, {"name": "operator", "role": "admin", "file": "operator"}],
            "jwt": [
                issuer("shared", "HS256", ("secret", json!({"file": "jwt-secret"}))),
                issuer("published", "RS256", ("jwks", json!({"url": keys, "token": {"file": "jwks-token"}}))),
            ],
            "tokenReview": {"api": review, "token": {"file": "review-token"}, "ca": "tls.crt", "audiences": ["gateway"],
                "callers": [{"user": "*"}]},
        },
        "outbound": {"proxy": {"url": format!("http://{}", sources.proxy.address), "username": "gateway",
            "password": {"file": "proxy-password"}}},
        "registries": sources.registries(),
        "routes": sources.routes(),
    })
}

/// The callers, and whether each is authenticated.
fn callers() -> [(String, bool); 6] {
    let claims =
        |issuer: &str, exp: u64| json!({"iss": issuer, "aud": "gateway", "sub": "ci", "exp": exp, "x": CANARY});
    let (shared, far) = (SigningKey::shared(SHARED), 4_000_000_000);
    [
        (format!("caller-{CANARY}"), true),
        (shared.sign(&claims("shared", far)), true),
        (shared.sign(&claims("shared", 1)), false),
        (SigningKey::new("k", Algorithm::RS256).sign(&claims("published", far)), false),
        (SigningKey::new("k", Algorithm::RS256).sign(&claims("cluster", far)), false),
        (format!("wrong-{CANARY}"), false),
    ]
}

async fn ask(visitor: &Visitor, address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = visitor.connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_reply(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_output_holds_a_secret() {
    let (folder, ca, sources) = (tempfile::tempdir().unwrap(), Ca::new("ca"), Sources::start().await);
    let mut secrets = write_secrets(folder.path(), &ca, &sources);
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config(&sources).to_string()).unwrap();

    let mut seen = String::new();
    let mut gateway = Gateway::serve(&file);
    let visitor = Visitor::new(&ca.pem, None, &["http/1.1"]);
    for (token, is_let_in) in callers() {
        secrets.of_header(&token);
        for route in ROUTES.into_iter().chain(["none"]) {
            let body = json!({"input": {"parameters": {"password": PARAMETER}}}).to_string();
            let path = format!("/{route}/api/v1/getparams.execute");
            let reply = ask(&visitor, gateway.address, &argo_request(&path, &token, body.as_bytes())).await;
            assert_eq!(reply.status == 200, is_let_in && route == "fixed", "{token} {route}: {}", reply.text());
            seen += &String::from_utf8_lossy(&reply.raw);
        }
    }
    // Operators may see the parameters. Nobody else may.
    let mut shown = String::new();
    for path in ["/metrics", "/admin/config", "/admin/answers", "/admin/answers?route=fixed", "/admin/held"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer operator-{CANARY}\r\n\r\n");
        let reply = exchange_admin(gateway.admin, head.as_bytes()).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let of = if path == "/metrics" { &mut seen } else { &mut shown };
        *of += &String::from_utf8_lossy(&reply.raw);
    }
    assert!(["\"fixed\"", "\"generation\":1", PARAMETER].iter().all(|part| shown.contains(part)), "{shown}");
    gateway.signal(Signal::SIGINT);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    assert!(log.lines().count() > ROUTES.len(), "{log}");
    seen += &log;
    let traced: Vec<_> = sources.collector.requests().into_iter().map(|request| request.body).collect();
    seen += &String::from_utf8_lossy(&traced.concat());
    assert!(["run piped", "script sh", "GET"].iter().all(|span| seen.contains(span)), "{seen}");
    seen += &command_output(&file);

    let sent = sources.requests();
    for header in sent.iter().flat_map(|request| &request.headers).filter(|(name, _)| name.ends_with("authorization")) {
        secrets.of_header(&header.1);
    }
    let bodies: String = sent.iter().map(|request| String::from_utf8_lossy(&request.body)).collect();
    let sent: Vec<&str> = sent.iter().flat_map(|request| &request.headers).map(|(_, value)| value.as_str()).collect();
    let basic = |pair: &str| STANDARD.encode(format!("{pair}{CANARY}"));
    for secret in [
        &format!("upstream-{CANARY}"),
        &format!("forge-{CANARY}"),
        &format!("keys-{CANARY}"),
        &format!("review-{CANARY}"),
        &basic("gateway:client-"),
        &basic("gateway:proxy-"),
        &basic("u:script-"),
        &basic("ci:registry-"),
        "Bearer ey",
    ] {
        assert!(sent.iter().any(|value| value.contains(secret)), "{secret} was sent to nobody");
    }
    assert!(bodies.contains(&format!("identity-{CANARY}")) && bodies.contains("TokenReview"), "{bodies}");
    assert!(seen.contains("[redacted]"), "the sources did not repeat it: {seen}");
    assert!(!seen.contains(PARAMETER), "a parameter is told");
    let found = [secrets.found(&seen), secrets.found(&shown)].concat();
    assert!(found.is_empty(), "{found:#?}");
}

/// The output of the commands that call routes themselves.
fn command_output(file: &Path) -> String {
    let calls = ROUTES.iter().flat_map(|route| [vec!["call", route], vec!["call", route, "-o", "json"]]);
    let mut seen = String::new();
    for arguments in calls.chain([vec!["check"]]) {
        let output = command().args(&arguments).arg("-c").arg(file).env("RUST_BACKTRACE", "1").output().unwrap();
        let is_good = arguments == ["check"] || arguments[1] == "fixed";
        assert_eq!(output.status.success(), is_good, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        seen += &String::from_utf8_lossy(&output.stdout);
        seen += &String::from_utf8_lossy(&output.stderr);
    }
    seen
}
