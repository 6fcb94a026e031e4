//! Each step of each identity with each fault: the error names the step and the cloud's reason, holds no secret, and is remembered. Nothing
//! else is tried in its place.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::cloud::{Cloud, Replied, credentials_xml, with_json};
use outbound::LoginPlace;

/// A way to a login: its configuration, the environment, and the steps.
struct Way {
    config: Value,
    pod: Vec<(&'static str, &'static str)>,
    steps: &'static [&'static str],
    host: &'static str,
}

const SECRETS: [&str; 8] = [
    "web-identity-token",
    "secret-key-of-aws",
    "session-token-of-aws",
    "ecr-password",
    "google-token",
    "entra-token",
    "acr-refresh-token",
    "imds-session",
];

fn ways() -> Vec<Way> {
    let aws = json!({"sts": "{url}", "ecr": "{url}", "metadata": "{url}"});
    let role = "arn:aws:iam::210987654321:role/read";
    let ecr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
    let region = ("AWS_REGION", "eu-central-1");
    let keys = [("AWS_ACCESS_KEY_ID", "AKIASTATIC"), ("AWS_SECRET_ACCESS_KEY", "static")];
    let google = json!({"metadata": "{url}", "iamCredentials": "{url}"});
    let account = "reader@project.iam.gserviceaccount.com";
    let azure = json!({"authority": "{url}", "metadata": "{url}"});
    vec![
        Way {
            config: json!({"aws": {"endpoints": aws, "roleArn": role}}),
            pod: [
                &[
                    ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
                    ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
                    region,
                ],
                &keys[..],
            ]
            .concat(),
            steps: &["web identity", "assume role", "ecr"],
            host: ecr,
        },
        Way {
            config: json!({"aws": {"endpoints": aws}}),
            pod: [
                &[
                    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}v1/credentials"),
                    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{token}"),
                    region,
                ],
                &keys[..],
            ]
            .concat(),
            steps: &["pod identity"],
            host: ecr,
        },
        Way {
            config: json!({"aws": {"endpoints": aws, "source": "instance"}}),
            pod: [&[region], &keys[..]].concat(),
            steps: &["instance session", "instance role", "instance keys"],
            host: ecr,
        },
        Way {
            config: json!({"google": {"endpoints": google, "serviceAccount": account}}),
            pod: Vec::new(),
            steps: &["google metadata", "google impersonation"],
            host: "europe-docker.pkg.dev",
        },
        Way {
            config: json!({"azure": {"endpoints": azure}}),
            pod: vec![
                ("AZURE_FEDERATED_TOKEN_FILE", "{token}"),
                ("AZURE_CLIENT_ID", "client-1"),
                ("AZURE_TENANT_ID", "tenant-1"),
            ],
            steps: &["entra", "acr"],
            host: "my.azurecr.io",
        },
        Way {
            config: json!({"azure": {"endpoints": azure, "source": "managedIdentity"}}),
            pod: Vec::new(),
            steps: &["azure metadata"],
            host: "my.azurecr.io",
        },
    ]
}

/// What a cloud says when it refuses at `step`, and what an error must then quote.
fn refusal(step: &str) -> (Replied, &'static str) {
    match step {
        "web identity" | "assume role" => {
            // Only the first of them is sent the token.
            let what = if step == "assume role" { "sts:AssumeRole" } else { "sts:AssumeRole with web-identity-token" };
            let body = format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform {what}</Message>\
                 </Error><RequestId>req-7</RequestId></ErrorResponse>"
            );
            (Replied::With(403, Vec::new(), body), "AccessDenied: Not authorized to perform sts:AssumeRole")
        }
        "ecr" => {
            let body =
                json!({"__type": "com.amazon.coral#AccessDeniedException", "message": "no ecr:GetAuthorizationToken"});
            (with_json(400, &body), "AccessDeniedException: no ecr:GetAuthorizationToken")
        }
        "google impersonation" => {
            let error =
                json!({"code": 403, "status": "PERMISSION_DENIED", "message": "iam.serviceAccounts.getAccessToken"});
            (with_json(403, &json!({"error": error})), "PERMISSION_DENIED: iam.serviceAccounts.getAccessToken")
        }
        "acr" => {
            let body = json!({"errors": [{"code": "UNAUTHORIZED", "message": "not allowed with entra-token"}]});
            (with_json(401, &body), "UNAUTHORIZED: not allowed with [redacted]")
        }
        _ => {
            let body =
                json!({"error": "invalid_client", "error_description": "AADSTS700016: not found", "trace_id": "t-9"});
            (with_json(400, &body), "invalid_client: AADSTS700016: not found (request t-9)")
        }
    }
}

/// The faults: their names, what is replied, and what the error says.
fn faults(step: &'static str) -> Vec<(&'static str, Replied, &'static str)> {
    let (refused, quoted) = refusal(step);
    let with = |status, headers, body: &str| Replied::With(status, headers, body.to_owned());
    let late = {
        let Replied::With(status, _, body) = refused.clone() else { unreachable!() };
        Replied::With(status, vec![("date", "Thu, 01 Jan 2026 00:10:00 GMT".to_owned())], body)
    };
    let throttled =
        "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
    let throttled = match step {
        "web identity" | "assume role" => (with(400, Vec::new(), throttled), "Throttling: Rate exceeded"),
        _ => (with(429, vec![("retry-after", "30".to_owned())], ""), "429"),
    };
    let expired = match step {
        "web identity" | "assume role" => Some(with(200, Vec::new(), &credentials_xml("2025-12-31T23:00:00Z"))),
        "pod identity" | "instance keys" => Some(with_json(
            200,
            &json!({"AccessKeyId": "A", "SecretAccessKey": "secret-key-of-aws", "Token": "t", "Expiration": "2025-12-31T23:00:00Z"}),
        )),
        "ecr" => Some(with_json(
            200,
            &json!({"authorizationData": [{"authorizationToken": "QVdTOmVjci1wYXNzd29yZA==", "expiresAt": 1_700_000_000}]}),
        )),
        _ => None,
    };
    let page = "<!DOCTYPE html><html><body>Sign in<br></body></html>";
    let html = with(200, Vec::new(), page);
    [
        Some(("gone", Replied::Closed, "")),
        Some(("refused", refused, quoted)),
        Some(("failing", with(503, Vec::new(), "down"), "503")),
        Some(("throttled", throttled.0, throttled.1)),
        Some(("silent", Replied::Silence, "in time")),
        Some(("html", html, "")),
        expired.map(|expired| ("expired", expired, "has passed")),
        Some(("clock", late, "this machine's clock is 600 s behind the server's")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test]
async fn each_step_with_each_fault() {
    let mut cases = Vec::new();
    for way in ways() {
        let way = Arc::new(way);
        for step in way.steps {
            for (name, replied, says) in faults(step) {
                let way = Arc::clone(&way);
                cases.push(tokio::spawn(async move { fault(&way, step, name, replied, says).await }));
            }
        }
    }
    assert!(cases.len() > 81, "{}", cases.len());
    for case in cases {
        case.await.unwrap();
    }
}

async fn fault(way: &Way, step: &'static str, name: &str, replied: Replied, says: &str) {
    let cloud = Cloud::start(move |asked| (asked.step() == step).then(|| replied.clone())).await;
    let identity = cloud.identity(&way.config, &cloud.pod(&way.pod));
    let base = reqwest::Url::parse(&cloud.url).unwrap();
    let wait = if name == "silent" { Duration::from_millis(400) } else { Duration::from_secs(30) };
    let place = LoginPlace { name: way.host, base: &base };
    let error = identity.log_in(place, false, Instant::now() + wait).await.unwrap_err();
    let message = error.message;
    assert!(message.contains(says), "{step}, {name}: {message}");
    assert!(!SECRETS.iter().any(|secret| message.contains(secret)), "{step}, {name}: {message}");
    // The steps before it, then this one, and nothing in its place.
    let (steps, at) = (cloud.steps(), way.steps.iter().position(|known| *known == step).unwrap());
    assert!(steps.iter().all(|asked| way.steps[..=at].contains(asked)), "{step}, {name}: {steps:?}");
    if name != "silent" {
        let again = identity.log_in(place, false, Instant::now() + wait).await.unwrap_err();
        assert_eq!(again.message, message, "{step}, {name}");
        assert_eq!(cloud.steps(), steps, "{step}, {name}: a failure rests");
    }
}

#[tokio::test]
async fn the_token_file() {
    for way in ways().into_iter().filter(|way| way.pod.iter().any(|(_, value)| *value == "{token}")) {
        let cloud = Cloud::start(|_| None).await;
        let base = reqwest::Url::parse(&cloud.url).unwrap();
        let place = LoginPlace { name: way.host, base: &base };
        let fresh = || cloud.identity(&way.config, &cloud.pod(&way.pod));
        let deadline = Instant::now() + Duration::from_secs(20);
        for (content, says) in [(Some(" \n"), "is empty"), (None, "cannot read the pod's token file")] {
            match content {
                Some(content) => std::fs::write(cloud.token(), content).unwrap(),
                None => std::fs::remove_file(cloud.token()).unwrap(),
            }
            let error = fresh().log_in(place, false, deadline).await.unwrap_err();
            assert!(error.message.contains(says) && error.message.contains(&cloud.token()), "{}", error.message);
            assert_eq!(cloud.steps(), [""; 0]);
        }
        // Kubernetes replaces the file: the next use reads the new token.
        std::fs::write(cloud.token(), "rotated-token").unwrap();
        fresh().log_in(place, false, deadline).await.unwrap();
        let first = cloud.last(way.steps[0]);
        assert!(format!("{first:?}").contains("rotated-token"), "{first:?}");
    }
}
