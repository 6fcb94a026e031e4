//! HTTP/2: streams and their limits.

use std::net::SocketAddr;

use appset_gateway::http::{
    edge::{Edge, Limits},
    server,
};
use axum::{Router, routing::get};
use domain::lifecycle::Phase;
use h2::{
    Reason,
    client::{Builder, SendRequest},
};
use http::{Request, Response};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::*;

const LIMITS: Limits = Limits {
    max: 8,
    max_per_peer: 4,
    idle: Duration::from_millis(700),
    max_age: Duration::from_mins(1),
    patience: Duration::from_millis(300),
    handshake: Duration::from_secs(5),
    unauthenticated: 1 << 30,
};

/// A server with its own router: `/` answers at once, `/slow` after half a second.
struct Served {
    app: TestApp,
    address: SocketAddr,
    visitor: Visitor,
    phase: watch::Sender<Phase>,
    ended: JoinHandle<bool>,
}

impl Served {
    async fn start(limits: Limits) -> Self {
        let ca = Ca::new("ca");
        let app = serve(&ca, "", "").await;
        let edge = Edge { limits, ..server::edge(&app.app) };
        let slow = async || {
            sleep(Duration::from_millis(500)).await;
            "slowly"
        };
        let router = Router::new().route("/", get(async || "at once")).route("/slow", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (phase, phases) = watch::channel(Phase::Serving);
        let ended = tokio::spawn(async move { edge.serve(listener, router, phases, || Duration::from_secs(5)).await });
        Self { app, address, visitor: Visitor::new(&ca.pem, None, &["h2"]), phase, ended }
    }

    /// A client, and the end of its connection.
    async fn connect(&self, window: u32) -> (SendRequest<bytes::Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let stream = self.visitor.connect(self.address).await.unwrap();
        let mut builder = Builder::new();
        let (client, connection) = builder.initial_window_size(window).handshake(stream).await.unwrap();
        (client, tokio::spawn(connection))
    }

    async fn wait_for(&self, reason: &str, count: u64) {
        let metric = format!("appset_gateway_connections_ended_total{{reason=\"{reason}\"}}");
        let waited = timeout(Duration::from_secs(20), async {
            while self.app.metric(&metric).await < count {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "{reason}");
    }
}

async fn get_of(client: &SendRequest<bytes::Bytes>, path: &str) -> Result<(Response<()>, String), h2::Error> {
    let mut client = client.clone().ready().await?;
    let request = Request::get(format!("https://localhost{path}")).body(()).unwrap();
    let (head, mut body) = client.send_request(request, true)?.0.await?.into_parts();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        text.extend(data);
    }
    Ok((Response::from_parts(head, ()), String::from_utf8(text).unwrap()))
}

#[tokio::test]
async fn a_call_of_argo_cd_is_answered() {
    let ca = Ca::new("ca");
    let app = serve(&ca, "", "").await;
    let stream = Visitor::new(&ca.pem, None, &["h2"]).connect(app.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for (token, status) in [(TOKEN, 200), ("wrong", 403), (TOKEN, 200)] {
        let request = Request::post(format!("https://localhost{PATH}"))
            .header("authorization", format!("Bearer {token}"))
            .body(())
            .unwrap();
        let mut client = client.clone().ready().await.unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(bytes::Bytes::from_static(b"{}"), true).unwrap();
        let (head, mut body) = response.await.unwrap().into_parts();
        assert_eq!(head.status, status);
        let body = body.data().await.unwrap().unwrap();
        assert_eq!(head.headers["content-length"], body.len().to_string());
        assert!(!head.headers.contains_key("connection"));
        if status == 200 {
            assert_eq!(&body[..], br#"{"output":{"parameters":[{"a":"b"}]}}"#);
        }
    }
}

#[tokio::test]
async fn concurrent_streams_are_limited() {
    let served = Served::start(LIMITS).await;
    let (client, _connection) = served.connect(65_535).await;
    get_of(&client, "/").await.unwrap();
    assert_eq!(client.current_max_send_streams(), 100);
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let served = Served::start(LIMITS).await;
    // A partial preface, and a whole preface with nothing after it.
    let mut half = served.visitor.connect(served.address).await.unwrap();
    half.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let (_silent, _connection) = served.connect(65_535).await;
    served.wait_for("slow_head", 2).await;
    // A zero window, so that no answer can be sent.
    let (client, _connection) = served.connect(0).await;
    let asked = tokio::spawn(async move { get_of(&client, "/").await });
    served.wait_for("slow_reader", 1).await;
    asked.await.unwrap().unwrap_err();
    // Silence after an answer, however long the answer took.
    let (client, _connection) = served.connect(65_535).await;
    assert_eq!(get_of(&client, "/slow").await.unwrap().1, "slowly");
    served.wait_for("idle", 1).await;
}

#[tokio::test]
async fn clients_that_reset_every_stream_are_disconnected() {
    let served = Served::start(Limits { idle: Duration::from_mins(1), ..LIMITS }).await;
    let (good, _connection) = served.connect(65_535).await;
    let (bad, connection) = served.connect(65_535).await;
    let attack = async {
        for asked in 0..20_000 {
            // On a busy machine the network is slower than this loop.
            if asked % 100 == 99 {
                sleep(Duration::from_millis(20)).await;
            }
            let request = Request::get("https://localhost/slow").body(()).unwrap();
            let Ok(mut ready) = bad.clone().ready().await else { return asked };
            ready.send_request(request, true).unwrap().1.send_reset(Reason::CANCEL);
            tokio::task::yield_now().await;
        }
        20_000
    };
    let (asked, answered) = tokio::join!(attack, get_of(&good, "/slow"));
    assert_eq!(answered.unwrap().1, "slowly");
    assert!(asked < 20_000);
    timeout(Duration::from_secs(20), connection).await.expect("it ends").unwrap().unwrap_err();
    served.wait_for("broken", 1).await;
}

#[tokio::test]
async fn shutdown_finishes_open_streams() {
    let served = Served::start(Limits { idle: Duration::from_mins(1), ..LIMITS }).await;
    let (client, connection) = served.connect(65_535).await;
    get_of(&client, "/").await.unwrap();
    let slow = {
        let client = client.clone();
        tokio::spawn(async move { get_of(&client, "/slow").await })
    };
    sleep(Duration::from_millis(100)).await;
    served.phase.send(Phase::Draining).unwrap();
    assert_eq!(slow.await.unwrap().unwrap().1, "slowly");
    // No answer was lost, and the client is told to reconnect.
    timeout(Duration::from_secs(20), connection).await.expect("it ends").unwrap().unwrap();
    let (client, _connection) = served.connect(65_535).await;
    assert_eq!(get_of(&client, "/").await.unwrap().1, "at once", "who comes nevertheless is answered");
    served.phase.send(Phase::Closing).unwrap();
    assert!(served.ended.await.unwrap(), "all were finished");
}
