//! A push event for an image of a cloud's registry: the gateway looks it up again by the pod's identity.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::{JSON, XML, credentials};
use crate::support::{
    TOKEN, TestApp,
    binary::{self, Gateway},
    issuer::{SigningKey, unix_now},
    upstream::{Request, Step, Upstream},
    wire::{argo_request, exchange, exchange_admin},
};

const SECRET: &str = "a secret of the hooks' sender";
const ECR: &str = "123456789012.dkr.ecr.us-west-2.amazonaws.com";
const AR: &str = "europe-docker.pkg.dev";
/// `oauth2accesstoken:google-token`
const GOOGLE_LOGIN: &str = "Basic b2F1dGgyYWNjZXNzdG9rZW46Z29vZ2xlLXRva2Vu";
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
        image(request, build.load(Ordering::SeqCst))
    })
    .await
}

/// The metadata server, Artifact Registry's token server, and a private registry of it.
async fn artifact_registry(build: Arc<AtomicUsize>) -> Upstream {
    Upstream::start(move |request: &Request| {
        let host = request.header("host").unwrap_or_default();
        match request.target.split('?').next().unwrap_or_default() {
            "/computeMetadata/v1/instance/service-accounts/default/token" => {
                let token = json!({"access_token": "google-token", "expires_in": 3600, "token_type": "Bearer"});
                request.answer(200, &format!("{JSON}\r\nMetadata-Flavor: Google"), token.to_string())
            }
            "/v2/token" if request.header("authorization") == Some(GOOGLE_LOGIN) => {
                request.answer(200, JSON, json!({"token": "registry-token", "expires_in": 3600}).to_string())
            }
            _ if request.header("authorization") == Some("Bearer registry-token") => {
                image(request, build.load(Ordering::SeqCst))
            }
            _ => {
                let challenge = format!("WWW-Authenticate: Bearer realm=\"http://{host}/v2/token\",service=\"{AR}\"");
                request.answer(401, &challenge, "")
            }
        }
    })
    .await
}

/// The reply with the image of the build `number`.
fn image(request: &Request, number: usize) -> Vec<Step> {
    let kind = "Content-Type: application/vnd.oci.image.manifest.v1+json";
    request.answer(200, &format!("{kind}\r\nDocker-Content-Digest: {}", digest(number)), manifest(number))
}

/// A pod with an identity, and the registry and the hook of its cloud.
struct Pod<'a> {
    cloud: Upstream,
    build: Arc<AtomicUsize>,
    /// The registry's name, and its repository.
    image: String,
    identity: Value,
    hook: Value,
    /// More entries of `auth`, each with a comma behind it.
    auth: String,
    /// The pod's environment. `{token}` is the path of a file with a token, `{cloud}` the address of the cloud.
    variables: &'a [(&'a str, &'a str)],
    /// The header of the event with its proof, and the event.
    proof: String,
    event: Value,
}

impl Pod<'_> {
    /// The configuration of its gateway, with an answer that is fresh for an hour.
    fn config(&self) -> String {
        let (registry, _) = self.image.split_once('/').unwrap();
        let url = format!("http://{}/", self.cloud.address);
        let route = json!({
            "name": "d", "backend": {"digests": {"images": {"app": {"image": format!("{}:main", self.image)}}}},
            "output": {"digest": "{{ app.digest }}"}, "cache": {"ttl": "1h"},
        });
        format!(
            "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", hooks: \"127.0.0.1:0\", drain: 0s }}\n{}hooks: {}\n\
             identities: {}\nregistries: {}\nroutes: {}\n",
            TestApp::auth().replace("auth: {", &format!("auth: {{ {}", self.auth)),
            json!([self.hook]),
            json!({"prod": self.identity}).to_string().replace("{url}", &url),
            json!({registry: {"identity": "prod", "endpoint": self.cloud.address.to_string(), "plainHttp": true}}),
            json!([route]),
        )
    }

    /// Serves the route, sends the event when there is another build, and waits until the answer has its digest. Returns what the cloud was
    /// asked after the event.
    async fn requests_after_the_event(&self, files: &[(&str, String)]) -> Vec<Request> {
        let folder = tempfile::tempdir().unwrap();
        let (file, token) = (folder.path().join("gateway.yaml"), folder.path().join("token"));
        std::fs::write(&token, "web-identity-token").unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        std::fs::write(&file, self.config()).unwrap();
        let mut command = binary::command();
        command.arg("serve").arg("-c").arg(&file);
        let address = self.cloud.address.to_string();
        let filled = |value: &str| value.replace("{token}", &token.display().to_string()).replace("{cloud}", &address);
        command.envs(self.variables.iter().map(|(name, value)| (name, filled(value))));
        let gateway = Gateway::start(&mut command);
        let answer = async || -> Value {
            let reply = exchange(gateway.address, &argo_request("/d/api/v1/getparams.execute", TOKEN, b"{}")).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            reply.json()["output"]["parameters"][0]["digest"].clone()
        };
        assert_eq!(answer().await, json!(digest(1)));
        self.build.store(2, Ordering::SeqCst);
        assert_eq!(answer().await, json!(digest(1)), "fresh for an hour");
        let count = self.cloud.requests().len();
        let (body, name) = (self.event.to_string(), self.hook["name"].as_str().unwrap());
        let head = format!(
            "POST /hooks/{name} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n{}\r\nContent-Length: {}\r\n\r\n",
            self.proof,
            body.len()
        );
        let reply = exchange_admin(gateway.hooks.unwrap(), format!("{head}{body}").as_bytes()).await;
        assert_eq!((reply.status, reply.json()), (202, json!({"result": "taken"})), "{}", reply.text());
        let until = Instant::now() + Duration::from_secs(10);
        while answer().await != json!(digest(2)) {
            assert!(Instant::now() < until, "the push is not seen");
            sleep(Duration::from_millis(10)).await;
        }
        self.cloud.requests().split_off(count)
    }
}

/// Asserts that the lookups after an event had the login or token that is kept: the cloud is not asked again, and the registry never
/// anonymously.
fn assert_lookups(requests: &[Request], login: &str) {
    assert!(!requests.is_empty());
    for request in requests {
        assert!(request.target.contains("/org/app/") && request.target.starts_with("/v2/"), "{request:?}");
        assert_eq!(request.header("authorization"), Some(login), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_ecr_leads_to_a_lookup_by_the_identity() {
    let build = Arc::new(AtomicUsize::new(1));
    let pod = Pod {
        cloud: ecr(Arc::clone(&build)).await,
        build,
        image: format!("{ECR}/org/app"),
        identity: json!({"aws": {"region": "us-west-2", "endpoints": {"sts": "{url}", "ecr": "{url}"}}}),
        hook: json!({"name": "ecr", "kind": "ecr", "token": {"file": "secret"}}),
        auth: String::new(),
        variables: &[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
        ],
        proof: format!("Authorization: {SECRET}"),
        // As EventBridge sends it.
        event: json!({
            "version": "0", "id": "13cde686-328b-6117-af20-0e5566167482", "detail-type": "ECR Image Action", "source": "aws.ecr",
            "account": "123456789012", "time": "2026-11-02T10:15:00Z", "region": "us-west-2", "resources": [],
            "detail": {"result": "SUCCESS", "repository-name": "org/app", "image-digest": digest(2), "action-type": "PUSH",
                "image-tag": "main"},
        }),
    };
    assert_lookups(&pod.requests_after_the_event(&[("secret", SECRET.to_owned())]).await, LOGIN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_artifact_registry_leads_to_a_lookup_by_the_identity() {
    let build = Arc::new(AtomicUsize::new(1));
    let key = SigningKey::new("google", Algorithm::RS256);
    let (audience, sender) = ("https://hooks.example.com/hooks/images", "push@project.iam.gserviceaccount.com");
    let issuer = json!({"issuer": "https://accounts.google.com", "audience": audience, "algorithms": ["RS256"],
        "jwks": {"file": "keys"}, "name": "claims.email", "role": "sender"});
    let now = unix_now();
    let claims =
        json!({"iss": "https://accounts.google.com", "aud": audience, "email": sender, "iat": now, "exp": now + 600});
    let image = format!("{AR}/project/org/app");
    // As Artifact Registry publishes it, in a message that Pub/Sub pushes.
    let pushed =
        json!({"action": "INSERT", "digest": format!("{image}@{}", digest(2)), "tag": format!("{image}:main")});
    let message = json!({"data": STANDARD.encode(pushed.to_string()), "messageId": "136969346945"});
    let pod = Pod {
        cloud: artifact_registry(Arc::clone(&build)).await,
        build,
        image,
        identity: json!({"google": {}}),
        hook: json!({"name": "images", "kind": "artifactRegistry", "caller": sender}),
        auth: format!("jwt: [{issuer}],"),
        variables: &[("GCE_METADATA_HOST", "{cloud}")],
        proof: format!("Authorization: Bearer {}", key.sign(&claims)),
        event: json!({"message": message, "subscription": "projects/project/subscriptions/gateway"}),
    };
    let keys = ("keys", json!({"keys": [key.jwk()]}).to_string());
    assert_lookups(&pod.requests_after_the_event(&[keys]).await, "Bearer registry-token");
}
