//! A forward proxy: it is taken only from the configuration, and exceptions bypass it.

use std::sync::Mutex;

use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use outbound::{OutboundConfig, SystemNames};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::{tls, *};
use crate::support::authority::Ca;

/// A proxy that notes the head of each request, answers `http` itself, and tunnels everything to `target`.
async fn proxy(target: Option<std::net::SocketAddr>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&heads);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let noted = Arc::clone(&noted);
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                let read = stream.read(&mut bytes).await.unwrap();
                let head = String::from_utf8_lossy(&bytes[..read]).into_owned();
                let is_tunnel = head.starts_with("CONNECT ");
                noted.lock().unwrap().push(head);
                match target {
                    Some(target) if is_tunnel => {
                        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                        let mut beyond = TcpStream::connect(target).await.unwrap();
                        _ = copy_bidirectional(&mut stream, &mut beyond).await;
                    }
                    Some(_) => stream.write_all(&json_response(r#"[{"a":"by proxy"}]"#)).await.unwrap(),
                    None => stream.write_all(&response(407, "Proxy-Authenticate: Basic", "who?")).await.unwrap(),
                }
            });
        }
    });
    (url, heads)
}

fn through(config: &Value, folder: &std::path::Path, options: ClientOptions) -> Arc<HttpClient> {
    let config: OutboundConfig = serde_json::from_value(config.clone()).unwrap();
    let mut problems = Problems::default();
    let (allowed, proxy) = config.build(&BaseDir::new(folder), &Path::root(), &mut problems);
    assert!(problems.into_vec().is_empty());
    let outbound = Outbound::new(TestClock::standing()).reaching(Arc::new(SystemNames), &allowed, proxy);
    outbound.client(options).unwrap()
}

fn call(url: &str) -> Call {
    Call { may_repeat: false, ..Call::get(Url::parse(url).unwrap(), 4096, Instant::now() + Duration::from_secs(10)) }
}

#[tokio::test]
async fn http_goes_through_the_proxy_and_https_through_a_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    let ours = Ca::new("ours");
    let server = tls::serve(&ours, &["inventory.example.com"]).await;
    let (url, heads) = proxy(Some(server)).await;
    let config = json!({"proxy": {"url": url, "username": "gateway", "password": {"file": "password"}}});
    let ca = Some(tls::write(&folder, "ours.crt", &ours.pem));
    let client = through(
        &config,
        folder.path(),
        ClientOptions { tls: Tls { ca, ..Tls::default() }, ..ClientOptions::default() },
    );

    let reply = client.fetch(call("http://inventory.example.com/v1?x=1")).await.unwrap();
    assert_eq!(&*reply.body, br#"[{"a":"by proxy"}]"#);
    let reply = client.fetch(call("https://inventory.example.com/list")).await.unwrap();
    assert_eq!(&*reply.body, br#"[{"a":"1"}]"#);
    let heads: Vec<String> = heads.lock().unwrap().iter().map(|head| head.to_ascii_lowercase()).collect();
    assert!(heads[0].starts_with("get http://inventory.example.com/v1?x=1 http/1.1\r\n"), "{heads:?}");
    assert!(heads[1].starts_with("connect inventory.example.com:443 http/1.1\r\n"), "{heads:?}");
    for head in heads {
        assert!(head.contains("proxy-authorization: basic z2f0zxdhetpodw50zxiy"), "{head}");
    }
}

#[tokio::test]
async fn exceptions_bypass_the_proxy() {
    let (url, heads) = proxy(None).await;
    let upstream = Upstream::start(|_| ok_response()).await;
    let folder = tempfile::tempdir().unwrap();
    // Loopback always bypasses the proxy, so that a sidecar needs no entry.
    let client = through(&json!({"proxy": {"url": url}}), folder.path(), ClientOptions::default());
    assert_eq!(client.fetch(get(&upstream, "/", 10.0)).await.unwrap().status.as_u16(), 200);
    let config = json!({"proxy": {"url": url, "except": ["example.com"]}});
    let client = through(&config, folder.path(), ClientOptions::default());
    let gone = format!("http://127.0.0.1:{}/", upstream.address.port());
    assert_eq!(client.fetch(call(&gone)).await.unwrap().status.as_u16(), 200);
    assert!(heads.lock().unwrap().is_empty());
    // A name without an exception goes to the proxy, which demands a credential.
    let reply = client.fetch(call("http://example.org/")).await.unwrap();
    let refusal = reply.refusal();
    assert_eq!(refusal.kind, ErrorKind::Denied);
    assert!(refusal.message.contains("`outbound.proxy`"), "{refusal}");
    fails(
        client.fetch(call("https://example.org/")).await,
        ErrorKind::Unavailable,
        "goes through the proxy http://127.0.0.1:",
    );
}

#[test]
fn proxy_mistakes_are_reported_at_startup() {
    for (config, expected) in [
        (
            json!({"allowAddresses": ["10.0.0.0/33"]}),
            "allowAddresses[0]: `10.0.0.0/33` is neither an address nor a network",
        ),
        (json!({"proxy": {"url": "proxy:3128"}}), "proxy.url: it must begin with `http://`"),
        (json!({"proxy": {"url": "http://u:p@proxy/"}}), "proxy.url: it holds a user or a password"),
        (json!({"proxy": {"url": "http://proxy", "username": "u"}}), "proxy: `username` and `password` go together"),
        (
            json!({"proxy": {"url": "http://proxy", "except": ["*.svc"]}}),
            "proxy.except[0]: `*.svc` is neither a name nor a network",
        ),
        (json!({"proxy": {"url": "http://proxy", "username": "u", "password": {"file": "none"}}}), "proxy.password: "),
    ] {
        let config: OutboundConfig = serde_json::from_value(config).unwrap();
        let mut problems = Problems::default();
        config.build(&BaseDir::new("/nowhere"), &Path::root(), &mut problems);
        let found: Vec<String> =
            problems.into_vec().iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?} does not say {expected}");
    }
}
