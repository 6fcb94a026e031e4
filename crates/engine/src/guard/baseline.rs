//! The baseline of a lineage, with which the next answer is compared: the number of parameter sets of the last accepted
//! answer, and the sets that were accepted within the last hour. It is small, so it outlives the answer itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guard::{GuardConfig, Identities};
use domain::{clock::Timestamp, generator::ParameterSet};

/// How long lost sets still count. Otherwise many small losses could empty a fleet step by step.
const WINDOW: Duration = Duration::from_hours(1);
/// How many counts are stored; beyond that the two smallest are merged.
const MAX_COUNTS: usize = 16;

/// How many sets an answer loses against the accepted ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Sets of the last accepted answer that are gone.
    pub of_last: usize,
    /// Sets that were accepted within the last hour and are gone.
    pub(crate) of_hour: usize,
}

/// The accepted parameter sets of one lineage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// How many parameter sets the last accepted answer had.
    count: usize,
    /// Larger counts of earlier answers and until when they were accepted: the largest and oldest first.
    counts: Vec<(usize, Timestamp)>,
    /// The keys that identify the sets; empty if sets are only counted.
    keys: Vec<String>,
    /// The identities of the last accepted answer, in ascending order.
    current: Vec<u64>,
    /// Identities of earlier answers that are gone, and until when they were accepted: the latest first.
    gone: Vec<(u64, Timestamp)>,
}

impl Baseline {
    /// The baseline after `sets`, with nothing known of earlier answers.
    #[must_use]
    pub fn of(config: &GuardConfig, sets: &[ParameterSet]) -> Self {
        Self::anew(Identities::of(&config.identity, sets))
    }

    /// Keeps the counts, and identifies the last accepted answer as `last`.
    #[must_use]
    pub(super) fn identified_as(&self, last: Identities) -> Self {
        let Identities { keys, sorted: current, .. } = last;
        Self { count: self.count, counts: self.counts.clone(), keys, current, gone: Vec::new() }
    }

    /// Whether no answer with parameter sets was accepted, as far as is known.
    #[must_use]
    pub(super) fn is_of_nothing(&self) -> bool {
        self.count == 0 && self.counts.is_empty() && self.gone.is_empty()
    }

    /// How many parameter sets the last accepted answer had.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The keys that identify its sets; empty if sets are only counted.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The largest number of sets in one answer that was accepted within the last hour.
    #[must_use]
    pub fn peak(&self, now: Timestamp) -> usize {
        let recent = self.counts.iter().filter(|(_, until)| is_recent(*until, now)).map(|(count, _)| *count);
        recent.max().unwrap_or_default().max(self.count)
    }

    /// The losses of the answer `new`, identified by the same keys, at `now`.
    #[must_use]
    pub(super) fn losses(&self, new: &Identities, now: Timestamp) -> Loss {
        let is_lost = |identity: &u64| new.sorted.binary_search(identity).is_err();
        let of_last = self.current.iter().filter(|identity| is_lost(identity)).count();
        let earlier = self.gone.iter().filter(|(identity, until)| is_recent(*until, now) && is_lost(identity)).count();
        Loss { of_last, of_hour: of_last + earlier }
    }

    /// The baseline once the answer `new` is accepted at `now`.
    #[must_use]
    pub fn after(&self, new: Identities, now: Timestamp) -> Self {
        let mut next = Self::anew(new);
        if next.count == 0 {
            // An empty answer starts afresh.
            return next;
        }
        next.counts = self.counts_after(next.count, now);
        if next.keys == self.keys && !next.keys.is_empty() {
            next.gone = self.gone_after(&next.current, now);
        }
        next
    }

    /// The baseline once a loss is accepted: earlier answers no longer count.
    #[must_use]
    pub fn anew(new: Identities) -> Self {
        let Identities { count, keys, sorted: current } = new;
        Self { count, keys, current, ..Self::default() }
    }

    fn counts_after(&self, count: usize, now: Timestamp) -> Vec<(usize, Timestamp)> {
        let earlier = self.counts.iter().map(|(count, until)| (*count, (*until).min(now)));
        let mut counts: Vec<(usize, Timestamp)> = earlier.filter(|(_, until)| is_recent(*until, now)).collect();
        counts.retain(|(earlier, _)| *earlier > self.count);
        counts.push((self.count, now));
        counts.retain(|(earlier, _)| *earlier > count);
        if counts.len() > MAX_COUNTS
            && let (Some((_, until)), Some(before)) = (counts.pop(), counts.last_mut())
        {
            before.1 = until;
        }
        counts
    }

    fn gone_after(&self, current: &[u64], now: Timestamp) -> Vec<(u64, Timestamp)> {
        let lost = self.current.iter().map(|identity| (*identity, now));
        let earlier = self.gone.iter().map(|(identity, until)| (*identity, (*until).min(now)));
        let is_gone =
            |(identity, until): &(u64, Timestamp)| is_recent(*until, now) && current.binary_search(identity).is_err();
        // With this many, any answer is a loss.
        lost.chain(earlier).filter(is_gone).take(self.peak(now).max(current.len())).collect()
    }

    /// About how many bytes it takes in memory.
    #[must_use]
    pub fn weight(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| size_of::<String>() + key.len()).sum();
        size_of::<Self>() + keys + 8 * self.current.len() + 16 * (self.gone.len() + self.counts.len())
    }
}

/// Whether an accepted count or set that was replaced at `until` still counts at `now`. It does if the clock was put back.
fn is_recent(until: Timestamp, now: Timestamp) -> bool {
    now < until.plus(WINDOW)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sets(names: impl IntoIterator<Item = usize>) -> Vec<ParameterSet> {
        let set = |name: usize| ParameterSet(json!({"name": format!("n{name}")}).as_object().unwrap().clone());
        names.into_iter().map(set).collect()
    }

    fn named(names: impl IntoIterator<Item = usize>) -> Identities {
        Identities::by(&sets(names), &["name".to_owned()]).unwrap()
    }

    fn minutes(minutes: u64) -> Timestamp {
        Timestamp(1_700_000_000_000 + minutes * 60_000)
    }

    fn next(baseline: &Baseline, names: impl IntoIterator<Item = usize>, at: u64) -> Baseline {
        baseline.after(named(names), minutes(at))
    }

    #[test]
    fn the_peak_is_the_largest_count_of_the_last_hour() {
        let mut baseline = Baseline::of(&GuardConfig::default(), &sets(0..20));
        for (at, count, peak) in [
            (0, 18, 20),
            (10, 15, 20),
            (20, 17, 20),
            (59, 17, 20),
            (60, 16, 18),
            (69, 16, 18),
            (80, 16, 17),
            (119, 16, 17),
        ] {
            baseline = next(&baseline, 0..count, at);
            assert_eq!(baseline.peak(minutes(at)), peak, "{at}");
        }
        assert_eq!(baseline.peak(minutes(119)), 17);
        assert_eq!(baseline.peak(minutes(120)), 16);
        assert_eq!(next(&baseline, 0..0, 121).peak(minutes(121)), 0, "an empty answer resets it");
    }

    #[test]
    fn the_number_of_counts_is_bounded() {
        let mut baseline = Baseline::of(&GuardConfig::default(), &sets(0..100));
        for (at, count) in (1..60).zip((0..100).rev()) {
            baseline = next(&baseline, 0..count, at);
            assert!(baseline.counts.len() <= MAX_COUNTS && baseline.peak(minutes(at)) == 100);
        }
    }

    #[test]
    fn lost_sets_count_for_an_hour() {
        let mut baseline = Baseline::of(&GuardConfig::default(), &sets(0..20));
        for at in 0..5 {
            let first = usize::try_from(at).unwrap() + 1;
            baseline = next(&baseline, first..first + 20, at);
        }
        let new = named(5..25);
        assert_eq!(baseline.losses(&new, minutes(5)), Loss { of_last: 0, of_hour: 5 });
        assert_eq!(baseline.losses(&new, minutes(61)).of_hour, 3);
        assert_eq!(baseline.losses(&named(0..25), minutes(5)).of_hour, 0, "they came back");
        // The clock was put back: they still count, and no longer than an hour from then.
        assert_eq!(baseline.losses(&new, Timestamp(0)).of_hour, 5);
        let later = baseline.after(new.clone(), Timestamp(0));
        assert_eq!(later.losses(&new, Timestamp(3_600_000)).of_hour, 0);
    }

    #[test]
    fn a_baseline_survives_serialisation() {
        let baseline = next(&Baseline::of(&GuardConfig::default(), &sets(0..3)), 1..3, 0);
        let text = serde_json::to_string(&baseline).unwrap();
        assert_eq!(serde_json::from_str::<Baseline>(&text).unwrap(), baseline);
    }
}
