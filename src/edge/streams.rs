//! The streams of an HTTP/2 connection: which requests are under way, and which answers wait to be taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::{Limits, stream::Turn};

/// What is known of the streams of a connection.
#[derive(Debug)]
pub struct Streams {
    limits: Limits,
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
pub struct Stream {
    streams: Arc<Streams>,
    number: u64,
}

impl Streams {
    /// A new connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, now: Mutex::new(Now { open: 0, count: 0, untaken: Vec::new(), since: Instant::now() }) }
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> Stream {
        let mut now = self.now();
        now.open += 1;
        now.count += 1;
        Stream { streams: Arc::clone(self), number: now.count }
    }

    /// Whose turn it is, and when that will have taken too long.
    pub fn ends(&self) -> (Turn, Option<Instant>) {
        let now = self.now();
        if let Some((_, since)) = now.untaken.first() {
            return (Turn::Taking, Some(*since + self.limits.patience));
        }
        match (now.open, now.count) {
            (0, 0) => (Turn::Head, Some(now.since + self.limits.patience)),
            (0, _) => (Turn::Idle, Some(now.since + self.limits.idle)),
            _ => (Turn::Ours, None),
        }
    }

    /// Whether a request has come.
    pub fn is_used(&self) -> bool {
        self.now().count > 0
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Its answer is there, and waits to be taken.
    pub fn answered(&self) {
        self.streams.now().untaken.push((self.number, Instant::now()));
    }

    /// `error`, with this request under way for as long as what holds it.
    pub fn held_by<E>(self) -> impl FnMut(E) -> E {
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
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const LIMITS: Limits = Limits {
        most: 1,
        most_per_peer: 1,
        idle: Duration::from_secs(100),
        max_age: Duration::from_secs(1000),
        patience: Duration::from_secs(10),
        handshake: Duration::from_secs(5),
    };

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_longest_counts() {
        let began = Instant::now();
        let at = |seconds| Some(began + Duration::from_secs(seconds));
        let streams = Arc::new(Streams::new(LIMITS));
        assert_eq!((streams.ends(), streams.is_used()), ((Turn::Head, at(10)), false));
        let (first, second) = (streams.begin(), streams.begin());
        assert_eq!(streams.ends(), (Turn::Ours, None));
        advance(Duration::from_secs(1)).await;
        second.answered();
        advance(Duration::from_secs(1)).await;
        first.answered();
        assert_eq!(streams.ends(), (Turn::Taking, at(11)));
        drop(second);
        assert_eq!(streams.ends(), (Turn::Taking, at(12)));
        advance(Duration::from_secs(1)).await;
        drop(first);
        assert_eq!((streams.ends(), streams.is_used()), ((Turn::Idle, at(103)), true));
    }
}
