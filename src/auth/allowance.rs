//! How much a caller may ask: how often, and how much at once.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock as _};

use crate::problem::{Path, Problems};

/// How much those callers may ask together whom one entry of the configuration lets in.
#[derive(Debug, Default)]
pub struct Allowance {
    rate: Option<Rate>,
    concurrency: Option<usize>,
    now: AtomicUsize,
}

#[derive(Debug)]
struct Rate {
    most: NonZeroU32,
    limiter: DefaultDirectRateLimiter,
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub struct Turn(Arc<Allowance>);

/// What a call is too much for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// The entry's `rate`; with when there is room again.
    Rate(Duration),
    /// The entry's `concurrency`.
    Concurrency,
}

impl Allowance {
    /// `rate` calls per second, as many of which may come at once, and `concurrency` calls under way; any unless set. They stand at `rate`
    /// and `concurrency` below `path`.
    pub fn build(rate: Option<u32>, concurrency: Option<usize>, path: &Path, problems: &mut Problems) -> Arc<Self> {
        let given = [("rate", rate.map(u64::from)), ("concurrency", concurrency.map(|most| most as u64))];
        for (key, _) in given.into_iter().filter(|(_, most)| *most == Some(0)) {
            problems.error(&path.key(key), "with 0 every call would be refused");
        }
        let limiter = |most| RateLimiter::direct(Quota::per_second(most));
        let rate = rate.and_then(NonZeroU32::new).map(|most| Rate { most, limiter: limiter(most) });
        Arc::new(Self { rate, concurrency, now: AtomicUsize::new(0) })
    }

    /// A turn for one more call.
    ///
    /// # Errors
    /// When it is too much.
    pub fn enter(self: &Arc<Self>) -> Result<Turn, Excess> {
        let turn = Turn(Arc::clone(self));
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        if self.concurrency.is_some_and(|most| before >= most) {
            return Err(Excess::Concurrency);
        }
        if let Some(Rate { limiter, .. }) = &self.rate {
            limiter.check().map_err(|not| Excess::Rate(not.wait_time_from(limiter.clock().now())))?;
        }
        Ok(turn)
    }

    fn limits(&self) -> (Option<NonZeroU32>, Option<usize>) {
        (self.rate.as_ref().map(|rate| rate.most), self.concurrency)
    }
}

/// Lets the entries of a new configuration go on where those `before` were that have the same name and the same limits, each with its
/// own: what was asked counts on.
pub fn carry_over<'a>(
    before: impl Iterator<Item = (&'a str, &'a Arc<Allowance>)>,
    now: impl Iterator<Item = (&'a str, &'a mut Arc<Allowance>)>,
) {
    let mut before: Vec<_> = before.collect();
    for (name, own) in now {
        let same = before.iter().position(|(other, former)| *other == name && former.limits() == own.limits());
        if let Some(same) = same {
            *own = Arc::clone(before.remove(same).1);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(rate: Option<u32>, concurrency: Option<usize>) -> Arc<Allowance> {
        Allowance::build(rate, concurrency, &Path::root(), &mut Problems::default())
    }

    #[test]
    fn turns_come_back() {
        let allowance = build(None, Some(2));
        let (first, second) = (allowance.enter().unwrap(), allowance.enter().unwrap());
        assert_eq!(allowance.enter().unwrap_err(), Excess::Concurrency);
        drop(first);
        let third = allowance.enter().unwrap();
        drop((second, third));
        assert_eq!(allowance.now.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_rate_is_per_second() {
        let allowance = build(Some(1), None);
        allowance.enter().unwrap();
        let Err(Excess::Rate(wait)) = allowance.enter() else { panic!("it is too much") };
        assert!(wait <= Duration::from_secs(1) && !wait.is_zero(), "{wait:?}");
        let any = build(None, None);
        assert!((0..10_000).all(|_| any.enter().is_ok()));
    }

    #[test]
    fn nothing_at_all_is_a_mistake() {
        let mut problems = Problems::default();
        Allowance::build(Some(0), Some(0), &Path::root(), &mut problems);
        let paths: Vec<String> = problems.into_vec().iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(paths, ["rate", "concurrency"]);
    }

    #[test]
    fn who_stays_goes_on() {
        let before = [("a", build(Some(1), None)), ("a", build(Some(1), None)), ("b", build(None, Some(1)))];
        let turns = before.each_ref().map(|(_, allowance)| allowance.enter().unwrap());
        let mut now = [
            ("b", build(None, Some(1))),
            ("a", build(Some(1), None)),
            ("a", build(Some(2), None)),
            ("c", build(Some(1), None)),
        ];
        carry_over(
            before.iter().map(|(name, allowance)| (*name, allowance)),
            now.iter_mut().map(|(name, allowance)| (*name, allowance)),
        );
        let may = now.each_ref().map(|(_, allowance)| allowance.enter().is_ok());
        assert_eq!(may, [false, false, true, true], "other limits, and other names, begin anew");
        drop(turns);
        assert!(now[0].1.enter().is_ok(), "calls that began before are counted until they end");
    }
}
