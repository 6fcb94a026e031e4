//! A proxy between a plugin and its source, which plays faults.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    clients::outbound::{Call, ClientOptions, Outbound},
    domain::clock::SystemClock,
};

/// A fault of a source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What the source does, for reports.
    pub(crate) does: &'static str,
    reply: Reply,
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// These bytes, and then the connection is closed.
    Bytes(&'static str),
    /// The first half of the true reply, and then the connection is closed.
    Half,
    /// Nothing, and the connection is closed.
    Close,
    /// Nothing, for as long as anybody waits.
    Hang,
}

const fn fault(does: &'static str, bytes: &'static str) -> Fault {
    Fault { does, reply: Reply::Bytes(bytes) }
}

/// All faults. A 404 and an empty list are none: a source may say so.
pub(crate) const FAULTS: &[Fault] = &[
    fault("answers 500", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno"),
    fault(
        "answers 502 with a page",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    ),
    fault("answers 503", "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
    fault("answers 429", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
    fault("answers 401", "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
    fault("answers 403", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
    fault("answers 200 without a body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    fault("answers 200 with `{}`", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"),
    fault(
        "answers 200 with `null`",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nnull",
    ),
    fault(
        "answers 200 with an error",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"error\":\"later\"}",
    ),
    fault(
        "answers 200 with a page",
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 19\r\n\r\n<html>Log in</html>",
    ),
    fault("answers 204", "HTTP/1.1 204 No Content\r\n\r\n"),
    fault("redirects to a login page", "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"),
    Fault { does: "breaks off in the middle", reply: Reply::Half },
    Fault { does: "closes the connection", reply: Reply::Close },
    Fault { does: "never answers", reply: Reply::Hang },
];

/// The longest head or body of a request that is passed on, in bytes.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;
/// The largest reply that is passed on, in bytes.
const MAX_REPLY_BYTES: usize = 32 * 1024 * 1024;
/// How long a plugin may take to send its request, and a source to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The proxy. It ends with this value.
pub(crate) struct Upstream {
    fault: Arc<Mutex<Option<&'static Fault>>>,
    /// How many connections came.
    asked: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Upstream {
    /// Listens on `port` of this machine, and passes requests on to `source`.
    ///
    /// # Errors
    /// When the port is taken.
    pub(crate) async fn start(port: u16, source: Url) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let fault: Arc<Mutex<Option<&'static Fault>>> = Arc::default();
        let (playing, asked) = (Arc::clone(&fault), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&asked);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (fault, source) = (*playing.lock(), source.clone());
                tokio::spawn(async move { timeout(2 * PATIENCE, serve(stream, fault, &source)).await });
            }
        });
        Ok(Self { fault, asked, serving })
    }

    /// How often the plugin has asked its source here.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Plays `fault` from now on; `None`: passes all requests on.
    pub(crate) fn play(&self, fault: Option<&'static Fault>) {
        *self.fault.lock() = fault;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves one request of `stream`, and closes it.
async fn serve(mut stream: TcpStream, fault: Option<&Fault>, source: &Url) -> anyhow::Result<()> {
    let (head, body) = read_request(&mut stream).await?;
    let reply = match fault.map(|fault| &fault.reply) {
        Some(Reply::Bytes(bytes)) => bytes.as_bytes().to_vec(),
        Some(Reply::Close) => Vec::new(),
        Some(Reply::Hang) => {
            sleep(2 * PATIENCE).await;
            Vec::new()
        }
        Some(Reply::Half) => {
            let mut whole = pass_on(&head, body, source).await;
            whole.truncate(whole.len().saturating_sub(whole.len() / 4).max(1));
            whole
        }
        None => pass_on(&head, body, source).await,
    };
    stream.write_all(&reply).await?;
    stream.shutdown().await?;
    Ok(())
}

/// The head and the body of a request.
async fn read_request(stream: &mut TcpStream) -> anyhow::Result<(String, Vec<u8>)> {
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or_default();
            if bytes.len() - end - 4 >= length {
                return Ok((head, bytes[end + 4..end + 4 + length].to_vec()));
            }
        }
        anyhow::ensure!(bytes.len() < MAX_REQUEST_BYTES, "the request is too large");
        let count = timeout(PATIENCE, stream.read(&mut chunk)).await??;
        anyhow::ensure!(count > 0, "the request broke off");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

/// The reply of `source` to the request with this head and body, whole. A 502 if it cannot be asked.
async fn pass_on(head: &str, body: Vec<u8>, source: &Url) -> Vec<u8> {
    let asked = async {
        let line = head.lines().next().unwrap_or_default();
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or("/"));
        // The path goes below the source's own. It cannot name another host.
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let mut url = source.clone();
        url.set_path(&format!("{}/{}", source.path().trim_end_matches('/'), path.trim_start_matches('/')));
        url.set_query(query);
        let mut headers = http::HeaderMap::new();
        for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
            let is_ours = ["host", "connection", "content-length", "accept-encoding", "transfer-encoding"];
            let name = name.trim().to_ascii_lowercase();
            if let (Ok(name), Ok(value), false) = (
                http::HeaderName::try_from(&*name),
                http::HeaderValue::try_from(value.trim()),
                is_ours.contains(&&*name),
            ) {
                headers.append(name, value);
            }
        }
        let call = Call {
            method: Method::try_from(method).map_err(|error| error.to_string())?,
            headers,
            body: Some(body.into()).filter(|body: &bytes::Bytes| !body.is_empty()),
            may_repeat: false,
            ..Call::get(url, MAX_REPLY_BYTES, Instant::now() + PATIENCE)
        };
        let client = Outbound::new(Arc::new(SystemClock)).client(ClientOptions::default())?;
        client.fetch(call).await.map_err(|error| error.to_string())
    };
    match asked.await {
        Ok(reply) => {
            let is_framing = ["connection", "content-length", "transfer-encoding", "keep-alive", "upgrade"];
            let mut head =
                format!("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n", reply.status, reply.body.len());
            for (name, value) in reply.headers.iter().filter(|(name, _)| !is_framing.contains(&name.as_str())) {
                let _ = write!(head, "{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
            }
            head.push_str("\r\n");
            [head.as_bytes(), &reply.body].concat()
        }
        Err(why) => {
            format!("HTTP/1.1 502 Bad Gateway\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{why}", why.len())
                .into_bytes()
        }
    }
}
