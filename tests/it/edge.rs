//! Connections: their number, their time limits, and the answers to malformed requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use appset_gateway::http::{
    edge::{Edge, Limits},
    server,
};
use axum::{
    Router,
    routing::{get, post},
};
use domain::lifecycle::Phase;
use serde_json::Value;
use telemetry::metrics::Metrics;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::support::TestApp;

const FIXED: &str = "  - { name: r, backend: { fixed: { parameters: [ { a: b } ] } } }\n";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// An edge with its own router: `/` answers at once, `/slow` after half a second, `/large` with 64 MiB, `/echo` with the
/// request's body.
struct Served {
    address: std::net::SocketAddr,
    metrics: Arc<Metrics>,
    /// The number of answers by `/large`.
    large: Arc<AtomicUsize>,
    phase: watch::Sender<Phase>,
    ended: JoinHandle<bool>,
}

const LIMITS: Limits = Limits {
    max: 8,
    max_per_peer: 4,
    idle: Duration::from_millis(700),
    max_age: Duration::from_mins(1),
    patience: Duration::from_millis(300),
    handshake: Duration::from_millis(300),
    unauthenticated: 1 << 30,
};

async fn serve(limits: Limits) -> Served {
    let app = TestApp::with_routes(FIXED).await;
    let edge = Edge { limits, ..server::edge(&app.app) };
    let large = bytes::Bytes::from(vec![b'x'; 64 << 20]);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let router = Router::new()
        .route("/", get(async || "at once"))
        .route("/slow", get(async || sleep(Duration::from_millis(500)).await))
        .route("/echo", post(async |body: String| body))
        .route(
            "/large",
            get(async move || {
                counted.fetch_add(1, Ordering::Relaxed);
                large.clone()
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (phase, phases) = watch::channel(Phase::Serving);
    let ended = tokio::spawn(async move { edge.serve(listener, router, phases, || Duration::from_secs(5)).await });
    Served { address, metrics: Arc::clone(&app.app.metrics), large: count, phase, ended }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The number of connections that ended for `reason`.
    fn ended(&self, reason: &str) -> u64 {
        let text = String::from_utf8(self.metrics.encode().unwrap()).unwrap();
        let series = format!("appset_gateway_connections_ended_total{{reason=\"{reason}\"}} ");
        text.lines().find_map(|text| text.strip_prefix(&series)).unwrap().parse().unwrap()
    }

    async fn wait_for(&self, reason: &str, count: u64) {
        let waited = timeout(Duration::from_secs(20), async {
            while self.ended(reason) < count {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "{reason}: {} of {count}", self.ended(reason));
    }
}

/// Sends a request and reads its answer, `at once`.
async fn ask(stream: &mut TcpStream) {
    stream.write_all(GET).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"at once") {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "{}", String::from_utf8_lossy(&bytes));
    }
}

/// Reads until the connection ends.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.expect("the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn slow_and_idle_clients_are_disconnected() {
    let served = serve(LIMITS).await;
    for (sent, reason) in
        [(&b""[..], "slow_head"), (b"GET", "slow_head"), (b"GET / HTTP/1.1\r\nHost: h\r\nX", "slow_head")]
    {
        let before = served.ended(reason);
        let mut stream = served.connect().await;
        stream.write_all(sent).await.unwrap();
        assert_eq!(rest(&mut stream).await, "");
        assert_eq!(served.ended(reason), before + 1);
    }
    // A head that arrives byte by byte has one time limit.
    let mut stream = served.connect().await;
    let dripping = async {
        for byte in GET {
            sleep(Duration::from_millis(50)).await;
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
    };
    dripping.await;
    served.wait_for("slow_head", 4).await;
    // After an answer the longer idle limit applies, and then again the limit for a head.
    let mut stream = served.connect().await;
    ask(&mut stream).await;
    sleep(LIMITS.patience + Duration::from_millis(100)).await;
    ask(&mut stream).await;
    assert_eq!(rest(&mut stream).await, "");
    assert_eq!(served.ended("idle"), 1);
    let mut stream = served.connect().await;
    ask(&mut stream).await;
    stream.write_all(b"GET / H").await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    served.wait_for("slow_head", 5).await;
    assert_eq!(served.ended("idle"), 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_disconnected() {
    let served = serve(LIMITS).await;
    let mut stream = served.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    served.wait_for("slow_reader", 1).await;
    drop(stream);
}

#[tokio::test]
async fn a_client_that_pipelines_requests_without_reading_is_disconnected() {
    let served = serve(LIMITS).await;
    let mut stream = served.connect().await;
    stream.write_all(&b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3)).await.unwrap();
    served.wait_for("slow_reader", 1).await;
    assert_eq!(served.large.load(Ordering::Relaxed), 1, "one answer is kept for it, and no more");
    drop(stream);
}

#[tokio::test]
async fn every_form_of_request_that_http_allows_is_answered() {
    let served = serve(LIMITS).await;
    for (pieces, answers, body) in [
        (vec![&GET.repeat(5)[..], b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"], 6, "at once"),
        (vec![b"GET /slow HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n"], 2, "at once"),
        (vec![b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n"], 1, "\r\n\r\n"),
        (vec![b"GET / HTTP/1.0\r\n\r\n"], 1, "at once"),
        (
            vec![
                b"POST /echo HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
                b"ab",
                b"cd",
            ],
            2,
            "abcd",
        ),
        (
            vec![
                b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na",
                b"b\r\n2\r\ncd\r\n",
                b"0\r\n\r\nGET /echo",
                b" HTTP/1.1\r\nConnection: close\r\n\r\n",
            ],
            2,
            "HTTP/1.1 405",
        ),
        // The router answers malformed bodies, not the edge.
        (vec![b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na", b"b\r\nx\r\n"], 1, "400"),
    ] {
        let mut stream = served.connect().await;
        for piece in &pieces {
            stream.write_all(piece).await.unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        let answer = rest(&mut stream).await;
        assert_eq!(answer.matches("HTTP/1.").count(), answers, "{answer}");
        assert!(answer.contains(body) && !answer.contains("invalid_request"), "{answer}");
    }
}

#[tokio::test]
async fn the_gateways_own_time_does_not_count_as_the_clients() {
    let served = serve(LIMITS).await;
    let mut stream = served.connect().await;
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 200"));
    served.wait_for("well", 1).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_per_address_are_refused() {
    let served = serve(Limits { patience: Duration::from_mins(1), idle: Duration::from_mins(1), ..LIMITS }).await;
    let mut open = Vec::new();
    for _ in 0..LIMITS.max_per_peer {
        let mut stream = served.connect().await;
        ask(&mut stream).await;
        open.push(stream);
    }
    let mut refused = served.connect().await;
    let answer = rest(&mut refused).await;
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n") && answer.contains("\r\nRetry-After: 1\r\n"),
        "{answer}"
    );
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["code"], "overloaded");
    assert!(body["message"].as_str().unwrap().contains("server.connections"));
    assert_eq!(served.ended("refused"), 1);
    // Open connections are unaffected, and a closed connection makes room for a new one.
    ask(&mut open[0]).await;
    drop(open.pop());
    served.wait_for("well", 1).await;
    let mut stream = served.connect().await;
    ask(&mut stream).await;
}

#[tokio::test]
async fn a_malformed_request_gets_an_error_in_the_gateways_form() {
    let served = serve(LIMITS).await;
    let all: [&[u8]; 5] = [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nbad header\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ];
    for (index, sent) in all.into_iter().enumerate() {
        let mut stream = served.connect().await;
        stream.write_all(sent).await.unwrap();
        let answer = rest(&mut stream).await;
        let shown = String::from_utf8_lossy(&sent[..sent.len().min(60)]);
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{shown:?}: {answer:?}");
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["code"], "invalid_request", "{shown:?}");
        served.wait_for("malformed", index as u64 + 1).await;
    }
    // An HTTP/2 client would not understand an HTTP/1.1 answer.
    let mut stream = served.connect().await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    served.wait_for("malformed", all.len() as u64 + 1).await;
    // Also after a good request.
    let mut stream = served.connect().await;
    ask(&mut stream).await;
    stream.write_all(b"\0\0\0\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.contains("invalid_request"));
}

#[tokio::test]
async fn a_head_is_limited_to_16_kib_and_100_headers() {
    let served = serve(LIMITS).await;
    let rest_of_head = "GET / HTTP/1.1\r\nConnection: close\r\nX: \r\n\r\n".len();
    let head = |size: usize| {
        let padding = "x".repeat(size - rest_of_head);
        format!("GET / HTTP/1.1\r\nConnection: close\r\nX: {padding}\r\n\r\n")
    };
    let many = |count: usize| format!("GET / HTTP/1.1\r\nConnection: close\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
    let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(17_000));
    for (sent, is_read) in [
        (head(16 * 1024), true),
        (head(16 * 1024 + 1), false),
        (many(100), true),
        (many(101), false),
        (long_path, false),
        (endless, false),
    ] {
        let mut stream = served.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        let shown = (&sent[..20], sent.len());
        if is_read {
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{shown:?}: {answer:?}");
            continue;
        }
        assert!(answer.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{shown:?}: {answer:?}");
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["code"], "head_too_large", "{shown:?}");
    }
    served.wait_for("malformed", 4).await;
}

#[tokio::test]
async fn old_unauthenticated_connections_are_closed_in_favour_of_new_ones() {
    let served = serve(Limits { unauthenticated: 20 * 1024, patience: Duration::from_mins(1), ..LIMITS }).await;
    let (mut first, mut second) = (served.connect().await, served.connect().await);
    ask(&mut first).await;
    ask(&mut second).await;
    let mut third = served.connect().await;
    ask(&mut third).await;
    assert_eq!(rest(&mut first).await, "");
    assert_eq!(served.ended("crowded_out"), 1);
    ask(&mut second).await;
    ask(&mut third).await;
}

#[tokio::test]
async fn a_connection_past_its_maximum_age_ends_after_an_answer() {
    let served = serve(Limits { max_age: Duration::from_millis(200), ..LIMITS }).await;
    let mut stream = served.connect().await;
    ask(&mut stream).await;
    // An idle connection past its age may be about to send a request, so it stays open until the idle limit.
    assert_eq!(rest(&mut stream).await, "");
    served.wait_for("idle", 1).await;
    let mut stream = served.connect().await;
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let answer = rest(&mut stream).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200") && answer.contains("connection: close"), "{answer}");
    served.wait_for("well", 1).await;
}

#[tokio::test]
async fn a_draining_gateway_closes_connections_with_an_answer() {
    let served = serve(Limits { idle: Duration::from_mins(1), ..LIMITS }).await;
    let mut before = served.connect().await;
    ask(&mut before).await;
    served.phase.send(Phase::Draining).unwrap();
    let mut after = served.connect().await;
    for stream in [&mut before, &mut after] {
        stream.write_all(GET).await.unwrap();
        let answer = rest(stream).await.to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 200") && answer.contains("connection: close"), "{answer}");
    }
    served.wait_for("well", 2).await;
}

#[tokio::test]
async fn a_closing_gateway_finishes_running_requests() {
    let served = serve(LIMITS).await;
    let (mut silent, mut asking) = (served.connect().await, served.connect().await);
    ask(&mut silent).await;
    asking.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    sleep(Duration::from_millis(100)).await;
    served.phase.send(Phase::Closing).unwrap();
    assert_eq!(rest(&mut silent).await, "");
    assert!(rest(&mut asking).await.starts_with("HTTP/1.1 200"));
    assert!(served.ended.await.unwrap(), "all were finished");
    assert!(TcpStream::connect(served.address).await.is_err());
}
