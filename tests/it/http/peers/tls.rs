//! nginx with TLS, a private CA, and client certificates.

use super::*;
use crate::support::authority::Ca;

/// The reply of a gateway that requests `nginx`, with `files` in its folder.
async fn ask(nginx: &Nginx, files: &[(&str, &str)], more: Value) -> Reply {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let config = patient(&format!("https://{}/list.json", nginx.address), &more);
    TestApp::start_in(folder, &config).await.ask_afresh("h", json!({})).await
}

#[tokio::test]
async fn a_configured_private_ca_is_trusted() {
    let (ours, other) = (Ca::new("ours"), Ca::new("other"));
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let nginx = Nginx::start_tls(site(), &ours, &format!("root www; ssl_protocols {protocols};")).await;
        let files = [("ours.crt", &*ours.pem), ("other.crt", &*other.pem)];
        assert_eq!(ask(&nginx, &files, json!({"ca": "ours.crt"})).await.sets(), SETS);
        for more in [json!({}), json!({"ca": "other.crt"})] {
            refused(&ask(&nginx, &files, more).await, 502, "backend_failed", "its certificate is not trusted");
        }
    }
}

#[tokio::test]
async fn nginx_asks_for_a_client_certificate() {
    let (ours, clients, strangers) = (Ca::new("ours"), Ca::new("clients"), Ca::new("strangers"));
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let folder = site();
        fs::write(folder.path().join("clients.crt"), &clients.pem).unwrap();
        let verify = "root www; ssl_verify_client on; ssl_client_certificate clients.crt;";
        let nginx = Nginx::start_tls(folder, &ours, &format!("{verify} ssl_protocols {protocols};")).await;
        let shown = async |of: Option<&Ca>| {
            let (cert, key) = of.map(|ca| ca.certificate(&["gateway"])).unwrap_or_default();
            let mut more = json!({"ca": "ours.crt"});
            if of.is_some() {
                more["clientCertificate"] = json!({"cert": "gateway.crt", "key": "gateway.key"});
            }
            ask(&nginx, &[("ours.crt", &ours.pem), ("gateway.crt", &cert), ("gateway.key", &key)], more).await
        };
        assert_eq!(shown(Some(&clients)).await.sets(), SETS);
        let invalid = "backend_output_invalid";
        refused(&shown(None).await, 502, invalid, "400 No required SSL certificate was sent");
        refused(&shown(Some(&strangers)).await, 502, invalid, "400 The SSL certificate error");
    }
}

#[tokio::test]
async fn a_mismatch_of_http_and_https_is_unknown() {
    let ours = Ca::new("ours");
    // http:// to the port of https, and the reverse.
    let nginx = Nginx::start_tls(site(), &ours, "").await;
    let app = gateway_behind(&nginx, "/list.json", json!({})).await;
    let message = refused(&app.ask_afresh("h", json!({})).await, 502, "backend_output_invalid", "400 Bad Request");
    assert!(message.contains("The plain HTTP request was sent to HTTPS port"), "{message}");
    let nginx = Nginx::start(site(), "root www;").await;
    let reply = ask(&nginx, &[("ours.crt", &ours.pem)], json!({"ca": "ours.crt"})).await;
    refused(&reply, 502, "backend_failed", "cannot connect");
}
