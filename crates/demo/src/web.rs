//! The least of HTTP that the sources and the plugins of the story need: a server that answers each connection once, and a client.

use std::{fmt::Write as _, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, header};
use reqwest::Url;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, timeout},
};

use domain::clock::SystemClock;
use outbound::{Call, ClientOptions, HttpClient, Outbound};

/// How long a request may take. Everything is on this machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most bytes of a request's head, and of a response's body.
const MAX_HEAD: usize = 16 * 1024;
const MAX_BODY: usize = 1024 * 1024;

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) media_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

impl Response {
    /// A response with the JSON `body`.
    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self { status, media_type: "application/json", headers: Vec::new(), body: body.to_string().into() }
    }

    fn head(&self) -> String {
        let mut head = format!(
            "HTTP/1.1 {} \r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
            self.status,
            self.media_type,
            self.body.len()
        );
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head + "\r\n"
    }
}

/// Answers requests by their path.
pub(crate) trait Site: Send + Sync + 'static {
    /// The response to a request for `path`.
    fn answer(&self, path: &str) -> impl Future<Output = Response> + Send;
}

/// A server on a free port of this machine. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its address.
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Server {
    /// Serves `site`.
    ///
    /// # Errors
    /// When no port is free.
    pub(crate) async fn start(site: Arc<impl Site>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let site = Arc::clone(&site);
                tokio::spawn(async move { timeout(PATIENCE, serve(stream, &*site)).await });
            }
        });
        Ok(Self { address, serving })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers one request. Its body is read, so that closing the connection does not cut the response off.
async fn serve(mut stream: TcpStream, site: &impl Site) -> io::Result<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if bytes.len() > MAX_HEAD || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = end + length.unwrap_or_default().min(MAX_BODY);
    while bytes.len() < whole && stream.read_buf(&mut bytes).await? > 0 {}
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let response = site.answer(path).await;
    stream.write_all(response.head().as_bytes()).await?;
    if method != "HEAD" {
        stream.write_all(&response.body).await?;
    }
    stream.shutdown().await
}

/// A client without retries.
#[derive(Clone)]
pub(crate) struct Client(Arc<HttpClient>);

impl Client {
    /// A client.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let client =
            Outbound::new(Arc::new(SystemClock)).client(ClientOptions::default()).map_err(anyhow::Error::msg)?;
        client.prepare().map_err(|error| anyhow::Error::msg(error.message))?;
        Ok(Self(client))
    }

    /// The status and body of `url`, with the bearer `token` if there is one.
    ///
    /// # Errors
    /// Why there is no whole response.
    pub(crate) async fn get(&self, url: Url, token: Option<&str>) -> Result<(u16, Bytes), String> {
        let mut call = Call::get(url, MAX_BODY, Instant::now() + PATIENCE);
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string())?;
            call.headers.insert(header::AUTHORIZATION, value);
        }
        let observed = self.0.observe(call).await.map_err(|error| error.message)?;
        match observed.ended {
            None => Ok((observed.status.as_u16(), observed.body)),
            Some(ended) => Err(format!("the response is not whole ({ended:?})")),
        }
    }
}
