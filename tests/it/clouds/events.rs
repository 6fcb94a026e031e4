//! A push event for an image of a cloud's registry: the gateway looks it up again by the pod's identity.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::{JSON, XML, credentials};
use crate::support::{
    TOKEN, TestApp,
    binary::{self, Gateway},
    upstream::{Request, Upstream},
    wire::{argo_request, exchange, exchange_admin},
};

const SECRET: &str = "a secret of the hooks' sender";
const ECR: &str = "123456789012.dkr.ecr.us-west-2.amazonaws.com";
/// `AWS:ecr-password`
const LOGIN: &str = "Basic QVdTOmVjci1wYXNzd29yZA==";

/// The manifest of the build `number`.
fn manifest(number: usize) -> String {
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    json!({"schemaVersion": 2, "mediaType": media_type, "annotations": {"build": number.to_string()}}).to_string()
}

fn digest(number: usize) -> String {
    format!("sha256:{}", base16ct::lower::encode_string(&Sha256::digest(manifest(number))))
}

/// STS, ECR's API, and a private registry of ECR whose tags name the build that `build` says.
async fn ecr(build: Arc<AtomicUsize>) -> Upstream {
    Upstream::start(move |request: &Request| {
        if String::from_utf8_lossy(&request.body).contains("Action=AssumeRoleWithWebIdentity") {
            return request.answer(200, XML, credentials());
        }
        if request.header("x-amz-target").is_some() {
            let data = json!({"authorizationToken": "QVdTOmVjci1wYXNzd29yZA==", "expiresAt": 4_102_444_800_u64});
            return request.answer(200, JSON, json!({"authorizationData": [data]}).to_string());
        }
        if request.header("authorization") != Some(LOGIN) {
            return request.answer(401, "WWW-Authenticate: Basic realm=\"ecr\"", "");
        }
        let number = build.load(Ordering::SeqCst);
        let kind = "Content-Type: application/vnd.oci.image.manifest.v1+json";
        request.answer(200, &format!("{kind}\r\nDocker-Content-Digest: {}", digest(number)), manifest(number))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_ecr_leads_to_a_lookup_by_the_identity() {
    let build = Arc::new(AtomicUsize::new(1));
    let aws = ecr(Arc::clone(&build)).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, token) = (folder.path().join("gateway.yaml"), folder.path().join("token"));
    std::fs::write(&token, "web-identity-token").unwrap();
    std::fs::write(folder.path().join("secret"), SECRET).unwrap();
    let url = format!("http://{}/", aws.address);
    let hook = json!({"name": "ecr", "kind": "ecr", "token": {"file": "secret"}});
    let route = json!({
        "name": "d", "backend": {"digests": {"images": {"app": {"image": format!("{ECR}/org/app:main")}}}},
        "output": {"digest": "{{ app.digest }}"}, "cache": {"ttl": "1h"},
    });
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", hooks: \"127.0.0.1:0\", drain: 0s }}\n{}hooks: {}\nidentities: {}\n\
         registries: {}\nroutes: {}\n",
        TestApp::auth(),
        json!([hook]),
        json!({"prod": {"aws": {"region": "us-west-2", "endpoints": {"sts": &url, "ecr": &url}}}}),
        json!({ECR: {"identity": "prod", "endpoint": aws.address.to_string(), "plainHttp": true}}),
        json!([route]),
    );
    std::fs::write(&file, config).unwrap();
    let mut command = binary::command();
    command.arg("serve").arg("-c").arg(&file);
    command.env("AWS_WEB_IDENTITY_TOKEN_FILE", &token).env("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod");
    let gateway = Gateway::start(&mut command);
    let answer = async || -> Value {
        let reply = exchange(gateway.address, &argo_request("/d/api/v1/getparams.execute", TOKEN, b"{}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["output"]["parameters"][0]["digest"].clone()
    };
    assert_eq!(answer().await, json!(digest(1)));
    build.store(2, Ordering::SeqCst);
    assert_eq!(answer().await, json!(digest(1)), "fresh for an hour");
    let count = aws.requests().len();
    // As EventBridge sends it.
    let event = json!({
        "version": "0", "id": "13cde686-328b-6117-af20-0e5566167482", "detail-type": "ECR Image Action", "source": "aws.ecr",
        "account": "123456789012", "time": "2026-11-02T10:15:00Z", "region": "us-west-2", "resources": [],
        "detail": {"result": "SUCCESS", "repository-name": "org/app", "image-digest": digest(2), "action-type": "PUSH", "image-tag": "main"},
    });
    let body = event.to_string();
    let head = format!(
        "POST /hooks/ecr HTTP/1.1\r\nHost: g\r\nConnection: close\r\nAuthorization: {SECRET}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let reply = exchange_admin(gateway.hooks.unwrap(), format!("{head}{body}").as_bytes()).await;
    assert_eq!((reply.status, reply.json()), (202, json!({"result": "taken"})), "{}", reply.text());
    let until = Instant::now() + Duration::from_secs(10);
    while answer().await != json!(digest(2)) {
        assert!(Instant::now() < until, "the push is not seen");
        sleep(Duration::from_millis(10)).await;
    }
    // The lookup has the login that is kept: the cloud is not asked again, and the registry never anonymously.
    let after = aws.requests().split_off(count);
    assert!(!after.is_empty());
    for request in after {
        assert!(request.target.starts_with("/v2/org/app/"), "{request:?}");
        assert_eq!(request.header("authorization"), Some(LOGIN), "{request:?}");
    }
}
