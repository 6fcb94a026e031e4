//! Two thousand connections without a token that each send as much as they can: the gateway holds little of it, and good callers
//! notice nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    PATH, TLS, allow_files,
    calls::{P99, good, p99},
    certify, serve,
};
use crate::support::{authority::Ca, binary::Gateway, visitor::Visitor};

/// How many connections there are.
const CONNECTIONS: usize = 2000;
/// The most by which the gateway may grow, in KiB.
const GROWTH: usize = 64 * 1024;
/// How long they go on.
const STAY: Duration = Duration::from_secs(8);

/// Where strangers connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// The main port, in cleartext or before a handshake.
    Main,
    /// The admin port.
    Admin,
    /// The main port by TLS, with HTTP/1.1.
    Tls,
    /// The same with HTTP/2.
    H2,
}

/// One way to send much: `first` once, then `rest` again and again, then `raw` below TLS.
struct Way {
    door: Door,
    first: Vec<u8>,
    rest: Vec<u8>,
    raw: Vec<u8>,
}

/// A request's head of almost 16 KiB, but for the empty line at its end.
fn head(more: &str) -> Vec<u8> {
    let padding = "x".repeat(15_000);
    format!("POST {PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer wrong\r\nX: {padding}\r\n{more}").into()
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The beginning of an HTTP/2 connection whose client takes no byte of a body.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat()
}

/// A hundred requests at once, with 200 headers each. They are a byte each on their way.
fn streams() -> Vec<u8> {
    let fields = [&[0x83, 0x87, 0x04, 1, b'/'][..], &[0x90; 200]].concat();
    let requests = (0..100).flat_map(|n| frame(1, 4, 2 * n + 1, &fields));
    preface().into_iter().chain(requests).collect()
}

const fn way(door: Door, first: Vec<u8>, rest: Vec<u8>) -> Way {
    Way { door, first, rest, raw: Vec::new() }
}

/// Bytes without a line's end.
fn endless() -> Vec<u8> {
    vec![b'x'; 16 * 1024]
}

/// A head, and the begin of a large body.
fn body() -> Vec<u8> {
    [&head("")[..], b"Content-Length: 1000000\r\n\r\n"].concat()
}

fn ways_in_cleartext() -> Vec<Way> {
    let small_body = [&head("")[..], b"Content-Length: 60000\r\n\r\n", &vec![b' '; 60_000]].concat();
    let chunked = [&head("")[..], b"Transfer-Encoding: chunked\r\n\r\n"].concat();
    vec![
        way(Door::Main, head(""), endless()),
        way(Door::Main, head(&"A: b\r\n".repeat(95)), Vec::new()),
        way(Door::Main, body(), endless()),
        way(Door::Main, Vec::new(), small_body),
        way(Door::Main, chunked, b"1\r\na\r\n".repeat(2000)),
        way(Door::Admin, head(""), endless()),
    ]
}

fn ways_by_tls() -> Vec<Way> {
    // The greeting of TLS says that it has 64 KiB; its records have 16.
    let greeting = [&[22, 3, 1, 64, 0, 1, 0, 255, 255][..], &[0; 16_380]].concat();
    let record = [&[22, 3, 1, 64, 0][..], &[0; 16_384]].concat();
    let cut_record = [&[23, 3, 3, 64, 0][..], &[0; 16_000]].concat();
    let block = [&frame(1, 0, 1, &[0x83; 10])[..], &frame(9, 0, 1, &[0x90; 16_000])].concat();
    let data = frame(0, 0, 1, &[0; 16_000]).repeat(4);
    vec![
        way(Door::Main, greeting, record),
        Way { raw: cut_record, ..way(Door::Tls, head(""), Vec::new()) },
        way(Door::Tls, body(), endless()),
        way(Door::H2, streams(), Vec::new()),
        way(Door::H2, [streams(), data].concat(), Vec::new()),
        way(Door::H2, [preface(), block].concat(), frame(9, 0, 1, &[0x90; 16_000])),
    ]
}

/// Requests whose answers are not taken. They cost the gateway work, so that they say nothing of its speed.
fn ways_not_to_read() -> Vec<Way> {
    let ask = |path| format!("GET {path} HTTP/1.1\r\nHost: gateway\r\n\r\n").repeat(100).into_bytes();
    vec![way(Door::Tls, Vec::new(), ask("/openapi.yaml")), way(Door::Admin, Vec::new(), ask("/metrics"))]
}

impl Way {
    /// Sends all of it, until the gateway lets go of the connection.
    async fn send(&self, stream: &mut (impl AsyncWrite + Unpin)) {
        let sent = async {
            stream.write_all(&self.first).await?;
            stream.flush().await?;
            while !self.rest.is_empty() {
                stream.write_all(&self.rest).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        _ = sent.await;
    }

    /// Sends over `stream`, and stays `until` then.
    async fn attack(self: Arc<Self>, mut stream: TcpStream, tls: Arc<[Visitor; 2]>, until: Instant) {
        let all = async {
            let visitor = match self.door {
                Door::Main | Door::Admin => return self.send(&mut stream).await,
                Door::Tls => &tls[0],
                Door::H2 => &tls[1],
            };
            let Ok(mut stream) = visitor.secure(stream).await else { return };
            self.send(&mut stream).await;
            _ = stream.get_mut().0.write_all(&self.raw).await;
            sleep_until(until).await;
        };
        tokio::select! {
            () = all => {}
            () = sleep_until(until) => {}
        }
    }
}

/// A number of KiB from `/proc/<pid>/status`.
fn memory(gateway: &Gateway, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Two thousand strangers, an equal number of each way. The gateway is to stay small, and, where it `is_timed`, to answer a good
/// caller as fast as ever.
async fn withstand(name: &str, is_tls: bool, ways: Vec<Way>, is_timed: bool) {
    let (folder, ca) = (tempfile::tempdir().unwrap(), Ca::new("ca"));
    certify(folder.path(), &ca);
    let gateway = serve(folder.path(), if is_tls { TLS } else { "" }, "");
    let idle = serve(folder.path(), "", "");
    let visitor = |protocol| Visitor::new(&ca.pem, None, &[protocol]);
    let visitors = Arc::new([visitor("http/1.1"), visitor("h2")]);
    let is_over = Arc::new(AtomicBool::new(false));
    let beside = good(idle.address, None, &is_over);
    let caller = good(gateway.address, is_tls.then(|| visitor("http/1.1")), &is_over);
    sleep(Duration::from_millis(500)).await;
    let before = memory(&gateway, "VmRSS");
    let ways: Vec<Arc<Way>> = ways.into_iter().map(Arc::new).collect();
    let (mut strangers, until) = (JoinSet::new(), Instant::now() + STAY);
    for way in ways.iter().cycle().take(CONNECTIONS) {
        let address = if way.door == Door::Admin { gateway.admin } else { gateway.address };
        // One after the other: more than a backlog holds would be lost on their way.
        let stream = TcpStream::connect(address).await.unwrap();
        strangers.spawn(Arc::clone(way).attack(stream, Arc::clone(&visitors), until));
    }
    while strangers.join_next().await.is_some() {}
    let growth = memory(&gateway, "VmHWM") - before;
    is_over.store(true, Ordering::SeqCst);
    println!("{name}: {growth} KiB");
    let (beside, caller) = (p99("nobody held up", beside), p99("among strangers", caller));
    assert!(growth < GROWTH, "{name}: the gateway grew by {growth} KiB");
    // A busy machine lets those who have done nothing go first, and the gateway works for strangers.
    let most = P99.max(10 * beside);
    assert!(caller < most || !is_timed, "{name}: {caller:?} (p99), where {most:?} would do");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_make_the_gateway_hold_little_and_hold_up_nobody() {
    allow_files();
    withstand("cleartext", false, ways_in_cleartext(), true).await;
    withstand("TLS", true, ways_by_tls(), true).await;
    withstand("answers that are not taken", true, ways_not_to_read(), false).await;
}
