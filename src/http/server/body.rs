//! Reads request bodies, within a size and a time limit.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::error::{ApiError, Code};

/// The largest body that is read, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a complete body.
///
/// # Errors
/// When it is too large, breaks off, or takes too long.
pub(crate) async fn read(body: Body) -> Result<Bytes, ApiError> {
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await.map_err(|_| {
        ApiError::new(Code::InvalidRequest, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
    })?;
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(ApiError::new(Code::InvalidRequest, "the connection ended within the body")),
    }
}

/// The refusal of a body that is too large.
pub(crate) fn too_large() -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body is larger than {MAX_BODY_BYTES} bytes"))
}

/// Whether `Content-Length` says that the body is too large.
pub(crate) fn is_too_large(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    length.is_some_and(|length| length > MAX_BODY_BYTES as u64)
}

/// The largest body that is read after a refusal, in bytes.
const MAX_DRAINED_BYTES: usize = 64 * 1024;
/// How long such a body may take to arrive.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads a small body to its end after a refusal, so that the connection stays usable. Otherwise a client that sends its body separately
/// would find the connection closed. `None` for a large or slow body, which is not read.
pub(crate) async fn drain(body: Body) -> Option<Bytes> {
    let read = Limited::new(body, MAX_DRAINED_BYTES).collect();
    Some(timeout(DRAIN_TIMEOUT, read).await.ok()?.ok()?.to_bytes())
}

/// As [`drain`], but keeps nothing of the body in memory.
pub(crate) async fn discard(body: Body) {
    let mut body = Limited::new(body, MAX_DRAINED_BYTES);
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(DRAIN_TIMEOUT, read).await;
}
