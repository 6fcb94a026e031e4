//! Cuts the bytes of a call into messages: each has a head of five bytes (PROTOCOL-HTTP2.md).

use bytes::{Buf, Bytes, BytesMut};

use super::status::{Code, Status};

/// The size of a message's head, in bytes.
const HEAD: usize = 5;
/// The largest message, in bytes. Argo CD sends the archive in messages of `ARGOCD_CMP_CHUNK_SIZE`, 1 KiB by default.
pub(crate) const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// Bytes of a call that are not a message yet.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    received: BytesMut,
}

impl Framing {
    /// Adds bytes that came.
    pub(crate) fn add(&mut self, data: &[u8]) {
        self.received.extend_from_slice(data);
    }

    /// The next whole message. `None` while more bytes must come.
    ///
    /// # Errors
    /// When it is compressed or too large.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(&[flag, a, b, c, d]) = self.received.first_chunk::<HEAD>() else { return Ok(None) };
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
        if self.received.len() < HEAD + length {
            return Ok(None);
        }
        self.received.advance(HEAD);
        Ok(Some(self.received.split_to(length).freeze()))
    }

    /// The client has sent everything.
    ///
    /// # Errors
    /// When a message is cut off.
    pub(crate) fn end(&self) -> Result<(), Status> {
        if self.received.is_empty() { Ok(()) } else { Err(Status::unknown("the last message is cut off")) }
    }

    /// Forgets all bytes.
    pub(crate) fn clear(&mut self) {
        self.received.clear();
    }
}
