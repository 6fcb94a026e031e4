//! A short history, kept in memory: how many parameter sets each route served over the last day, and when errors were counted last.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::App;
use domain::{clock::Timestamp, lifecycle::Phase};

/// The time between two samples.
pub(crate) const SAMPLED_EVERY: Duration = Duration::from_mins(30);
/// How often it is checked whether another sample is due.
const LOOKED_EVERY: Duration = Duration::from_mins(1);
/// The samples of a day.
const MAX_SAMPLES: usize = 48;
/// The routes with samples. A configuration has far fewer.
const MAX_ROUTES: usize = 1000;

/// The history since the start of the process, of a day at most.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Past>);

#[derive(Debug, Default)]
struct Past {
    sampled_at: Option<Timestamp>,
    sets: HashMap<Arc<str>, VecDeque<Sample>>,
    disk_errors: Seen,
}

/// How many parameter sets a route served at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The time.
    pub(crate) at: Timestamp,
    /// How many parameter sets.
    pub(crate) sets: usize,
}

/// A counter, and when it was first seen at its value.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    count: u64,
    since: Option<Timestamp>,
}

impl History {
    /// The samples of `route`, the oldest first.
    pub(crate) fn of(&self, route: &str) -> Vec<Sample> {
        self.0.lock().sets.get(route).into_iter().flatten().copied().collect()
    }

    /// Whether it is time for another sample. If the clock was put back, it is.
    fn is_due(&self, now: Timestamp) -> bool {
        let sampled_at = self.0.lock().sampled_at;
        sampled_at.and_then(|then| now.since(then)).is_none_or(|passed| passed >= SAMPLED_EVERY)
    }

    /// Adds a sample of each of `routes`, and forgets other routes.
    fn add(&self, now: Timestamp, routes: impl Iterator<Item = (Arc<str>, usize)>) {
        let mut past = self.0.lock();
        let mut before = std::mem::take(&mut past.sets);
        for (route, sets) in routes.take(MAX_ROUTES) {
            let mut samples = before.remove(&route).unwrap_or_default();
            if samples.len() >= MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(Sample { at: now, sets });
            past.sets.insert(route, samples);
        }
        past.sampled_at = Some(now);
    }

    /// When the counter of disk errors was first seen at `count`. `None` if there was no error yet.
    pub(crate) fn disk_errors_since(&self, count: u64, now: Timestamp) -> Option<Timestamp> {
        let mut past = self.0.lock();
        if past.disk_errors.count != count {
            past.disk_errors = Seen { count, since: Some(now) };
        }
        past.disk_errors.since
    }
}

impl App {
    /// Adds to the history as long as the gateway runs.
    pub(crate) async fn keep_history(&self) {
        let mut ended = std::pin::pin!(self.lifecycle.reached(Phase::Ended));
        let mut ticks = interval(LOOKED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.sample(),
                () = &mut ended => return,
            }
        }
    }

    /// Adds to the history if it is time. To be called every minute or so; more often does no harm.
    pub fn sample(&self) {
        let now = self.now();
        self.history.disk_errors_since(self.metrics.disk.errors.get(), now);
        if !self.history.is_due(now) {
            return;
        }
        let setup = self.setup();
        let served = self.engine.served(&setup.routes);
        let sets = |name: &Arc<str>| served.get(name).map_or(0, |served| served.sets);
        self.history.add(now, setup.routes.iter().map(|route| (Arc::clone(&route.name), sets(&route.name))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_kept_and_routes_that_have_gone_are_forgotten() {
        let (history, mut now) = (History::default(), Timestamp(1_000_000));
        let begin = now;
        for sets in 0..60 {
            assert!(history.is_due(now));
            history.add(now, [(Arc::from("a"), sets), (Arc::from("b"), 1)].into_iter());
            assert!(!history.is_due(now.plus(SAMPLED_EVERY.checked_sub(Duration::from_secs(1)).unwrap())));
            now = now.plus(SAMPLED_EVERY);
        }
        let kept = history.of("a");
        assert_eq!((kept.len(), kept[0].sets, kept[47].sets), (MAX_SAMPLES, 12, 59));
        assert_eq!(kept[0].at, begin.plus(SAMPLED_EVERY * 12));
        history.add(now, [(Arc::from("b"), 1)].into_iter());
        assert!(history.of("a").is_empty() && history.of("b").len() == MAX_SAMPLES);
        assert!(history.is_due(begin), "the clock was put back");
    }

    #[test]
    fn the_last_error_is_dated() {
        let (history, at) = (History::default(), Timestamp);
        assert_eq!(history.disk_errors_since(0, at(1)), None);
        assert_eq!(history.disk_errors_since(2, at(5)), Some(at(5)));
        assert_eq!(history.disk_errors_since(2, at(9)), Some(at(5)));
        assert_eq!(history.disk_errors_since(3, at(11)), Some(at(11)));
    }
}
