//! The bytes of a connection below TLS. What a stranger sends counts against the budget of all strangers, and is read a little at a time:
//! after each read others have their turn, so that thousands of strangers who send much hold up nobody.

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

use super::strangers::Stranger;

/// How much of a stranger's bytes is read at once: enough for the whole request of most callers.
const AT_ONCE: usize = 2 * 1024;

/// A connection whose received bytes are counted.
pub(crate) struct Received {
    stream: TcpStream,
    stranger: Arc<Stranger>,
    /// Whether others are to have their turn before the next read.
    has_read: bool,
}

impl Received {
    /// `stream`, which is that of `stranger`.
    pub(crate) const fn new(stream: TcpStream, stranger: Arc<Stranger>) -> Self {
        Self { stream, stranger, has_read: false }
    }
}

impl AsyncRead for Received {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.stranger.counts() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = buffer.remaining().min(AT_ONCE);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(size));
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let received = part.filled().len();
        if received > 0 {
            buffer.advance(received);
            self.has_read = true;
            self.stranger.received(received);
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
