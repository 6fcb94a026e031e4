//! A connection between relay and service that breaks at each byte of a conversation, in both directions.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::Notify,
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    by_tls,
    remotes::{Certificates, Service},
    support::script,
};

/// How many relays are tested at once: most of the time, a relay waits for its next try.
const LANES: usize = 16;
/// The deadline of a call.
const DEADLINE: Duration = Duration::from_secs(30);

/// Which bytes count.
#[derive(Debug, Clone, Copy)]
enum Counted {
    /// Those of HTTP/2, within TLS.
    Http,
    /// Those of TCP: the handshake, and all records.
    Tcp,
}

/// Passes one connection after the other on to a service, and cuts it.
#[derive(Debug, Default)]
struct Proxy {
    /// Where the next connection breaks: the byte, and whether it is one of the service's.
    cut: parking_lot::Mutex<Option<(usize, bool)>>,
    /// Whether it has come to that.
    is_cut: AtomicBool,
    /// Ends what is open.
    end: Notify,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Proxy {
    async fn serve(self: Arc<Self>, listener: TcpListener, to: String, folder: PathBuf, counted: Counted) {
        while let Ok((stream, _)) = listener.accept().await {
            let (proxy, to, folder) = (Arc::clone(&self), to.clone(), folder.clone());
            tokio::spawn(async move {
                let cut = proxy.cut.lock().take();
                let service = TcpStream::connect(to).await?;
                let (relay, service): (Box<dyn Stream>, Box<dyn Stream>) = match counted {
                    Counted::Tcp => (Box::new(stream), Box::new(service)),
                    Counted::Http => {
                        let service = by_tls::connector(&folder).connect(by_tls::name(), service).await?;
                        (Box::new(by_tls::acceptor(&folder).accept(stream).await?), Box::new(service))
                    }
                };
                let at = |of_service| cut.filter(|(_, other)| *other == of_service).map(|(at, _)| at);
                let (relay, service) = (tokio::io::split(relay), tokio::io::split(service));
                let was_cut = tokio::select! {
                    cut = pass_on(relay.0, service.1, at(false)) => cut,
                    cut = pass_on(service.0, relay.1, at(true)) => cut,
                    () = proxy.end.notified() => false,
                };
                proxy.is_cut.fetch_or(was_cut, Ordering::SeqCst);
                Ok::<_, std::io::Error>(())
            });
        }
    }
}

/// Passes bytes on until one side ends, or the byte `cut` would be next: then it is true.
async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, cut: Option<usize>) -> bool {
    let (mut room, mut left) = (vec![0; 16 * 1024], cut);
    loop {
        let Ok(read @ 1..) = from.read(&mut room).await else { return false };
        let passed = left.map_or(read, |left| left.min(read));
        if to.write_all(&room[..passed]).await.is_err() || to.flush().await.is_err() {
            return false;
        }
        if let Some(left) = &mut left {
            *left -= passed;
            if *left == 0 {
                return true;
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
struct AppMetadata {
    #[prost(string, tag = "2")]
    path: String,
    #[prost(string, tag = "3")]
    checksum: String,
    #[prost(int64, tag = "4")]
    size: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Piece {
    #[prost(bytes = "vec", tag = "1")]
    chunk: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct AppRequest {
    #[prost(message, optional, tag = "1")]
    metadata: Option<AppMetadata>,
    #[prost(message, optional, tag = "2")]
    file: Option<Piece>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Manifests {
    #[prost(string, repeated, tag = "1")]
    texts: Vec<String>,
}

/// A tgz of the file `x` with this text.
fn archive(text: &str) -> Vec<u8> {
    let mut header = [0; 512];
    header[0] = b'x';
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut tgz = GzEncoder::new(Vec::new(), Compression::fast());
    tgz.write_all(&header).unwrap();
    tgz.write_all(text.as_bytes()).unwrap();
    tgz.write_all(&vec![0; 512 - text.len() % 512 + 1024]).unwrap();
    tgz.finish().unwrap()
}

/// A client of a relay's socket.
async fn client(socket: &Path) -> SendRequest<Full<Bytes>> {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The manifests of a folder with `text` in its file, or the error.
async fn generate(client: &mut SendRequest<Full<Bytes>>, text: &str) -> Result<Vec<String>, String> {
    let tgz = archive(text);
    let checksum = base16ct::lower::encode_string(&Sha256::digest(&tgz));
    let metadata = AppMetadata { path: ".".to_owned(), checksum, size: tgz.len().try_into().unwrap() };
    let messages = [
        AppRequest { metadata: Some(metadata), file: None },
        AppRequest { metadata: None, file: Some(Piece { chunk: tgz }) },
    ];
    let mut body = BytesMut::new();
    for message in messages {
        body.put_u8(0);
        body.put_u32(message.encoded_len().try_into().unwrap());
        message.encode(&mut body).unwrap();
    }
    let request = Request::post("http://relay/plugin.ConfigManagementPluginService/GenerateManifest");
    let request = request.header("content-type", "application/grpc").header("grpc-timeout", "30S");
    let response = client.send_request(request.body(Full::new(body.freeze())).unwrap()).await.unwrap();
    let headers = response.headers().clone();
    let collected = response.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let of =
        |name: &str| trailers.get(name).or_else(|| headers.get(name)).map(|value| value.to_str().unwrap().to_owned());
    if of("grpc-status").as_deref() != Some("0") {
        return Err(of("grpc-message").unwrap_or_default());
    }
    Ok(Manifests::decode(&collected.to_bytes()[5..]).unwrap().texts)
}

/// The last lines of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Cuts a conversation at the bytes `first`, `first + step` and so on, as long as there are any. Returns the number of cuts.
async fn lane(certificates: Arc<Certificates>, service: String, counted: Counted, first: usize, step: usize) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let proxy = Arc::new(Proxy::default());
    let folder = certificates.path().to_owned();
    tokio::spawn(Arc::clone(&proxy).serve(listener, service, folder, counted));
    let relay = spawn_blocking(move || certificates.relay(&[&address], "  discover: {}\n")).await.unwrap();
    let mut client = client(&relay.socket("demo-v1.0")).await;
    let mut cuts = 0;
    for of_service in [false, true] {
        let mut at = first;
        loop {
            // A new connection, and a tree that the service does not have.
            proxy.is_cut.store(false, Ordering::SeqCst);
            *proxy.cut.lock() = Some((at, of_service));
            proxy.end.notify_waiters();
            let text = format!("a: {at}-{of_service}\n");
            let answered = timeout(DEADLINE, generate(&mut client, &text)).await.expect("an answer in time");
            assert!(
                answered.as_ref().is_ok_and(|manifests| *manifests == [&*text]),
                "cut at byte {at}, of the service: {of_service}: {answered:?}; the relay's log ends so: {}",
                end_of(&relay.log())
            );
            let is_unused = proxy.cut.lock().take().is_some();
            if proxy.is_cut.load(Ordering::SeqCst) {
                cuts += 1;
                at += step;
            } else if !is_unused {
                // The conversation has fewer bytes.
                break;
            }
        }
    }
    let next = generate(&mut client, "a: next\n").await;
    assert_eq!(next, Ok(vec!["a: next\n".to_owned()]), "{}", relay.log());
    spawn_blocking(move || drop(relay)).await.unwrap();
    cuts
}

/// All lanes, which share the bytes: every `step`th is one of theirs.
async fn cut_at(counted: Counted, step: usize) -> usize {
    let (service, certificates) = spawn_blocking(|| {
        let certificates = Certificates::new();
        (certificates.service(&script("cat x"), ""), Arc::new(certificates))
    })
    .await
    .unwrap();
    let Service { gateway, address } = service;
    let lanes: Vec<_> = (0..LANES)
        .map(|at| tokio::spawn(lane(Arc::clone(&certificates), address.clone(), counted, 1 + at * step, LANES * step)))
        .collect();
    let mut cuts = 0;
    for lane in lanes {
        cuts += lane.await.unwrap();
    }
    spawn_blocking(move || drop(gateway)).await.unwrap();
    cuts
}

/// Each call is repeated, and gets its one right answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_at_each_byte_loses_no_call() {
    let cuts = cut_at(Counted::Http, 1).await;
    assert!(cuts > 900, "the conversation has only {cuts} bytes");
}

/// In a record of TLS, one byte is as good as another: what counts is which records come.
#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_breaks_loses_no_call() {
    let cuts = cut_at(Counted::Tcp, 31).await;
    assert!(cuts > 50, "the conversation has only {cuts} parts");
}
