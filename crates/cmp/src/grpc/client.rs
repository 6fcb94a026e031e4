//! Asks another server: one message, or a stream of messages, and one answer.

use bytes::Bytes;
use http::{HeaderMap, Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    reply::{GRPC, HEAD},
    status::{Code, Status},
};

/// Asks the method at `uri` of the server at the other end of `stream`, with further `fields` and all messages in `body`. Returns the
/// message of the answer.
///
/// # Errors
/// Those of the connection, and of the server.
pub(crate) async fn exchange<S>(stream: S, uri: &str, fields: HeaderMap, body: Bytes) -> Result<Bytes, Status>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: &dyn std::fmt::Display| Status::unknown(format!("the connection failed: {error}"));
    let connecting = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = connecting.map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let request = Request::post(uri).header(CONTENT_TYPE, GRPC).header("te", "trailers");
    let mut request = request.body(Full::new(body)).map_err(|error| failed(&error))?;
    request.headers_mut().extend(fields);
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let headers = response.headers().clone();
    let collected = response.into_body().collect().await.map_err(|error| failed(&error))?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    connection.abort();
    let of = |name: &str| trailers.get(name).or_else(|| headers.get(name)).and_then(|value| value.to_str().ok());
    if of("grpc-status") == Some("0") {
        let bytes = collected.to_bytes();
        return Ok(bytes.slice(bytes.len().min(HEAD)..));
    }
    let message = of("grpc-message").unwrap_or("no status");
    Err(Status { code: Code::Unknown, message: percent_decoded(message) })
}

/// The text that `grpc-message` encodes.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = text.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        let digits = rest.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            left = &rest[2..];
        } else {
            bytes.push(*first);
            left = rest;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
