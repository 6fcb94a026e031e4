//! Identities at clouds: the whole program, from the pod's environment to a registry's answer. Each cloud is an upstream of the test.

mod events;
mod private;
mod registries;

use std::sync::Arc;

use serde_json::{Value, json};
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

/// AWS and a registry behind it, at one address. `refuses` is what STS or ECR refuses.
async fn aws(refuses: &'static str) -> Upstream {
    // What the registry refuses to whom it let in begins with its path.
    let refuses_path = Some(refuses).filter(|path| path.starts_with('/'));
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
        if request.header("x-amz-target").is_some_and(|target| !refuses.is_empty() && target.contains(refuses)) {
            let message = "User: arn:aws:sts::123456789012:assumed-role/pod/x is not authorized to perform: ecr:GetAuthorizationToken on resource: *";
            return request.answer(400, JSON, json!({"__type": "AccessDeniedException", "message": message}).to_string());
        }
        if request.header("x-amz-target").is_some() {
            let data = json!({"authorizationToken": "QVdTOmVjci1wYXNzd29yZA==", "expiresAt": 4_102_444_800_u64});
            return request.answer(200, JSON, json!({"authorizationData": [data]}).to_string());
        }
        if request.target == "/clusters" {
            let is_signed = |value: &str| value.starts_with("AWS4-HMAC-SHA256 Credential=ASIAKEY/");
            let is_signed = request.header("authorization").is_some_and(is_signed);
            return request.answer(if is_signed { 200 } else { 403 }, JSON, r#"{"clusters":["blue","green"]}"#);
        }
        match request.header("authorization") {
            // `AWS:ecr-password`
            Some("Basic QVdTOmVjci1wYXNzd29yZA==") if refuses_path.is_some_and(|path| request.target.starts_with(path)) => {
                request.answer(403, JSON, r#"{"errors":[{"code":"DENIED","message":"not authorized to perform: ecr:BatchGetImage"}]}"#)
            }
            Some("Basic QVdTOmVjci1wYXNzd29yZA==") if request.target.contains("/tags/list") => {
                request.answer(200, JSON, r#"{"name":"org/app","tags":["1"]}"#)
            }
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
    run_changed(aws, arguments, |config| {
        config["registries"][aws.address.to_string()]["identity"] = json!(identity);
    })
    .await
}

/// The same with another configuration.
async fn run_changed(aws: &Upstream, arguments: &[&str], change: impl FnOnce(&mut Value)) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let (host, write) = (aws.address.to_string(), |name: &str, text: String| {
        std::fs::write(folder.path().join(name), text).unwrap();
    });
    let mut config = json!({
        "auth": {"tokens": [{"name": "argocd", "env": "PATH", "routes": ["*"]}]},
        "identities": {"prod": {"aws": {"region": "eu-central-1", "endpoints": {"sts": format!("http://{host}/"), "ecr": format!("http://{host}/")}}}},
        "registries": {&host: {"plainHttp": true, "identity": "prod"}},
        "routes": [{
            "name": "d", "backend": {"digests": {"images": {"app": {"image": format!("{host}/org/app:1")}}}},
            "output": {"app": "{{ app.digest }}"},
        }],
    });
    change(&mut config);
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

/// `check --connect` says what the cloud refuses, and what is missing.
#[tokio::test]
async fn check_says_what_an_identity_lacks() {
    let refuses_ecr = aws("GetAuthorizationToken").await;
    let (said, is_good) = run(&refuses_ecr, &["check", "--connect"], "prod").await;
    assert!(!is_good && said.contains("is arn:aws:sts::123456789012:assumed-role/pod/x"), "{said}");
    assert!(said.contains(&format!("registry {}: gives the identity no login", refuses_ecr.address)), "{said}");
    assert!(said.contains("AccessDeniedException: User: arn:aws:sts::123456789012:assumed-role/pod/x"), "{said}");
    assert!(
        said.contains("what is missing: the role's policy must allow `ecr:GetAuthorizationToken` on `*`"),
        "{said}"
    );
    let refuses_role = aws("AssumeRoleWithWebIdentity").await;
    let (said, is_good) = run(&refuses_role, &["check", "--connect"], "prod").await;
    assert!(!is_good && said.contains("cannot be used: "), "{said}");
    assert!(said.contains("what is missing: the role must exist, and its trust policy must allow"), "{said}");
    let all_good = aws("").await;
    let (said, is_good) = run(&all_good, &["check", "--connect"], "prod").await;
    assert!(is_good && said.contains(&format!("registry {}: gives the identity a login", all_good.address)), "{said}");
}

/// A registry that gives a login, and refuses what it was for: an image, or a list of tags.
#[tokio::test]
async fn check_says_what_an_identity_may_not_read() {
    let needs = "what is missing: the role's policy, and for another account's repository its own policy too, must allow `ecr:BatchGetImage`";
    let with_list = |config: &mut Value| {
        let host = config["registries"].as_object().unwrap().keys().next().unwrap().clone();
        let repositories = [format!("{host}/org/app"), format!("{host}/org/{{{{ params.app }}}}")];
        let list = json!({"list": {"repositories": repositories}});
        let route = json!({"name": "tags", "backend": {"digests": list}, "output": {"tag": "{{ tag }}"}});
        config["routes"].as_array_mut().unwrap().push(route);
    };
    for (refuses, refused, good) in [
        (
            "/v2/org/app/manifests/",
            "route d: image app: HOST/org/app cannot be used: ",
            "route tags: tags of HOST/org/app answers",
        ),
        (
            "/v2/org/app/tags/",
            "route tags: tags of HOST/org/app cannot be used: ",
            "route d: image app: HOST/org/app answers",
        ),
    ] {
        let aws = aws(refuses).await;
        let host = aws.address.to_string();
        let (said, is_good) = run_changed(&aws, &["check", "--connect"], |config| {
            config["registries"][&host]["identity"] = json!("prod");
            with_list(config);
        })
        .await;
        let line = said.lines().find(|line| line.starts_with(&refused.replace("HOST", &host)));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        assert!(!is_good && line.contains("403") && line.contains(needs), "{line}");
        assert!(said.contains(&good.replace("HOST", &host)), "{said}");
        let tried = said.lines().filter(|line| line.starts_with("route tags: ")).count();
        assert_eq!(tried, 1, "a name with a parameter is not known: {said}");
    }
    // Without an identity, nothing is known about permissions.
    let aws = aws("").await;
    let host = aws.address.to_string();
    let (said, is_good) = run_changed(&aws, &["check", "--connect"], |config| {
        config["registries"][&host]["identity"] = json!("none");
        with_list(config);
    })
    .await;
    assert!(!is_good && said.contains("cannot be used") && !said.contains("what is missing"), "{said}");
}

/// Programs read which identity each source uses, too.
#[tokio::test]
async fn identities_are_in_the_output_for_programs() {
    let aws = aws("").await;
    let (said, is_good) = run(&aws, &["check", "-o", "json"], "prod").await;
    // Standard error comes after it.
    let entries = serde_json::Deserializer::from_str(&said).into_iter::<Value>().next().unwrap().unwrap();
    let of_identity = entries.as_array().unwrap().iter().find(|entry| entry["severity"] == "note").unwrap();
    let message = of_identity["message"].as_str().unwrap();
    assert!(
        is_good && message.starts_with(&format!("registry {}: AWS, arn:aws:iam::123456789012:role/pod", aws.address)),
        "{said}"
    );
}

/// Each route has its own role, in place of the registry's.
#[tokio::test]
async fn a_route_names_its_own_identity() {
    let aws = aws("").await;
    let role = "arn:aws:iam::210987654321:role/of-the-tenant";
    let of_tenant = |config: &mut Value| {
        config["identities"]["tenant"] = config["identities"]["prod"].clone();
        config["identities"]["tenant"]["aws"]["roleArn"] = json!(role);
        config["routes"][0]["backend"]["digests"]["identity"] = json!("tenant");
    };
    let (said, is_good) = run_changed(&aws, &["call", "d"], of_tenant).await;
    assert!(is_good && said.contains("sha256:"), "{said}");
    let assumed = |request: &&Request| String::from_utf8_lossy(&request.body).contains("Action=AssumeRole&");
    assert_eq!(aws.requests().iter().filter(assumed).count(), 1, "{said}");
    let (said, is_good) = run_changed(&aws, &["check"], of_tenant).await;
    let line = format!("route d, registry {}: AWS, arn:aws:iam::123456789012:role/pod by", aws.address);
    let line = said.lines().find(|said| said.contains(&line)).unwrap_or_else(|| panic!("{said}"));
    assert!(is_good && line.ends_with(&format!("then {role}")), "{said}");
    // It is an error if it is used nowhere, or is not there.
    let unused = |config: &mut Value| {
        of_tenant(config);
        config["routes"][0]["backend"]["digests"]["images"]["app"]["image"] = json!("registry.example/org/app:1");
    };
    let (said, is_good) = run_changed(&aws, &["check"], unused).await;
    assert!(!is_good && said.contains("it logs in at none of the registries here"), "{said}");
    assert!(said.contains("routes[0].backend.digests.identity"), "{said}");
    let unknown = |config: &mut Value| config["routes"][0]["backend"]["digests"]["identity"] = json!("tenat");
    let (said, is_good) = run_changed(&aws, &["check"], unknown).await;
    assert!(!is_good && said.contains("there is no identity called `tenat`"), "{said}");
}

/// An identity goes only to hosts of the configuration.
#[tokio::test]
async fn a_templated_host_gets_no_identity() {
    let aws = aws("").await;
    let image = |config: &mut Value| {
        let digests = &mut config["routes"][0]["backend"]["digests"];
        digests["images"]["app"]["image"] = json!("{{ params.account }}.dkr.ecr.eu-central-1.amazonaws.com/org/app:1");
        digests["identity"] = json!("prod");
    };
    let (said, is_good) = run_changed(&aws, &["check"], image).await;
    assert!(!is_good && said.contains("it logs in at none of the registries here"), "{said}");
    for url in ["https://{{ params.host }}/clusters", "https://eks.{{ params.region }}.amazonaws.com/clusters"] {
        let http = |config: &mut Value| {
            let credential = json!({"identity": "prod"});
            let http = json!({"url": url, "allowedHosts": ["*.amazonaws.com"], "credential": credential, "parameters": "body"});
            config["routes"] = json!([{"name": "d", "backend": {"http": http}}]);
        };
        let (said, is_good) = run_changed(&aws, &["check"], http).await;
        assert!(!is_good && said.contains("an identity goes only to hosts of the configuration"), "{said}");
        assert!(said.contains("routes[0].backend.http.credential.identity"), "{said}");
    }
    assert!(aws.requests().is_empty());
}

/// An API of the cloud is asked with a signature of the role, and is a source like any other.
#[tokio::test]
async fn an_api_is_queried_with_an_identity() {
    let aws = aws("").await;
    let change = |credential: Value| {
        let url = format!("http://{}/clusters", aws.address);
        move |config: &mut Value| {
            config["identities"]["prod"]["aws"]["service"] = json!("eks");
            let parameters = "body.clusters.map(c, {'name': c})";
            let http = json!({"url": url, "credential": credential, "parameters": parameters});
            config["routes"] = json!([{"name": "d", "backend": {"http": http}}]);
        }
    };
    let (said, is_good) = run_changed(&aws, &["call", "d"], change(json!({"identity": "prod"}))).await;
    assert!(is_good && said.contains("blue") && said.contains("green"), "{said}");
    let asked = aws.requests().into_iter().find(|request| request.target == "/clusters").unwrap();
    assert!(asked.header("authorization").unwrap().contains("/eu-central-1/eks/aws4_request"), "{asked:?}");
    assert_eq!(asked.header("x-amz-security-token"), Some("session-token"));
    let other = json!({"bearer": {"env": "AWS_ROLE_ARN"}});
    let (said, is_good) = run_changed(&aws, &["call", "d"], change(other)).await;
    assert!(!is_good && said.contains("403"), "{said}");
}

/// A gate that reads an API of the cloud, such as its builds, signs its requests.
#[tokio::test]
async fn a_gate_asks_by_an_identity() {
    let aws = aws("").await;
    let gate = json!({"http": {
        "url": format!("http://{}/builds", aws.address), "credential": {"identity": "prod"}, "verdict": "body.verdict",
    }});
    let change = |config: &mut Value| {
        config["identities"]["prod"]["aws"]["service"] = json!("codebuild");
        config["routes"][0]["backend"]["digests"]["gate"] = gate;
    };
    // The server of the test refuses what it does not know. The request is signed, and a refusal is not a verdict.
    let (said, is_good) = run_changed(&aws, &["call", "d"], change).await;
    let asked = aws.requests().into_iter().find(|request| request.target == "/builds");
    let asked = asked.unwrap_or_else(|| panic!("{said}"));
    let signed = asked.header("authorization").unwrap_or_default();
    assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=ASIAKEY/"), "{signed}");
    assert!(signed.contains("/eu-central-1/codebuild/"), "{signed}");
    assert!(!is_good && said.contains("401"), "{said}");
}
