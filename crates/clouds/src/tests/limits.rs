//! What one failure does to others: a pause is one identity's own, and a refused login renews the credential that it was made with.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{
    cloud::{Cloud, Received, Replied, with_json},
    ways::{log_in, soon},
};

/// The identities `one` and `two` of a cloud, which refuses what `one` asks for, and a registry of that cloud.
struct Case {
    one: Value,
    two: Value,
    pod: Vec<(&'static str, &'static str)>,
    host: &'static str,
    /// The step that is refused, and what its request holds if it is that of `one`.
    refused: (&'static str, &'static str),
}

fn cases() -> Vec<Case> {
    let aws = |name: &str| {
        let endpoints = json!({"sts": "{url}", "ecr": "{url}"});
        json!({"aws": {"endpoints": endpoints, "roleArn": format!("arn:aws:iam::210987654321:role/{name}")}})
    };
    let google = |name: &str| {
        let endpoints = json!({"metadata": "{url}", "iamCredentials": "{url}"});
        json!({"google": {"endpoints": endpoints, "serviceAccount": format!("{name}@project.iam.gserviceaccount.com")}})
    };
    let azure = |name: &str, source: &str| {
        let endpoints = json!({"authority": "{url}", "metadata": "{url}"});
        json!({"azure": {"endpoints": endpoints, "clientId": name, "tenantId": "tenant-1", "source": source}})
    };
    vec![
        Case {
            one: aws("one"),
            two: aws("two"),
            pod: vec![
                ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
                ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
                ("AWS_REGION", "eu-central-1"),
            ],
            host: "123456789012.dkr.ecr.eu-central-1.amazonaws.com",
            refused: ("assume role", "role%2Fone"),
        },
        Case {
            one: google("one"),
            two: google("two"),
            pod: Vec::new(),
            host: "europe-docker.pkg.dev",
            refused: ("google impersonation", "/one@"),
        },
        Case {
            one: azure("one", "pod"),
            two: azure("two", "pod"),
            pod: vec![("AZURE_FEDERATED_TOKEN_FILE", "{token}")],
            host: "my.azurecr.io",
            refused: ("entra", "client_id=one"),
        },
        Case {
            one: azure("one", "managedIdentity"),
            two: azure("two", "managedIdentity"),
            pod: Vec::new(),
            host: "my.azurecr.io",
            refused: ("azure metadata", "client_id=one"),
        },
    ]
}

#[tokio::test]
async fn a_throttled_identity_does_not_rest_the_others() {
    for Case { one, two, pod, host, refused: (step, of_one) } in cases() {
        let is_of_one = move |request: &Received| {
            request.step() == step && format!("{}{}", request.line, request.body).contains(of_one)
        };
        let cloud = Cloud::start(move |request| {
            let headers = vec![("retry-after", "60".to_owned())];
            is_of_one(request).then(|| Replied::With(429, headers, String::new()))
        })
        .await;
        let (identities, problems) = cloud.build(&json!({"one": one, "two": two}), &cloud.pod(&pod));
        assert_eq!(problems, [""; 0]);
        let [one, two] = ["one", "two"].map(|name| identities.named(name).unwrap());
        assert_ne!(one.account(), two.account());
        for _ in 0..2 {
            let error = log_in(&*one, host, &cloud.url).await.unwrap_err();
            assert!(error.contains("429"), "{step}: {error}");
        }
        let count = cloud.requests.lock().iter().filter(|request| is_of_one(request)).count();
        assert_eq!(count, 1, "{step}: it pauses");
        let login = log_in(&*two, host, &cloud.url).await;
        assert!(login.is_ok(), "{step}: {login:?}");
        assert!(two.who(soon()).await.is_ok(), "{step}");
    }
}

/// A session or a token that was revoked looks good here. The registry's refusal says that it is not.
#[tokio::test]
async fn a_refused_login_renews_the_credential_that_requested_it() {
    let [aws, azure] = [json!({"sts": "{url}", "ecr": "{url}"}), json!({"authority": "{url}"})];
    for (config, host, [first, last]) in [
        (
            json!({"aws": {"endpoints": aws, "region": "eu-central-1"}}),
            "123456789012.dkr.ecr.eu-central-1.amazonaws.com",
            ["web identity", "ecr"],
        ),
        (
            json!({"azure": {"endpoints": azure, "tenantId": "tenant-1", "clientId": "client-1"}}),
            "my.azurecr.io",
            ["entra", "acr"],
        ),
    ] {
        let issued = AtomicUsize::new(0);
        let cloud = Cloud::start(move |request| {
            let count = issued.fetch_add(usize::from(request.step() == first), Ordering::SeqCst);
            let body = json!({"__type": "ExpiredTokenException", "errors": [{"code": "UNAUTHORIZED"}]});
            (request.step() == last && count < 2).then(|| with_json(403, &body))
        })
        .await;
        let pod = cloud.pod(&[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
            ("AZURE_FEDERATED_TOKEN_FILE", "{token}"),
        ]);
        let identity = cloud.identity(&config, &pod);
        assert!(log_in(&*identity, host, &cloud.url).await.is_err());
        assert_eq!(cloud.steps(), [first, last], "a new one that is refused is not renewed");
        cloud.pass(120);
        assert!(log_in(&*identity, host, &cloud.url).await.is_err());
        assert_eq!(cloud.steps(), [first, last, last, first]);
        cloud.pass(10);
        let login = log_in(&*identity, host, &cloud.url).await;
        assert!(login.is_ok(), "{login:?}");
        assert_eq!(cloud.steps(), [first, last, last, first, last]);
    }
}
