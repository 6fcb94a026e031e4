//! The bytes of a connection, watched: whose turn it is, and since when.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{Limits, Refusals};

/// Whose turn it is on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The client's: it has sent nothing of its next request.
    Idle,
    /// The client's: its request's head is on its way.
    Head,
    /// Ours: a request is being answered, whose body has a limit of its own.
    Ours,
    /// The client's: it takes our answer.
    Taking,
}

/// What is known of a connection.
#[derive(Debug)]
pub struct State {
    limits: Limits,
    now: Mutex<(Turn, Instant)>,
}

/// A stream that notes whose turn it is, and says in our form what hyper says without a request.
pub struct Noted<T> {
    stream: T,
    state: Arc<State>,
    refusals: Arc<Refusals>,
    /// What stands in for what hyper wrote, and is still to be sent, and how long that was.
    instead: Option<(Bytes, usize)>,
}

impl State {
    /// A new connection, whose first request is awaited as if it had begun.
    pub fn new(limits: Limits) -> Self {
        Self { limits, now: Mutex::new((Turn::Head, Instant::now())) }
    }

    /// It is somebody's turn from now on.
    pub fn turn(&self, turn: Turn) {
        *self.now() = (turn, Instant::now());
    }

    /// Whose turn it is.
    pub fn whose(&self) -> Turn {
        self.now().0
    }

    /// Whose turn it is, and when that will have taken too long.
    pub fn ends(&self) -> (Turn, Option<Instant>) {
        let (turn, since) = *self.now();
        let most = match turn {
            Turn::Idle => self.limits.idle,
            Turn::Head | Turn::Taking => self.limits.patience,
            Turn::Ours => return (turn, None),
        };
        (turn, Some(since + most))
    }

    fn now(&self) -> MutexGuard<'_, (Turn, Instant)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Noted<T> {
    /// `stream`, whose turns are noted in `state`.
    pub const fn new(stream: T, state: Arc<State>, refusals: Arc<Refusals>) -> Self {
        Self { stream, state, refusals, instead: None }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before && self.state.whose() == Turn::Idle {
            self.state.turn(Turn::Head);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.instead.is_none() && matches!(self.state.whose(), Turn::Ours | Turn::Taking) {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        }
        let this = &mut *self;
        // No request is being answered, so these are hyper's own words about one that is none.
        let (instead, length) = this.instead.get_or_insert_with(|| (this.refusals.malformed.clone(), bytes.len()));
        while instead.has_remaining() {
            let sent = ready!(Pin::new(&mut this.stream).poll_write(cx, instead))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            instead.advance(sent);
        }
        // Nothing comes after it: the connection ends.
        Poll::Ready(Ok(*length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // An answer is one piece, so it is taken whole.
        if self.state.whose() == Turn::Taking {
            self.state.turn(Turn::Idle);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
