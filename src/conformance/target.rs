//! The plugin server under test. It is asked as Argo CD asks, once, without retries, and within bounds.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::Url;
use tokio::time::Instant;

use super::judge::{Verdict, judge};
use crate::{
    clients::outbound::{Call, ClientOptions, Outbound},
    domain::{clock::SystemClock, error::ErrorKind, secret::Secret},
};

/// After this time Argo CD gives up, unless the plugin's ConfigMap sets `requestTimeout`.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes. A plugin that floods gets no further.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// A plugin server.
pub(crate) struct Target {
    url: Url,
    token: Option<Secret>,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Argo CD, with the right token.
    ArgoCd,
    /// Somebody without a token.
    NoToken,
    /// Somebody with a wrong token.
    WrongToken,
}

/// A reply, as far as it came.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    /// What Argo CD makes of it.
    pub(crate) verdict: Verdict,
    /// Its status; `None` if there was no whole reply.
    pub(crate) status: Option<u16>,
    /// Whether it was not complete in time.
    pub(crate) is_late: bool,
    headers: HeaderMap,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl Answered {
    /// Whether the reply says where it ends.
    pub(crate) fn has_end(&self) -> bool {
        let is_chunked = self.headers.contains_key(header::TRANSFER_ENCODING);
        is_chunked || self.headers.contains_key(header::CONTENT_LENGTH)
    }
}

impl Target {
    /// The plugin at `base`, which is a ConfigMap's `baseUrl`.
    ///
    /// # Errors
    /// When `base` cannot have a path.
    pub(crate) fn new(base: &Url, token: Option<Secret>, timeout: Duration) -> anyhow::Result<Self> {
        let mut url = base.clone();
        let mut path = url.path_segments_mut().map_err(|()| anyhow::anyhow!("{base} cannot have a path"))?;
        path.pop_if_empty().extend(["api", "v1", "getparams.execute"]);
        drop(path);
        Ok(Self { url, token, timeout })
    }

    /// Whether the plugin needs a token.
    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Asks once.
    ///
    /// # Errors
    /// When this side cannot ask, for example with a token that no header can carry.
    pub(crate) async fn ask(&self, asker: Asker, body: String) -> anyhow::Result<Answered> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Argo CD accepts gzip, and unpacks it. What is judged is the same without it.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let token = self.token.as_ref().map(|token| format!("Bearer {}", token.expose()));
        let authorization = match asker {
            Asker::ArgoCd => token,
            Asker::NoToken => None,
            Asker::WrongToken => Some("Bearer a-wrong-token-of-the-conformance-suite".to_owned()),
        };
        if let Some(authorization) = authorization {
            let mut value = HeaderValue::try_from(authorization)?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        // A client of its own for each question: one that failed before must not be spared the next.
        let client =
            Outbound::new(Arc::new(SystemClock)).client(ClientOptions::default()).map_err(anyhow::Error::msg)?;
        let deadline = Instant::now() + self.timeout;
        let call = Call {
            method: Method::POST,
            headers,
            body: Some(body.into()),
            may_repeat: false,
            ..Call::get(self.url.clone(), MAX_BODY_BYTES, deadline)
        };
        Ok(match client.fetch(call).await {
            Ok(reply) => {
                let text = |(name, value): (&HeaderName, &HeaderValue)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                };
                let headers: Vec<(String, String)> = reply.headers.iter().map(text).collect();
                let (status, body) = (reply.status.as_u16(), reply.body.to_vec());
                let verdict = judge(status, &headers, &body);
                Answered { verdict, status: Some(status), is_late: false, headers: reply.headers, body }
            }
            Err(error) => {
                let is_late = error.kind == ErrorKind::Timeout;
                let verdict = Verdict::Error { status: None, condition: error.message };
                Answered { verdict, status: None, is_late, headers: HeaderMap::new(), body: Vec::new() }
            }
        })
    }
}
