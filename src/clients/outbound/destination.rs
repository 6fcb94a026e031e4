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
use crate::domain::{error::BackendError, units::plural};

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
    pub(crate) breaker: Arc<Breaker>,
    /// The budget for retries. If many requests fail at once, a retry of each would only add load.
    pub(crate) retries: TpsBudget,
    permits: Semaphore,
    concurrency: usize,
    rate: Option<Rate>,
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
        Self { breaker: Arc::default(), retries, permits: Semaphore::new(concurrency), concurrency, rate }
    }

    /// Waits until a request may begin.
    ///
    /// # Errors
    /// When no request may begin before `deadline`.
    pub(crate) async fn acquire(&self, deadline: Instant) -> Result<RequestPermit<'_>, BackendError> {
        let full = || {
            let (max, s) = (self.concurrency, plural(self.concurrency));
            BackendError::timeout(format!("no turn in time: {max} request{s} to it were under way until the deadline"))
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
                "no turn in time: more than {} requests per second were waiting",
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
