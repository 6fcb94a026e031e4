//! The messages that a client sends in a call.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;

use super::status::{Code, Status};

/// The size of a message's head, in bytes.
const HEAD: usize = 5;
/// The largest message, in bytes. Argo CD sends the archive in messages of `ARGOCD_CMP_CHUNK_SIZE`, 1 KiB by default.
const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// The messages of one call.
#[derive(Debug)]
pub(crate) struct MessageReader {
    body: Incoming,
    received: BytesMut,
}

impl MessageReader {
    /// The messages in `body`.
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, received: BytesMut::new() }
    }

    /// The next message; `None` after the last.
    ///
    /// # Errors
    /// When the client breaks the protocol or goes away, or a message is too large.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        let Some(mut message) = self.next_bytes().await? else { return Ok(None) };
        M::decode(&mut message).map(Some).map_err(|error| Status::unknown(format!("a message is malformed: {error}")))
    }

    async fn next_bytes(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(&[flag, a, b, c, d]) = self.received.first_chunk::<HEAD>() {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                if flag != 0 {
                    let message = "messages must not be compressed".to_owned();
                    return Err(Status { code: Code::Unimplemented, message });
                }
                if length > MAX_MESSAGE {
                    return Err(Status::unknown(format!(
                        "a message of {length} bytes is larger than {MAX_MESSAGE}: set a smaller ARGOCD_CMP_CHUNK_SIZE"
                    )));
                }
                if self.received.len() >= HEAD + length {
                    self.received.advance(HEAD);
                    return Ok(Some(self.received.split_to(length).freeze()));
                }
            }
            match self.data().await? {
                Some(data) => self.received.extend_from_slice(&data),
                None if self.received.is_empty() => return Ok(None),
                None => return Err(Status::unknown("the last message is cut off")),
            }
        }
    }

    /// Reads to the end, and forgets what it reads. A client that has not sent everything would report `EOF` in place of an answer.
    pub(crate) async fn drain(&mut self) {
        self.received.clear();
        while let Ok(Some(_)) = self.data().await {}
    }

    async fn data(&mut self) -> Result<Option<Bytes>, Status> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| Status::unknown(format!("the client went away: {error}")))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}
