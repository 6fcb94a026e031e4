//! The answers of replicas, and the memory that all of them may take.
//!
//! The first bytes of an answer say how long it is. So a call takes room for it before it reads on; until then, HTTP/2's flow control holds the
//! replica back. The room is free again when the last byte has been sent to Argo CD.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::failure::{Failure, chain};
use crate::grpc::{reply::HEAD, status::Status};
use domain::units::ByteSize;

/// The largest answer, in bytes. Argo CD refuses more.
const MAX_ANSWER: usize = 100 * 1024 * 1024;
/// The unit in which room is counted, in bytes. Smaller answers do not count, so that a replica can always describe itself.
const UNIT: usize = 64 * 1024;

/// Room for the answers of all calls.
#[derive(Debug, Clone)]
pub(super) struct AnswerRoom {
    room: Arc<Semaphore>,
    size: ByteSize,
    units: u32,
}

/// An answer, and the room that it takes.
struct Held {
    bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AnswerRoom {
    /// Room for `size` bytes.
    pub(super) fn new(size: ByteSize) -> Self {
        let units = u32::try_from(size.as_usize().div_ceil(UNIT).max(1)).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4);
        Self { room: Arc::new(Semaphore::new(units as usize)), size, units }
    }

    /// The bytes that are taken.
    pub(super) fn taken(&self) -> u64 {
        (self.units as usize - self.room.available_permits()) as u64 * UNIT as u64
    }

    /// Waits for room for an answer of `length` bytes, for at most half of the time until `until`. Earlier calls come first.
    ///
    /// # Errors
    /// When there is none in time, or never.
    async fn take(&self, length: usize, until: Instant) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if length < UNIT {
            return Ok(None);
        }
        let (size, answer) = (self.size, ByteSize(length as u64));
        if length > MAX_ANSWER {
            return Err(Status::unknown("the answer is larger than 100 MiB, the most that Argo CD takes"));
        }
        let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
        if units > self.units {
            return Err(Status::unknown(format!(
                "the answer of {answer} is larger than the relay's room of {size} for answers (`answers`)"
            )));
        }
        let began = Instant::now();
        let half = began + until.saturating_duration_since(began) / 2;
        match timeout_at(half, Arc::clone(&self.room).acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            _ => Err(Status::unknown(format!(
                "the relay's room of {size} for answers is full of those of other calls, and had none for {answer} in time (`answers`)"
            ))),
        }
    }

    /// Reads an answer: its message, if it is one, and the trailers.
    ///
    /// # Errors
    /// When it is cut off, too large, or not one message.
    pub(super) async fn read(&self, mut body: Incoming, until: Instant) -> Result<(Option<Bytes>, HeaderMap), Failure> {
        let (mut bytes, mut permit, mut length) = (BytesMut::new(), None, None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::Broken(format!("the answer is cut off: {}", chain(&error))))?;
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let is_whole = length == Some(bytes.len());
                    let message = is_whole.then(|| held(bytes.freeze().slice(HEAD..), permit));
                    return Ok((message, trailers));
                }
            };
            bytes.extend_from_slice(&data);
            if length.is_none()
                && let Some([flag, head @ ..]) = bytes.first_chunk::<HEAD>()
            {
                let announced = u32::from_be_bytes(*head) as usize;
                if *flag != 0 {
                    return Err(not_one_message());
                }
                permit = self.take(announced, until).await.map_err(Failure::Status)?;
                bytes.reserve(announced);
                length = Some(HEAD + announced);
            }
            if length.is_some_and(|length| bytes.len() > length) {
                return Err(not_one_message());
            }
        }
        Ok((None, HeaderMap::new()))
    }
}

/// What is not an answer of gRPC.
pub(super) fn not_one_message() -> Failure {
    Failure::Status(Status::unknown("the answer is not one message of gRPC"))
}

fn held(bytes: Bytes, permit: Option<OwnedSemaphorePermit>) -> Bytes {
    Bytes::from_owner(Held { bytes, _permit: permit })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_wait_for_room_and_leave_it_with_their_last_byte() {
        let room = AnswerRoom::new(ByteSize::mib(1));
        let until = || Instant::now() + Duration::from_secs(2);
        assert!(room.take(UNIT - 1, until()).await.unwrap().is_none());
        let first = held(Bytes::from_static(b"a long answer"), room.take(700_000, until()).await.unwrap());
        assert_eq!(room.taken(), 11 * UNIT as u64);
        let began = Instant::now();
        let refused = room.take(700_000, until()).await.unwrap_err();
        assert!(refused.message.contains("full of those of other calls"), "{refused}");
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        let waiting = room.take(700_000, until());
        tokio::pin!(waiting);
        let rest = first.slice(5..);
        drop(first);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waiting).await.is_err(), "a part is still there");
        drop(rest);
        assert!(waiting.await.unwrap().is_some());
        assert_eq!(room.taken(), 0);
        for (length, text) in [(2 << 20, "larger than the relay's room of 1.0 MiB"), (MAX_ANSWER + 1, "100 MiB")] {
            let refused = room.take(length, until()).await.unwrap_err();
            assert!(refused.message.contains(text), "{refused}");
        }
    }
}
