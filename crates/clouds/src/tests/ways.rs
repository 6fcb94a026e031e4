//! The way of each identity from the pod to a login or a request.

use http::header;
use reqwest::Url;
use serde_json::json;
use tokio::time::Instant;

use super::cloud::{Cloud, NOW};
use outbound::{Call, Identity, Login, LoginPlace, Tls};

/// A time by which everything has happened.
pub(super) fn soon() -> Instant {
    Instant::now() + std::time::Duration::from_secs(20)
}

/// What `identity` shows the registry `host`.
pub(super) async fn log_in(identity: &dyn Identity, host: &str, base: &str) -> Result<String, String> {
    let base = Url::parse(base).unwrap();
    let login = identity.log_in(LoginPlace { name: host, base: &base, tls: &Tls::default() }, false, soon()).await;
    login.map_err(|error| error.message).map(|login| match login {
        Login::Password { username, password } => format!("{username}:{}", password.expose()),
        Login::RefreshToken(token) => format!("refresh {}", token.expose()),
    })
}

const ECR: &str = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";

#[tokio::test]
async fn aws_by_web_identity_a_chain_and_ecr() {
    let cloud = Cloud::start(|_| None).await;
    let pod = cloud.pod(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod"),
        ("AWS_REGION", "eu-central-1"),
        // Weaker, and never used beside a web identity.
        ("AWS_ACCESS_KEY_ID", "AKIASTATIC"),
        ("AWS_SECRET_ACCESS_KEY", "static"),
    ]);
    let role = |name: &str| format!("arn:aws:iam::210987654321:role/{name}");
    let config = json!({"aws": {"roleArn": role("read"), "externalId": "tenant 7", "via": [{"roleArn": role("hop")}],
                                "endpoints": {"sts": "{url}", "ecr": "{url}", "ecrPublic": "{url}"}}});
    let identity = cloud.identity(&config, &pod);
    let base = format!("https://{ECR}/");
    assert_eq!(log_in(&*identity, ECR, &base).await.as_deref(), Ok("AWS:ecr-password"));
    assert_eq!(log_in(&*identity, ECR, &base).await.as_deref(), Ok("AWS:ecr-password"));
    let public = log_in(&*identity, "public.ecr.aws", "https://public.ecr.aws/").await;
    assert_eq!(public.as_deref(), Ok("AWS:ecr-password"));
    assert_eq!(cloud.steps(), ["web identity", "assume role", "assume role", "ecr", "ecr public"]);
    let web = cloud.last("web identity");
    let expected = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fpod&\
                    RoleSessionName=appset-gateway&WebIdentityToken=web-identity-token";
    assert_eq!(web.body, expected);
    assert!(!web.headers.contains_key("authorization"), "{web:?}");
    let assumed = cloud.last("assume role");
    assert!(assumed.body.ends_with("role%2Fread&RoleSessionName=appset-gateway&ExternalId=tenant+7"), "{assumed:?}");
    assert!(assumed.headers["authorization"].contains("ASIAKEY/20260101/eu-central-1/sts/aws4_request"));
    assert_eq!(assumed.headers["x-amz-security-token"], "session-token-of-aws");
    let public = cloud.last("ecr public");
    assert!(public.headers["authorization"].contains("/us-east-1/ecr-public/aws4_request"), "{public:?}");
    let who = identity.who(soon()).await.unwrap();
    assert_eq!(who, "arn:aws:sts::123456789012:assumed-role/read/x");
    let said = identity.describe();
    assert_eq!(
        said,
        format!(
            "AWS, arn:aws:iam::123456789012:role/pod by the pod's web identity (IRSA), then {}, then {}",
            role("hop"),
            role("read")
        )
    );
}

#[tokio::test]
async fn aws_by_pod_identity_instance_and_keys() {
    let cloud = Cloud::start(|_| None).await;
    let endpoints = json!({"sts": "{url}", "ecr": "{url}", "metadata": "{url}"});
    let region = ("AWS_REGION", "eu-central-1");
    let agent = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}v1/credentials"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{token}"),
        region,
    ];
    let keys = [("AWS_ACCESS_KEY_ID", "AKIASTATIC"), ("AWS_SECRET_ACCESS_KEY", "static"), region];
    for (variables, source, steps, key) in [
        (&agent[..], "pod", &["pod identity", "ecr"][..], "ASIAKEY"),
        (&keys, "pod", &["ecr"], "AKIASTATIC"),
        (&keys, "instance", &["instance session", "instance role", "instance keys", "ecr"], "ASIAKEY"),
    ] {
        cloud.requests.lock().clear();
        let config = json!({"aws": {"source": source, "endpoints": endpoints}});
        let identity = cloud.identity(&config, &cloud.pod(variables));
        let login = log_in(&*identity, ECR, &format!("https://{ECR}/")).await;
        assert_eq!(login.as_deref(), Ok("AWS:ecr-password"), "{source}");
        assert_eq!(cloud.steps(), steps);
        assert!(cloud.last("ecr").headers["authorization"].contains(key), "{:?}", cloud.last("ecr"));
    }
    assert_eq!(cloud.last("instance keys").headers["x-aws-ec2-metadata-token"], "imds-session");
}

#[tokio::test]
async fn aws_signs_requests_to_its_services_only() {
    let cloud = Cloud::start(|_| None).await;
    let pod = cloud.pod(&[
        ("AWS_ACCESS_KEY_ID", "AKIASTATIC"),
        ("AWS_SECRET_ACCESS_KEY", "static"),
        ("AWS_REGION", "eu-west-1"),
    ]);
    let identity = cloud.identity(&json!({"aws": {}}), &pod);
    let url = |url: &str| Url::parse(url).unwrap();
    assert!(identity.check_url(&url("https://inventory.example.com/")).unwrap_err().contains("set `service`"));
    let to = url("https://eks.eu-central-1.amazonaws.com/clusters?maxResults=100");
    assert_eq!(identity.check_url(&to), Ok(()));
    let signed = identity.authorize(Call::get(to, 1, soon()), false).await.unwrap();
    let value = signed.headers[header::AUTHORIZATION].to_str().unwrap().to_owned();
    assert!(
        value.starts_with("AWS4-HMAC-SHA256 Credential=AKIASTATIC/20260101/eu-central-1/eks/aws4_request"),
        "{value}"
    );
    let named = cloud.identity(&json!({"aws": {"service": "execute-api"}}), &pod);
    let call = Call::get(url("https://api.example.com/"), 1, soon());
    let signed = named.authorize(call, false).await.unwrap();
    assert!(signed.headers[header::AUTHORIZATION].to_str().unwrap().contains("/eu-west-1/execute-api/"));
}

const PKG: &str = "europe-docker.pkg.dev";

#[tokio::test]
async fn google_by_the_metadata_server_federation_and_impersonation() {
    let cloud = Cloud::start(|_| None).await;
    let account = "reader@project.iam.gserviceaccount.com";
    let file = json!({
        "type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": format!("{}v1/token", cloud.url),
        "credential_source": {"file": cloud.token()},
    });
    std::fs::write(cloud.folder.path().join("federation.json"), file.to_string()).unwrap();
    let endpoints = json!({"metadata": "{url}", "iamCredentials": "{url}"});
    let federated = json!({"iamCredentials": "{url}"});
    for (config, steps, token) in [
        (json!({"endpoints": endpoints}), &["google metadata"][..], "google-token-of-metadata"),
        (
            json!({"endpoints": endpoints, "serviceAccount": account}),
            &["google metadata", "google impersonation"],
            "google-token-of-account",
        ),
        (json!({"credentialsFile": "federation.json"}), &["google sts"], "google-token-of-sts"),
        (
            json!({"credentialsFile": "federation.json", "serviceAccount": account, "endpoints": federated}),
            &["google sts", "google impersonation"],
            "google-token-of-account",
        ),
    ] {
        cloud.requests.lock().clear();
        let identity = cloud.identity(&json!({"google": config}), &cloud.pod(&[]));
        let login = log_in(&*identity, PKG, "https://europe-docker.pkg.dev/").await;
        assert_eq!(login, Ok(format!("oauth2accesstoken:{token}")));
        let call = identity.authorize(Call::get(Url::parse("https://x.googleapis.com/").unwrap(), 1, soon()), false);
        assert_eq!(call.await.unwrap().headers[header::AUTHORIZATION], format!("Bearer {token}"));
        assert_eq!(cloud.steps(), steps);
    }
    let exchanged = cloud.last("google sts").body;
    assert!(exchanged.contains("subject_token=web-identity-token") && exchanged.contains("auth%2Fiam"), "{exchanged}");
    let impersonated = cloud.last("google impersonation");
    assert_eq!(impersonated.headers["authorization"], "Bearer google-token-of-sts");
    assert!(impersonated.line.contains("v1/projects/-/serviceAccounts/reader@project"), "{impersonated:?}");
}

#[tokio::test]
async fn azure_by_workload_identity_and_managed_identity() {
    let cloud = Cloud::start(|_| None).await;
    let pod =
        [("AZURE_FEDERATED_TOKEN_FILE", "{token}"), ("AZURE_CLIENT_ID", "client-1"), ("AZURE_TENANT_ID", "tenant-1")];
    let pod = cloud.pod(&pod);
    let endpoints = json!({"authority": "{url}", "metadata": "{url}"});
    let identity = cloud.identity(&json!({"azure": {"endpoints": endpoints}}), &pod);
    let login = log_in(&*identity, "my.azurecr.io", &cloud.url).await;
    assert_eq!(login.as_deref(), Ok("refresh acr-refresh-token"));
    let entra = cloud.last("entra");
    assert_eq!(entra.line, "POST /tenant-1/oauth2/v2.0/token ");
    assert!(entra.body.contains("client_assertion=web-identity-token&"), "{entra:?}");
    assert!(entra.body.contains("scope=https%3A%2F%2Fcontainerregistry.azure.net%2F.default"), "{entra:?}");
    assert_eq!(cloud.last("acr").body, "grant_type=access_token&service=my.azurecr.io&access_token=entra-token");
    let to = Url::parse("https://management.azure.com/subscriptions").unwrap();
    let call = identity.authorize(Call::get(to, 1, soon()), false).await.unwrap();
    assert_eq!(call.headers[header::AUTHORIZATION], "Bearer entra-token");
    assert!(cloud.last("entra").body.contains("scope=https%3A%2F%2Fmanagement.azure.com%2F.default"));

    let config = json!({"azure": {"source": "managedIdentity", "clientId": "client-2", "endpoints": endpoints}});
    let identity = cloud.identity(&config, &pod);
    assert!(log_in(&*identity, "my.azurecr.us", &cloud.url).await.is_ok());
    let request = cloud.last("azure metadata");
    assert!(
        request.line.contains("resource=https%3A%2F%2Fmanagement.usgovcloudapi.net&client_id=client-2"),
        "{request:?}"
    );
    assert_eq!(request.headers["metadata"], "true");
}

/// The name of an identity comes from its own cloud, and so is a login at a registry whose host names no cloud.
#[tokio::test]
async fn azure_in_sovereign_clouds() {
    for (authority, resource) in [
        ("https://login.microsoftonline.com/", "https%3A%2F%2Fcontainerregistry.azure.net"),
        ("https://login.microsoftonline.us", "https%3A%2F%2Fmanagement.usgovcloudapi.net"),
        ("https://login.chinacloudapi.cn/", "https%3A%2F%2Fmanagement.chinacloudapi.cn"),
        ("https://login.partner.microsoftonline.cn/", "https%3A%2F%2Fmanagement.chinacloudapi.cn"),
    ] {
        let cloud = Cloud::start(|_| None).await;
        let config = json!({"azure": {"source": "managedIdentity", "endpoints": {"metadata": "{url}"}}});
        let identity = cloud.identity(&config, &cloud.pod(&[("AZURE_AUTHORITY_HOST", authority)]));
        identity.who(soon()).await.unwrap();
        log_in(&*identity, "registry.example", &cloud.url).await.unwrap();
        assert_eq!(cloud.steps(), ["azure metadata", "acr"], "{authority}: one token is enough");
        let request = cloud.last("azure metadata").line;
        assert!(request.ends_with(&format!("&resource={resource} ")), "{authority}: {request}");
    }
}

/// Without `identities`, the pod's environment decides, and only for hosts of the cloud that it names.
#[tokio::test]
async fn automatic_identities() {
    let cloud = Cloud::start(|_| None).await;
    let (none, _) = cloud.build(&json!({}), &cloud.pod(&[]));
    assert!([ECR, PKG, "my.azurecr.io", "gcr.io"].iter().all(|host| none.automatic(host).is_none()));
    let aws = [("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"), ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")];
    let (identities, problems) = cloud.build(&json!({}), &cloud.pod(&aws));
    assert_eq!(problems, Vec::<String>::new());
    for (host, has) in
        [(ECR, true), ("public.ecr.aws", true), (PKG, false), ("my.azurecr.io", false), ("docker.io", false)]
    {
        assert_eq!(identities.automatic(host).is_some(), has, "{host}");
    }
    // Half an environment is not anonymous: every use of it fails.
    let (broken, _) = cloud.build(&json!({}), &cloud.pod(&aws[..1]));
    let identity = broken.automatic(ECR).unwrap();
    let error = log_in(&*identity, ECR, "https://x.example/").await.unwrap_err();
    assert!(error.contains("lacks AWS_ROLE_ARN"), "{error}");
    assert!(cloud.steps().is_empty() && NOW > 0);
}

#[tokio::test]
async fn mistakes_of_a_configuration() {
    let cloud = Cloud::start(|_| None).await;
    let aws = [("AWS_ACCESS_KEY_ID", "AKIASTATIC"), ("AWS_SECRET_ACCESS_KEY", "static")];
    for (config, says) in [
        (json!({"x": {"aws": {"region": "eu-centrl"}}}), "`eu-centrl` is not a region"),
        (json!({"x": {"aws": {}}}), "neither `region` nor AWS_REGION"),
        (
            json!({"x": {"aws": {"region": "eu-west-1", "roleArn": "role/read"}}}),
            "`role/read` is not the ARN of a role",
        ),
        (json!({"x": {"aws": {"region": "eu-west-1", "externalId": "a"}}}), "there is no `roleArn`"),
        (json!({"none": {"aws": {"region": "eu-west-1"}}}), "this name means that no identity is used"),
        (json!({"x": {"azure": {}}}), "lacks AZURE_FEDERATED_TOKEN_FILE"),
        (json!({"x": {"azure": {"tenantId": "a/../b"}}}), "not an id of Entra ID"),
        (json!({"x": {"google": {"serviceAccount": "reader"}}}), "is not the email of a service account"),
        (json!({"x": {"google": {"credentialsFile": "token"}}}), "is not of the type `external_account`"),
    ] {
        let (_, problems) = cloud.build(&config, &cloud.pod(&aws));
        assert!(problems.iter().any(|problem| problem.contains(says)), "{config}: {problems:?}");
    }
}
