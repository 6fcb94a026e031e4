//! Makes an authority of grpc-go acceptable for hyper.
//!
//! For a unix socket, grpc-go sends its path as authority, with `%2F` for each slash. RFC 3986 permits that in a host, but the crate
//! `http` refuses it, and `h2` then resets the stream before any handler is called. This filter stands between the socket and hyper: it
//! replaces each `%` in the value of `:authority` by `.`. Both have codes of six bits that differ in one bit, so no byte is added or
//! removed. Everything else passes as it came. The decision is docs/decisions/0036-cmp-transport.md.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::block::Block;

/// The client's first bytes (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of a frame's head, in bytes (RFC 9113, section 4.1).
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// The size of the priority in a frame, in bytes.
const PRIORITY_BYTES: usize = 5;

/// A connection whose received authorities hold no `%`.
#[derive(Debug)]
pub(crate) struct AuthorityFilter<S> {
    stream: S,
    frames: Frames,
}

impl<S> AuthorityFilter<S> {
    /// Filters what `stream` receives.
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, frames: Frames::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityFilter<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.frames.replace(&mut buf.filled_mut()[before..]);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AuthorityFilter<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// A position in the bytes of a connection.
#[derive(Debug)]
struct Frames {
    next: Next,
    /// The block of fields that goes on in the next frame.
    block: Block,
}

/// What the next byte is.
#[derive(Debug, Clone, Copy)]
enum Next {
    Preface {
        left: usize,
    },
    Head {
        bytes: [u8; HEAD],
        filled: usize,
    },
    /// The length of the padding, the first byte of a padded frame.
    Padding {
        left: usize,
        flags: u8,
    },
    /// A part that stays as it is, then `fields` bytes of a block, then `padding` bytes.
    Skip {
        left: usize,
        fields: usize,
        padding: usize,
        is_last: bool,
    },
    /// A byte of a block.
    Fields {
        left: usize,
        padding: usize,
        is_last: bool,
    },
}

const FRAME: Next = Next::Head { bytes: [0; HEAD], filled: 0 };

impl Default for Frames {
    fn default() -> Self {
        Self { next: Next::Preface { left: PREFACE.len() }, block: Block::default() }
    }
}

impl Frames {
    /// Replaces `%` in the authorities of `bytes`, which are the next of the connection.
    fn replace(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = self.step(bytes);
            bytes = &mut bytes[taken..];
        }
    }

    /// Handles the first bytes, and returns how many. At least one, as `bytes` is not empty.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        match self.next {
            Next::Preface { left } => {
                let taken = left.min(bytes.len());
                self.next = if taken == left { FRAME } else { Next::Preface { left: left - taken } };
                taken
            }
            Next::Head { bytes: mut head, filled } => {
                let taken = (HEAD - filled).min(bytes.len());
                head[filled..filled + taken].copy_from_slice(&bytes[..taken]);
                let filled = filled + taken;
                if filled < HEAD {
                    self.next = Next::Head { bytes: head, filled };
                } else {
                    self.begin(head);
                }
                taken
            }
            Next::Padding { left, flags } => {
                self.fields(left - 1, usize::from(bytes[0]), flags);
                1
            }
            Next::Skip { left, fields, padding, is_last } => {
                let taken = left.min(bytes.len());
                let left = left - taken;
                self.next = Next::Skip { left, fields, padding, is_last };
                if left == 0 {
                    self.after_skip(fields, padding, is_last);
                }
                taken
            }
            Next::Fields { left, padding, is_last } => {
                let taken = left.min(bytes.len());
                self.block.replace(&mut bytes[..taken]);
                let left = left - taken;
                self.next = Next::Fields { left, padding, is_last };
                if left == 0 {
                    self.after_fields(padding, is_last);
                }
                taken
            }
        }
    }

    /// A frame begins.
    fn begin(&mut self, head: [u8; HEAD]) {
        let [high, middle, low, kind, flags, ..] = head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS if flags & PADDED != 0 && length > 0 => self.next = Next::Padding { left: length, flags },
            HEADERS => self.fields(length, 0, flags),
            CONTINUATION => self.after_skip(length, 0, flags & END_HEADERS != 0),
            _ => self.skip(length),
        }
    }

    /// The block of a frame with `left` more bytes, the padding's among them. A frame with more padding than bytes is malformed: it passes.
    fn fields(&mut self, left: usize, padding: usize, flags: u8) {
        let before = if flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
        let is_last = flags & END_HEADERS != 0;
        match left.checked_sub(before + padding) {
            Some(fields) if before > 0 => self.next = Next::Skip { left: before, fields, padding, is_last },
            Some(fields) => self.after_skip(fields, padding, is_last),
            None => self.skip(left),
        }
    }

    fn after_skip(&mut self, fields: usize, padding: usize, is_last: bool) {
        if fields == 0 {
            self.after_fields(padding, is_last);
        } else {
            self.next = Next::Fields { left: fields, padding, is_last };
        }
    }

    fn after_fields(&mut self, padding: usize, is_last: bool) {
        if is_last {
            self.block = Block::default();
        }
        self.skip(padding);
    }

    /// Bytes that stay as they are, and then the next frame.
    fn skip(&mut self, left: usize) {
        self.next = if left == 0 { FRAME } else { Next::Skip { left, fields: 0, padding: 0, is_last: false } };
    }
}

#[cfg(test)]
mod tests;
