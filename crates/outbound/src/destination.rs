//! One destination: how many requests may be under way, how many may begin per second, and whether the destination works.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    DefaultDirectRateLimiter, Quota,
    clock::{Clock as _, DefaultClock},
};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::{Instant, sleep_until, timeout_at},
};
use tower::retry::budget::TpsBudget;

use super::{ClientOptions, breaker::Breaker};
use domain::{clock::Timestamp, error::BackendError, units::plural};

/// The window in which calls and retries are counted.
const RETRY_WINDOW: Duration = Duration::from_secs(10);
/// The share of calls that may be sent again.
const RETRY_SHARE: f32 = 0.2;
/// The number of retries that are always allowed, per second of the window.
const MIN_RETRIES: u32 = 1;

/// The state that all calls to one destination share.
#[derive(Debug)]
pub(crate) struct Destination {
    /// Whether the destination works.
    pub breaker: Arc<Breaker>,
    /// The budget for retries. If many requests fail at once, a retry of each would only add load.
    pub retries: TpsBudget,
    permits: Semaphore,
    concurrency: usize,
    rate: Option<Rate>,
    exchanges: parking_lot::Mutex<Exchanges>,
}

/// The requests that were sent to a destination.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exchanges {
    /// How many there were.
    pub count: u64,
    /// The last one that ended.
    pub last: Option<Exchange>,
    /// How long they took on average. The last ten or so count most.
    pub mean: Duration,
}

/// One request that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// How it ended, as in metrics.
    pub outcome: &'static str,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub why: Option<String>,
}

#[derive(Debug)]
struct Rate {
    per_second: NonZeroU32,
    limiter: DefaultDirectRateLimiter,
    /// Locked by the next request in the queue, so that requests begin in the order in which they came.
    queue: Mutex<()>,
}

/// The permit of one request to be under way. It ends when the permit is dropped.
pub(crate) type RequestPermit<'a> = SemaphorePermit<'a>;

impl Destination {
    /// A new destination, with the limits in `options`.
    pub(crate) fn new(options: &ClientOptions) -> Self {
        let concurrency = options.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let rate = options.rate.map(|per_second| Rate {
            per_second,
            limiter: DefaultDirectRateLimiter::direct(Quota::per_second(per_second)),
            queue: Mutex::default(),
        });
        let retries = TpsBudget::new(RETRY_WINDOW, MIN_RETRIES, RETRY_SHARE);
        let permits = Semaphore::new(concurrency);
        Self { breaker: Arc::default(), retries, permits, concurrency, rate, exchanges: parking_lot::Mutex::default() }
    }

    /// Notes a request that was sent.
    pub(crate) fn note(&self, exchange: Exchange) {
        let mut exchanges = self.exchanges.lock();
        exchanges.mean =
            if exchanges.count == 0 { exchange.took } else { exchanges.mean.mul_f64(0.9) + exchange.took.mul_f64(0.1) };
        exchanges.count += 1;
        exchanges.last = Some(exchange);
    }

    /// The requests that were sent.
    pub(crate) fn exchanges(&self) -> Exchanges {
        self.exchanges.lock().clone()
    }

    /// How many requests are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.concurrency.saturating_sub(self.permits.available_permits())
    }

    /// How many requests may be under way.
    pub(crate) const fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// How many requests may begin per second.
    pub(crate) fn per_second(&self) -> Option<u32> {
        self.rate.as_ref().map(|rate| rate.per_second.get())
    }

    /// Waits until a request may begin.
    ///
    /// # Errors
    /// When no request may begin before `deadline`.
    pub(crate) async fn acquire(&self, deadline: Instant) -> Result<RequestPermit<'_>, BackendError> {
        let full = || {
            let (max, s) = (self.concurrency, plural(self.concurrency));
            BackendError::timeout(format!(
                "no free slot in time: {max} request{s} to it were under way until the deadline"
            ))
        };
        let permit = timeout_at(deadline, self.permits.acquire()).await.map_err(|_| full())?.map_err(|_| full())?;
        if let Some(rate) = &self.rate {
            rate.acquire(deadline).await?;
        }
        Ok(permit)
    }
}

impl Rate {
    async fn acquire(&self, deadline: Instant) -> Result<(), BackendError> {
        let late = || {
            BackendError::timeout(format!(
                "no free slot in time: more than {} requests per second were waiting",
                self.per_second
            ))
        };
        let _first = timeout_at(deadline, self.queue.lock()).await.map_err(|_| late())?;
        loop {
            let Err(early) = self.limiter.check() else { return Ok(()) };
            let next = Instant::now() + early.wait_time_from(DefaultClock::default().now());
            if next > deadline {
                return Err(late());
            }
            sleep_until(next).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;
    use tower::retry::budget::Budget as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fifth_of_the_last_ten_seconds_may_be_sent_again() {
        let destination = Destination::new(&ClientOptions::default());
        let again = || std::iter::repeat_with(|| destination.retries.withdraw()).take_while(|may| *may).count();
        assert_eq!(again(), 10, "a few always may");
        assert_eq!(again(), 0);
        (0..100).for_each(|_| destination.retries.deposit());
        assert_eq!(again(), 20);
        // Old calls no longer count, and the minimum is available again.
        (0..100).for_each(|_| destination.retries.deposit());
        advance(RETRY_WINDOW * 2).await;
        assert_eq!(again(), 10);
    }
}
