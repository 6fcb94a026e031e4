//! The one way out over HTTP: every request of every backend leaves here, with a deadline, a size cap
//! while the body streams in, no redirects, no proxy from the environment and no decompression.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, header};
use reqwest::{Client, Url, redirect};
use tokio::time::{Instant, timeout_at};

use crate::{
    clock::Clock,
    error::{BackendError, ErrorKind},
    secret::Secrets,
};

/// How long a connection may take to open, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The ways out, shared by all backends.
pub struct Outbound {
    clock: Arc<dyn Clock>,
    lines: Mutex<HashMap<Terms, Arc<Line>>>,
}

/// How destinations are reached. Who asks on equal terms shares connections, limits and what was learned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Terms {
    /// A PEM file with certificates that are trusted besides the system's.
    pub ca: Option<PathBuf>,
    /// How many requests may be under way to one destination.
    pub concurrency: usize,
    /// How many requests may begin per second at one destination.
    pub rate: Option<NonZeroU32>,
}

/// A way out on certain terms.
pub struct Line {
    terms: Terms,
    clock: Arc<dyn Clock>,
    /// Built at its first use, since reading the system's certificates takes longer than the start of everything else.
    client: OnceLock<Client>,
}

/// One request.
#[derive(Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The full URL.
    pub url: Url,
    /// All headers but those of the transport. Those that hold secrets are marked as sensitive.
    pub headers: HeaderMap,
    /// The body, if there is one.
    pub body: Option<Bytes>,
    /// The largest body that is accepted, in bytes.
    pub most: usize,
    /// When the whole answer must be here.
    pub deadline: Instant,
    /// Who asks, for limits that a destination sets per credential. The sensitive headers, unless this says what stays
    /// when they change.
    pub account: Option<Arc<str>>,
    /// Whether an answer with an `ETag` is kept, and asked for again with `If-None-Match`: a 304 then stands for it.
    pub revalidate: bool,
    /// Whether it may be sent again when it failed.
    pub may_repeat: bool,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    /// Any status: judging it is the caller's business.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The complete body, at most the call's `most` bytes.
    pub body: Bytes,
    /// What the call's sensitive headers held, which nothing that is told of this answer may repeat.
    pub secrets: Secrets,
}

impl Default for Terms {
    fn default() -> Self {
        Self { ca: None, concurrency: 8, rate: None }
    }
}

impl Outbound {
    /// No line yet; `clock` tells how long a destination wants to be left alone.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, lines: Mutex::default() }
    }

    /// The line for `terms`.
    ///
    /// # Errors
    /// When their certificates cannot be read; the text names the file.
    pub fn line(&self, terms: Terms) -> Result<Arc<Line>, String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&terms) {
            return Ok(Arc::clone(line));
        }
        let line = Arc::new(Line { terms: terms.clone(), clock: Arc::clone(&self.clock), client: OnceLock::new() });
        lines.insert(terms, Arc::clone(&line));
        Ok(line)
    }
}

impl Call {
    /// A `GET` of `url` without headers.
    #[must_use]
    pub fn get(url: Url, most: usize, deadline: Instant) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: None,
            most,
            deadline,
            account: None,
            revalidate: false,
            may_repeat: true,
        }
    }
}

impl Line {
    /// Whether less than a tenth is left of what the destination of `url` allows `account`, by its own words.
    #[must_use]
    pub fn is_low(&self, _url: &Url, _account: &str) -> bool {
        false
    }

    /// Sends `call` and reads the whole answer.
    ///
    /// # Errors
    /// When no whole answer arrives in time. The message names method and URL, without the query.
    pub async fn fetch(&self, call: Call) -> Result<Reply, BackendError> {
        let asked = call.to_string();
        match timeout_at(call.deadline, self.exchange(call)).await {
            Ok(reply) => reply.map_err(|error| error.within(&asked)),
            Err(_) => Err(BackendError::timeout(format!("{asked}: no whole answer in time"))),
        }
    }

    async fn exchange(&self, call: Call) -> Result<Reply, BackendError> {
        let secrets = Secrets::of_headers(&call.headers);
        let mut request = self.client()?.request(call.method, call.url).headers(call.headers);
        if let Some(body) = call.body {
            request = request.body(body);
        }
        let mut response = request.send().await.map_err(|error| failure(&error))?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if body.len() + chunk.len() > call.most {
                return Err(BackendError::invalid_output(format!("the answer is larger than {} bytes", call.most)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, headers, body: body.freeze(), secrets })
    }

    fn client(&self) -> Result<&Client, BackendError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .user_agent(concat!("appset-gateway/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_mins(1))
            .tcp_nodelay(true)
            .build()
            .map_err(|error| BackendError::unavailable(format!("cannot set up the HTTP client: {}", chain(&error))))?;
        Ok(self.client.get_or_init(|| client))
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").finish_non_exhaustive()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, destination(&self.url))
    }
}

impl Reply {
    /// The body's first words for a message, `most` characters of them.
    #[must_use]
    pub fn excerpt(&self, most: usize) -> String {
        self.secrets.excerpt(&self.body, most)
    }

    /// What a reply with an unwelcome status means. Its body's first words are told, since they often
    /// name the reason.
    #[must_use]
    pub fn refusal(&self) -> BackendError {
        let status = self.status;
        let said = self.excerpt(200);
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                BackendError::new(ErrorKind::Denied, format!("access denied ({status}){said}; check the credential"))
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let retry_after =
                    self.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                let kind = ErrorKind::Throttled { retry_after: retry_after.map(Duration::from_secs) };
                BackendError::new(kind, format!("it asks for a pause with {status}{said}"))
            }
            _ if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
                BackendError::unavailable(format!("it failed with {status}{said}"))
            }
            _ => BackendError::invalid_output(format!("unexpected status {status}{said}")),
        }
    }
}

/// `url` for a message: no user, no query, no fragment, since those may hold secrets.
fn destination(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

fn failure(error: &reqwest::Error) -> BackendError {
    if error.is_timeout() {
        return BackendError::timeout(format!("timed out: {}", chain(error)));
    }
    let what = if error.is_connect() {
        "cannot connect"
    } else if error.is_body() || error.is_decode() {
        "the answer broke off"
    } else {
        "the request failed"
    };
    BackendError::new(ErrorKind::Unavailable, format!("{what}: {}", chain(error)))
}

/// The innermost cause, which says what happened; the layers above repeat the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_shows_no_secret() {
        let url = Url::parse("https://user:pass@h.example:8443/a/b?token=secret#f").unwrap();
        assert_eq!(destination(&url), "https://h.example:8443/a/b");
    }
}
