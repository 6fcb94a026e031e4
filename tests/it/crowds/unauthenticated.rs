//! Two thousand connections without a token that send as much as they can. The gateway's memory stays small, and good callers
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
    calls::{assert_undisturbed, good, p99},
    certify, serve,
};
use crate::support::{authority::Ca, binary::Gateway, visitor::Visitor};

/// The number of connections.
const CONNECTIONS: usize = 2000;
/// The maximum growth of the gateway's memory, in KiB.
const MAX_GROWTH_KIB: usize = 64 * 1024;
/// The duration of the attack.
const ATTACK_DURATION: Duration = Duration::from_secs(8);

/// The port and protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The main port, in cleartext or before a TLS handshake.
    Main,
    /// The admin port.
    Admin,
    /// The main port with TLS and HTTP/1.1.
    Tls,
    /// The main port with TLS and HTTP/2.
    H2,
}

/// One attack: sends `first` once, then `rest` repeatedly, then `raw` below TLS.
struct Attack {
    target: Target,
    first: Vec<u8>,
    rest: Vec<u8>,
    raw: Vec<u8>,
}

/// A request head of almost 16 KiB, without the empty line at its end.
fn head(more: &str) -> Vec<u8> {
    let padding = "x".repeat(15_000);
    format!("POST {PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer wrong\r\nX: {padding}\r\n{more}").into()
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The start of an HTTP/2 connection whose client accepts no byte of a body.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat()
}

/// A hundred requests at once, each with 200 headers, which take a byte each on the wire.
fn streams() -> Vec<u8> {
    let fields = [&[0x83, 0x87, 0x04, 1, b'/'][..], &[0x90; 200]].concat();
    let requests = (0..100).flat_map(|n| frame(1, 4, 2 * n + 1, &fields));
    preface().into_iter().chain(requests).collect()
}

const fn attack(target: Target, first: Vec<u8>, rest: Vec<u8>) -> Attack {
    Attack { target, first, rest, raw: Vec::new() }
}

/// Bytes without a line end.
fn endless() -> Vec<u8> {
    vec![b'x'; 16 * 1024]
}

/// A head, and the start of a large body.
fn body() -> Vec<u8> {
    [&head("")[..], b"Content-Length: 1000000\r\n\r\n"].concat()
}

fn cleartext_attacks() -> Vec<Attack> {
    let small_body = [&head("")[..], b"Content-Length: 60000\r\n\r\n", &vec![b' '; 60_000]].concat();
    let chunked = [&head("")[..], b"Transfer-Encoding: chunked\r\n\r\n"].concat();
    vec![
        attack(Target::Main, head(""), endless()),
        attack(Target::Main, head(&"A: b\r\n".repeat(95)), Vec::new()),
        attack(Target::Main, body(), endless()),
        attack(Target::Main, Vec::new(), small_body),
        attack(Target::Main, chunked, b"1\r\na\r\n".repeat(2000)),
        attack(Target::Admin, head(""), endless()),
    ]
}

fn tls_attacks() -> Vec<Attack> {
    // The TLS header announces 64 KiB. A TLS record has at most 16 KiB.
    let greeting = [&[22, 3, 1, 64, 0, 1, 0, 255, 255][..], &[0; 16_380]].concat();
    let record = [&[22, 3, 1, 64, 0][..], &[0; 16_384]].concat();
    let cut_record = [&[23, 3, 3, 64, 0][..], &[0; 16_000]].concat();
    let block = [&frame(1, 0, 1, &[0x83; 10])[..], &frame(9, 0, 1, &[0x90; 16_000])].concat();
    let data = frame(0, 0, 1, &[0; 16_000]).repeat(4);
    vec![
        attack(Target::Main, greeting, record),
        Attack { raw: cut_record, ..attack(Target::Tls, head(""), Vec::new()) },
        attack(Target::Tls, body(), endless()),
        attack(Target::H2, streams(), Vec::new()),
        attack(Target::H2, [streams(), data].concat(), Vec::new()),
        attack(Target::H2, [preface(), block].concat(), frame(9, 0, 1, &[0x90; 16_000])),
    ]
}

/// Requests whose answers are never read.
fn unread_answer_attacks() -> Vec<Attack> {
    let ask = |path| format!("GET {path} HTTP/1.1\r\nHost: gateway\r\n\r\n").repeat(100).into_bytes();
    vec![attack(Target::Tls, Vec::new(), ask("/openapi.yaml")), attack(Target::Admin, Vec::new(), ask("/metrics"))]
}

impl Attack {
    /// Sends everything until the gateway closes the connection.
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

    /// Attacks over `stream` until `until`.
    async fn attack(self: Arc<Self>, mut stream: TcpStream, tls: Arc<[Visitor; 2]>, until: Instant) {
        let all = async {
            let visitor = match self.target {
                Target::Main | Target::Admin => return self.send(&mut stream).await,
                Target::Tls => &tls[0],
                Target::H2 => &tls[1],
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

/// A size in KiB from `/proc/<pid>/status`.
fn memory(gateway: &Gateway, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Two thousand unauthenticated callers, in equal numbers for each attack. The gateway must stay small, and a good caller must not wait for
/// them.
async fn withstand(name: &str, is_tls: bool, attacks: Vec<Attack>) {
    let (folder, ca) = (tempfile::tempdir().unwrap(), Ca::new("ca"));
    certify(folder.path(), &ca);
    let gateway = serve(folder.path(), if is_tls { TLS } else { "" }, "");
    let idle = serve(folder.path(), "", "");
    let visitor = |protocol| Visitor::new(&ca.pem, None, &[protocol]);
    let visitors = Arc::new([visitor("http/1.1"), visitor("h2")]);
    let is_over = Arc::new(AtomicBool::new(false));
    let idle_calls = good(idle.address, None, &is_over);
    let caller = good(gateway.address, is_tls.then(|| visitor("http/1.1")), &is_over);
    sleep(Duration::from_millis(500)).await;
    let before = memory(&gateway, "VmRSS");
    let attacks: Vec<Arc<Attack>> = attacks.into_iter().map(Arc::new).collect();
    let (mut attackers, until) = (JoinSet::new(), Instant::now() + ATTACK_DURATION);
    for attack in attacks.iter().cycle().take(CONNECTIONS) {
        let address = if attack.target == Target::Admin { gateway.admin } else { gateway.address };
        // One after the other: the backlog would drop more.
        let stream = TcpStream::connect(address).await.unwrap();
        attackers.spawn(Arc::clone(attack).attack(stream, Arc::clone(&visitors), until));
    }
    while attackers.join_next().await.is_some() {}
    let growth = memory(&gateway, "VmHWM") - before;
    is_over.store(true, Ordering::SeqCst);
    println!("{name}: {growth} KiB");
    assert!(growth < MAX_GROWTH_KIB, "{name}: the gateway grew by {growth} KiB");
    assert_undisturbed("among unauthenticated callers", caller, p99("nobody held up", idle_calls));
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_callers_use_little_memory_and_delay_nobody() {
    allow_files();
    withstand("cleartext", false, cleartext_attacks()).await;
    withstand("TLS", true, tls_attacks()).await;
    withstand("answers that are not taken", true, unread_answer_attacks()).await;
}
