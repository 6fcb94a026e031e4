//! Sends one request, and keeps the reply as far as it arrived, for a reader who evaluates parts, too. It has no retries and no limits of
//! the destination, and an answer may begin as late as it ends.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use tokio::time::timeout_at;

use super::{
    Call, HttpClient,
    exchange::{ExchangeFailure, FailureKind},
};
use domain::error::BackendError;

/// A reply, as far as it arrived.
#[derive(Debug)]
pub struct Observed {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, at most `Call::max_bytes` bytes.
    pub body: Bytes,
    /// Why there is no more of it. `None`: it is whole.
    pub ended: Option<Ended>,
}

/// Why a reply is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It broke off.
    Broken,
    /// The deadline passed.
    Late,
    /// It is larger than `Call::max_bytes`.
    TooLarge,
}

impl HttpClient {
    /// Builds the parts that the first request needs, such as the trusted certificates, so that the request itself does not wait for it.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn prepare(&self) -> Result<(), BackendError> {
        self.client.ready(false).map(drop)
    }

    /// Sends `call` once, and reads the reply to its end, to its break, to the deadline or to the limit of its size.
    ///
    /// # Errors
    /// When no status and headers came.
    pub async fn observe(&self, call: Call) -> Result<Observed, BackendError> {
        let (client, _) = self.client.ready(false)?;
        let mut request = reqwest::Request::new(call.method.clone(), call.url.clone());
        request.headers_mut().clone_from(&call.headers);
        *request.body_mut() = call.body.clone().map(reqwest::Body::from);
        let late = || ExchangeFailure { kind: FailureKind::Timeout, message: "no answer in time".to_owned() };
        let sent = match timeout_at(call.deadline, client.execute(request)).await {
            Ok(sent) => sent.map_err(|error| self.client.failure(&error)),
            Err(_) => Err(late()),
        };
        let mut response = sent.map_err(|failure| failure.into_error().within(&call))?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        let ended = loop {
            match timeout_at(call.deadline, response.chunk()).await {
                Err(_) => break Some(Ended::Late),
                Ok(Err(_)) => break Some(Ended::Broken),
                Ok(Ok(None)) => break None,
                Ok(Ok(Some(chunk))) => {
                    let room = call.max_bytes - body.len();
                    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                    if chunk.len() > room {
                        break Some(Ended::TooLarge);
                    }
                }
            }
        };
        Ok(Observed { status, headers, body: body.freeze(), ended })
    }
}
