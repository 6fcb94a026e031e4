//! One destination: how many requests may be under way to it, how many may begin per second, and whether it is well.

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
use crate::domain::error::BackendError;

/// For how long a call counts among those of which a share may be sent again.
const RETRY_WINDOW: Duration = Duration::from_secs(10);
/// How many calls of all may be sent again.
const RETRY_SHARE: f32 = 0.2;
/// How many may be in any case, per second of the window.
const LEAST_RETRIES: u32 = 1;

/// What the calls of one destination share.
#[derive(Debug)]
pub(crate) struct Destination {
    /// Whether it is well.
    pub(crate) breaker: Arc<Breaker>,
    /// How many requests may be sent again: where much fails at once, sending it all again would only add to it.
    pub(crate) retries: TpsBudget,
    permits: Semaphore,
    most: usize,
    rate: Option<Rate>,
}

#[derive(Debug)]
struct Rate {
    most: NonZeroU32,
    limiter: DefaultDirectRateLimiter,
    /// Held by whoever waits for the next place, so that all get theirs in the order in which they came.
    queue: Mutex<()>,
}

/// A request's place among those under way, free again when it is dropped.
pub(crate) type RequestPermit<'a> = SemaphorePermit<'a>;

impl Destination {
    /// One that is reached on `terms`.
    pub(crate) fn new(terms: &ClientOptions) -> Self {
        let most = terms.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let rate = terms.rate.map(|most| Rate {
            most,
            limiter: DefaultDirectRateLimiter::direct(Quota::per_second(most)),
            queue: Mutex::default(),
        });
        let retries = TpsBudget::new(RETRY_WINDOW, LEAST_RETRIES, RETRY_SHARE);
        Self { breaker: Arc::default(), retries, permits: Semaphore::new(most), most, rate }
    }

    /// Waits until a request may begin.
    ///
    /// # Errors
    /// When that is not before `deadline`.
    pub(crate) async fn turn(&self, deadline: Instant) -> Result<RequestPermit<'_>, BackendError> {
        let full = || {
            let (most, s) = (self.most, if self.most == 1 { "" } else { "s" });
            BackendError::timeout(format!("no turn in time: {most} request{s} to it were under way all the while"))
        };
        let permit = timeout_at(deadline, self.permits.acquire()).await.map_err(|_| full())?.map_err(|_| full())?;
        if let Some(rate) = &self.rate {
            rate.turn(deadline).await?;
        }
        Ok(permit)
    }
}

impl Rate {
    async fn turn(&self, deadline: Instant) -> Result<(), BackendError> {
        let late = || {
            BackendError::timeout(format!("no turn in time: more than {} requests per second are wanted", self.most))
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
        // What was called long ago counts no more, and what always may comes back.
        (0..100).for_each(|_| destination.retries.deposit());
        advance(RETRY_WINDOW * 2).await;
        assert_eq!(again(), 10);
    }
}
