//! The bytes of a connection below TLS. Bytes of unauthenticated clients count against their common memory budget. They are read a
//! little at a time, with a yield after each read, so that thousands of such clients that send much data delay no other connection.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::budget::Share;

/// How many bytes of an unauthenticated client are read at once: enough for the whole request of most callers.
const MAX_READ_BYTES: usize = 2 * 1024;

/// A connection whose received bytes are counted.
pub(crate) struct Received {
    stream: TcpStream,
    share: Arc<Share>,
    /// Whether the next read must yield first.
    has_read: bool,
}

impl Received {
    /// Counts the bytes of `stream` for `share`.
    pub(crate) const fn new(stream: TcpStream, share: Arc<Share>) -> Self {
        Self { stream, share, has_read: false }
    }
}

impl AsyncRead for Received {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.share.counts() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = buffer.remaining().min(MAX_READ_BYTES);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(size));
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let received = part.filled().len();
        if received > 0 {
            buffer.advance(received);
            self.has_read = true;
            self.share.received(received);
        }
        polled
    }
}

impl AsyncWrite for Received {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
