//! The streams of an HTTP/2 connection: which requests are under way, and which answers wait to be taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use tokio::time::Instant;

use super::{Limits, strangers::Stranger, stream::ConnectionPhase};

/// What a request costs besides its head, and a header besides its text, in bytes.
const REQUEST: usize = 4 * 1024;
const HEADER: usize = 128;

/// What is known of the streams of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    limits: Limits,
    stranger: Arc<Stranger>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// Requests whose answer is not on its way whole.
    open: usize,
    /// How many there have been.
    count: u64,
    /// The answers that wait, the one that waits longest first.
    untaken: Vec<(u64, Instant)>,
    /// Since when there is no request, or none yet.
    since: Instant,
}

/// A request under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Arc<Streams>,
    number: u64,
    /// How many bytes it holds.
    held: usize,
}

impl Streams {
    /// A new connection.
    pub(crate) fn new(limits: Limits, stranger: Arc<Stranger>) -> Self {
        Self {
            limits,
            stranger,
            now: Mutex::new(Now { open: 0, count: 0, untaken: Vec::new(), since: Instant::now() }),
        }
    }

    /// A request with these `headers` begins.
    pub(crate) fn begin(self: &Arc<Self>, headers: &HeaderMap) -> Stream {
        let texts: usize = headers.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum();
        let held = REQUEST + texts;
        self.stranger.hold(held);
        let mut now = self.now();
        now.open += 1;
        now.count += 1;
        Stream { streams: Arc::clone(self), number: now.count, held }
    }

    /// Whose turn it is, and when that will have taken too long.
    pub(crate) fn ends(&self) -> (ConnectionPhase, Option<Instant>) {
        let now = self.now();
        if let Some((_, since)) = now.untaken.first() {
            return (ConnectionPhase::Taking, Some(*since + self.limits.patience));
        }
        match (now.open, now.count) {
            (0, 0) => (ConnectionPhase::Head, Some(now.since + self.limits.patience)),
            (0, _) => (ConnectionPhase::Idle, Some(now.since + self.limits.idle)),
            _ => (ConnectionPhase::Ours, None),
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
    /// Its answer of `size` bytes is there, and waits to be taken. Its head is done with.
    pub(crate) fn answered(&mut self, size: usize) {
        let held = REQUEST + size;
        self.streams.stranger.hold(held);
        self.streams.stranger.release(std::mem::replace(&mut self.held, held));
        self.streams.now().untaken.push((self.number, Instant::now()));
    }

    /// `error`, with this request under way for as long as what holds it.
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
        now.untaken.retain(|(number, _)| *number != self.number);
        now.open -= 1;
        now.since = Instant::now();
        drop(now);
        self.streams.stranger.release(self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::http::edge::strangers::Strangers;

    const LIMITS: Limits = Limits {
        most: 1,
        most_per_peer: 1,
        idle: Duration::from_secs(100),
        max_age: Duration::from_secs(1000),
        patience: Duration::from_secs(10),
        handshake: Duration::from_secs(5),
        strangers: 32 << 20,
    };

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_longest_counts() {
        let began = Instant::now();
        let at = |seconds| Some(began + Duration::from_secs(seconds));
        let stranger = Arc::new(Arc::new(Strangers::new(usize::MAX)).enter());
        let streams = Arc::new(Streams::new(LIMITS, stranger));
        assert_eq!((streams.ends(), streams.is_used()), ((ConnectionPhase::Head, at(10)), false));
        let (mut first, mut second) = (streams.begin(&HeaderMap::new()), streams.begin(&HeaderMap::new()));
        assert_eq!(streams.ends(), (ConnectionPhase::Ours, None));
        advance(Duration::from_secs(1)).await;
        second.answered(0);
        advance(Duration::from_secs(1)).await;
        first.answered(0);
        assert_eq!(streams.ends(), (ConnectionPhase::Taking, at(11)));
        drop(second);
        assert_eq!(streams.ends(), (ConnectionPhase::Taking, at(12)));
        advance(Duration::from_secs(1)).await;
        drop(first);
        assert_eq!((streams.ends(), streams.is_used()), ((ConnectionPhase::Idle, at(103)), true));
    }
}
