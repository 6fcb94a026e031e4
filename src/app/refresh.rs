//! Follows the notices of runs, and tells Argo CD: ApplicationSets that were given something else ask again, and Kubernetes Events show
//! what the gateway holds.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::App;
use crate::{
    argocd::{Argocd, Cause, EventReason, Refresh, RefreshEnd, RefreshQueue, Refreshed},
    domain::lifecycle::Phase,
    engine::answer::notices::{Notice, What},
};

/// How many notices are looked into at once.
const AT_ONCE: usize = 16;
/// How often other replicas are told who asked.
const PUBLISHED_EVERY: Duration = Duration::from_millis(250);
/// How long the task sleeps when no refresh waits.
const IDLE: Duration = Duration::from_hours(1);

impl App {
    /// Tells ApplicationSets that there is another answer. Returns when the gateway drains.
    pub async fn follow_notices(self: &Arc<Self>) {
        let (mut notices, mut queue) = (self.engine.notices(), RefreshQueue::default());
        let (mut concerned, mut refreshes) = (JoinSet::new(), JoinSet::new());
        let mut draining = std::pin::pin!(self.lifecycle.reached(Phase::Draining));
        let mut publishing = std::pin::pin!(self.publish_askers());
        loop {
            while let Some((name, refresh)) = queue.next(Instant::now()) {
                let app = Arc::clone(self);
                refreshes.spawn(async move { (app.refresh(&name, &refresh.told).await, name, refresh) });
            }
            let next = queue.next_at().unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                () = &mut draining => return,
                Some(notice) = notices.recv(), if concerned.len() < AT_ONCE => {
                    let app = Arc::clone(self);
                    concerned.spawn(async move { app.concerned_sets(notice).await });
                }
                Some(Ok((names, change))) = concerned.join_next() => {
                    for name in &names {
                        if !queue.want(name, change, Instant::now()) {
                            self.metrics.refreshes.dropped();
                        }
                    }
                }
                Some(Ok((result, name, refresh))) = refreshes.join_next() => {
                    self.note_refresh(&mut queue, name, refresh, &result);
                }
                () = &mut publishing => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Tells the file and other replicas who asked what. Never returns.
    async fn publish_askers(&self) {
        let mut ticks = interval(PUBLISHED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.setup().argocd.is_some() {
                self.engine.publish_askers().await;
            }
        }
    }

    /// The ApplicationSets that are to ask again after `notice`, and a hash of the change. Also writes Kubernetes Events.
    async fn concerned_sets(&self, Notice { key, question, what }: Notice) -> (Vec<Arc<str>>, u64) {
        let setup = self.setup();
        let Some(argocd) = &setup.argocd else { return Default::default() };
        let (cause, event) = match what {
            What::Looked => (Some(Cause::Events), None),
            What::Renewed => (Some(Cause::Renewals), None),
            What::Released => (Some(Cause::Releases), None),
            What::Held(why) => (None, Some((EventReason::AnswerHeld, why))),
            What::HoldEnded(why) => (None, Some((EventReason::AnswerReleased, why.to_owned()))),
            What::Failing(why) => (None, Some((EventReason::SourceFailing, why))),
            What::Recovered => (None, Some((EventReason::SourceRecovered, "the source answers again".to_owned()))),
        };
        if let Some((reason, why)) = event {
            let message = format!("route {}: {why}", question.route);
            for name in self.engine.all_askers(&question, &key).await {
                self.record(argocd, &name, reason, &message).await;
            }
        }
        match cause.filter(|cause| argocd.follows(*cause)) {
            Some(_) => self.engine.given_other(&setup.routes, &question).await,
            None => Default::default(),
        }
    }

    async fn record(&self, argocd: &Argocd, name: &str, reason: EventReason, message: &str) {
        let result = argocd.record(name, reason, message).await;
        self.metrics.refreshes.recorded(result.is_ok());
        if let Err(error) = result {
            tracing::warn!(application_set = name, %error, "a Kubernetes Event could not be written");
        }
    }

    async fn refresh(&self, name: &str, told: &[Arc<str>]) -> Refreshed {
        match &self.setup().argocd {
            Some(argocd) => argocd.refresh(name, told).await,
            None => Refreshed::Unknown,
        }
    }

    fn note_refresh(&self, queue: &mut RefreshQueue, name: Arc<str>, refresh: Refresh, result: &Refreshed) {
        let application_set = Arc::clone(&name);
        let waited = refresh.since.elapsed();
        let end = queue.ended(name, refresh, result, Instant::now());
        self.metrics.refreshes.ended(result.as_str(), waited);
        match (result, end) {
            (Refreshed::Annotated(count), _) => {
                tracing::info!(%application_set, count, "the ApplicationSet was told that there is another answer");
            }
            (Refreshed::Unlisted(_), _) => {
                tracing::debug!(%application_set, "the list of ApplicationSets is read again first");
            }
            (Refreshed::Unknown, _) => tracing::debug!(
                %application_set,
                "no ApplicationSet of this name in `argocd.refresh.namespaces` asks this gateway by one of `argocd.refresh.configMaps`"
            ),
            (Refreshed::Failed { error, .. }, RefreshEnd::GivenUp) => {
                self.metrics.refreshes.dropped();
                tracing::error!(%application_set, error, "the ApplicationSet is not told; Argo CD asks when it is its time");
            }
            (Refreshed::Failed { error, .. }, _) => {
                tracing::warn!(%application_set, error, "the ApplicationSet could not be told; it is tried again");
            }
        }
    }
}
