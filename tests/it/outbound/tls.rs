//! Certificates: a private CA is trusted only where the configuration says so.

use std::{net::SocketAddr, path::PathBuf};

use appset_gateway::{app::App, config::Loaded};
use domain::file::base_dir::BaseDir;
use outbound::ClientCertificate;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

use super::*;
use crate::support::{TestApp, authority::Ca, upstream::refused};

/// A server with a certificate of `ca` for `names`. It answers everything with a list.
pub(super) async fn serve(ca: &Ca, names: &[&str]) -> SocketAddr {
    serve_to(ca, names, None).await
}

/// The same server, for clients with a certificate of `clients`.
async fn serve_to(ca: &Ca, names: &[&str], clients: Option<&Ca>) -> SocketAddr {
    let (certificate, key) = ca.certificate(names);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let config = config.with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(mut stream) = acceptor.accept(stream).await {
                _ = stream.read(&mut [0; 4096]).await;
                _ = stream.write_all(&json_response(r#"[{"a":"1"}]"#)).await;
                _ = stream.shutdown().await;
            }
        }
    });
    address
}

pub(super) fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    file
}

async fn ask(address: SocketAddr, ca: Option<PathBuf>) -> Result<Reply, BackendError> {
    let url = Url::parse(&format!("https://{address}/list")).unwrap();
    let (client, _) = new_client(ClientOptions { tls: Tls { ca, ..Tls::default() }, ..ClientOptions::default() });
    client.fetch(Call::get(url, 4096, Instant::now() + Duration::from_secs(10))).await
}

#[tokio::test]
async fn a_configured_private_ca_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Ca::new("ours"), Ca::new("other"));
    let (named, stranger) = (write(&folder, "ours.crt", &ours.pem), write(&folder, "other.crt", &other.pem));
    let both = write(&folder, "both.crt", &format!("{}\n{}", other.pem, ours.pem));
    let address = serve(&ours, &["127.0.0.1"]).await;
    assert_eq!(ask(address, Some(named.clone())).await.unwrap().status.as_u16(), 200);
    assert_eq!(ask(address, Some(both)).await.unwrap().status.as_u16(), 200);

    let message = fails(ask(address, None).await, ErrorKind::Unavailable, "its certificate is not trusted (");
    assert!(message.ends_with("if a private CA signed it, name that CA's file as `ca`"), "{message}");
    assert!(!message.contains("tried"), "another attempt finds the same: {message}");
    let message = fails(ask(address, Some(stranger)).await, ErrorKind::Unavailable, "its certificate is not trusted (");
    assert!(message.contains("neither the system nor the CA file ") && message.contains("other.crt"), "{message}");
    // A certificate for another name is not trusted either.
    let misnamed = serve(&ours, &["elsewhere.example"]).await;
    fails(ask(misnamed, Some(named)).await, ErrorKind::Unavailable, "its certificate is not trusted (");
}

#[tokio::test]
async fn a_route_names_a_private_ca() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Ca::new("ours");
    write(&folder, "ours.crt", &ours.pem);
    let address = serve(&ours, &["127.0.0.1"]).await;
    let url = format!("https://{address}/list");
    let route = |name: &str, more| {
        let mut http = json!({"url": url});
        http.as_object_mut().unwrap().extend::<serde_json::Map<_, _>>(serde_json::from_value(more).unwrap());
        json!({"name": name, "backend": {"http": http}})
    };
    let routes = json!([route("with", json!({"ca": "ours.crt"})), route("without", json!({}))]);
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
    assert_eq!(app.ask("with", json!({})).await.sets(), r#"[{"a":"1"}]"#);
    refused(&app.ask("without", json!({})).await, 502, "backend_failed", "its certificate is not trusted");
}

#[tokio::test]
async fn an_invalid_ca_file_is_reported_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "empty.crt", "");
    for (url, file, expected) in [
        ("https://h.example/", "missing.crt", "cannot read the CA file"),
        ("https://h.example/", "empty.crt", "holds no certificate"),
    ] {
        let routes = json!([{"name": "r", "backend": {"http": {"url": url, "ca": file}}}]);
        let config = format!("{}routes: {routes}\n", TestApp::auth());
        let Err(report) = crate::support::app::build(folder.path(), &config, TestClock::standing()) else {
            panic!("{file} is accepted");
        };
        let text = report.lines().join("\n");
        assert!(text.contains(expected) && text.contains(file) && text.contains("http.ca"), "{text}");
    }
    write(&folder, "ours.crt", &Ca::new("ours").pem);
    let routes = json!([{"name": "r", "backend": {"http": {"url": "http://h.example/", "ca": "ours.crt"}}}]);
    let config = format!("{}routes: {routes}\n", TestApp::auth());
    let Ok(loaded) = Loaded::parse("test.yaml", config, BaseDir::new(folder.path())) else { panic!() };
    let Ok((_, report)) = App::build(loaded, TestClock::standing(), std::path::Path::new("")) else {
        panic!("a warning is no error")
    };
    let text = report.lines().join("\n");
    assert!(text.contains("it has no effect: the URL begins with http://"), "{text}");
}

#[tokio::test]
async fn a_client_certificate_is_sent_and_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, clients, strangers) = (Ca::new("ours"), Ca::new("clients"), Ca::new("strangers"));
    write(&folder, "ours.crt", &ours.pem);
    let address = serve_to(&ours, &["127.0.0.1"], Some(&clients)).await;
    let show = |ca: &Ca| {
        let (cert, key) = ca.certificate(&["gateway"]);
        ClientCertificate { cert: write(&folder, "tls.crt", &cert), key: write(&folder, "tls.key", &key) }
    };
    let client = Some(show(&strangers));
    let ca = Some(folder.path().join("ours.crt"));
    let (client, _) =
        new_client(ClientOptions { tls: Tls { ca, client, is_checked: true }, ..ClientOptions::default() });
    let ask = async || {
        let url = Url::parse(&format!("https://{address}/list")).unwrap();
        client.fetch(Call { may_repeat: false, ..Call::get(url, 4096, Instant::now() + Duration::from_secs(10)) }).await
    };
    fails(ask().await, ErrorKind::Unavailable, "");
    // The files are read again after a while. An invalid file changes nothing.
    let later = async || {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(31)).await;
        tokio::time::resume();
    };
    show(&clients);
    later().await;
    assert_eq!(ask().await.unwrap().status.as_u16(), 200);
    write(&folder, "tls.key", "half a k");
    later().await;
    assert_eq!(ask().await.unwrap().status.as_u16(), 200);
}

#[tokio::test]
async fn disabled_certificate_checks_work_and_are_logged() {
    let ours = Ca::new("ours");
    let address = serve(&ours, &["elsewhere.example"]).await;
    let url = format!("https://{address}/list");
    let routes = json!([
        {"name": "careless", "backend": {"http": {"url": url, "insecureSkipVerify": true}}},
        {"name": "careful", "backend": {"http": {"url": url}}},
    ]);
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{}routes: {routes}\n", TestApp::auth());
    let Ok(loaded) = Loaded::parse("test.yaml", config.clone(), BaseDir::new(folder.path())) else { panic!() };
    let Ok((_, report)) = App::build(loaded, TestClock::standing(), std::path::Path::new("")) else { panic!() };
    let text = report.lines().join("\n");
    assert!(
        text.contains("routes[0].backend.http.insecureSkipVerify") && text.contains("can read its credential"),
        "{text}"
    );
    let app = TestApp::start_in(folder, &config).await;
    assert_eq!(app.ask("careless", json!({})).await.sets(), r#"[{"a":"1"}]"#);
    refused(&app.ask("careful", json!({})).await, 502, "backend_failed", "its certificate is not trusted");
}
