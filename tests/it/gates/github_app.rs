//! The GitHub App: a signed JWT gets its token, which is shared, and renewed in time and after a refusal.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use backend::digests::gate::{CiState, Gate};
use domain::clock::Clock;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::{Value, json};

use super::{
    GateContext, HEAD, ask,
    fake_github::{Forge, error, json_answer},
    is, unknown,
};

const TOKEN_REQUEST: &str = "POST /app/installations/67/access_tokens";

/// The output of `openssl` for `arguments`.
fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A forge that issues tokens, a gate that uses them, and the number of issued tokens.
async fn app_gate() -> (GateContext, Forge, Arc<dyn Gate>, Arc<AtomicUsize>) {
    let (context, forge, sold) = (GateContext::new(), Forge::start().await, Arc::new(AtomicUsize::new(0)));
    let key = context.folder.path().join("key.pem").to_str().unwrap().to_owned();
    openssl(&["genrsa", "-traditional", "-out", &key, "2048"]);
    let public = openssl(&["rsa", "-in", &key, "-pubout"]);
    let app = json!({"id": 45, "installation": 67, "privateKey": {"file": "key.pem"}});
    let config = json!({"api": forge.api(), "repository": "org/repo", "workflows": ["build.yml"], "app": app});
    let gate = context.gate(json!({"github": config}));
    let (clock, count) = (Arc::clone(&context.clock), Arc::clone(&sold));
    forge.change(|state| state.authorization = Some("Bearer ghs_1".to_owned()));
    forge.answer_first_with(move |request| {
        if request.method != "POST" {
            return None;
        }
        let now = clock.now().0 / 1000;
        let jwt = request.header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
        let mut validation = Validation::new(Algorithm::RS256);
        validation.validate_exp = false;
        let claims = decode::<Value>(jwt, &DecodingKey::from_rsa_pem(public.as_bytes()).unwrap(), &validation);
        assert_eq!(claims.unwrap().claims, json!({"iat": now - 60, "exp": now + 540, "iss": "45"}));
        let ends = UNIX_EPOCH + Duration::from_secs(now + 3600);
        let token = format!("ghs_{}", count.fetch_add(1, Ordering::SeqCst) + 1);
        let body = json!({"token": token, "expires_at": humantime::format_rfc3339_seconds(ends).to_string(),
            "permissions": {"actions": "read", "metadata": "read"}, "repository_selection": "selected"});
        Some(json_answer(request, 201, "", &body))
    });
    (context, forge, gate, sold)
}

#[tokio::test]
async fn one_token_serves_all_until_five_minutes_before_its_end() {
    let (context, forge, gate, sold) = app_gate().await;
    for said in futures_util::future::join_all((0..20).map(|_| ask(&gate))).await {
        is(said, CiState::Pending);
    }
    assert_eq!(sold.load(Ordering::SeqCst), 1);
    assert_eq!(forge.asked().iter().filter(|asked| *asked == TOKEN_REQUEST).count(), 1);
    context.clock.advance(Duration::from_mins(55) - Duration::from_secs(2));
    is(ask(&gate).await, CiState::Pending);
    assert_eq!(sold.load(Ordering::SeqCst), 1);
    context.clock.advance(Duration::from_secs(2));
    forge.change(|state| state.authorization = Some("Bearer ghs_2".to_owned()));
    is(ask(&gate).await, CiState::Pending);
    assert_eq!(sold.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let (_desk, forge, gate, sold) = app_gate().await;
    is(ask(&gate).await, CiState::Pending);
    forge.asked();
    forge.change(|state| state.authorization = Some("Bearer ghs_2".to_owned()));
    for said in futures_util::future::join_all((0..10).map(|_| ask(&gate))).await {
        is(said, CiState::Pending);
    }
    assert_eq!(sold.load(Ordering::SeqCst), 2, "shared by all whose token was refused");
    forge.asked();
    forge.change(|state| state.authorization = Some("Bearer of something else".to_owned()));
    unknown(ask(&gate).await, "denied", "Bad credentials");
    let runs = format!("GET /repos/org/repo/actions/runs?head_sha={HEAD}&exclude_pull_requests=true&per_page=100");
    assert_eq!(forge.asked(), [&*runs, &*runs, TOKEN_REQUEST]);
}

#[tokio::test]
async fn a_failed_token_request_is_an_error_without_secrets() {
    let (context, forge, gate, _) = app_gate().await;
    for (status, kind, says) in [
        (401, "denied", "check `id` and `privateKey`"),
        (404, "denied", "App 45 has no installation 67"),
        (403, "denied", "suspended"),
        (500, "unavailable", "500"),
        (200, "invalid_output", "200"),
    ] {
        forge.answer_first_with(move |request| Some(error(request, status, "suspended")));
        let failure = unknown(ask(&gate).await, kind, says);
        assert!(failure.message.contains("/app/installations/67/access_tokens"), "{}", failure.message);
    }
    for body in [
        json!({"token": "ghs_secret"}),
        json!({"token": "ghs_secret", "expires_at": "soon"}),
        json!({"token": "ghs_secret\n", "expires_at": "2026-01-01T00:00:00Z"}),
        json!({"token": null, "x": "ghs_secret"}),
    ] {
        forge.answer_first_with(move |request| Some(json_answer(request, 201, "", &body)));
        let failure = unknown(ask(&gate).await, "invalid_output", "");
        assert!(!format!("{failure:?}").contains("ghs_"), "{failure:?}");
    }
    context.write("key.pem", "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n");
    let failure = unknown(ask(&gate).await, "denied", "the secret file key.pem is not an RSA private key");
    assert!(!failure.message.contains("c2Vjcm"), "{}", failure.message);
}

#[test]
fn an_unusable_key_is_reported_at_the_start() {
    let context = GateContext::new();
    let config = json!({"github": {"repository": "org/repo", "workflows": ["build.yml"],
        "app": {"id": 1, "installation": 2, "privateKey": {"file": "key.pem"}}}});
    let key = context.folder.path().join("key.pem").to_str().unwrap().to_owned();
    for bad in ["no key", "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"] {
        context.write("key.pem", bad);
        let found = context.problems(config.clone());
        assert!(found[0].contains("key.pem is not an RSA private key") && !found[0].contains(bad), "{found:?}");
    }
    for arguments in [["genrsa", "-traditional", "-out", &key].as_slice(), &["genrsa", "-out", &key]] {
        openssl(arguments);
        assert_eq!(context.problems(config.clone()), Vec::<String>::new());
    }
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", &key]);
    assert_eq!(context.problems(config).len(), 1);
}
