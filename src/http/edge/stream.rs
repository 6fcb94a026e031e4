//! The bytes of a connection, and the step that it waits for: a request's head, our answer, or the client that reads the answer.

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

use super::{Limits, Refusals, budget::Share};

/// The beginning of hyper's own answer to a head that is too large.
const LARGE_HEAD: &[u8] = b"HTTP/1.1 431 ";

/// The wait of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// The client's next request, of which nothing has arrived.
    Idle,
    /// The remaining part of a request's head.
    Head,
    /// Our answer. The request's body has a time limit of its own.
    Answering,
    /// The client, which reads our answer.
    Sending,
}

/// The phase of an HTTP/1.1 connection, and its answers that the client has not read.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    limits: Limits,
    share: Arc<Share>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    phase: ConnectionPhase,
    since: Instant,
    /// Since when there are answers that the client has not read. Sending more requests does not extend this time.
    unread_since: Option<Instant>,
    /// The size of these answers, in bytes.
    unread_bytes: usize,
}

/// A stream that tracks the connection's phase, and replaces the refusals that hyper writes by ours.
pub(crate) struct TimedStream<T> {
    stream: T,
    state: Arc<ConnectionState>,
    refusals: Arc<Refusals>,
    /// The unsent rest of our refusal, once there is one.
    refusal: Option<Bytes>,
}

impl ConnectionState {
    /// A new connection. The time for the first request's head starts now.
    pub(crate) fn new(limits: Limits, share: Arc<Share>) -> Self {
        let now = Now { phase: ConnectionPhase::Head, since: Instant::now(), unread_since: None, unread_bytes: 0 };
        Self { limits, share, now: Mutex::new(now) }
    }

    /// The connection is in `phase` from now on.
    pub(crate) fn enter(&self, phase: ConnectionPhase) {
        let mut now = self.now();
        (now.phase, now.since) = (phase, Instant::now());
    }

    /// An answer of `size` bytes waits for the client to read it.
    pub(crate) fn answered(&self, size: usize) {
        {
            let mut now = self.now();
            (now.phase, now.since) = (ConnectionPhase::Sending, Instant::now());
            now.unread_since = now.unread_since.or(Some(now.since));
            now.unread_bytes += size;
        }
        self.share.hold(size);
    }

    /// The connection's wait.
    pub(crate) fn phase(&self) -> ConnectionPhase {
        self.now().phase
    }

    /// The connection's wait, and its timeout.
    pub(crate) fn deadline(&self) -> (ConnectionPhase, Option<Instant>) {
        let Now { phase, since, unread_since, .. } = *self.now();
        if let Some(unread_since) = unread_since {
            return (ConnectionPhase::Sending, Some(unread_since + self.limits.patience));
        }
        let limit = match phase {
            ConnectionPhase::Idle => self.limits.idle,
            ConnectionPhase::Head | ConnectionPhase::Sending => self.limits.patience,
            ConnectionPhase::Answering => return (phase, None),
        };
        (phase, Some(since + limit))
    }

    /// All answers are sent.
    fn sent(&self) {
        let mut now = self.now();
        now.unread_since = None;
        let size = std::mem::take(&mut now.unread_bytes);
        let is_idle = now.phase == ConnectionPhase::Sending;
        if is_idle {
            (now.phase, now.since) = (ConnectionPhase::Idle, Instant::now());
        }
        drop(now);
        self.share.release(size);
        if is_idle {
            self.share.is_idle();
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> TimedStream<T> {
    /// `stream`, whose phase is tracked in `state`.
    pub(crate) const fn new(stream: T, state: Arc<ConnectionState>, refusals: Arc<Refusals>) -> Self {
        Self { stream, state, refusals, refusal: None }
    }

    /// Whether the bytes that are written now answer a request. If no request is being answered, they are hyper's own refusal.
    fn is_answer(&self) -> bool {
        self.refusal.is_none() && matches!(self.state.phase(), ConnectionPhase::Answering | ConnectionPhase::Sending)
    }
}

impl<T: AsyncWrite + Unpin> TimedStream<T> {
    /// Sends our refusal in place of hyper's, which has `length` bytes and begins with `first`.
    fn refuse(&mut self, cx: &mut Context<'_>, first: &[u8], length: usize) -> Poll<io::Result<usize>> {
        let refusal = self.refusal.get_or_insert_with(|| {
            if first.starts_with(LARGE_HEAD) {
                self.refusals.large_head.clone()
            } else {
                self.refusals.malformed.clone()
            }
        });
        while refusal.has_remaining() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, refusal))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusal.advance(sent);
        }
        // Nothing follows: the connection ends.
        Poll::Ready(Ok(length))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before && self.state.phase() == ConnectionPhase::Idle {
            self.state.enter(ConnectionPhase::Head);
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

    /// Without vectored writes hyper copies all answers into one buffer. That buffer has no limit for a client that keeps asking and reads
    /// nothing.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // An answer is written in one piece, so a finished flush means that the client has taken all of it.
        self.state.sent();
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
    use crate::http::edge::budget::Budget;

    #[test]
    fn a_sent_answer_no_longer_counts_against_the_budget() {
        let second = Duration::from_secs(1);
        let limits = Limits {
            max: 1,
            max_per_peer: 1,
            idle: second,
            max_age: second,
            patience: second,
            handshake: second,
            unauthenticated: 20 * 1024,
        };
        let unauthenticated = Arc::new(Budget::new(limits.unauthenticated));
        let share = Arc::new(unauthenticated.connection());
        let state = ConnectionState::new(limits, Arc::clone(&share));
        for next in [ConnectionPhase::Sending, ConnectionPhase::Answering] {
            state.answered(10 * 1024);
            // The next request may be under way when the previous answer is sent.
            state.enter(next);
            state.sent();
        }
        let other = unauthenticated.connection();
        assert!(share.crowded_out().now_or_never().is_none(), "both fit");
        state.answered(10 * 1024);
        assert!(share.crowded_out().now_or_never().is_some(), "an unsent answer counts");
        drop(other);
    }
}
