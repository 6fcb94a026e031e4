//! An upstream that misbehaves as a test demands. It reads a request, notes it, and plays back steps, byte by byte if need be.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use rustix::net::Shutdown;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{Reply, Verdict};

/// One step of an upstream. After the last step it closes the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends these bytes at once.
    Send(Vec<u8>),
    /// Sends these bytes one by one, with a pause before each.
    Drip(Vec<u8>, Duration),
    /// Sends these bytes again and again, as long as the other side takes them.
    Flood(Vec<u8>),
    /// Keeps the connection open and sends nothing more.
    Hang,
    /// Resets the connection.
    Reset,
}

/// A received request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The method.
    pub method: String,
    /// The path and query, as in the request line.
    pub target: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The response to this request, without a body if it is a `HEAD`. `headers` are lines without their ends.
    pub(crate) fn answer(&self, status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<Step> {
        let mut bytes = response(status, headers, body.as_ref());
        if self.method == "HEAD" {
            bytes.truncate(bytes.len() - body.as_ref().len());
        }
        vec![Step::Send(bytes)]
    }
}

/// A whole response with a `Content-Length`, after which the connection ends.
pub(crate) fn response(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let headers = if headers.is_empty() { String::new() } else { format!("{headers}\r\n") };
    let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A 200 with `body` as JSON.
pub(crate) fn json_response(body: impl AsRef<[u8]>) -> Vec<u8> {
    response(200, "Content-Type: application/json", body)
}

/// Turns a request into steps.
pub(crate) type Play = dyn Fn(&Request) -> Vec<Step> + Send + Sync;

/// A running upstream. It ends with all its connections when this is dropped.
pub(crate) struct Upstream {
    /// Its address.
    pub address: SocketAddr,
    play: Arc<Play>,
    requests: Arc<Mutex<Vec<Request>>>,
    listener: Arc<TcpListener>,
    task: JoinHandle<()>,
}

impl Upstream {
    /// An upstream that answers each request with the steps of `play`.
    pub(crate) async fn start(play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, Arc::new(play)).await
    }

    /// An upstream at a loopback address of its own, so that nothing else takes its port while it refuses connections.
    pub(crate) async fn start_apart(play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Self {
        static COUNT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Self::start_at(Ipv4Addr::new(127, 77, high, low), Arc::new(play)).await
    }

    async fn start_at(ip: Ipv4Addr, play: Arc<Play>) -> Self {
        let listener = Arc::new(TcpListener::bind((ip, 0)).await.unwrap());
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let task = tokio::spawn(serve(Arc::clone(&listener), Arc::clone(&play), Arc::clone(&requests)));
        Self { address, play, requests, listener, task }
    }

    /// An upstream that answers each request with the same bytes.
    pub(crate) async fn always(response: Vec<u8>) -> Self {
        Self::start(move |_| vec![Step::Send(response.clone())]).await
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Closes its port and all its connections.
    pub(crate) async fn refuse(&mut self) {
        self.task.abort();
        _ = (&mut self.task).await;
        // To close it is not enough: a program that another test starts just now has a copy of the socket until its `exec`. As long as
        // one is left, the kernel takes connections.
        rustix::net::shutdown(&self.listener, Shutdown::Both).unwrap();
    }

    /// Opens its port again, after [`Self::refuse`].
    pub(crate) async fn listen(&mut self) {
        self.listener = Arc::new(TcpListener::bind(self.address).await.unwrap());
        self.task = tokio::spawn(serve(Arc::clone(&self.listener), Arc::clone(&self.play), Arc::clone(&self.requests)));
    }
}

async fn serve(listener: Arc<TcpListener>, play: Arc<Play>, record: Arc<Mutex<Vec<Request>>>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (play, record) = (Arc::clone(&play), Arc::clone(&record));
        connections.spawn(async move {
            if let Some(request) = read_request(&mut stream).await {
                let steps = play(&request);
                record.lock().unwrap().push(request);
                perform(stream, steps).await;
            }
        });
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut line = lines.next().unwrap().split(' ').map(str::to_owned);
    let mut request = Request { method: line.next()?, target: line.next()?, ..Request::default() };
    request.headers = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + 4 + length {
        stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
    }
    request.body = bytes[end + 4..].to_vec();
    Some(request)
}

/// Plays `steps` as long as the other side listens.
async fn perform(mut stream: TcpStream, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Drip(bytes, pause) => {
                for byte in bytes {
                    sleep(pause).await;
                    if stream.write_all(&[byte]).await.is_err() {
                        return;
                    }
                }
            }
            Step::Flood(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Step::Hang => std::future::pending().await,
            Step::Reset => return stream.set_zero_linger().unwrap(),
        }
    }
    // Ends the answer and lets the other side read it: closing a socket with unread input resets the connection.
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// Checks how a fault looks from outside: an error for Argo CD with `status`, a flat body with `code`, and a message that names
/// the route and contains `says`. Returns the message.
#[track_caller]
pub(crate) fn refused(reply: &Reply, status: u16, code: &str, says: &str) -> String {
    assert!(matches!(reply.verdict(), Verdict::Error { status: Some(_), .. }), "{says}: {:?}", reply.verdict());
    let (message, body) = (reply.message(), reply.json());
    assert_eq!((reply.status, &*reply.code()), (status, code), "{says}: {message}");
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["message", "code", "route", "requestId"], "{message}");
    assert!(body.as_object().unwrap().values().all(Value::is_string), "{body}");
    assert_eq!(body["requestId"].as_str(), reply.header("x-request-id"), "{message}");
    assert!(message.starts_with(&format!("route {}", body["route"].as_str().unwrap())), "{message}");
    assert!(message.contains(says), "`{message}` does not say `{says}`");
    assert!(!message.contains(char::is_control), "{message:?}");
    message
}
