//! The layer between the gateway and its sources in `appset-gateway test` and `record`. It replies from a file in place of the sources, or
//! records their replies.

use std::fmt::Debug;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::{error::BackendError, generator::ParameterSet, secret::Secrets};

/// An HTTP reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why no HTTP reply arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpFault {
    /// Nothing listens there.
    Connect,
    /// The reply takes too long.
    Timeout,
    /// The reply breaks off.
    Broken,
    /// There is no reply to this request. The text lists the replies that there are.
    Missing(String),
}

/// Replies for sources, or notes of their replies.
pub trait Sources: Debug + Send + Sync {
    /// Whether all replies come from here, and no request ever goes to a source.
    fn is_offline(&self) -> bool;

    /// The reply to an HTTP request. `None`: the request is to go to the source.
    fn reply(&self, method: &Method, url: &Url) -> Option<Result<HttpReply, HttpFault>>;

    /// Notes the reply of the source. `secrets` are those of the request, which it may repeat.
    fn note_reply(&self, method: &Method, url: &Url, reply: Result<HttpReply, HttpFault>, secrets: &Secrets);

    /// The list of a script, or why it fails. `None`: the script is to run.
    fn list(&self, command: &str) -> Option<Result<Vec<ParameterSet>, BackendError>>;

    /// Notes the list of a script, or why it failed.
    fn note_list(&self, command: &str, list: Result<&[ParameterSet], &BackendError>);
}
