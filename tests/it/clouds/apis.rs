//! APIs of clouds as sources and gates: each request has what the identity gives.

use serde_json::{Value, json};

use super::{JSON, aws, run_changed};
use crate::support::upstream::{Request, Upstream};

/// A request to an API of the cloud has a signature of the role, and is a source like any other.
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
    let sent = aws.requests().into_iter().find(|request| request.target == "/clusters").unwrap();
    assert!(sent.header("authorization").unwrap().contains("/eu-central-1/eks/aws4_request"), "{sent:?}");
    assert_eq!(sent.header("x-amz-security-token"), Some("session-token"));
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
    // The server of the test refuses all other requests. The request is signed, and a refusal is not a verdict.
    let (said, is_good) = run_changed(&aws, &["call", "d"], change).await;
    let asked = aws.requests().into_iter().find(|request| request.target == "/builds");
    let asked = asked.unwrap_or_else(|| panic!("{said}"));
    let signed = asked.header("authorization").unwrap_or_default();
    assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=ASIAKEY/"), "{signed}");
    assert!(signed.contains("/eu-central-1/codebuild/"), "{signed}");
    assert!(!is_good && said.contains("401"), "{said}");
}

/// The metadata server of Google, Entra ID, and an API behind them that takes the access token of either.
async fn tokens() -> Upstream {
    Upstream::start(|request: &Request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let token = |token: &str| {
            let token = json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"});
            request.answer(200, &format!("{JSON}\r\nMetadata-Flavor: Google"), token.to_string())
        };
        match request.target.split('?').next().unwrap_or_default() {
            "/computeMetadata/v1/instance/service-accounts/default/token" => token("google-token"),
            "/tenant-1/oauth2/v2.0/token" if body.contains("client_assertion=web-identity-token") => {
                token("entra-token")
            }
            "/clusters"
                if matches!(request.header("authorization"), Some("Bearer google-token" | "Bearer entra-token")) =>
            {
                request.answer(200, JSON, r#"{"clusters":["blue","green"]}"#)
            }
            _ => request.answer(401, JSON, "{}"),
        }
    })
    .await
}

/// Google's and Azure's identities send their access token; Azure's is for the scope that the identity names, such as Graph.
#[tokio::test]
async fn apis_of_google_and_azure_are_queried_with_an_identity() {
    let cloud = tokens().await;
    let url = format!("http://{}/", cloud.address);
    let graph = "https://graph.microsoft.com/.default";
    for (identity, token) in [
        (json!({"google": {}}), "Bearer google-token"),
        (json!({"azure": {"scope": graph, "endpoints": {"authority": &url}}}), "Bearer entra-token"),
    ] {
        let change = |config: &mut Value| {
            let http = json!({"url": format!("{url}clusters"), "credential": {"identity": "prod"},
                "parameters": "body.clusters.map(c, {'name': c})"});
            config["identities"] = json!({"prod": identity});
            config["registries"] = json!({});
            config["routes"] = json!([{"name": "d", "backend": {"http": http}}]);
        };
        let (said, is_good) = run_changed(&cloud, &["call", "d"], change).await;
        assert!(is_good && said.contains("blue") && said.contains("green"), "{said}");
        assert!(!said.contains("google-token") && !said.contains("entra-token"), "{said}");
        let sent = cloud.requests().into_iter().rfind(|request| request.target == "/clusters").unwrap();
        assert_eq!(sent.header("authorization"), Some(token), "{sent:?}");
    }
    let exchange = cloud.requests().into_iter().find(|request| request.target.starts_with("/tenant-1/")).unwrap();
    let form = String::from_utf8(exchange.body).unwrap();
    assert!(form.contains("scope=https%3A%2F%2Fgraph.microsoft.com%2F.default"), "{form}");
}
