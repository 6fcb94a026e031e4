//! A login that is kept outlasts the credential that it was issued for, and is no other identity's.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    cloud::{Cloud, Received, Replied, with_json},
    ways::log_in,
};

/// A cloud that can be made to fail at `first`, the step that all others need; and identities `one` and `two` there.
struct Case {
    first: &'static str,
    one: Value,
    two: Value,
    /// A registry, and another one that no login was issued for.
    hosts: [&'static str; 2],
    login: &'static str,
    /// The login's life in seconds. What it is issued for lasts an hour.
    lasts: u64,
}

fn cases() -> [Case; 2] {
    let aws = |role: &str| {
        let endpoints = json!({"sts": "{url}", "ecr": "{url}", "ecrPublic": "{url}"});
        json!({"aws": {"endpoints": endpoints, "region": "eu-central-1", "roleArn": format!("arn:aws:iam::210987654321:role/{role}")}})
    };
    let azure = |client: &str| json!({"azure": {"endpoints": {"authority": "{url}"}, "clientId": client}});
    let ecr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
    [
        Case {
            first: "web identity",
            one: aws("one"),
            two: aws("two"),
            hosts: [ecr, "public.ecr.aws"],
            login: "AWS:ecr-password",
            lasts: 12 * 3600,
        },
        Case {
            first: "entra",
            one: azure("one"),
            two: azure("two"),
            hosts: ["my.azurecr.io", "other.azurecr.io"],
            login: "refresh ",
            lasts: 3 * 3600,
        },
    ]
}

/// A refresh token that lasts three hours.
fn refresh_token() -> String {
    let claims = URL_SAFE_NO_PAD.encode(json!({"iat": 1_767_225_600, "exp": 1_767_225_600 + 3 * 3600}).to_string());
    format!("e30.{claims}.x")
}

#[tokio::test]
async fn a_login_is_used_while_the_cloud_is_down() {
    for Case { first, one, two, hosts: [host, other], login, lasts } in cases() {
        let is_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&is_down);
        let cloud = Cloud::start(move |request: &Received| match request.step() {
            step if step == first && down.load(Ordering::SeqCst) => {
                Some(Replied::With(503, Vec::new(), "down".to_owned()))
            }
            "acr" => Some(with_json(200, &json!({"refresh_token": refresh_token()}))),
            _ => None,
        })
        .await;
        let pod = cloud.pod(&[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
            ("AZURE_FEDERATED_TOKEN_FILE", "{token}"),
            ("AZURE_TENANT_ID", "tenant-1"),
        ]);
        let (identities, problems) = cloud.build(&json!({"one": one, "two": two}), &pod);
        assert_eq!(problems, [""; 0]);
        let [one, two] = ["one", "two"].map(|name| identities.named(name).unwrap());
        let of_one = log_in(&*one, host, &cloud.url).await.unwrap();
        assert!(of_one.starts_with(login), "{of_one}");
        let count = cloud.steps().len();
        is_down.store(true, Ordering::SeqCst);
        // The session has ended, and the login has not.
        cloud.pass(2 * 3600);
        assert_eq!(log_in(&*one, host, &cloud.url).await.as_ref(), Ok(&of_one), "{first}");
        assert_eq!(cloud.steps().len(), count, "{first}: no request is sent for it");
        // Never another identity's, and never one for another registry.
        for (identity, host) in [(&two, host), (&one, other)] {
            let error = log_in(&**identity, host, "https://other.example/").await.unwrap_err();
            assert!(error.contains("503"), "{first}: {error}");
        }
        // It is renewed ahead. That fails, and it stays good until its end.
        cloud.pass(lasts - 2 * 3600 - 60);
        for _ in 0..2 {
            assert_eq!(log_in(&*one, host, &cloud.url).await.as_ref(), Ok(&of_one), "{first}");
        }
        cloud.pass(60);
        let error = log_in(&*one, host, &cloud.url).await.unwrap_err();
        assert!(error.contains("503"), "{first}: {error}");
    }
}
