//! Rate limits: a cloud that makes one identity pause leaves the others alone.

use serde_json::{Value, json};

use super::{
    cloud::{Asked, Cloud, Replied},
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
        let is_of_one =
            move |asked: &Asked| asked.step() == step && format!("{}{}", asked.line, asked.body).contains(of_one);
        let cloud = Cloud::start(move |asked| {
            let headers = vec![("retry-after", "60".to_owned())];
            is_of_one(asked).then(|| Replied::With(429, headers, String::new()))
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
        let count = cloud.asked.lock().iter().filter(|asked| is_of_one(asked)).count();
        assert_eq!(count, 1, "{step}: it pauses");
        let login = log_in(&*two, host, &cloud.url).await;
        assert!(login.is_ok(), "{step}: {login:?}");
        assert!(two.who(soon()).await.is_ok(), "{step}");
    }
}
