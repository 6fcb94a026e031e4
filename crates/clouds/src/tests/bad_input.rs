//! What people get wrong at their clouds, in the clouds' own words; and clocks that are off.

use serde_json::{Value, json};

use super::{
    cloud::{Cloud, Replied, credentials_xml, with_json},
    ways::{log_in, soon},
};

const ECR: &str = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";

/// The environment of a pod on EKS.
const EKS: [(&str, &str); 3] = [
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
    ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
    ("AWS_REGION", "eu-central-1"),
];
/// The environment of a pod on AKS.
const AKS: [(&str, &str); 3] =
    [("AZURE_FEDERATED_TOKEN_FILE", "{token}"), ("AZURE_CLIENT_ID", "client-1"), ("AZURE_TENANT_ID", "tenant-1")];

/// What STS replies to a request that it refuses.
fn sts_error(status: u16, code: &str, message: &str) -> Replied {
    let body = format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>{code}</Code>\
         <Message>{message}</Message></Error><RequestId>5b5d6f5e</RequestId></ErrorResponse>"
    );
    Replied::With(status, Vec::new(), body)
}

fn eks() -> Value {
    json!({"aws": {"endpoints": {"sts": "{url}", "ecr": "{url}"}}})
}

/// Each is refused with the cloud's code and text, nothing is tried in its place, and the token is not shown.
#[tokio::test]
async fn roles_and_audiences_that_are_wrong() {
    let aks = json!({"azure": {"endpoints": {"authority": "{url}"}}});
    let no_role = sts_error(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity");
    let audience = sts_error(400, "InvalidIdentityToken", "Incorrect token audience");
    let entra = |code: &str| {
        let text = format!("{code}: No matching federated identity record found for presented assertion audience 'x'.");
        with_json(401, &json!({"error": "invalid_client", "error_description": text, "correlation_id": "c-7"}))
    };
    for (config, pod, host, replied, says) in [
        (
            eks(),
            EKS,
            ECR,
            no_role,
            "403: AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity (request 5b5d6f5e)",
        ),
        (eks(), EKS, ECR, audience, "400: InvalidIdentityToken: Incorrect token audience (request 5b5d6f5e)"),
        (
            aks,
            AKS,
            "my.azurecr.io",
            entra("AADSTS700212"),
            "401: invalid_client: AADSTS700212: No matching federated identity",
        ),
    ] {
        let cloud = Cloud::start(move |_| Some(replied.clone())).await;
        let identity = cloud.identity(&config, &cloud.pod(&pod));
        for _ in 0..2 {
            let error = log_in(&*identity, host, &cloud.url).await.unwrap_err();
            assert!(error.contains(says) && !error.contains("web-identity-token"), "{error}");
        }
        assert_eq!(cloud.steps().len(), 1, "a refusal rests: {:?}", cloud.steps());
        let error = identity.who(soon()).await.unwrap_err();
        assert!(error.message.contains(says), "{error}");
    }
}

#[tokio::test]
async fn google_refuses_a_token_for_another_audience() {
    let cloud = Cloud::start(|_| {
        let text = "The audience in ID Token [x] does not match the expected audience.";
        Some(with_json(400, &json!({"error": "invalid_grant", "error_description": text})))
    })
    .await;
    let file = json!({
        "type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": format!("{}v1/token", cloud.url),
        "credential_source": {"file": cloud.token()},
    });
    std::fs::write(cloud.folder.path().join("federation.json"), file.to_string()).unwrap();
    let identity = cloud.identity(&json!({"google": {"credentialsFile": "federation.json"}}), &cloud.pod(&[]));
    let error = log_in(&*identity, "europe-docker.pkg.dev", &cloud.url).await.unwrap_err();
    assert!(error.contains("400: invalid_grant: The audience in ID Token [x] does not match"), "{error}");
}

/// In the configuration, and in the environment. A region that is not one would otherwise become the name of a host.
#[tokio::test]
async fn a_region_that_is_none() {
    let cloud = Cloud::start(|_| None).await;
    for region in ["frankfurt", "eu-central-1.evil.example", "eu-central-1/", "EU-CENTRAL-1", " "] {
        let pod = [EKS[0], EKS[1], ("AWS_REGION", region)];
        let (_, problems) = cloud.build(&json!({"x": {"aws": {}}}), &cloud.pod(&pod));
        let says = |text: &str| problems.iter().any(|problem| problem.contains(text));
        assert!(says("neither `region` nor AWS_REGION says which region is used"), "{region}: {problems:?}");
        let (_, problems) = cloud.build(&json!({"x": {"aws": {"region": region}}}), &cloud.pod(&EKS));
        let says = |text: &str| problems.iter().any(|problem| problem.contains(text));
        assert!(says(&format!("`{region}` is not a region")), "{region}: {problems:?}");
    }
    // No other region takes its place for the pod's own identity: it could be one of another partition.
    for variable in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        let (identities, problems) = cloud.build(&json!({}), &cloud.pod(&[EKS[0], EKS[1], (variable, "frankfurt")]));
        assert_eq!(problems, [""; 0], "it need not be used");
        let identity = identities.automatic(ECR).unwrap();
        let says = format!("the environment's {variable} is `frankfurt`, which is not a region");
        assert_eq!(identity.flaw(), Some(&*says));
        let error = log_in(&*identity, ECR, &cloud.url).await.unwrap_err();
        assert!(error.contains(&says), "{error}");
    }
    let (identities, _) = cloud.build(&json!({}), &cloud.pod(&EKS));
    assert_eq!(identities.automatic(ECR).unwrap().flaw(), None);
    for host in ["123456789012.dkr.ecr.frankfurt.amazonaws.com", "123456789012.dkr.ecr.eu-central-1.evil.example"] {
        assert!(identities.automatic(host).is_none(), "{host}");
    }
    assert_eq!(cloud.steps(), [""; 0]);
}

/// The life of a credential is counted by the cloud's clock: one that is ten minutes off here neither refuses a good credential, nor keeps one
/// that has ended.
#[tokio::test]
async fn a_clock_off_by_ten_minutes() {
    let role = |ends: &'static str, date: &'static str| {
        move |request: &super::cloud::Received| {
            let headers = vec![("date", date.to_owned())];
            (request.step() == "web identity").then(|| Replied::With(200, headers, credentials_xml(ends)))
        }
    };
    // Here it is 2026-01-01T00:00:00Z.
    for (ends, date, is_good) in [
        ("2025-12-31T23:59:00Z", "Wed, 31 Dec 2025 23:50:00 GMT", true),
        ("2026-01-01T00:09:00Z", "Thu, 01 Jan 2026 00:10:00 GMT", false),
        ("2026-01-01T00:20:00Z", "Thu, 01 Jan 2026 00:10:00 GMT", true),
    ] {
        let cloud = Cloud::start(role(ends, date)).await;
        let identity = cloud.identity(&eks(), &cloud.pod(&EKS));
        match log_in(&*identity, ECR, &cloud.url).await {
            Ok(login) => assert!(is_good && login == "AWS:ecr-password", "{ends}"),
            Err(error) => assert!(!is_good && error.contains("its time of expiry has passed"), "{ends}: {error}"),
        }
    }
    // AWS refuses a signature of another time, and the reason is this machine's clock.
    let cloud = Cloud::start(|request| {
        let body = json!({"__type": "InvalidSignatureException", "message": "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z"});
        let headers = vec![("date", "Thu, 01 Jan 2026 00:10:00 GMT".to_owned())];
        (request.step() == "ecr").then(|| Replied::With(400, headers, body.to_string()))
    })
    .await;
    let identity = cloud.identity(&eks(), &cloud.pod(&EKS));
    let error = log_in(&*identity, ECR, &cloud.url).await.unwrap_err();
    assert!(error.contains("InvalidSignatureException: Signature expired"), "{error}");
    assert!(error.contains("this machine's clock is 600 s behind the server's"), "{error}");
}

/// A proxy or a captive portal in the place of a metadata server: a page is not a credential, and is not quoted as one.
#[tokio::test]
async fn a_metadata_server_that_answers_html() {
    let page = "<!DOCTYPE html><html><body>Sign in<br></body></html>";
    let endpoints =
        json!({"metadata": "{url}", "sts": "{url}", "ecr": "{url}", "iamCredentials": "{url}", "authority": "{url}"});
    let only = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), endpoints[*key].clone())).collect::<Value>();
    for (config, pod, host, says) in [
        (
            json!({"aws": {"source": "instance", "endpoints": only(&["metadata", "sts", "ecr"])}}),
            &EKS[2..],
            ECR,
            "is not a session token",
        ),
        (json!({"google": {"endpoints": only(&["metadata"])}}), &EKS[..0], "gcr.io", "lacks `Metadata-Flavor: Google`"),
        (
            json!({"azure": {"source": "managedIdentity", "endpoints": only(&["metadata"])}}),
            &EKS[..0],
            "my.azurecr.io",
            "the reply is not a token",
        ),
    ] {
        let cloud = Cloud::start(move |_| {
            Some(Replied::With(200, vec![("content-type", "text/html".to_owned())], page.to_owned()))
        })
        .await;
        let identity = cloud.identity(&config, &cloud.pod(pod));
        let error = log_in(&*identity, host, &cloud.url).await.unwrap_err();
        assert!(error.contains(says) && !error.contains("Sign in"), "{error}");
        assert_eq!(cloud.steps().len(), 1, "nothing else is tried: {:?}", cloud.steps());
        assert!(identity.who(soon()).await.is_err());
    }
}
