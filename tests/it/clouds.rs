//! Identities at clouds: the whole program, from the pod's environment to a registry's answer. Each cloud is an upstream of the test.

use std::sync::Arc;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::support::{
    binary,
    upstream::{Request, Upstream},
};

const XML: &str = "Content-Type: text/xml";
const JSON: &str = "Content-Type: application/json";
const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}"#;

/// The credentials of a role, as STS writes them.
fn credentials() -> String {
    "<R><Credentials><AccessKeyId>ASIAKEY</AccessKeyId><SecretAccessKey>secret-key</SecretAccessKey><SessionToken>session-token\
     </SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials><Arn>arn:aws:sts::123456789012:assumed-role/pod/x\
     </Arn></R>"
        .to_owned()
}

/// AWS and a registry behind it, at one address. `refuses` is what STS refuses.
async fn aws(refuses: &'static str) -> Upstream {
    Upstream::start(move |request: &Request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity\
                      </Message></Error><RequestId>req-7</RequestId></ErrorResponse>";
        if body.contains("Action=") {
            return if !refuses.is_empty() && body.contains(refuses) {
                request.answer(403, XML, denied)
            } else {
                request.answer(200, XML, credentials())
            };
        }
        if request.header("x-amz-target").is_some() {
            let data = json!({"authorizationToken": "QVdTOmVjci1wYXNzd29yZA==", "expiresAt": 4_102_444_800_u64});
            return request.answer(200, JSON, json!({"authorizationData": [data]}).to_string());
        }
        match request.header("authorization") {
            // `AWS:ecr-password`
            Some("Basic QVdTOmVjci1wYXNzd29yZA==") => {
                let digest = base16ct::lower::encode_string(&Sha256::digest(MANIFEST));
                let kind = "Content-Type: application/vnd.oci.image.manifest.v1+json";
                request.answer(200, &format!("{kind}\r\nDocker-Content-Digest: sha256:{digest}"), MANIFEST)
            }
            _ => request.answer(401, "WWW-Authenticate: Basic realm=\"ecr\"", ""),
        }
    })
    .await
}

/// What the program says with `arguments`, standard output and error together, and whether it succeeded.
async fn run(aws: &Upstream, arguments: &[&str], identity: &str) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let (host, write) = (aws.address.to_string(), |name: &str, text: String| {
        std::fs::write(folder.path().join(name), text).unwrap();
    });
    let config = json!({
        "auth": {"tokens": [{"name": "argocd", "env": "PATH", "routes": ["*"]}]},
        "identities": {"prod": {"aws": {"region": "eu-central-1", "endpoints": {"sts": format!("http://{host}/"), "ecr": format!("http://{host}/")}}}},
        "registries": {&host: {"plainHttp": true, "identity": identity}},
        "routes": [{
            "name": "d", "backend": {"digests": {"images": {"app": {"image": format!("{host}/org/app:1")}}}},
            "output": {"app": "{{ app.digest }}"},
        }],
    });
    write("gateway.yaml", config.to_string());
    write("token", "web-identity-token".to_owned());
    let mut command = tokio::process::Command::from(binary::command());
    command.args(arguments).args(["-c", "gateway.yaml"]).current_dir(folder.path());
    command.env("AWS_WEB_IDENTITY_TOKEN_FILE", folder.path().join("token"));
    command.env("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod");
    let output = command.output().await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for secret in ["web-identity-token", "secret-key", "session-token", "ecr-password", "QVdTOmVjci1wYXNzd29yZA"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
    (said, output.status.success())
}

#[tokio::test]
async fn a_registry_is_read_by_the_pods_identity() {
    let aws = Arc::new(aws("").await);
    let (said, is_good) = run(&aws, &["call", "d"], "prod").await;
    assert!(is_good && said.contains("sha256:"), "{said}");
    let (said, _) = run(&aws, &["check", "--connect"], "prod").await;
    assert!(said.contains("arn:aws:iam::123456789012:role/pod by the pod's web identity (IRSA)"), "{said}");
    assert!(said.contains("is arn:aws:sts::123456789012:assumed-role/pod/x"), "{said}");
}

/// Never anonymous in place of it, and the reason is the cloud's own.
#[tokio::test]
async fn a_refused_identity_is_an_error_with_the_clouds_code() {
    let aws = aws("AssumeRoleWithWebIdentity").await;
    let (said, is_good) = run(&aws, &["call", "d"], "prod").await;
    assert!(
        !is_good && said.contains("AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity"),
        "{said}"
    );
    assert!(said.contains("req-7"), "{said}");
    assert!(aws.requests().iter().all(|request| !request.target.starts_with("/v2/")), "{said}");
    let (said, is_good) = run(&aws, &["check"], "prd").await;
    assert!(!is_good && said.contains("there is no identity called `prd`: `identities` has prod"), "{said}");
}
