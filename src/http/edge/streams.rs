//! The streams of an HTTP/2 connection: the requests under way, and the answers that wait for the client to read them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use tokio::time::Instant;

use super::{Limits, budget::Share, stream::ConnectionPhase};

/// The memory of a request besides its head, in bytes.
const REQUEST_BYTES: usize = 4 * 1024;
/// The memory of a header besides its text, in bytes.
const HEADER_BYTES: usize = 128;

/// All streams of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    limits: Limits,
    share: Arc<Share>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// How many requests are open: their answers are not completely sent.
    open: usize,
    /// How many requests there have been.
    count: u64,
    /// The answers that the client has not read, by stream number; the one that waits longest is first.
    unread: Vec<(u64, Instant)>,
    /// When the last request ended, or the connection began.
    since: Instant,
}

/// A request under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Arc<Streams>,
    number: u64,
    /// How many bytes of memory it holds.
    held: usize,
}

impl Streams {
    /// A new connection.
    pub(crate) fn new(limits: Limits, share: Arc<Share>) -> Self {
        Self { limits, share, now: Mutex::new(Now { open: 0, count: 0, unread: Vec::new(), since: Instant::now() }) }
    }

    /// A request with these `headers` begins.
    pub(crate) fn begin(self: &Arc<Self>, headers: &HeaderMap) -> Stream {
        let texts: usize = headers.iter().map(|(name, value)| HEADER_BYTES + name.as_str().len() + value.len()).sum();
        let held = REQUEST_BYTES + texts;
        self.share.hold(held);
        let mut now = self.now();
        now.open += 1;
        now.count += 1;
        Stream { streams: Arc::clone(self), number: now.count, held }
    }

    /// The connection's wait, and its timeout.
    pub(crate) fn deadline(&self) -> (ConnectionPhase, Option<Instant>) {
        let now = self.now();
        if let Some((_, since)) = now.unread.first() {
            return (ConnectionPhase::Sending, Some(*since + self.limits.patience));
        }
        match (now.open, now.count) {
            (0, 0) => (ConnectionPhase::Head, Some(now.since + self.limits.patience)),
            (0, _) => (ConnectionPhase::Idle, Some(now.since + self.limits.idle)),
            _ => (ConnectionPhase::Answering, None),
        }
    }

    /// Whether a request has come.
    pub(crate) fn is_used(&self) -> bool {
        self.now().count > 0
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// An answer of `size` bytes waits for the client to read it. The request's head is freed.
    pub(crate) fn answered(&mut self, size: usize) {
        let held = REQUEST_BYTES + size;
        self.streams.share.hold(held);
        self.streams.share.release(std::mem::replace(&mut self.held, held));
        self.streams.now().unread.push((self.number, Instant::now()));
    }

    /// A function that returns its `error` unchanged and keeps this request open for as long as the function lives.
    pub(crate) fn held_by<E>(self) -> impl FnMut(E) -> E {
        move |error| {
            let _held = &self;
            error
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut now = self.streams.now();
        now.unread.retain(|(number, _)| *number != self.number);
        now.open -= 1;
        now.since = Instant::now();
        drop(now);
        self.streams.share.release(self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::http::edge::budget::Budget;

    const LIMITS: Limits = Limits {
        max: 1,
        max_per_peer: 1,
        idle: Duration::from_secs(100),
        max_age: Duration::from_secs(1000),
        patience: Duration::from_secs(10),
        handshake: Duration::from_secs(5),
        unauthenticated: 32 << 20,
    };

    #[tokio::test(start_paused = true)]
    async fn the_answer_that_waits_longest_sets_the_deadline() {
        let began = Instant::now();
        let at = |seconds| Some(began + Duration::from_secs(seconds));
        let share = Arc::new(Arc::new(Budget::new(usize::MAX)).connection());
        let streams = Arc::new(Streams::new(LIMITS, share));
        assert_eq!((streams.deadline(), streams.is_used()), ((ConnectionPhase::Head, at(10)), false));
        let (mut first, mut second) = (streams.begin(&HeaderMap::new()), streams.begin(&HeaderMap::new()));
        assert_eq!(streams.deadline(), (ConnectionPhase::Answering, None));
        advance(Duration::from_secs(1)).await;
        second.answered(0);
        advance(Duration::from_secs(1)).await;
        first.answered(0);
        assert_eq!(streams.deadline(), (ConnectionPhase::Sending, at(11)));
        drop(second);
        assert_eq!(streams.deadline(), (ConnectionPhase::Sending, at(12)));
        advance(Duration::from_secs(1)).await;
        drop(first);
        assert_eq!((streams.deadline(), streams.is_used()), ((ConnectionPhase::Idle, at(103)), true));
    }
}
