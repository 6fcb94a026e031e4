//! Five thousand connections, each slow in one of several ways: the gateway closes each in time, and other callers do not
//! notice.

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
    calls::{assert_undisturbed, good, p99},
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

/// The gateway's timeout for a head, for a body, and for a client that reads an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The gateway's timeout for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Extra time for a busy machine.
const MARGIN: Duration = Duration::from_secs(3);
/// The answer's size in bytes for slow readers: more than the buffers of both sides.
const LARGE_ANSWER_BYTES: usize = 512 * 1024;

/// How a slow connection is made.
#[derive(Debug, Clone, Copy)]
enum Connection {
    Plain,
    /// In cleartext with small buffers, so that an answer waits in the gateway and not in the kernel.
    Narrow,
    /// Before a TLS handshake.
    Secure,
    /// After a TLS handshake, with HTTP/2.
    H2,
}

/// The attacks: the kind of connection, the sent bytes, the number of connections, and the gateway's timeout.
fn attacks() -> [(Connection, Vec<u8>, usize, Duration); 8] {
    let whole = argo_request(PATH, TOKEN, &[b' '; 1000]);
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    [
        (Connection::Plain, vec![], 1250, READ_TIMEOUT),
        (Connection::Plain, whole[..40].to_vec(), 1250, READ_TIMEOUT),
        (Connection::Plain, whole[..whole.len() - 500].to_vec(), 500, READ_TIMEOUT),
        (Connection::Plain, b"PRI * HTTP/2.0\r\n".to_vec(), 250, READ_TIMEOUT),
        (Connection::Narrow, argo_request("/large/api/v1/getparams.execute", TOKEN, b"{}"), 500, READ_TIMEOUT),
        (Connection::Secure, vec![], 250, HANDSHAKE_TIMEOUT),
        (Connection::Secure, hello.to_vec(), 500, HANDSHAKE_TIMEOUT),
        (Connection::H2, b"PRI * HTTP/2.0\r\n".to_vec(), 500, READ_TIMEOUT),
    ]
}

/// Sends `part`, and fails unless the gateway closes the connection within `limit`.
async fn wait_for_close(mut stream: impl AsyncRead + AsyncWrite + Unpin, part: &[u8], limit: Duration) {
    let deadline = Instant::now() + limit + MARGIN;
    _ = stream.write_all(part).await;
    _ = timeout_at(deadline, stream.read_to_end(&mut Vec::new())).await.expect("it is let go in time");
}

/// Requests a large answer, reads a byte now and then, and fails if the whole answer still arrives.
async fn read_slowly(mut stream: TcpStream, request: &[u8], limit: Duration) {
    let deadline = Instant::now() + limit + MARGIN;
    stream.write_all(request).await.unwrap();
    let mut taken = 0;
    while Instant::now() < deadline {
        taken += stream.read(&mut [0]).await.unwrap_or(0);
        sleep(Duration::from_millis(500)).await;
    }
    // Bytes that the kernel had accepted still arrive, and then the end.
    let mut rest = Vec::new();
    _ = timeout(MARGIN, stream.read_to_end(&mut rest)).await.expect("it was let go in time");
    taken += rest.len();
    assert!((1..LARGE_ANSWER_BYTES).contains(&taken), "{taken} bytes of the answer were to be had");
}

/// A connection with small buffers on both sides: small segments make small buffers.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.set_nonblocking(true).unwrap();
    TcpSocket::from_std_stream(socket.into()).connect(address).await.unwrap()
}

/// Opens a connection and keeps it slow.
async fn open_slowly(
    connection: Connection,
    (plain, secure): (SocketAddr, SocketAddr),
    h2: &Visitor,
    part: Vec<u8>,
    limit: Duration,
) -> JoinHandle<()> {
    match connection {
        Connection::Narrow => {
            let stream = narrow(plain).await;
            tokio::spawn(async move { read_slowly(stream, &part, limit).await })
        }
        Connection::Plain | Connection::Secure => {
            let address = if matches!(connection, Connection::Plain) { plain } else { secure };
            let stream = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move { wait_for_close(stream, &part, limit).await })
        }
        Connection::H2 => {
            let stream = h2.connect(secure).await.unwrap();
            tokio::spawn(async move { wait_for_close(stream, &part, limit).await })
        }
    }
}

/// The number of connections that ended for `reason`.
async fn ended(gateway: &Gateway, reason: &str) -> usize {
    let metrics = exchange_admin(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n").await.text();
    let name = format!("appset_gateway_connections_ended_total{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// The number of open files of the process and of its descendants.
fn files(gateway: &Gateway) -> usize {
    held(gateway.id()).1
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_slow_connections_are_closed_and_delay_nobody() {
    allow_files();
    let (folder, ca) = (tempfile::tempdir().unwrap(), Ca::new("ca"));
    certify(folder.path(), &ca);
    let large = "x".repeat(LARGE_ANSWER_BYTES);
    let large = format!(", {{ name: large, backend: {{ fixed: {{ parameters: [ {{ a: {large} }} ] }} }} }}");
    let connections = ", connections: { perPeer: 8192 }";
    let plain = serve(folder.path(), connections, &large);
    let secure = serve(folder.path(), &format!("{connections}{TLS}"), "");
    let idle = serve(folder.path(), "", "");
    let visitor = |protocol| Visitor::new(&ca.pem, None, &[protocol]);
    let before = (files(&plain), files(&secure));

    let is_over = Arc::new(AtomicBool::new(false));
    let idle_calls = good(idle.address, None, &is_over);
    let good = [
        ("cleartext", good(plain.address, None, &is_over)),
        ("TLS", good(secure.address, Some(visitor("http/1.1")), &is_over)),
    ];
    let (began, h2) = (Instant::now(), visitor("h2"));
    let mut slow = Vec::new();
    for (connection, part, count, limit) in attacks() {
        for _ in 0..count {
            // One after the other: the backlog would drop more.
            slow.push(open_slowly(connection, (plain.address, secure.address), &h2, part.clone(), limit).await);
        }
    }
    assert_eq!(slow.len(), 5000);
    let opened = began.elapsed();
    for slow in slow {
        slow.await.unwrap();
    }
    println!("opened within {opened:?}, all let go after {:?}", began.elapsed());
    is_over.store(true, Ordering::SeqCst);
    let idle = p99("nobody held up", idle_calls);
    for (how, good) in good {
        assert_undisturbed(how, good, idle);
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
    timeout(READ_TIMEOUT, back).await.expect("descriptors are closed again");
}
