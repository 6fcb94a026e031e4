//! TLS: protocols by ALPN, client certificates, and certificate files renewed under load.

mod admin;
mod streams;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::support::{
    Reply, TOKEN, TestApp,
    authority::Ca,
    binary::Gateway,
    mounted::mount,
    visitor::Visitor,
    wire::{argo_request, exchange, read_reply},
};

const PATH: &str = "/r/api/v1/getparams.execute";
const ROUTES: &str = "routes: [ { name: r, backend: { fixed: { parameters: [ { a: b } ] } } } ]\n";

/// A gateway with a certificate of `ca` for `localhost`, and with more keys in `tls` and `auth`.
async fn serve(ca: &Ca, tls: &str, auth: &str) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = ca.certificate(&["localhost"]);
    for (name, content) in [("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", &ca.pem)] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let hash = auth::hash_token(TOKEN);
    let auth = format!("auth: {{ tokens: [ {{ name: test, sha256: \"{hash}\" }} ]{auth} }}\n");
    let server = format!("server: {{ tls: {{ cert: tls.crt, key: tls.key{tls} }} }}\n");
    TestApp::start_in(folder, &format!("{server}{auth}{ROUTES}")).await
}

async fn ask(visitor: &Visitor, address: SocketAddr, request: &[u8]) -> std::io::Result<Reply> {
    let mut stream = visitor.connect(address).await?;
    stream.write_all(request).await?;
    // With TLS 1.3 a client learns only now that its certificate is refused.
    let mut first = [0];
    stream.read_exact(&mut first).await?;
    Ok(read_reply(&mut (&first[..]).chain(stream)).await)
}

#[tokio::test]
async fn alpn_decides_the_http_version() {
    let ca = Ca::new("ca");
    let app = serve(&ca, "", "").await;
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let stream = Visitor::new(&ca.pem, None, offered).connect(app.address).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed.map(str::as_bytes), "{offered:?}");
    }
    for offered in [&["http/1.1"][..], &[]] {
        let visitor = Visitor::new(&ca.pem, None, offered);
        let reply = ask(&visitor, app.address, &argo_request(PATH, TOKEN, b"{}")).await.unwrap();
        assert_eq!(reply.sets(), r#"[{"a":"b"}]"#);
        assert_eq!(ask(&visitor, app.address, &argo_request(PATH, "wrong", b"{}")).await.unwrap().status, 403);
    }
    // HTTP/2 needs its agreement by ALPN.
    let mut stream = Visitor::new(&ca.pem, None, &["http/1.1"]).connect(app.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert_eq!(stream.read(&mut [0; 64]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_cleartext_request_gets_the_advice_to_use_https() {
    let app = serve(&Ca::new("ca"), "", "").await;
    let reply = exchange(app.address, &argo_request(PATH, TOKEN, b"{}")).await;
    let error_body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((reply.status, &error_body["code"]), (400, &"invalid_request".into()));
    assert!(error_body["message"].as_str().unwrap().contains("https://"), "{error_body}");
    assert_eq!(app.metric("appset_gateway_connections_ended_total{reason=\"no_handshake\"}").await, 1);
    // Probes and metrics stay on the admin listener.
    assert_eq!(app.admin("/readyz").await.status, 200);
    assert!(app.metric("appset_gateway_tls_certificate_not_after_seconds").await > 1_700_000_000);
}

#[tokio::test]
async fn a_client_certificate_identifies_a_caller() {
    let (ca, stranger) = (Ca::new("ca"), Ca::new("ca"));
    let callers = ", certificates: [ { name: argocd, subject: \"CN=argocd,O=platform\", routes: [r] }, \
                   { name: other, subject: \"CN=other,O=platform\", routes: [\"x-*\"] } ]";
    let app = serve(&ca, ", clientCa: ca.crt", callers).await;
    let visitor = |ca_of: &Ca, name: &str| Visitor::new(&ca.pem, Some(&ca_of.client(name, "platform")), &[]);
    let bare = argo_request(PATH, "", b"{}");
    let bare = String::from_utf8(bare).unwrap().replace("Authorization: Bearer \r\n", "").into_bytes();
    let reply = ask(&visitor(&ca, "argocd"), app.address, &bare).await.unwrap();
    assert_eq!(reply.sets(), r#"[{"a":"b"}]"#);
    let message = async |visitor: &Visitor, request: &[u8]| {
        let reply = ask(visitor, app.address, request).await.unwrap();
        assert_eq!(reply.status, 403, "{}", reply.text());
        serde_json::from_slice::<Value>(&reply.body).unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert!(message(&visitor(&ca, "other"), &bare).await.contains("the caller `other` may not ask the route `r`"));
    let error_body = message(&visitor(&ca, "nobody"), &bare).await;
    assert!(
        error_body.contains("`CN=nobody,O=platform`") && error_body.contains("`auth.certificates`"),
        "{error_body}"
    );
    // A token outranks a certificate, even a wrong token.
    let wrong = argo_request(PATH, "wrong", b"{}");
    assert!(message(&visitor(&ca, "argocd"), &wrong).await.contains("the bearer token is missing or wrong"));
    let right = argo_request(PATH, TOKEN, b"{}");
    assert_eq!(ask(&visitor(&ca, "nobody"), app.address, &right).await.unwrap().status, 200);
    // A client without a certificate is asked for a token. A client with an untrusted certificate gets no answer.
    let none = Visitor::new(&ca.pem, None, &[]);
    assert!(message(&none, &bare).await.contains("the bearer token is missing or wrong"));
    assert_eq!(ask(&none, app.address, &right).await.unwrap().status, 200);
    ask(&visitor(&stranger, "argocd"), app.address, &right).await.unwrap_err();
}

/// A certificate that belongs to no caller is slowed down like any stranger.
#[tokio::test]
async fn unknown_certificates_are_slowed_down() {
    let ca = Ca::new("ca");
    let app =
        serve(&ca, ", clientCa: ca.crt", ", certificates: [ { name: argocd, subject: \"CN=argocd,O=platform\" } ]")
            .await;
    let bare = String::from_utf8(argo_request(PATH, "", b"{}")).unwrap();
    let bare = bare.replace("Authorization: Bearer \r\n", "").into_bytes();
    let [nobody, argocd] =
        ["nobody", "argocd"].map(|name| Visitor::new(&ca.pem, Some(&ca.client(name, "platform")), &[]));
    let mut stream = nobody.connect(app.address).await.unwrap();
    let mut statuses = Vec::new();
    for _ in 0..130 {
        stream.write_all(&bare).await.unwrap();
        statuses.push(read_reply(&mut stream).await.status);
    }
    assert_eq!(statuses[..100], [403; 100]);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(ask(&argocd, app.address, &bare).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_client_certificate_can_be_required() {
    let ca = Ca::new("ca");
    let app = serve(&ca, ", clientCa: ca.crt, requireClientCertificate: true", "").await;
    let right = argo_request(PATH, TOKEN, b"{}");
    ask(&Visitor::new(&ca.pem, None, &[]), app.address, &right).await.unwrap_err();
    let shown = Visitor::new(&ca.pem, Some(&ca.client("argocd", "platform")), &[]);
    assert_eq!(ask(&shown, app.address, &right).await.unwrap().status, 200);
    // The certificate alone is no caller.
    assert_eq!(ask(&shown, app.address, &argo_request(PATH, "wrong", b"{}")).await.unwrap().status, 403);
}

#[tokio::test]
async fn an_incomplete_handshake_times_out() {
    let app = serve(&Ca::new("ca"), "", "").await;
    // The first bytes of a 512-byte ClientHello.
    let halves: [&[u8]; 3] = [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"];
    let waiting = halves.map(|half| async move {
        let mut stream = TcpStream::connect(app.address).await.unwrap();
        stream.write_all(half).await.unwrap();
        _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut Vec::new())).await.expect("it is let go");
    });
    futures_util::future::join_all(waiting).await;
    assert_eq!(app.metric("appset_gateway_connections_ended_total{reason=\"no_handshake\"}").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_under_load_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let mounted = |version: &str, ca: &Ca| {
        let (certificate, key) = ca.certificate(&["localhost"]);
        mount(&secret, version, &[("tls.crt", &certificate), ("tls.key", &key)]);
    };
    mounted("v1", &old);
    std::fs::write(folder.path().join("token"), TOKEN).unwrap();
    let config = folder.path().join("gateway.yaml");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", tls: { cert: secret/tls.crt, key: secret/tls.key } }\n";
    let auth = "auth: { tokens: [ { name: test, file: token } ] }\n";
    std::fs::write(&config, format!("{server}{auth}{ROUTES}")).unwrap();
    let mut gateway = Gateway::serve(&config);
    let address = gateway.address;
    let [of_old, of_new] = [&old, &new].map(|ca| Visitor::new(&ca.pem, None, &["http/1.1"]));
    let right = argo_request(PATH, TOKEN, b"{}");
    assert_eq!(ask(&of_old, address, &right).await.unwrap().status, 200);
    assert!(of_new.connect(address).await.is_err());

    // Open connections continue.
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, count, right) = (Arc::clone(&is_over), Arc::clone(&count), right.clone());
            let visitor = of_old.clone();
            tokio::spawn(async move {
                let mut stream = visitor.connect(address).await.unwrap();
                while !is_over.load(Ordering::SeqCst) {
                    stream.write_all(&right).await.unwrap();
                    assert_eq!(read_reply(&mut stream).await.status, 200);
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    mounted("v2", &new);
    let renewed = async {
        while of_new.connect(address).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), renewed).await.expect("the new certificate is shown");
    assert!(of_old.connect(address).await.is_err());
    // A key that does not match the certificate changes nothing.
    mount(&secret, "v3", &[("tls.crt", &new.certificate(&["localhost"]).0), ("tls.key", &old.certificate(&["x"]).1)]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ask(&of_new, address, &right).await.unwrap().status, 200);
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(count.load(Ordering::SeqCst) > 0);
    gateway.signal(nix::sys::signal::Signal::SIGINT);
    let (_, log) = gateway.wait(Duration::from_secs(20));
    assert!(log.contains("new certificates are in use"), "{log}");
    let broken = log.lines().filter(|line| line.contains("the old certificates stay in use"));
    assert_eq!(broken.count(), 1, "{log}");
}
