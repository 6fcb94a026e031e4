//! A registry of Azure behind a proxy with a private CA, which asks for a client certificate: the exchange of the login goes there too.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{JSON, MANIFEST};
use crate::support::{
    authority::Ca,
    binary,
    nginx::Nginx,
    upstream::{Request, Upstream},
};

/// Entra ID, and a registry that exchanges its tokens.
async fn azure() -> Upstream {
    Upstream::start(|request: &Request| match &*request.target {
        "/tenant-1/oauth2/v2.0/token" => {
            request.answer(200, JSON, json!({"access_token": "entra-token", "expires_in": 3600}).to_string())
        }
        "/oauth2/exchange" => request.answer(200, JSON, r#"{"refresh_token":"acr-refresh-token"}"#),
        "/oauth2/token" => request.answer(200, JSON, r#"{"access_token":"pull"}"#),
        _ if request.header("authorization") == Some("Bearer pull") => {
            let digest = base16ct::lower::encode_string(&Sha256::digest(MANIFEST));
            let kind = "Content-Type: application/vnd.oci.image.manifest.v1+json";
            request.answer(200, &format!("{kind}\r\nDocker-Content-Digest: sha256:{digest}"), MANIFEST)
        }
        _ => {
            let host = request.header("host").unwrap();
            let challenge = format!("WWW-Authenticate: Bearer realm=\"https://{host}/oauth2/token\",service=\"acr\"");
            request.answer(401, &challenge, "")
        }
    })
    .await
}

/// What `call` says, with `entry` for the registry at `host`.
async fn call(authority: &str, host: &str, entry: Value, folder: &std::path::Path) -> (String, bool) {
    let config = json!({
        "auth": {"tokens": [{"name": "argocd", "env": "PATH", "routes": ["*"]}]},
        "identities": {"az": {"azure": {"endpoints": {"authority": authority}}}},
        "registries": {host: entry},
        "routes": [{
            "name": "d", "backend": {"digests": {"images": {"app": {"image": format!("{host}/org/app:1")}}}},
            "output": {"app": "{{ app.digest }}"},
        }],
    });
    std::fs::write(folder.join("gateway.yaml"), config.to_string()).unwrap();
    std::fs::write(folder.join("token"), "web-identity-token").unwrap();
    let mut command = tokio::process::Command::from(binary::command());
    command.args(["call", "d", "-c", "gateway.yaml"]).current_dir(folder);
    command.env("AZURE_FEDERATED_TOKEN_FILE", folder.join("token"));
    command.env("AZURE_CLIENT_ID", "client-1").env("AZURE_TENANT_ID", "tenant-1");
    let output = command.output().await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for secret in ["web-identity-token", "entra-token", "acr-refresh-token"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
    (said, output.status.success())
}

#[tokio::test]
async fn the_exchange_has_the_certificates_of_the_registry() {
    let (azure, ca) = (azure().await, Ca::new("of the registry"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.crt"), &ca.pem).unwrap();
    let (certificate, key) = ca.client("gateway", "tools");
    std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.path().join("tls.key"), key).unwrap();
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("ca.crt"), &ca.pem).unwrap();
    let directives = format!(
        "ssl_client_certificate ca.crt; ssl_verify_client on;\nlocation / {{ proxy_pass http://{}; proxy_set_header Host $http_host; }}",
        azure.address
    );
    let nginx = Nginx::start_tls(site, &ca, &directives).await;
    let (authority, host) = (format!("http://{}/", azure.address), nginx.address.to_string());
    let certificate = json!({"cert": "tls.crt", "key": "tls.key"});
    let entry = json!({"identity": "az", "ca": "ca.crt", "clientCertificate": certificate});
    let (said, is_good) = call(&authority, &host, entry, folder.path()).await;
    assert!(is_good && said.contains("sha256:"), "{said}");
    let exchanged = azure.requests().iter().filter(|request| request.target == "/oauth2/exchange").count();
    assert_eq!(exchanged, 1, "{said}");
    // Without them it is not asked for a login, and without the CA it is not shown a token either.
    let (said, is_good) = call(&authority, &host, json!({"identity": "az", "ca": "ca.crt"}), folder.path()).await;
    assert!(!is_good && said.contains("the registry's token exchange: "), "{said}");
    let (said, is_good) = call(&authority, &host, json!({"identity": "az"}), folder.path()).await;
    assert!(!is_good && said.contains("its certificate is not trusted"), "{said}");
    let exchanged = azure.requests().iter().filter(|request| request.target == "/oauth2/exchange").count();
    assert_eq!(exchanged, 1, "{said}");
}
