//! What a request's body may be: how large, and how long on its way.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::error::{ApiError, Code};

/// The largest body that is read, in bytes.
const LARGEST_BODY: usize = 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a whole body.
///
/// # Errors
/// When it is too large, breaks off, or takes too long.
pub(crate) async fn read(body: Body) -> Result<Bytes, ApiError> {
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, LARGEST_BODY).collect()).await.map_err(|_| {
        ApiError::new(Code::InvalidRequest, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
    })?;
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(ApiError::new(Code::InvalidRequest, "the body broke off")),
    }
}

/// The refusal of a body that is too large.
pub(crate) fn too_large() -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body is larger than {LARGEST_BODY} bytes"))
}

/// Whether a body says of itself that it is too large.
pub(crate) fn is_too_large(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    length.is_some_and(|length| length > LARGEST_BODY as u64)
}

/// The largest body that is read after a refusal, in bytes.
const SMALL: usize = 64 * 1024;
/// How long such a body may take to arrive.
const SOON: Duration = Duration::from_secs(1);

/// Reads a small body to its end, so that the connection stays usable after a refusal: a client that
/// sends its body separately would else find it closed. A large or slow one is left alone, and `None`.
pub(crate) async fn drain(body: Body) -> Option<Bytes> {
    let read = Limited::new(body, SMALL).collect();
    Some(timeout(SOON, read).await.ok()?.ok()?.to_bytes())
}

/// The same, and keeps nothing of it: a stranger's body is nobody's business.
pub(crate) async fn discard(body: Body) {
    let mut body = Limited::new(body, SMALL);
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(SOON, read).await;
}
