//! The senders of webhooks: what they report may come before its source has it, late, twice, or never.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tokio::time::sleep;

use super::World;
use crate::{plan::Delivery, truth::Set};
use domain::generator::Selector;

/// For how long a process rechecks after an event, with some seconds more.
const FOLLOWED: Duration = Duration::from_secs(80);

impl World {
    /// Something new comes to exist, and a webhook reports it.
    pub(super) async fn report(&self, set: Set, delivery: Delivery, mut dice: Rng) {
        if set == Set::Previews {
            return self.report_build(delivery, &mut dice).await;
        }
        let (id, selector) = (self.delivery_id(), Selector { route: Some(self.route(set)), ..Selector::default() });
        if let Delivery::Early(before) = delivery {
            let _busy = self.pace.busy().await;
            self.deliver(&id, &selector, delivery).await;
            sleep(Duration::from_secs(before)).await;
        }
        let name = self.add(set, &mut dice);
        self.history.say(format!("{name} exists"));
        Self::come_late(delivery).await;
        let _busy = self.pace.busy().await;
        let is_taken = matches!(delivery, Delivery::Early(_)) || self.deliver(&id, &selector, delivery).await;
        if is_taken {
            self.oracle.reported(set, &name);
        }
        sleep(FOLLOWED).await;
    }

    /// One more item of a list exists, or a pull request that CI has passed.
    fn add(&self, set: Set, dice: &mut Rng) -> String {
        let (now, mut truth) = (self.history.now(), self.truth.lock());
        if set != Set::Pulls {
            return truth.add(set, now, dice);
        }
        let name = truth.open_branch(now);
        truth.push(&name, Some(now));
        name
    }

    /// A commit is pushed, and CI reports that it passed.
    async fn report_build(&self, delivery: Delivery, dice: &mut Rng) {
        let builds = Duration::from_secs(dice.u64(120..900));
        let pushed = {
            let (now, mut truth) = (self.history.now(), self.truth.lock());
            let open: Vec<String> = truth.open().map(|(name, _)| name.clone()).collect();
            if open.is_empty() {
                return;
            }
            let branch = open[dice.usize(..open.len())].clone();
            let commit = truth.push(&branch, Some(now + builds));
            (branch, commit)
        };
        let (branch, commit) = pushed;
        self.history.say(format!("{branch} has {commit}"));
        let early = if let Delivery::Early(before) = delivery { Duration::from_secs(before) } else { Duration::ZERO };
        sleep(builds.saturating_sub(early)).await;
        Self::come_late(delivery).await;
        let parameters = json!({"branch": branch, "commit": commit});
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let _busy = self.pace.busy().await;
        self.deliver(&self.delivery_id(), &Selector { parameters, ..Selector::default() }, delivery).await;
        sleep(early + FOLLOWED).await;
    }

    async fn come_late(delivery: Delivery) {
        if let Delivery::Late(later) = delivery {
            sleep(Duration::from_secs(later)).await;
        }
    }

    fn route(&self, set: Set) -> String {
        self.fleet.settings().route(set)
    }

    /// The id of a delivery that is sent now.
    fn delivery_id(&self) -> String {
        self.history.now().as_millis().to_string()
    }

    /// Sends a delivery as `delivery` wants it. Returns whether a process has taken it.
    async fn deliver(&self, id: &str, selector: &Selector, delivery: Delivery) -> bool {
        let times = match delivery {
            Delivery::Lost => {
                self.history.say("… and the delivery is lost");
                return false;
            }
            Delivery::Twice(_) => 2,
            Delivery::InTime | Delivery::Early(_) | Delivery::Late(_) => 1,
        };
        let mut is_taken = false;
        for time in 0..times {
            if let (1, Delivery::Twice(after)) = (time, delivery) {
                sleep(Duration::from_secs(after)).await;
            }
            self.watched.lock().acted = self.history.now();
            self.history.count("delivery");
            let outcome = self.fleet.deliver(id.to_owned(), selector.clone()).await;
            self.history.say(format!("the delivery {id}: {}", outcome.unwrap_or("it does not arrive")));
            is_taken |= outcome == Some("taken");
        }
        is_taken
    }
}
