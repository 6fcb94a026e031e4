//! The last deliveries of hooks, and their effects: for operators, and to measure how long it takes until an ApplicationSet is refreshed.
//! They are kept in memory. Of a body nothing is kept but its subjects, and those are few.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use domain::{bounded_cache::Recent, clock::Timestamp, generator::Question};
use engine::{cache::Key, renewal::recheck::Recheck};
use hooks::Subject;

/// How many deliveries are kept.
pub const MAX_KEPT: usize = 100;
/// How many subjects, questions and ApplicationSets are kept of each delivery. More are only counted.
const MAX_NAMED: usize = 10;
/// How many questions, and how many ApplicationSets, wait for a refresh.
const MAX_WAITING: usize = 10_000;
/// For how long they wait. Refreshes are given up before.
const WAITS_FOR: Duration = Duration::from_mins(15);
/// The deliveries that one question or ApplicationSet waits for. The first ones count.
const MAX_ORIGINS: usize = 16;

/// The last deliveries.
pub struct Deliveries {
    kept: Mutex<Kept>,
    /// The questions that are rechecked.
    rechecking: Recent<Key, Origins>,
    /// The ApplicationSets that are to be refreshed.
    refreshing: Recent<Arc<str>, Origins>,
}

#[derive(Default)]
struct Kept {
    last: VecDeque<Delivered>,
    number: u64,
    unproven: BTreeMap<Arc<str>, Unproven>,
}

/// Deliveries, by number, and when the first of them came.
#[derive(Debug, Clone)]
pub(crate) struct Origins {
    pub(crate) since: Instant,
    pub(crate) numbers: Vec<u64>,
}

/// A delivery, and its effects.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Its number since the start.
    pub number: u64,
    /// When it came.
    pub at: Timestamp,
    /// The hook.
    pub hook: Arc<str>,
    /// Its outcome, as in metrics.
    pub outcome: &'static str,
    /// Why it was refused.
    pub why: Option<String>,
    /// How many subjects it has.
    pub subjects: usize,
    /// The first of these.
    pub named: Vec<Value>,
    /// How many known questions it concerned, with other deliveries that came with it.
    pub questions: usize,
    /// The first questions that were rechecked.
    pub rechecked: Vec<RecheckedQuestion>,
    /// How many rechecks ended with each result.
    pub rechecks: BTreeMap<&'static str, usize>,
    /// How many ApplicationSets were refreshed.
    pub refreshed: usize,
    /// The first of these, and how long after the delivery.
    pub refreshed_first: Vec<(Arc<str>, Duration)>,
}

/// A question that was rechecked.
#[derive(Debug, Clone)]
pub struct RecheckedQuestion {
    /// Its key.
    pub key: Key,
    /// The question.
    pub question: Question,
    /// The result of the last recheck.
    pub result: &'static str,
}

/// The deliveries of a hook without a proof of their sender. Only the last one is kept, so that unauthenticated clients displace nothing.
#[derive(Debug, Clone)]
pub struct Unproven {
    /// How many there were.
    pub count: u64,
    /// When the last one came.
    pub at: Timestamp,
    /// Its error.
    pub why: String,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            rechecking: Recent::new(MAX_WAITING).with_ttl(WAITS_FOR),
            refreshing: Recent::new(MAX_WAITING).with_ttl(WAITS_FOR),
        }
    }
}

impl Default for Origins {
    fn default() -> Self {
        Self { since: Instant::now(), numbers: Vec::new() }
    }
}

impl Origins {
    /// The deliveries of `all` together; `None` if there are none.
    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let together = all.filter(|origins| !origins.numbers.is_empty());
        together.fold(None, |known: Option<Self>, origins| {
            Some(known.map_or_else(|| origins.clone(), |known| known.with(origins)))
        })
    }

    /// Adds the delivery `number`, which came at `arrived`.
    pub(crate) fn add(&mut self, number: u64, arrived: Instant) {
        self.since = if self.numbers.is_empty() { arrived } else { self.since.min(arrived) };
        if self.numbers.len() < MAX_ORIGINS && !self.numbers.contains(&number) {
            self.numbers.push(number);
        }
    }

    /// The same with the deliveries of `other`.
    pub(crate) fn with(mut self, other: &Self) -> Self {
        other.numbers.iter().for_each(|number| self.add(*number, other.since));
        self
    }
}

impl Deliveries {
    /// The deliveries, the last one first.
    pub fn list(&self) -> Vec<Delivered> {
        self.kept.lock().last.iter().rev().cloned().collect()
    }

    /// The unproven deliveries, by hook.
    pub fn unproven(&self) -> Vec<(Arc<str>, Unproven)> {
        self.kept.lock().unproven.iter().map(|(hook, unproven)| (Arc::clone(hook), unproven.clone())).collect()
    }

    /// Keeps a delivery that was proven, and returns its number. `why` is the reason for a refusal.
    pub fn add(
        &self,
        hook: &Arc<str>,
        outcome: &'static str,
        why: Option<String>,
        subjects: &[Subject],
        at: Timestamp,
    ) -> u64 {
        let mut kept = self.kept.lock();
        kept.number += 1;
        let number = kept.number;
        if kept.last.len() >= MAX_KEPT {
            kept.last.pop_front();
        }
        kept.last.push_back(Delivered {
            number,
            at,
            hook: Arc::clone(hook),
            outcome,
            why,
            subjects: subjects.len(),
            named: subjects.iter().take(MAX_NAMED).map(|subject| json!(subject)).collect(),
            questions: 0,
            rechecked: Vec::new(),
            rechecks: BTreeMap::new(),
            refreshed: 0,
            refreshed_first: Vec::new(),
        });
        number
    }

    /// Changes the outcome of the delivery `number`.
    pub(crate) fn set_outcome(&self, number: u64, outcome: &'static str) {
        self.kept.lock().change(&[number], |delivered| delivered.outcome = outcome);
    }

    /// Counts a delivery of `hook` that was not proven.
    pub fn add_unproven(&self, hook: &Arc<str>, why: &str, at: Timestamp) {
        let mut kept = self.kept.lock();
        let count = kept.unproven.get(hook).map_or(0, |unproven| unproven.count) + 1;
        kept.unproven.insert(Arc::clone(hook), Unproven { count, at, why: why.to_owned() });
    }

    /// Notes that deliveries concern so many known questions.
    pub(crate) fn concern(&self, numbers: &[u64], questions: usize) {
        self.kept.lock().change(numbers, |delivered| delivered.questions += questions);
    }

    /// Notes that the question with `key` is rechecked now because of `origins`.
    pub(crate) fn recheck(&self, key: Key, origins: Origins) {
        self.rechecking.insert(key, origins);
    }

    /// Notes the result of a recheck because of the deliveries `numbers`.
    pub(crate) fn rechecked(&self, numbers: &[u64], key: Key, question: &Question, recheck: Recheck) {
        self.kept.lock().change(numbers, |delivered| {
            *delivered.rechecks.entry(recheck.as_str()).or_default() += 1;
            if let Some(known) = delivered.rechecked.iter_mut().find(|rechecked| rechecked.key == key) {
                known.result = recheck.as_str();
            } else if delivered.rechecked.len() < MAX_NAMED {
                delivered.rechecked.push(RecheckedQuestion {
                    key,
                    question: question.clone(),
                    result: recheck.as_str(),
                });
            }
        });
    }

    /// Notes that the ApplicationSets `names` are to be refreshed after a recheck of the question with `key`.
    pub(crate) fn refresh_after(&self, key: &Key, names: &[Arc<str>]) {
        let Some(origins) = self.rechecking.get(key) else { return };
        for name in names {
            self.refreshing.update(Arc::clone(name), |known| match known {
                Some(known) => known.clone().with(&origins),
                None => origins.clone(),
            });
        }
    }

    /// Notes that the ApplicationSet `name` was refreshed. Returns how long after the first delivery that led to it, if one did.
    pub(crate) fn refreshed(&self, name: &Arc<str>) -> Option<Duration> {
        let Origins { since, numbers } = self.refreshing.remove(name)?;
        let after = since.elapsed();
        self.kept.lock().change(&numbers, |delivered| {
            delivered.refreshed += 1;
            if delivered.refreshed_first.len() < MAX_NAMED {
                delivered.refreshed_first.push((Arc::clone(name), after));
            }
        });
        Some(after)
    }

    /// Notes that the ApplicationSet `name` will not be refreshed.
    pub(crate) fn not_refreshed(&self, name: &Arc<str>) {
        self.refreshing.remove(name);
    }
}

impl Kept {
    fn change(&mut self, numbers: &[u64], mut change: impl FnMut(&mut Delivered)) {
        self.last.iter_mut().filter(|delivered| numbers.contains(&delivered.number)).for_each(&mut change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(number: usize) -> Subject {
        Subject::Url(format!("https://h.example/{number}"))
    }

    fn question() -> Question {
        Question { route: "r".into(), application_set: None, parameters: Arc::default(), part: None }
    }

    #[test]
    fn the_last_hundred_are_kept_with_a_few_subjects_each() {
        let (deliveries, hook) = (Deliveries::default(), Arc::from("h"));
        let subjects: Vec<Subject> = (0..50).map(subject).collect();
        for number in 1..=250 {
            assert_eq!(deliveries.add(&hook, "taken", None, &subjects, Timestamp(number)), number);
        }
        let kept = deliveries.list();
        assert_eq!((kept.len(), kept[0].number, kept[99].number), (MAX_KEPT, 250, 151));
        assert_eq!((kept[0].subjects, kept[0].named.len()), (50, MAX_NAMED));
        // What has left is not found again.
        deliveries.concern(&[1, 250], 7);
        assert_eq!(deliveries.list()[0].questions, 7);
    }

    #[test]
    fn unauthenticated_deliveries_displace_nothing() {
        let (deliveries, hook) = (Deliveries::default(), Arc::from("h"));
        deliveries.add(&hook, "taken", None, &[], Timestamp(1));
        (0..500).for_each(|number| deliveries.add_unproven(&hook, "no signature", Timestamp(number)));
        assert_eq!(deliveries.list().len(), 1);
        let unproven = deliveries.unproven();
        assert_eq!((unproven.len(), unproven[0].1.count, unproven[0].1.at), (1, 500, Timestamp(499)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_delivery_led_to_is_noted() {
        let (deliveries, hook) = (Deliveries::default(), Arc::from("h"));
        let number = deliveries.add(&hook, "taken", None, &[subject(1)], Timestamp(1));
        let (key, set) = (Key::of_bytes([1; 32]), Arc::from("argocd/set"));
        deliveries.recheck(key, Origins { since: Instant::now(), numbers: vec![number] });
        tokio::time::advance(Duration::from_secs(3)).await;
        deliveries.refresh_after(&key, &[Arc::clone(&set)]);
        deliveries.rechecked(&[number], key, &question(), Recheck::Unchanged);
        deliveries.rechecked(&[number], key, &question(), Recheck::Changed);
        assert_eq!(deliveries.refreshed(&set), Some(Duration::from_secs(3)));
        assert_eq!(deliveries.refreshed(&set), None, "it was refreshed once");
        let [delivered] = &deliveries.list()[..] else { panic!() };
        assert_eq!((delivered.rechecked.len(), delivered.rechecked[0].result), (1, "changed"));
        assert_eq!(delivered.rechecks, BTreeMap::from([("changed", 1), ("unchanged", 1)]));
        assert_eq!((delivered.refreshed, &delivered.refreshed_first[0].0), (1, &set));
        deliveries.refresh_after(&Key::of_bytes([2; 32]), &[Arc::clone(&set)]);
        assert_eq!(deliveries.refreshed(&set), None, "no delivery led to this");
    }
}
