//! Reads request bodies, within a size and a time limit, and counts the memory that they take.

use std::{
    future::{Future, pending},
    ops::Deref,
    time::Duration,
};

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use http::{Extensions, HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;

use super::error::{ApiError, Code};
use crate::http::edge::{ConnectionInfo, Share};

/// The largest body that is read, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many bytes of an authenticated sender's body are not counted: more than most calls have. So large bodies never keep small ones out.
const UNCOUNTED_BYTES: usize = 16 * 1024;

/// The sender of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A caller that has authenticated.
    Known,
    /// Any client: the body itself must prove its sender.
    Unproven,
}

/// A body that has arrived. It counts against its budget until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadBody {
    bytes: Bytes,
    _share: Option<Share>,
}

impl Deref for ReadBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the complete body of a request with these `extensions`.
///
/// # Errors
/// When it is too large, breaks off, takes too long, or must make room for newer ones.
pub(crate) async fn read(extensions: &Extensions, body: Body, sender: Sender) -> Result<ReadBody, ApiError> {
    // hyper takes no more than the `Content-Length` says.
    let is_small =
        sender == Sender::Known && body.size_hint().exact().is_some_and(|size| size <= UNCOUNTED_BYTES as u64);
    if is_small {
        let collected = in_time(body.collect()).await?;
        let bytes = collected.map_err(|_| broken_off())?.to_bytes();
        return Ok(ReadBody { bytes, _share: None });
    }
    let share = extensions.get::<ConnectionInfo>().map(|client| client.body(sender == Sender::Known));
    let uncounted = if sender == Sender::Known { UNCOUNTED_BYTES } else { 0 };
    let bytes = Box::pin(in_time(grow(body, share.as_ref(), uncounted))).await??;
    if share.as_ref().is_some_and(|share| !share.keep()) {
        return Err(crowded_out());
    }
    Ok(ReadBody { bytes, _share: share })
}

/// Reads `body` piece by piece. Counts its memory in `share`, except for the first `uncounted` bytes.
async fn grow(mut body: Body, share: Option<&Share>, uncounted: usize) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    let mut counted = 0;
    loop {
        let must_go = async {
            match share {
                Some(share) => share.crowded_out().await,
                None => pending().await,
            }
        };
        let frame = tokio::select! {
            biased;
            () = must_go => return Err(crowded_out()),
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else { return Ok(bytes.freeze()) };
        // A piece is copied: a small one may hold a large buffer of the connection.
        let Ok(piece) = frame.map_err(|_| broken_off())?.into_data() else { continue };
        let size = bytes.len() + piece.len();
        if size > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if size > bytes.capacity() {
            let room = size.max(2 * bytes.capacity()).min(MAX_BODY_BYTES);
            if let Some(share) = share {
                let more = room.saturating_sub(uncounted).saturating_sub(counted);
                share.hold(more);
                counted += more;
            }
            bytes.reserve(room - bytes.len());
        }
        bytes.extend_from_slice(&piece);
    }
}

/// The result of `reading`, if it comes in time.
async fn in_time<T>(reading: impl Future<Output = T>) -> Result<T, ApiError> {
    timeout(BODY_TIMEOUT, reading).await.map_err(|_| {
        ApiError::new(Code::InvalidRequest, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
    })
}

fn broken_off() -> ApiError {
    ApiError::new(Code::InvalidRequest, "the connection ended within the body")
}

fn crowded_out() -> ApiError {
    let message = "the bodies of too many requests are under way, and this one took longest; send it again later";
    ApiError::new(Code::Overloaded, message).retry_after(Duration::from_secs(1))
}

/// The refusal of a body that is too large.
pub(crate) fn too_large() -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body is larger than {MAX_BODY_BYTES} bytes"))
}

/// Whether the body is too large by its `Content-Length`.
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
