//! Five thousand connections that are slow in each way that there is: each is let go in time, and nobody else notices.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    PATH, TLS, allow_files,
    calls::{P99, good, p99},
    certify, serve,
};
use crate::support::{
    TOKEN,
    authority::Ca,
    binary::Gateway,
    processes::held,
    visitor::Visitor,
    wire::{argo_request, exchange_admin},
};

/// How long a head, a body, or the taking of an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How much later a busy machine may notice.
const MARGIN: Duration = Duration::from_secs(3);
/// How long the answer is that slow readers ask for, in bytes: more than both sides' buffers hold.
const LARGE: usize = 512 * 1024;

/// Where a slow connection comes in.
#[derive(Debug, Clone, Copy)]
enum Door {
    Plain,
    /// The same, with small buffers, so that an answer waits in the gateway and not in the kernel.
    Narrow,
    /// Before a TLS handshake.
    Secure,
    /// After one, with HTTP/2.
    H2,
}

/// Ways to be slow: where it comes in, all that it sends, how many do so at once, and when each is to be let go.
fn ways() -> [(Door, Vec<u8>, usize, Duration); 8] {
    let whole = argo_request(PATH, TOKEN, &[b' '; 1000]);
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    [
        (Door::Plain, vec![], 1250, PATIENCE),
        (Door::Plain, whole[..40].to_vec(), 1250, PATIENCE),
        (Door::Plain, whole[..whole.len() - 500].to_vec(), 500, PATIENCE),
        (Door::Plain, b"PRI * HTTP/2.0\r\n".to_vec(), 250, PATIENCE),
        (Door::Narrow, argo_request("/large/api/v1/getparams.execute", TOKEN, b"{}"), 500, PATIENCE),
        (Door::Secure, vec![], 250, HANDSHAKE),
        (Door::Secure, hello.to_vec(), 500, HANDSHAKE),
        (Door::H2, b"PRI * HTTP/2.0\r\n".to_vec(), 500, PATIENCE),
    ]
}

/// Sends `part`, and waits until it is let go, which is to be within `most`.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin, part: &[u8], most: Duration) {
    let until = Instant::now() + most + MARGIN;
    _ = stream.write_all(part).await;
    _ = timeout_at(until, stream.read_to_end(&mut Vec::new())).await.expect("it is let go in time");
}

/// Asks, takes a byte now and then, and looks in the end whether the rest still comes.
async fn sip(mut stream: TcpStream, request: &[u8], most: Duration) {
    let until = Instant::now() + most + MARGIN;
    stream.write_all(request).await.unwrap();
    let mut taken = 0;
    while Instant::now() < until {
        taken += stream.read(&mut [0]).await.unwrap_or(0);
        sleep(Duration::from_millis(500)).await;
    }
    // What the kernel had taken over is on its way still, and after it the end.
    let mut rest = Vec::new();
    _ = timeout(MARGIN, stream.read_to_end(&mut rest)).await.expect("it was let go in time");
    taken += rest.len();
    assert!((1..LARGE).contains(&taken), "{taken} bytes of the answer were to be had");
}

/// A connection of which either side holds little: small segments make for small buffers.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.set_nonblocking(true).unwrap();
    TcpSocket::from_std_stream(socket.into()).connect(address).await.unwrap()
}

/// Begins a connection that is slow from now on.
async fn enter(
    door: Door,
    (plain, secure): (SocketAddr, SocketAddr),
    h2: &Visitor,
    part: Vec<u8>,
    most: Duration,
) -> JoinHandle<()> {
    match door {
        Door::Narrow => {
            let stream = narrow(plain).await;
            tokio::spawn(async move { sip(stream, &part, most).await })
        }
        Door::Plain | Door::Secure => {
            let address = if matches!(door, Door::Plain) { plain } else { secure };
            let stream = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move { linger(stream, &part, most).await })
        }
        Door::H2 => {
            let stream = h2.connect(secure).await.unwrap();
            tokio::spawn(async move { linger(stream, &part, most).await })
        }
    }
}

/// How many connections ended so.
async fn ended(gateway: &Gateway, reason: &str) -> usize {
    let metrics = exchange_admin(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n").await.text();
    let name = format!("appset_gateway_connections_ended_total{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// How many open files the process has, and all that it started.
fn files(gateway: &Gateway) -> usize {
    held(gateway.id()).1
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_slow_connections_are_let_go_and_hold_up_nobody() {
    allow_files();
    let (folder, ca) = (tempfile::tempdir().unwrap(), Ca::new("ca"));
    certify(folder.path(), &ca);
    let large = "x".repeat(LARGE);
    let large = format!(", {{ name: large, backend: {{ fixed: {{ parameters: [ {{ a: {large} }} ] }} }} }}");
    let connections = ", connections: { perPeer: 8192 }";
    let plain = serve(folder.path(), connections, &large);
    let secure = serve(folder.path(), &format!("{connections}{TLS}"), "");
    let idle = serve(folder.path(), "", "");
    let visitor = |protocol| Visitor::new(&ca.pem, None, &[protocol]);
    let before = (files(&plain), files(&secure));

    let is_over = Arc::new(AtomicBool::new(false));
    let beside = good(idle.address, None, &is_over);
    let good = [
        ("cleartext", good(plain.address, None, &is_over)),
        ("TLS", good(secure.address, Some(visitor("http/1.1")), &is_over)),
    ];
    let (began, h2) = (Instant::now(), visitor("h2"));
    let mut slow = Vec::new();
    for (door, part, count, most) in ways() {
        for _ in 0..count {
            // One after the other: more than a backlog holds would be lost on their way.
            slow.push(enter(door, (plain.address, secure.address), &h2, part.clone(), most).await);
        }
    }
    assert_eq!(slow.len(), 5000);
    let opened = began.elapsed();
    for slow in slow {
        slow.await.unwrap();
    }
    println!("opened within {opened:?}, all let go after {:?}", began.elapsed());
    is_over.store(true, Ordering::SeqCst);
    let most = P99.max(3 * p99("nobody held up", beside));
    for (how, good) in good {
        let p99 = p99(how, good);
        assert!(p99 < most, "{how}: {p99:?}, where {most:?} would do");
    }
    let why = async |gateway, reasons: [&str; 4]| {
        let mut counts = Vec::new();
        for reason in reasons {
            counts.push(ended(gateway, reason).await);
        }
        counts
    };
    assert_eq!(why(&plain, ["refused", "malformed", "slow_head", "slow_reader"]).await, [0, 250, 2500, 500]);
    assert_eq!(why(&secure, ["refused", "malformed", "slow_head", "no_handshake"]).await, [0, 0, 500, 750]);
    let back = async {
        while files(&plain) > before.0 || files(&secure) > before.1 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, back).await.expect("descriptors are closed again");
}
