//! The bytes of a connection, watched: whose turn it is, and since when.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{Limits, Refusals, strangers::Stranger};

/// How hyper begins to say that a head is too large.
const LARGE_HEAD: &[u8] = b"HTTP/1.1 431 ";

/// Whose turn it is on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
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
pub(crate) struct ConnectionState {
    limits: Limits,
    stranger: Arc<Stranger>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    turn: ConnectionPhase,
    since: Instant,
    /// Since when there are answers that the client has not taken. Who asks on meanwhile is given no more time for them.
    untaken: Option<Instant>,
    /// How large these answers are, in bytes.
    size: usize,
}

/// A stream that notes whose turn it is, and says in our form what hyper says without a request.
pub(crate) struct TimedStream<T> {
    stream: T,
    state: Arc<ConnectionState>,
    refusals: Arc<Refusals>,
    /// What stands in for what hyper wrote, and is still to be sent.
    instead: Option<Bytes>,
}

impl ConnectionState {
    /// A new connection, whose first request is awaited as if it had begun.
    pub(crate) fn new(limits: Limits, stranger: Arc<Stranger>) -> Self {
        let now = Now { turn: ConnectionPhase::Head, since: Instant::now(), untaken: None, size: 0 };
        Self { limits, stranger, now: Mutex::new(now) }
    }

    /// It is somebody's turn from now on.
    pub(crate) fn turn(&self, turn: ConnectionPhase) {
        let mut now = self.now();
        (now.turn, now.since) = (turn, Instant::now());
    }

    /// The client is to take an answer of `size` bytes.
    pub(crate) fn answered(&self, size: usize) {
        {
            let mut now = self.now();
            (now.turn, now.since) = (ConnectionPhase::Taking, Instant::now());
            now.untaken = now.untaken.or(Some(now.since));
            now.size += size;
        }
        self.stranger.hold(size);
    }

    /// Whose turn it is.
    pub(crate) fn whose(&self) -> ConnectionPhase {
        self.now().turn
    }

    /// Whose turn it is, and when that will have taken too long.
    pub(crate) fn ends(&self) -> (ConnectionPhase, Option<Instant>) {
        let Now { turn, since, untaken, .. } = *self.now();
        if let Some(untaken) = untaken {
            return (ConnectionPhase::Taking, Some(untaken + self.limits.patience));
        }
        let most = match turn {
            ConnectionPhase::Idle => self.limits.idle,
            ConnectionPhase::Head | ConnectionPhase::Taking => self.limits.patience,
            ConnectionPhase::Ours => return (turn, None),
        };
        (turn, Some(since + most))
    }

    /// All that was answered is taken.
    fn taken(&self) {
        let mut now = self.now();
        now.untaken = None;
        let size = std::mem::take(&mut now.size);
        let is_idle = now.turn == ConnectionPhase::Taking;
        if is_idle {
            (now.turn, now.since) = (ConnectionPhase::Idle, Instant::now());
        }
        drop(now);
        self.stranger.release(size);
        if is_idle {
            self.stranger.is_idle();
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> TimedStream<T> {
    /// `stream`, whose turns are noted in `state`.
    pub(crate) const fn new(stream: T, state: Arc<ConnectionState>, refusals: Arc<Refusals>) -> Self {
        Self { stream, state, refusals, instead: None }
    }

    /// Whether what is written now answers a request. If none is being answered, these are hyper's own words about one
    /// that is none.
    fn is_answer(&self) -> bool {
        self.instead.is_none() && matches!(self.state.whose(), ConnectionPhase::Ours | ConnectionPhase::Taking)
    }
}

impl<T: AsyncWrite + Unpin> TimedStream<T> {
    /// Says in our form what hyper says in `length` bytes, of which `first` are the first.
    fn refuse(&mut self, cx: &mut Context<'_>, first: &[u8], length: usize) -> Poll<io::Result<usize>> {
        let instead = self.instead.get_or_insert_with(|| {
            if first.starts_with(LARGE_HEAD) {
                self.refusals.large_head.clone()
            } else {
                self.refusals.malformed.clone()
            }
        });
        while instead.has_remaining() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, instead))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            instead.advance(sent);
        }
        // Nothing comes after it: the connection ends.
        Poll::Ready(Ok(length))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before && self.state.whose() == ConnectionPhase::Idle {
            self.state.turn(ConnectionPhase::Head);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_answer() {
            return Pin::new(&mut self.stream).poll_write(cx, bytes);
        }
        self.refuse(cx, bytes, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_answer() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        self.refuse(cx, first, slices.iter().map(|slice| slice.len()).sum())
    }

    /// Else hyper would copy all answers into one buffer, which has no limit where the client asks on and takes none.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // An answer is one piece, so it is taken whole.
        self.state.taken();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::http::edge::strangers::Strangers;

    #[test]
    fn an_answer_that_is_taken_costs_a_stranger_no_more() {
        let second = Duration::from_secs(1);
        let limits = Limits {
            most: 1,
            most_per_peer: 1,
            idle: second,
            max_age: second,
            patience: second,
            handshake: second,
            strangers: 20 * 1024,
        };
        let strangers = Arc::new(Strangers::new(limits.strangers));
        let stranger = Arc::new(strangers.enter());
        let state = ConnectionState::new(limits, Arc::clone(&stranger));
        for next in [ConnectionPhase::Taking, ConnectionPhase::Ours] {
            state.answered(10 * 1024);
            // The next request may be under way when the answer to the one before is taken.
            state.turn(next);
            state.taken();
        }
        let other = strangers.enter();
        assert!(stranger.crowded_out().now_or_never().is_none(), "both fit");
        state.answered(10 * 1024);
        assert!(stranger.crowded_out().now_or_never().is_some(), "an answer that waits counts");
        drop(other);
    }
}
