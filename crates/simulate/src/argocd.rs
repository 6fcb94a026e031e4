//! Argo CD's ApplicationSet controller, as its code is (v3.5.1, `applicationset/controllers/applicationset_controller.go`): each ApplicationSet is
//! reconciled after its requeue time, and three minutes after an error. Answers are read as Go reads them. Applications that are missing from an
//! answer are deleted. The controller watches the Applications that it owns: it reconciles again when one is gone or updated, also by itself.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    api::ApiServer,
    fleet::Fleet,
    history::History,
    oracle::Oracle,
    pace::Pace,
    seed::Seed,
    settings::requeue,
    truth::{Set, Truth},
};
use conformance::evaluate::{Verdict, evaluate};

/// How long after an error the controller asks again: `ReconcileRequeueOnValidationError`.
const AFTER_ERROR: Duration = Duration::from_mins(3);

/// The origin of an Application: the digest of its image, if it has one.
type Made = String;

/// The controller.
pub struct Controller {
    /// The seed of the run.
    pub seed: Seed,
    /// The gateways that answer.
    pub fleet: Arc<Fleet>,
    /// The truth. The first generator of a matrix lists the branches.
    pub truth: Arc<Mutex<Truth>>,
    /// The events.
    pub history: Arc<History>,
    /// Whether time is left out.
    pub pace: Arc<Pace>,
    /// Judges its actions.
    pub oracle: Arc<Oracle>,
    /// Its Applications.
    pub applications: Mutex<BTreeMap<(Set, String), Made>>,
    /// The API server, by which it sees that an ApplicationSet is annotated.
    pub api: Arc<ApiServer>,
}

impl Controller {
    /// Reconciles the ApplicationSet of `set` for good.
    ///
    /// The queue of controller-runtime (v0.24.1, `priorityqueue.lockedAddWithOpts`) has one item for each ApplicationSet. So an event in place of
    /// the requeue time moves the next requeue time too.
    pub async fn run(self: Arc<Self>, set: Set) {
        let mut dice = self.seed.dice(("requeue", set));
        sleep(Duration::from_millis(dice.u64(8_000..60_000))).await;
        // When it sees what it did to Applications.
        let mut events: Vec<Instant> = Vec::new();
        loop {
            let busy = self.pace.busy().await;
            let began = Instant::now();
            events.retain(|seen| *seen > began);
            let requeue = match self.generate(set).await {
                Ok(wanted) => {
                    self.history.count("reconciled");
                    let seen = self.apply(set, wanted).events(&mut dice);
                    events.extend(seen.into_iter().map(|after| Instant::now() + after));
                    requeue(set)
                }
                Err(why) => {
                    self.history.count("reconciled with an error");
                    self.history.say(format!("ApplicationSet {} keeps what it has: {why}", set.name()));
                    AFTER_ERROR
                }
            };
            drop(busy);
            let requeue = Instant::now() + requeue + Duration::from_millis(dice.u64(..2000));
            let next = events.iter().fold(requeue, |next, seen| next.min(*seen));
            let _ = timeout_at(next, self.api.annotated(set)).await;
        }
    }

    /// The Applications that the generators of `set` want, by name.
    async fn generate(&self, set: Set) -> Result<BTreeMap<String, Made>, String> {
        if set != Set::Previews {
            // The plugin generator alone.
            return self.ask(set, json!({"set": set.name()})).await;
        }
        let branches: Vec<(String, String)> = {
            let truth = self.truth.lock();
            let heads = truth.open().filter_map(|(name, branch)| Some((name.clone(), branch.head()?.id.clone())));
            heads.collect()
        };
        let mut all = BTreeMap::new();
        for (branch, commit) in branches {
            // The first error ends the whole matrix.
            all.extend(self.ask(set, json!({"branch": branch, "commit": commit})).await?);
        }
        Ok(all)
    }

    /// One call of the plugin generator.
    async fn ask(&self, set: Set, parameters: serde_json::Value) -> Result<BTreeMap<String, Made>, String> {
        self.history.count("call");
        let (status, body) = self.fleet.call(set, parameters).await?;
        let text =
            |value: Option<&serde_json::Value>| value.and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        match evaluate(status, &[], &body) {
            Verdict::Parameters(sets) => {
                Ok(sets.iter().map(|set| (text(set.get("name")), text(set.get("digest")))).collect())
            }
            Verdict::ExplicitlyEmpty => Ok(BTreeMap::new()),
            Verdict::AccidentallyEmpty { why } => {
                self.history.say(format!("an answer for {} is empty by accident: {why}", set.name()));
                Ok(BTreeMap::new())
            }
            Verdict::Error { condition, .. } => Err(condition),
        }
    }

    /// Creates, updates and deletes Applications.
    fn apply(&self, set: Set, wanted: BTreeMap<String, Made>) -> Changed {
        let mut applications = self.applications.lock();
        let own = applications.keys().filter(|(of, _)| *of == set).map(|(_, name)| name.clone());
        let gone: Vec<String> = own.filter(|name| !wanted.contains_key(name)).collect();
        let (mut done, mut changed) = (String::new(), Changed { deleted: gone.len(), updated: 0 });
        for name in gone {
            applications.remove(&(set, name.clone()));
            let _ = write!(done, " deletes {name},");
            self.history.count("Application deleted");
            self.oracle.deleted(set, &name);
        }
        for (name, made) in wanted {
            let before = applications.insert((set, name.clone()), made.clone());
            if before.is_none() {
                let _ = write!(done, " creates {name},");
                self.history.count("Application created");
                self.oracle.created(set, &name);
            } else if before.as_ref() != Some(&made) {
                let _ = write!(done, " updates {name} to {made},");
                self.history.count("Application updated");
                changed.updated += 1;
            }
            if before.as_ref() != Some(&made) && set.has_digests() {
                self.oracle.deployed(set, &name, before.as_deref(), &made);
            }
        }
        drop(applications);
        if !done.is_empty() {
            self.history.say(format!("Argo CD, for {}:{}", set.name(), done.trim_end_matches(',')));
        }
        changed
    }
}

/// How many Applications the controller changed.
struct Changed {
    deleted: usize,
    updated: usize,
}

impl Changed {
    /// After how long it sees each of its changes, and reconciles for it: `getApplicationOwnsHandler` and `shouldRequeueForApplication`.
    /// A new Application is no reason. A deleted one is gone a moment or a second later, an update is seen at once.
    fn events(&self, dice: &mut Rng) -> Vec<Duration> {
        let gone = (0..self.deleted).map(|_| 9);
        let updated = (0..self.updated).map(|_| 4);
        gone.chain(updated).map(|most| Duration::from_millis(5 << dice.u32(..most))).collect()
    }
}
