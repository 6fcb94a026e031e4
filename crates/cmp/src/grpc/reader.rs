//! The messages that a client sends in a call.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;

use super::{framing::Framing, status::Status};

/// The messages of one call.
#[derive(Debug)]
pub(crate) struct MessageReader {
    body: Incoming,
    framing: Framing,
}

impl MessageReader {
    /// The messages in `body`.
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, framing: Framing::default() }
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
            if let Some(message) = self.framing.next()? {
                return Ok(Some(message));
            }
            match self.data().await? {
                Some(data) => self.framing.add(&data),
                None => return self.framing.end().map(|()| None),
            }
        }
    }

    /// Reads to the end, and forgets what it reads. A client that has not sent everything would report `EOF` in place of an answer.
    pub(crate) async fn drain(&mut self) {
        self.framing.clear();
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
