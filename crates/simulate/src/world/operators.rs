//! The operators: they decide on held answers, and invalidate answers.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::World;
use crate::{
    process::operator,
    settings::Settings,
    truth::{Branch, Set},
};
use domain::generator::Selector;
use engine::{
    cache::KeyStart,
    guard::{Decision, Held},
};

/// How often an operator looks at held answers where only an operator accepts a loss.
const TENDED_EVERY: Duration = Duration::from_mins(20);

impl World {
    /// An operator rejects for forty minutes held answers of `set` that are not true.
    pub(super) async fn reject(&self, set: Set) {
        for _ in 0..60 {
            sleep(Duration::from_secs(40)).await;
            self.controller.api.annotate(set);
            if !self.fleet.processes().iter().all(|process| process.is_in_contact()) {
                // Nobody can decide then, and further runs confirm the lie.
                return;
            }
            self.decide(set, Decision::Rejected, |held| held.decision.is_none() && !self.is_true(set, held)).await;
        }
    }

    pub(super) async fn invalidate(&self, set: Set) {
        let selector = Selector { route: Some(self.fleet.settings().route(set)), ..Selector::default() };
        let Some(process) = self.fleet.processes().into_iter().find(|process| process.is_in_contact()) else { return };
        if process.engine.publish_invalidation(&selector).await.is_ok() {
            process.engine.invalidate(&process.routes(), &selector, &operator());
        }
    }

    /// An operator decides on held answers of `set` that fit. Returns whether there was one.
    pub(super) async fn decide(&self, set: Set, decision: Decision, fits: impl Fn(&Held) -> bool) -> bool {
        let found = self.fleet.processes().into_iter().find(|process| process.is_in_contact());
        let Some(process) = found else { return false };
        let route = self.fleet.settings().route(set);
        let mut held = process.engine.held();
        held.retain(|(_, held)| *held.question.route == *route && fits(held));
        held.sort_by_key(|(lineage, _)| *lineage.as_bytes());
        let has_some = !held.is_empty();
        for (lineage, held) in held {
            if decision == Decision::Released && !self.is_true(set, &held) {
                // What else is gone by now counts as meant too.
                let applications = self.controller.applications.lock();
                let own = applications.keys().filter(|(of, _)| *of == set);
                own.for_each(|(_, name)| self.oracle.released(set, name));
            }
            let (id, fingerprint, by, routes) =
                (KeyStart::from(lineage), held.fingerprint(), operator(), process.routes());
            let decided = process.engine.decide(&routes, &id, Some(&fingerprint), decision, &by).await;
            let result = decided.map(|_| ()).map_err(|why| format!("{why:?}"));
            self.history.count(if decision == Decision::Released { "release" } else { "rejection" });
            self.history.say(format!("an operator has {decision:?} {} sets of {}: {result:?}", held.sets, set.name()));
        }
        has_some
    }

    /// An operator looks at losses that only an operator accepts, and releases those that are true.
    pub(super) async fn tend(self: Arc<Self>) {
        loop {
            sleep(TENDED_EVERY).await;
            if !self.fleet.processes().iter().any(|process| process.engine.held_count() > 0) {
                continue;
            }
            let _busy = self.pace.busy().await;
            // The first held answer ends a matrix, so the next one shows when the ApplicationSet was reconciled again.
            while self.tend_once().await {
                self.controller.api.annotate(Set::Previews);
                sleep(Duration::from_mins(1)).await;
            }
        }
    }

    /// Releases true answers. Returns whether there was one.
    pub(super) async fn tend_once(&self) -> bool {
        let mut has_decided = false;
        for set in Set::ALL.into_iter().filter(|set| Settings::confirmed(*set) == 0) {
            has_decided |= self.decide(set, Decision::Released, |held| self.is_true(set, held)).await;
        }
        has_decided
    }

    /// Whether a held answer is true.
    fn is_true(&self, set: Set, held: &Held) -> bool {
        let truth = self.truth.lock();
        if set != Set::Previews {
            let elements = || truth.elements(self.history.now()).map(|(name, _)| name.clone()).collect();
            let there: Vec<String> = if set == Set::Pulls { elements() } else { truth.items(set) };
            return held.sets == there.len() && held.breach.gone.iter().all(|name| !there.contains(name));
        }
        let text = |name: &str| held.question.parameters.get(name).and_then(|value| value.as_str()).unwrap_or_default();
        // As long as CI has built no commit, a preview truly has nothing.
        let built = |branch: &Branch| branch.last_passed(text("commit"), self.history.now()).is_some();
        truth.branch(text("branch")).is_some_and(|branch| held.sets == usize::from(built(branch)))
    }
}
