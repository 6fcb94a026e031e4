//! Judges the actions of Argo CD by the truth alone. The gateway's own records and reasons do not count here.

mod elements;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

pub use self::elements::Failing;
use self::elements::FailingElement;
use crate::{
    history::{History, Invariant, shown},
    settings::{Settings, requeue},
    truth::{Set, Truth, digest},
};

/// For how long a loss that was true excuses a deletion.
const HOUR: Duration = Duration::from_hours(1);
/// A deleted Application that comes back within this time has flapped.
const FLAPS_WITHIN: Duration = Duration::from_mins(10);
/// What a webhook reports is seen within this time: the last recheck comes 72 seconds after the event.
const REPORTED_WITHIN: Duration = Duration::from_mins(3);
/// After so long without faults, all that the gateway needs for a refresh is known again.
const CALM: Duration = Duration::from_mins(15);

/// The oracle.
pub struct Oracle {
    history: Arc<History>,
    truth: Arc<Mutex<Truth>>,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// When each Application was made last.
    created: BTreeMap<(Set, String), Duration>,
    /// When each Application was deleted last.
    deleted: BTreeMap<(Set, String), Duration>,
    /// The latest releases by operators.
    released: BTreeMap<(Set, String), Duration>,
    /// Whether a single gateway has lost its file: for a week, it cannot be known whether a preview is new.
    has_forgotten: bool,
    /// What a webhook reported as new while nothing failed, and when it did.
    reported: Vec<(Set, String, Duration)>,
    /// When something was lost by which the gateway knows who asks. It comes back within an hour.
    requesters_lost: Option<Duration>,
    /// How many faults last.
    faults: usize,
    /// When the last fault ended.
    calm_since: Duration,
    /// The element that fails alone, or did last.
    failing: Option<FailingElement>,
}

/// A fault that lasts until this is dropped. The time until which missing Applications are excused begins then.
pub struct Fault(Arc<Oracle>);

impl Drop for Fault {
    fn drop(&mut self) {
        let now = self.0.history.now();
        let mut noted = self.0.noted.lock();
        noted.faults -= 1;
        noted.calm_since = now;
    }
}

/// How long the gateway and Argo CD may take to see changes of `set`, once faults have ended: an outdated answer is served for a
/// while, one is queried at each requeue, and Argo CD waits three minutes after an error.
fn seen_within(set: Set) -> Duration {
    let route = Duration::from_secs(110 + Settings::stale(set) / 2);
    // Backoffs, and a store that replicas restore.
    let recovers = Duration::from_mins(4);
    requeue(set) * 2 + Duration::from_mins(3) + route + recovers
}

/// The same for Applications that are gone: the guard wants its confirmations first.
fn gone_within(set: Set) -> Duration {
    match Settings::confirmed(set) {
        // An operator looks every twenty minutes.
        0 => seen_within(set) + Duration::from_mins(50),
        confirmed => seen_within(set) + Duration::from_secs(confirmed * 5),
    }
}

impl Oracle {
    /// An oracle that judges by `truth`.
    pub fn new(history: &Arc<History>, truth: &Arc<Mutex<Truth>>) -> Arc<Self> {
        Arc::new(Self { history: Arc::clone(history), truth: Arc::clone(truth), noted: Mutex::default() })
    }

    /// Begins a fault.
    pub fn fault(self: &Arc<Self>) -> Fault {
        self.noted.lock().faults += 1;
        Fault(Arc::clone(self))
    }

    /// Whether nothing has failed for `time`.
    pub fn is_calm_for(&self, time: Duration) -> bool {
        let noted = self.noted.lock();
        noted.faults == 0 && self.history.now() >= noted.calm_since + time
    }

    /// A single gateway has lost its records.
    pub fn forgotten(&self) {
        self.noted.lock().has_forgotten = true;
    }

    /// What tells the gateway who asks may be lost.
    pub fn requesters_lost(&self) {
        self.noted.lock().requesters_lost = Some(self.history.now());
    }

    /// A process took a webhook that reports `name` of `set`, which exists.
    pub fn reported(&self, set: Set, name: &str) {
        let now = self.history.now();
        let mut noted = self.noted.lock();
        let are_known = noted.requesters_lost.is_none_or(|at| now > at + HOUR + CALM);
        if noted.faults == 0 && now >= noted.calm_since + CALM && are_known {
            noted.reported.push((set, name.to_owned(), now));
        }
    }

    /// Judges whether what webhooks reported is there, long before Argo CD asks by itself.
    fn judge_reported(&self, applications: &BTreeMap<(Set, String), String>) {
        let (now, mut noted) = (self.history.now(), self.noted.lock());
        let (faults, calm_since, noted_failing) = (noted.faults, noted.calm_since, noted.failing.clone());
        let truth = self.truth.lock();
        let mut late = Vec::new();
        noted.reported.retain(|(set, name, at)| {
            let exists = truth.of(*set, name).is_some_and(super::truth::Timeline::exists);
            // With what is gone and held, what is new is held too.
            let may_be_held = truth.lost_since(*set, at.saturating_sub(gone_within(*set)));
            let is_there = applications.contains_key(&(*set, name.clone()));
            let is_failing =
                noted_failing.as_ref().is_some_and(|failing| *set == Set::Pulls && failing.lasts_since(*at));
            if is_failing || faults > 0 || calm_since > *at || !exists || may_be_held || is_there {
                return false;
            }
            if now > *at + REPORTED_WITHIN {
                late.push(format!(
                    "{name} of {}, which a webhook reported at {}, is not there",
                    set.name(),
                    shown(*at)
                ));
            }
            true
        });
        drop((truth, noted));
        for seen in late {
            self.history.violate(Invariant::New, seen);
        }
    }

    /// An operator released the loss of `name`.
    pub fn released(&self, set: Set, name: &str) {
        self.noted.lock().released.insert((set, name.to_owned()), self.history.now());
    }

    /// Judges that Argo CD deletes an Application.
    pub fn deleted(&self, set: Set, name: &str) {
        let now = self.history.now();
        let was_gone = {
            let truth = self.truth.lock();
            truth.of(set, name).is_none_or(|timeline| timeline.was_gone_since(now.saturating_sub(HOUR)))
        };
        let key = (set, name.to_owned());
        let mut noted = self.noted.lock();
        let was_released = noted.released.get(&key).is_some_and(|at| now.saturating_sub(*at) < HOUR * 2);
        noted.deleted.insert(key, now);
        drop(noted);
        if !was_gone && !was_released {
            self.history.violate(
                Invariant::Deleted,
                format!("{name} of {} is deleted, and it was there all the last hour", set.name()),
            );
        }
    }

    /// Judges that Argo CD makes an Application.
    pub fn created(&self, set: Set, name: &str) {
        let now = self.history.now();
        let key = (set, name.to_owned());
        let (deleted, made_before, was_released) = {
            let mut noted = self.noted.lock();
            let was_released = noted.released.get(&key).is_some_and(|at| now.saturating_sub(*at) < HOUR * 2);
            let made_before = noted.created.insert(key.clone(), now).unwrap_or_default();
            (noted.deleted.get(&key).copied(), made_before, was_released)
        };
        let Some(deleted) = deleted.filter(|deleted| now.saturating_sub(*deleted) < FLAPS_WITHIN) else { return };
        let changed = self.truth.lock().of(set, name).map(|timeline| (timeline.exists(), timeline.changed()));
        // What exists must have come, or come back, after Argo CD made it before. What is gone must have gone after it was deleted.
        let is_true = changed.is_some_and(|(exists, at)| at > if exists { made_before } else { deleted });
        if !is_true && !was_released {
            let seen = format!("{name} of {} is made again, and was deleted at {}", set.name(), shown(deleted));
            self.history.violate(Invariant::MadeAgain, seen);
        }
    }

    /// Judges that Argo CD deploys a digest to the preview of `branch` in `set`, in place of the one before.
    pub fn deployed(&self, set: Set, branch: &str, before: Option<&str>, made: &str) {
        let (now, prefix) = (self.history.now(), digest(""));
        let commit = |digest: &str| digest.strip_prefix(&prefix).unwrap_or_default().to_owned();
        let (has_passed, goes_back) = {
            let truth = self.truth.lock();
            let known = truth.branch(branch);
            let at = |digest: &str| known.and_then(|branch| branch.position(&commit(digest)));
            let has_passed = known.is_some_and(|branch| branch.has_passed(&commit(made), now));
            (has_passed, before.is_some_and(|before| at(before) > at(made)))
        };
        if !has_passed {
            self.history.violate(
                Invariant::Digest,
                format!("{branch} of {} runs `{made}`, which CI did not pass for it", set.name()),
            );
        } else if goes_back {
            let before = before.unwrap_or_default();
            self.history.violate(
                Invariant::Digest,
                format!("{branch} of {} goes back from `{before}` to the older `{made}`", set.name()),
            );
        }
    }

    /// Judges which Applications there are. Called now and then.
    pub fn judge(&self, applications: &BTreeMap<(Set, String), String>) {
        self.judge_reported(applications);
        let now = self.history.now();
        let (faults, calm_since, has_forgotten) = {
            let noted = self.noted.lock();
            (noted.faults, noted.calm_since, noted.has_forgotten)
        };
        if faults > 0 {
            return;
        }
        let truth = self.truth.lock();
        let is_late = |at: Duration, within: Duration| now > at.max(calm_since) + within;
        for (set, name) in applications.keys() {
            let timeline = truth.of(*set, name);
            let gone_at =
                timeline.map_or(Some(Duration::ZERO), |timeline| (!timeline.exists()).then(|| timeline.changed()));
            if *set == Set::Pulls && !self.is_judged(name, truth.open().count()) {
                continue;
            }
            if let Some(at) = gone_at.filter(|at| is_late(*at, gone_within(*set))) {
                let seen = format!(
                    "{name} of {} is gone since {}, and nothing fails since {}",
                    set.name(),
                    shown(at),
                    shown(calm_since)
                );
                self.history.violate(Invariant::Gone, seen);
            }
        }
        for set in Set::LISTS {
            for name in truth.items(set) {
                let since = truth.of(set, &name).map_or(Duration::ZERO, super::truth::Timeline::changed);
                let key = (set, name);
                // With what is gone and held, what is new is held too.
                if !applications.contains_key(&key) && is_late(since, gone_within(set)) {
                    let (name, set) = (key.1, set.name());
                    let seen = format!(
                        "{name} of {set} is there since {}, and nothing fails since {}",
                        shown(since),
                        shown(calm_since)
                    );
                    self.history.violate(Invariant::New, seen);
                }
            }
        }
        // What may have been there before waits for an operator.
        let previewed_within = if has_forgotten { gone_within(Set::Previews) } else { seen_within(Set::Previews) };
        for (name, branch) in truth.open() {
            let Some(head) = branch.head() else { continue };
            let Some(passed) = head.passes_at.filter(|at| *at <= now) else { continue };
            let runs = applications.get(&(Set::Previews, name.clone()));
            let since = passed.max(branch.open.changed());
            if runs != Some(&digest(&head.id)) && is_late(since, previewed_within) {
                let seen = format!(
                    "{name} runs {runs:?}; CI passed {} at {}, and nothing fails since {}",
                    head.id,
                    shown(passed),
                    shown(calm_since)
                );
                self.history.violate(Invariant::New, seen);
            }
        }
        self.judge_elements(&truth, applications, calm_since);
    }
}
