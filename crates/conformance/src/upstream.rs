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

use domain::clock::SystemClock;
use outbound::{Call, ClientOptions, HttpClient, Outbound};

/// A fault of a source.
#[derive(Debug)]
pub struct Fault {
    /// The behaviour of the source, for reports.
    pub does: &'static str,
    /// The reply itself.
    pub(crate) reply: Reply,
}

/// Changes a whole reply, which is a head and a body. `None` if this reply has nothing to change.
pub(crate) type Edit = fn(&str, &[u8]) -> Option<(String, Vec<u8>)>;

#[derive(Debug)]
pub(crate) enum Reply {
    /// These bytes, and then the connection is closed.
    Bytes(&'static str),
    /// The true reply, changed.
    Edited(Edit),
    /// The true head with the first half of the body, and then the connection is closed.
    Half,
    /// Nothing, and the connection is closed.
    Close,
    /// Nothing, for as long as the client waits.
    Hang,
}

impl Fault {
    pub(crate) const fn new(does: &'static str, reply: Reply) -> Self {
        Self { does, reply }
    }
}

const fn fault(does: &'static str, bytes: &'static str) -> Fault {
    Fault::new(does, Reply::Bytes(bytes))
}

/// All faults. A 404 and an empty list are none: they may be true.
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

/// The true source.
struct Source {
    url: Url,
    client: Arc<HttpClient>,
}

/// The proxy. It ends with this value.
pub struct Upstream {
    fault: Arc<Mutex<Option<&'static Fault>>>,
    /// How many connections came.
    requests: Arc<AtomicUsize>,
    /// How many replies were a fault.
    faults: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Upstream {
    /// Listens on `port` of this machine, and passes requests on to `source`.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start(port: u16, source: Url) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        // Built and prepared before it is needed: that takes time, which must not count as the plugin's.
        let client = Outbound::new(Arc::new(SystemClock)).client(ClientOptions::default());
        let client = client.map_err(std::io::Error::other)?;
        client.prepare().map_err(|error| std::io::Error::other(error.message))?;
        let fault: Arc<Mutex<Option<&'static Fault>>> = Arc::default();
        let (playing, requests) = (Arc::clone(&fault), Arc::<AtomicUsize>::default());
        let (counted, faults) = (Arc::clone(&requests), Arc::<AtomicUsize>::default());
        let played = Arc::clone(&faults);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (fault, source) = (*playing.lock(), Source { url: source.clone(), client: Arc::clone(&client) });
                let played = Arc::clone(&played);
                tokio::spawn(async move { timeout(2 * PATIENCE, serve(stream, fault, &source, &played)).await });
            }
        });
        Ok(Self { fault, requests, faults, serving })
    }

    /// How many requests the plugin has sent to its source here.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// How many replies of the source were a fault, or were changed.
    pub(crate) fn faults(&self) -> usize {
        self.faults.load(Ordering::SeqCst)
    }

    /// Plays `fault` from now on; `None`: passes all requests on.
    pub fn play(&self, fault: Option<&'static Fault>) {
        *self.fault.lock() = fault;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves one request of `stream`, and closes it. Counts it in `faults` if the reply is not the source's own.
async fn serve(
    mut stream: TcpStream,
    fault: Option<&Fault>,
    source: &Source,
    faults: &AtomicUsize,
) -> anyhow::Result<()> {
    let (head, body) = match read_request(&mut stream).await {
        Ok(request) => request,
        Err(why) => {
            let head = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length";
            stream.write_all(format!("{head}: {}\r\n\r\n{why}", why.to_string().len()).as_bytes()).await?;
            return Err(why);
        }
    };
    let fault = fault.map(|fault| &fault.reply);
    if matches!(fault, Some(Reply::Bytes(_) | Reply::Half | Reply::Close | Reply::Hang)) {
        faults.fetch_add(1, Ordering::SeqCst);
    }
    let reply = match fault {
        Some(Reply::Bytes(bytes)) => bytes.as_bytes().to_vec(),
        Some(Reply::Edited(edit)) => {
            // Without its conditions: a 304 has no body to change.
            let (head, body) = pass_on(&unconditional(&head), body, source).await;
            match edit(&head, &body) {
                Some((head, body)) => {
                    faults.fetch_add(1, Ordering::SeqCst);
                    [head.into_bytes(), body].concat()
                }
                None => [head.as_bytes(), &body].concat(),
            }
        }
        Some(Reply::Close) => Vec::new(),
        Some(Reply::Hang) => {
            sleep(2 * PATIENCE).await;
            Vec::new()
        }
        Some(Reply::Half) => {
            let (head, body) = pass_on(&head, body, source).await;
            // Without a body there is nothing to cut but the head.
            let head = if body.is_empty() { "" } else { &head };
            [head.as_bytes(), &body[..body.len() / 2]].concat()
        }
        None => {
            let (head, body) = pass_on(&head, body, source).await;
            [head.as_bytes(), &body].concat()
        }
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
            if let Some(body) = body(&head, &bytes[end + 4..])? {
                return Ok((head, body));
            }
        }
        anyhow::ensure!(bytes.len() < MAX_REQUEST_BYTES, "the request is too large");
        let count = timeout(PATIENCE, stream.read(&mut chunk)).await??;
        anyhow::ensure!(count > 0, "the request broke off");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

/// The body of a request with this head, if `bytes` hold all of it. Chunks outrank a `Content-Length`.
fn body(head: &str, bytes: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    if let Some(coding) = header(head, "transfer-encoding") {
        anyhow::ensure!(coding.eq_ignore_ascii_case("chunked"), "the request has the coding `{coding}`");
        return chunks(bytes);
    }
    let length = header(head, "content-length").map_or(Ok(0), str::parse)?;
    Ok(bytes.get(..length).map(<[u8]>::to_vec))
}

/// The data of a chunked body, if `rest` holds all of it.
fn chunks(mut rest: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let mut data = Vec::new();
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let line = String::from_utf8_lossy(&rest[..end]);
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)?;
        rest = &rest[end + 2..];
        if size == 0 {
            // Trailers are not passed on.
            let is_whole = rest.starts_with(b"\r\n") || rest.windows(4).any(|window| window == b"\r\n\r\n");
            return Ok(is_whole.then_some(data));
        }
        anyhow::ensure!(size < MAX_REQUEST_BYTES, "the request is too large");
        let (Some(chunk), Some(after)) = (rest.get(..size), rest.get(size + 2..)) else { break };
        anyhow::ensure!(rest[size..].starts_with(b"\r\n"), "a chunk is longer than it says");
        data.extend_from_slice(chunk);
        rest = after;
    }
    Ok(None)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

/// The head of a request without `If-None-Match` and `If-Modified-Since`.
fn unconditional(head: &str) -> String {
    let is_kept = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        !["if-none-match", "if-modified-since"].contains(&&*name.to_ascii_lowercase())
    };
    head.lines().filter(is_kept).collect::<Vec<_>>().join("\r\n")
}

/// The whole reply of `source` to the request with this head and body: its head, and its body. A 502 if it cannot be reached.
async fn pass_on(head: &str, body: Vec<u8>, source: &Source) -> (String, bytes::Bytes) {
    let requests = async {
        let line = head.lines().next().unwrap_or_default();
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or("/"));
        // The path goes below the source's own. It cannot name another host.
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let mut url = source.url.clone();
        url.set_path(&format!("{}/{}", source.url.path().trim_end_matches('/'), path.trim_start_matches('/')));
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
        let reply = source.client.observe(call).await.map_err(|error| error.message)?;
        if reply.ended.is_some() { Err("the reply of the source is not whole".to_owned()) } else { Ok(reply) }
    };
    match requests.await {
        Ok(reply) => {
            let is_framing = ["connection", "content-length", "transfer-encoding", "keep-alive", "upgrade"];
            let mut head =
                format!("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n", reply.status, reply.body.len());
            for (name, value) in reply.headers.iter().filter(|(name, _)| !is_framing.contains(&name.as_str())) {
                let _ = write!(head, "{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
            }
            head.push_str("\r\n");
            (head, reply.body)
        }
        Err(why) => {
            let head =
                format!("HTTP/1.1 502 Bad Gateway\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", why.len());
            (head, why.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_length_or_chunks() {
        let length = "POST / HTTP/1.1\r\nContent-Length: 3";
        assert_eq!(body(length, b"ab").unwrap(), None);
        assert_eq!(body(length, b"abc").unwrap().unwrap(), b"abc");
        assert_eq!(body("GET / HTTP/1.1", b"").unwrap().unwrap(), b"");
        let chunked = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: Chunked";
        for (bytes, whole) in [
            ("3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", "abc0123456789"),
            ("1\r\na\r\n0\r\nX: y\r\n\r\n", "a"),
            ("0\r\n\r\n", ""),
        ] {
            assert_eq!(body(chunked, bytes.as_bytes()).unwrap().unwrap(), whole.as_bytes());
            for cut in 0..bytes.len() {
                assert_eq!(body(chunked, &bytes.as_bytes()[..cut]).unwrap(), None, "{:?}", &bytes[..cut]);
            }
        }
        for wrong in ["x\r\n", "1\r\nabc\r\n", "fffffffff\r\n", "-1\r\n"] {
            body(chunked, wrong.as_bytes()).unwrap_err();
        }
        body("POST / HTTP/1.1\r\nTransfer-Encoding: gzip", b"").unwrap_err();
        body("POST / HTTP/1.1\r\nContent-Length: x", b"").unwrap_err();
    }
}
