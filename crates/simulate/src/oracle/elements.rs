//! What an element that fails excuses: itself. All others change as if it did not fail.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Oracle, gone_within};
use crate::{
    history::{Invariant, shown},
    truth::{Set, Truth, digest},
};

/// An element whose source fails, while nothing else does.
#[derive(Debug, Clone)]
pub(super) struct FailingElement {
    branch: String,
    since: Duration,
    /// When it was over.
    until: Option<Duration>,
}

impl FailingElement {
    /// Whether it failed at some time since `then`.
    pub(super) fn lasts_since(&self, then: Duration) -> bool {
        self.until.is_none_or(|until| until > then)
    }
}

/// An element that fails until this is dropped.
pub struct Failing(Arc<Oracle>);

impl Drop for Failing {
    fn drop(&mut self) {
        let now = self.0.history.now();
        if let Some(failing) = &mut self.0.noted.lock().failing {
            failing.until = Some(now);
        }
    }
}

impl Oracle {
    /// Begins to let the element of `branch` fail. One at a time.
    pub fn fails(self: &Arc<Self>, branch: &str) -> Failing {
        let failing = FailingElement { branch: branch.to_owned(), since: self.history.now(), until: None };
        self.noted.lock().failing = Some(failing);
        Failing(Arc::clone(self))
    }

    /// Whether an element fails alone.
    pub fn has_failing(&self) -> bool {
        self.noted.lock().failing.as_ref().is_some_and(|failing| failing.until.is_none())
    }

    /// Whether the element of `branch`, of so many in the list, must be as it truly is soon.
    pub(super) fn is_judged(&self, branch: &str, listed: usize) -> bool {
        let (now, within, noted) = (self.history.now(), gone_within(Set::Pulls), self.noted.lock());
        let Some(failing) = noted.failing.as_ref().filter(|failing| failing.lasts_since(now.saturating_sub(within)))
        else {
            return true;
        };
        // Without the last answer, all elements are needed. One of two is not more than half, and one of one is.
        listed > 1 && failing.branch != branch && noted.calm_since + within <= failing.since
    }

    /// Judges which Applications of elements there are.
    pub(super) fn judge_elements(
        &self,
        truth: &Truth,
        applications: &BTreeMap<(Set, String), String>,
        calm_since: Duration,
    ) {
        let (now, within) = (self.history.now(), gone_within(Set::Pulls));
        let listed = truth.open().count();
        for (name, branch) in truth.open().filter(|(_, branch)| branch.element.exists()) {
            let Some(head) = branch.head() else { continue };
            let Some(passed) = head.passes_at.filter(|at| *at <= now) else { continue };
            let runs = applications.get(&(Set::Pulls, name.clone()));
            let since = passed.max(branch.element.changed()).max(calm_since);
            let is_late = now > since + within;
            if is_late && runs != Some(&digest(&head.id)) && self.is_judged(name, listed) {
                let seen = format!(
                    "{name} of {} runs {runs:?}; CI passed {} at {}, and nothing else fails since {}",
                    Set::Pulls.name(),
                    head.id,
                    shown(passed),
                    shown(calm_since)
                );
                self.history.violate(Invariant::New, seen);
            }
        }
    }
}
