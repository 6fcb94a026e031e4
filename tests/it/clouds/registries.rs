//! A gateway that serves, in a pod of each cloud: it answers digests and lists of tags of a real docker-registry, which checks the logins or
//! tokens itself. The test plays the cloud in front of it.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{JSON, XML, credentials};
use crate::support::{
    TOKEN, TestApp,
    binary::{self, Gateway},
    registry::{PASSWORD, Registry, Setup, USER},
    signer::Signer,
    upstream::{Request, Step, Upstream},
    wire::{argo_request, exchange},
};

/// A registry with the tags `v1` and `v2` of `org/app`, and another one that no route selects; and the digests of the two.
async fn filled() -> (Registry, BTreeMap<String, String>) {
    let registry = Registry::start().await;
    let mut digests = BTreeMap::new();
    for (image, tag) in [("front:feature-branch-1", "v1"), ("front:feature-branch-2", "v2")] {
        registry.push(image, &format!("org/app:{tag}")).await;
        digests.insert(tag.to_owned(), registry.inspect(&format!("org/app:{tag}")).await);
    }
    registry.push("back:feature-branch-1", "org/app:nightly").await;
    (registry, digests)
}

/// A cloud that replies what `play` says. The rest is for the registry at `host`.
async fn in_front_of(host: &str, play: impl Fn(&Request) -> Option<Vec<Step>> + Send + Sync + 'static) -> Upstream {
    let host = host.to_owned();
    Upstream::start(move |request| play(request).unwrap_or_else(|| pass_on(&host, request))).await
}

/// What the registry at `host` replies.
fn pass_on(host: &str, request: &Request) -> Vec<Step> {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let headers = request.headers.iter().filter(|(name, _)| name != "connection");
    let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    let head = format!("{} {} HTTP/1.1\r\n{headers}connection: close\r\n\r\n", request.method, request.target);
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    vec![Step::Send(reply)]
}

/// The field `name` of a form or a query.
fn field(text: &str, name: &str) -> Option<String> {
    let url = reqwest::Url::parse(&format!("http://x/?{text}")).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The repository in the scope of a request for a token.
fn repository(text: &str) -> String {
    let scope = field(text, "scope").unwrap();
    let repository = scope.strip_prefix("repository:").and_then(|scope| scope.strip_suffix(":pull"));
    repository.unwrap_or_else(|| panic!("{scope}")).to_owned()
}

/// The form in the body of `request`.
fn form(request: &Request) -> String {
    String::from_utf8(request.body.clone()).unwrap()
}

/// Serves a route of images and one of tags, for the registry called `name` at `front`, with `identity` in the pod with `variables`. Both
/// must answer `digests`.
async fn assert_answers(
    front: &Upstream,
    name: &str,
    identity: &Value,
    variables: &[(&str, &str)],
    digests: &BTreeMap<String, String>,
) {
    let address = front.address.to_string();
    assert_eq!(reqwest::get(format!("http://{address}/v2/org/app/tags/list")).await.unwrap().status(), 401);
    let folder = tempfile::tempdir().unwrap();
    let (file, token) = (folder.path().join("gateway.yaml"), folder.path().join("token"));
    std::fs::write(&token, "web-identity-token").unwrap();
    let image = |tag: &str| json!({"image": format!("{name}/org/app:{tag}")});
    let list = json!({"repositories": [format!("{name}/org/app")], "tags": {"glob": "v*"}});
    let routes = json!([
        {"name": "images", "backend": {"digests": {"images": {"one": image("v1"), "two": image("v2")}}},
         "output": {"v1": "{{ one.digest }}", "v2": "{{ two.digest }}"}},
        {"name": "tags", "backend": {"digests": {"list": list}}, "output": {"tag": "{{ tag }}", "digest": "{{ digest }}"}},
    ]);
    let registries = json!({name: {"identity": "it", "endpoint": &address, "plainHttp": true}});
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }}\n{}identities: {}\nregistries: {registries}\nroutes: {routes}\n",
        TestApp::auth(),
        json!({"it": identity}).to_string().replace("{url}", &format!("http://{address}/")),
    );
    std::fs::write(&file, config).unwrap();
    let mut command = binary::command();
    command.arg("serve").arg("-c").arg(&file);
    let filled = |value: &str| value.replace("{token}", &token.display().to_string()).replace("{cloud}", &address);
    command.envs(variables.iter().map(|(name, value)| (name, filled(value))));
    let gateway = Gateway::start(&mut command);
    let sets = async |route: &str| {
        let request = argo_request(&format!("/{route}/api/v1/getparams.execute"), TOKEN, b"{}");
        let reply = exchange(gateway.address, &request).await;
        assert_eq!(reply.status, 200, "{route}: {}", reply.text());
        reply.json()["output"]["parameters"].as_array().unwrap().clone()
    };
    assert_eq!(sets("images").await, [json!(digests)]);
    let tags = sets("tags").await;
    let text = |set: &Value, key: &str| set[key].as_str().unwrap().to_owned();
    let found: BTreeMap<String, String> = tags.iter().map(|set| (text(set, "tag"), text(set, "digest"))).collect();
    assert_eq!((&found, tags.len()), (digests, 2));
}

/// The requests for lists of tags that had a login or a token of the kind `scheme`.
fn lists(front: &Upstream, scheme: &str) -> usize {
    let is_list = |request: &&Request| request.target.starts_with("/v2/org/app/tags/list");
    let has = |request: &&Request| request.header("authorization").is_some_and(|sent| sent.starts_with(scheme));
    front.requests().iter().filter(is_list).filter(has).count()
}

/// ECR's login is a password, which the registry checks.
#[tokio::test]
async fn images_and_tags_of_ecr() {
    let (mut registry, digests) = filled().await;
    registry.stop().await;
    let front = in_front_of(&registry.host, |request| {
        if form(request).contains("Action=AssumeRoleWithWebIdentity") {
            return Some(request.answer(200, XML, credentials()));
        }
        request.header("x-amz-target").map(|_| {
            let token = STANDARD.encode(format!("{USER}:{PASSWORD}"));
            let data = json!({"authorizationToken": token, "expiresAt": 4_102_444_800_u64});
            request.answer(200, JSON, json!({"authorizationData": [data]}).to_string())
        })
    })
    .await;
    registry.restart_as(Setup { has_user: true, ..Setup::default() }).await;
    let identity = json!({"aws": {"region": "eu-central-1", "endpoints": {"sts": "{url}", "ecr": "{url}"}}});
    let pod = [("AWS_WEB_IDENTITY_TOKEN_FILE", "{token}"), ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")];
    let name = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
    assert_answers(&front, name, &identity, &pod, &digests).await;
    assert!(lists(&front, "Basic ") > 0);
}

/// Artifact Registry's token server takes the access token of the metadata server as a password.
#[tokio::test]
async fn images_and_tags_of_artifact_registry() {
    let (mut registry, digests) = filled().await;
    registry.stop().await;
    let signer = Signer::new();
    let certificate = signer.certificate();
    let login = format!("Basic {}", STANDARD.encode("oauth2accesstoken:google-token"));
    let front = in_front_of(&registry.host, move |request| {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        match path {
            "/computeMetadata/v1/instance/service-accounts/default/token" => {
                assert_eq!(request.header("metadata-flavor"), Some("Google"));
                let token = json!({"access_token": "google-token", "expires_in": 3600, "token_type": "Bearer"});
                Some(request.answer(200, &format!("{JSON}\r\nMetadata-Flavor: Google"), token.to_string()))
            }
            "/v2/token" if request.header("authorization") == Some(&*login) => {
                Some(request.answer(200, JSON, json!({"token": signer.token(&repository(query), 60)}).to_string()))
            }
            "/v2/token" => Some(request.answer(401, JSON, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#)),
            _ => None,
        }
    })
    .await;
    let tokens = Some((format!("http://{}/v2/token", front.address), certificate));
    registry.restart_as(Setup { tokens, ..Setup::default() }).await;
    let pod = [("GCE_METADATA_HOST", "{cloud}")];
    assert_answers(&front, "europe-docker.pkg.dev", &json!({"google": {}}), &pod, &digests).await;
    assert!(lists(&front, "Bearer ") > 0);
}

/// ACR exchanges Entra ID's token for a refresh token, and that for a token of each repository.
#[tokio::test]
async fn images_and_tags_of_acr() {
    let (mut registry, digests) = filled().await;
    registry.stop().await;
    let signer = Signer::new();
    let certificate = signer.certificate();
    let front = in_front_of(&registry.host, move |request| {
        let body = form(request);
        let is =
            |wanted: &[(&str, &str)]| wanted.iter().all(|(name, value)| field(&body, name).as_deref() == Some(value));
        let reply = match &*request.target {
            "/tenant-1/oauth2/v2.0/token"
                if is(&[("client_assertion", "web-identity-token"), ("client_id", "client-1")]) =>
            {
                json!({"access_token": "entra-token", "expires_in": 3600, "token_type": "Bearer"})
            }
            "/oauth2/exchange" if is(&[("service", "my.azurecr.io"), ("access_token", "entra-token")]) => {
                json!({"refresh_token": "acr-refresh-token"})
            }
            "/oauth2/token" if is(&[("service", "test registry"), ("refresh_token", "acr-refresh-token")]) => {
                json!({"access_token": signer.token(&repository(&body), 60)})
            }
            target if target.starts_with("/v2/") => return None,
            _ => return Some(request.answer(401, JSON, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#)),
        };
        Some(request.answer(200, JSON, reply.to_string()))
    })
    .await;
    let tokens = Some((format!("http://{}/oauth2/token", front.address), certificate));
    registry.restart_as(Setup { tokens, ..Setup::default() }).await;
    let identity = json!({"azure": {"endpoints": {"authority": "{url}"}}});
    let pod =
        [("AZURE_FEDERATED_TOKEN_FILE", "{token}"), ("AZURE_CLIENT_ID", "client-1"), ("AZURE_TENANT_ID", "tenant-1")];
    assert_answers(&front, "my.azurecr.io", &identity, &pod, &digests).await;
    assert!(lists(&front, "Bearer ") > 0);
}
