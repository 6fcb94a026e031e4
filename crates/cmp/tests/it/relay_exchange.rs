//! The exchange between relay and service, spoken by a relay that lies, and a service that does not know it.

use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UnixStream},
    task::spawn_blocking,
};

use crate::{
    by_tls,
    remotes::{Certificates, Service},
    support::{DEMO, Gateway, script},
};

#[derive(Clone, PartialEq, Eq, Message)]
struct TreeName {
    #[prost(bytes = "vec", tag = "1")]
    digest: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    view: Option<View>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct View {
    #[prost(bool, tag = "1")]
    has_modes: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct PutRequest {
    #[prost(message, optional, tag = "1")]
    tree: Option<TreeName>,
    #[prost(bytes = "vec", tag = "2")]
    piece: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct RelayedCall {
    #[prost(message, optional, tag = "1")]
    metadata: Option<TreeName>,
    #[prost(message, optional, tag = "2")]
    tree: Option<TreeName>,
}

/// The status and its text that the service answers to `messages`.
async fn call(certificates: &Path, service: &Service, method: &str, messages: &[Vec<u8>]) -> (String, String) {
    let stream = TcpStream::connect(&service.address).await.unwrap();
    let stream = by_tls::connector(certificates).connect(by_tls::name(), stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut body = BytesMut::new();
    for message in messages {
        body.put_u8(0);
        body.put_u32(message.len().try_into().unwrap());
        body.extend_from_slice(message);
    }
    let uri = format!("https://localhost/cmpgateway.relay.v1.Relay/{method}");
    let request = Request::post(uri).header("content-type", "application/grpc").body(Full::<Bytes>::new(body.freeze()));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let headers = response.headers().clone();
    let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let of = |name: &str| {
        let value = trailers.get(name).or_else(|| headers.get(name));
        value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    };
    (of("grpc-status"), of("grpc-message"))
}

/// Nobody gets a tree into the store under another name, or a tree that is not whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_lie_about_a_tree_fails_the_call() {
    let certificates = Certificates::new();
    let service =
        spawn_blocking(move || (certificates.service(&script("cat x"), ", archive: {bytes: 10MiB}"), certificates))
            .await
            .unwrap();
    let (service, certificates) = service;
    let call =
        async |method: &str, messages: Vec<Vec<u8>>| call(certificates.path(), &service, method, &messages).await;
    let name = |view: View| TreeName { digest: vec![7; 32], view: Some(view) };
    let tree = |view| PutRequest { tree: Some(name(view)), piece: Vec::new() }.encode_to_vec();
    let piece = |bytes: &[u8]| PutRequest { tree: None, piece: bytes.to_vec() }.encode_to_vec();
    let empty = zstd::encode_all(&[0; 1024][..], 1).unwrap();
    let plain = View { has_modes: false };
    let (code, text) = call("Put", vec![tree(plain), piece(&empty)]).await;
    assert!(code == "2" && text.contains("not 0707"), "{code} {text}");
    for (cut, messages) in [
        ("cannot be read", vec![tree(plain), piece(&empty[..empty.len() - 3])]),
        ("cannot be read", vec![tree(plain), piece(b"no zstd")]),
        ("does not name a tree", vec![piece(&empty)]),
        ("not a piece", vec![tree(plain), tree(plain)]),
        (
            "32 bytes",
            vec![
                PutRequest { tree: Some(TreeName { digest: vec![7], view: None }), piece: Vec::new() }.encode_to_vec(),
            ],
        ),
    ] {
        let (code, text) = call("Put", messages).await;
        assert!(code == "2" && text.contains(cut), "{code} {text}");
    }
    // 20 MiB of zeros in few bytes, as one file: more than `archive.bytes`.
    let (code, text) = call("Put", vec![tree(plain), piece(&bomb())]).await;
    assert!(code == "2" && text.contains("archive.bytes"), "{code} {text}");
    // What belongs to a tree is not what the relay believes.
    let (code, _) = call("Put", vec![tree(View { has_modes: true }), piece(&empty)]).await;
    assert_eq!(code, "10");
    let asked = RelayedCall { metadata: Some(TreeName::default()), tree: Some(name(plain)) }.encode_to_vec();
    assert_eq!(call("GenerateManifest", vec![asked]).await.0, "9", "the tree is not there");
    assert_eq!(call("Other", vec![Vec::new()]).await.0, "12");
}

/// A tar of one file of 20 MiB of zeros, by zstd.
fn bomb() -> Vec<u8> {
    const SIZE: u64 = 20 << 20;
    let mut header = [0; 512];
    header[0] = b'x';
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{SIZE:011o}").as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut &header[..], &mut encoder).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), SIZE), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

/// TLS in front of the socket of a sidecar, which knows nothing of relays.
async fn plain(certificates: &Path, sidecar: &Gateway) -> String {
    let (acceptor, socket) = (by_tls::acceptor(certificates), sidecar.socket("demo-v1.0"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, socket) = (acceptor.clone(), socket.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut target = UnixStream::connect(socket).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut target).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_exchange_gets_argo_cds_calls() {
    let certificates = Certificates::new();
    let (mut sidecar, certificates) = spawn_blocking(move || (Gateway::sidecar(DEMO), certificates)).await.unwrap();
    let address = plain(certificates.path(), &sidecar).await;
    let asking = spawn_blocking(move || {
        let mut relay = certificates.relay(&[&address], "");
        relay.wait_until_known();
        relay.file("demo.yaml", "a: b\n").file("other/x", "");
        assert_eq!(relay.ask("CheckPluginConfiguration", ".", &[]).fields("1"), [1]);
        assert!(relay.ask("MatchRepository", ".", &[]).is_supported());
        assert!(!relay.ask("MatchRepository", "other", &[]).is_supported());
        let answer = relay.ask("GenerateManifest", ".", &["-env", "ARGOCD_APP_NAME=shop"]);
        assert!(answer.manifests()[0].contains("name: shop"), "{answer:?}");
        sidecar.wait_for_log("\"method\":\"GenerateManifest\"");
        assert!(!sidecar.log().contains("Put"), "{}", sidecar.log());
    });
    asking.await.unwrap();
}
