//! Follows the notices of runs, and passes them to Argo CD: ApplicationSets that were served something else are refreshed, and Kubernetes Events show
//! what the gateway holds.

mod queue;

use std::{collections::HashMap, hash::BuildHasher as _, sync::Arc, time::Duration};

use foldhash::quality::FixedState;
use tokio::{
    sync::mpsc::Receiver,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use self::queue::{Refresh, RefreshEnd, RefreshQueue};
use crate::Push;
use argocd::{Argocd, Cause, EventReason, Refreshed, SetEvent};
use domain::lifecycle::Phase;
use engine::{
    replication::refreshes::{LeftRefresh, SeenNotes},
    state::notices::{Notice, What},
};

/// How many notices are handled at once.
const AT_ONCE: usize = 16;
/// How often other replicas are notified of requesters.
const PUBLISHED_EVERY: Duration = Duration::from_millis(250);
/// How often the store is read for refreshes that an ended replica has left.
const LEFT_EVERY: Duration = Duration::from_secs(5);
/// How long the task continues after [`Phase::Closing`], for the refreshes that are due by then.
const FINISHED_WITHIN: Duration = Duration::from_secs(3);
/// How long the task sleeps when no refresh waits.
const IDLE: Duration = Duration::from_hours(1);

/// The refreshes that this replica makes in place of ended ones, by ApplicationSet: their names in the store.
type TakenRefreshes = HashMap<Arc<str>, Vec<String>>;

impl Push {
    /// Notifies ApplicationSets of another answer. Returns soon after [`Phase::Closing`], when all that was due is done. What waits
    /// for another attempt is left to other replicas.
    pub async fn follow_notices(self: &Arc<Self>) {
        let (mut notices, mut queue) = (self.follow_engine(), RefreshQueue::default());
        let (mut concerned, mut refreshes) = (JoinSet::<(Vec<_>, _)>::new(), JoinSet::new());
        let mut closing = std::pin::pin!(self.lifecycle.reached(Phase::Closing));
        let mut left = std::pin::pin!(self.left_refreshes(SeenNotes::new()));
        let (mut taken, mut until) = (TakenRefreshes::new(), None);
        loop {
            while let Some((name, refresh)) = queue.next(Instant::now()) {
                let push = Arc::clone(self);
                refreshes.spawn(async move { (push.refresh(&name, &refresh.refreshed).await, name, refresh) });
            }
            let now = Instant::now();
            if until.is_some_and(|until| {
                now >= until || (notices.is_empty() && concerned.is_empty() && refreshes.is_empty())
            }) {
                return self.leave_refreshes(queue, notices.len() + concerned.len()).await;
            }
            let next = queue.next_at().into_iter().chain(until).min().unwrap_or(now + IDLE);
            // In a fixed order, so that a simulated history is the same each time. Notices may come without an end, so they come late.
            tokio::select! {
                biased;
                () = &mut closing, if until.is_none() => until = Some(Instant::now() + FINISHED_WITHIN),
                (refreshes, seen) = &mut left, if until.is_none() => {
                    self.take_over(&mut queue, &mut taken, refreshes);
                    left.set(self.left_refreshes(seen));
                }
                Some(Ok((names, change))) = concerned.join_next() => {
                    self.want(&mut queue, &names, change);
                }
                Some(Ok((result, name, refresh))) = refreshes.join_next() => {
                    let end = self.note_refresh(&mut queue, Arc::clone(&name), refresh, &result);
                    self.finish_taken(&mut taken, &name, end);
                }
                Some(notice) = notices.recv(), if concerned.len() < AT_ONCE => {
                    let push = Arc::clone(self);
                    concerned.spawn(async move { push.concerned_sets(notice).await });
                }
                () = sleep_until(next) => {}
            }
        }
    }

    /// The notices of the engine. Those that do not fit into the queue are counted.
    fn follow_engine(&self) -> Receiver<Notice> {
        let metrics = self.metrics.refreshes.clone();
        self.engine.notices(move || metrics.dropped(1))
    }

    fn want(&self, queue: &mut RefreshQueue, names: &[Arc<str>], change: u64) {
        for name in names {
            if !queue.want(name, change, Instant::now()) {
                self.metrics.refreshes.dropped(1);
            }
        }
    }

    /// Waits, and takes the refreshes that ended replicas have left. Also returns the notes from the store. Takes nothing when it is
    /// about to end itself.
    async fn left_refreshes(&self, mut seen: SeenNotes) -> (Vec<LeftRefresh>, SeenNotes) {
        sleep(LEFT_EVERY).await;
        if self.current().argocd.is_none() || self.lifecycle.phase() > Phase::Serving {
            return (Vec::new(), seen);
        }
        let left = self.engine.left_refreshes(&mut seen).await;
        if !left.is_empty() {
            tracing::info!(count = left.len(), "refreshing ApplicationSets in place of a replica that has ended");
        }
        (left, seen)
    }

    fn take_over(&self, queue: &mut RefreshQueue, taken: &mut TakenRefreshes, left: Vec<LeftRefresh>) {
        let change = FixedState::default().hash_one(Instant::now());
        for LeftRefresh { name, receipt } in left {
            self.want(queue, std::slice::from_ref(&name), change);
            taken.entry(name).or_default().push(receipt);
        }
    }

    /// Notes for other replicas that the refreshes of `name` that this one took are over. Until then, they take them over if this one is
    /// killed. In the background: the store may be slow.
    fn finish_taken(self: &Arc<Self>, taken: &mut TakenRefreshes, name: &str, end: RefreshEnd) {
        let Some(receipts) = (end != RefreshEnd::Again).then(|| taken.remove(name)).flatten() else { return };
        let push = Arc::clone(self);
        tokio::spawn(async move {
            for receipt in receipts {
                push.engine.note_refreshed(&receipt).await;
            }
        });
    }

    /// Leaves the refreshes in `queue` to other replicas. So many `notices` were not handled.
    async fn leave_refreshes(&self, queue: RefreshQueue, notices: usize) {
        self.metrics.refreshes.dropped(notices);
        let names = queue.into_names();
        if names.is_empty() {
            return;
        }
        let count = names.len();
        if self.engine.leave_refreshes(&names).await {
            tracing::info!(count, "ApplicationSets are refreshed by another replica");
        } else {
            self.metrics.refreshes.dropped(count);
            tracing::warn!(count, "ApplicationSets were not refreshed before the end");
        }
    }

    /// Publishes requesters to the file and to other replicas. Returns at [`Phase::Ended`], with the last callers published too.
    pub async fn publish_requesters(&self) {
        let mut ended = std::pin::pin!(self.lifecycle.reached(Phase::Ended));
        let mut ticks = interval(PUBLISHED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_last = tokio::select! {
                biased;
                () = &mut ended => true,
                _ = ticks.tick() => false,
            };
            if self.current().argocd.is_some() {
                self.engine.publish_requesters().await;
            }
            if is_last {
                return;
            }
        }
    }

    /// The ApplicationSets that are to ask again after `notice`, and a hash of the change. Also writes Kubernetes Events.
    async fn concerned_sets(&self, Notice { key, question, what }: Notice) -> (Vec<Arc<str>>, u64) {
        let current = self.current();
        let Some(argocd) = &current.argocd else { return Default::default() };
        let (cause, event) = cause_and_event(what);
        if let Some(event) = event {
            let event = SetEvent { message: format!("route {}: {}", question.route, event.message), ..event };
            for name in self.engine.all_requesters(&question, &key).await {
                self.record(argocd, &name, &event).await;
            }
        }
        match cause.filter(|cause| argocd.follows(*cause)) {
            Some(cause) => {
                let (names, change) = self.engine.served_other(&current.routes, &question).await;
                if let Cause::Events = cause {
                    self.deliveries.refresh_after(&key, &names);
                }
                (names, change)
            }
            None => Default::default(),
        }
    }

    async fn record(&self, argocd: &Argocd, name: &str, event: &SetEvent) {
        let result = argocd.record(name, event, self.now()).await;
        self.metrics.refreshes.recorded(result.is_ok());
        if let Err(error) = result {
            tracing::warn!(application_set = name, %error, "a Kubernetes Event could not be written");
        }
    }

    async fn refresh(&self, name: &str, refreshed: &[Arc<str>]) -> Refreshed {
        match &self.current().argocd {
            Some(argocd) => argocd.refresh(name, refreshed).await,
            None => Refreshed::Unknown,
        }
    }

    fn note_refresh(
        &self,
        queue: &mut RefreshQueue,
        name: Arc<str>,
        refresh: Refresh,
        result: &Refreshed,
    ) -> RefreshEnd {
        let application_set = Arc::clone(&name);
        let waited = refresh.since.elapsed();
        let end = queue.ended(name, refresh, result, Instant::now());
        self.metrics.refreshes.ended(result.as_str(), waited);
        match (result, &end) {
            (Refreshed::Annotated(_), _) => {
                if let Some(after) = self.deliveries.refreshed(&application_set) {
                    self.metrics.refreshes.after_event(after);
                }
            }
            (Refreshed::Unknown, _) | (_, RefreshEnd::GivenUp) => self.deliveries.not_refreshed(&application_set),
            _ => {}
        }
        match (result, end) {
            (Refreshed::Annotated(count), _) => {
                tracing::info!(%application_set, count, "the ApplicationSet was refreshed");
            }
            (Refreshed::Unlisted(_), _) => {
                tracing::debug!(%application_set, "the list of ApplicationSets is read again first");
            }
            (Refreshed::Unknown, _) => tracing::debug!(
                %application_set,
                "no ApplicationSet of this name in `argocd.refresh.namespaces` asks this gateway by one of `argocd.refresh.configMaps`"
            ),
            (Refreshed::Failed { error, .. }, RefreshEnd::GivenUp) => {
                self.metrics.refreshes.dropped(1);
                tracing::error!(%application_set, error, "the ApplicationSet is not refreshed; Argo CD calls at its next interval");
            }
            (Refreshed::Failed { error, .. }, _) => {
                tracing::warn!(%application_set, error, "the ApplicationSet could not be refreshed; it is tried again");
            }
        }
        end
    }
}

/// Why ApplicationSets are to ask again after `what`, if they are, and the event on them.
fn cause_and_event(what: What) -> (Option<Cause>, Option<SetEvent>) {
    let event = |reason, message: String| (None, Some(SetEvent { reason, element: None, message }));
    let of_element =
        |reason, element: String, message| (None, Some(SetEvent { reason, element: Some(element), message }));
    match what {
        What::Rechecked => (Some(Cause::Events), None),
        What::Renewed => (Some(Cause::Renewals), None),
        What::Released => (Some(Cause::Releases), None),
        What::Held(why) => event(EventReason::AnswerHeld, why),
        What::HoldEnded(why) => event(EventReason::AnswerReleased, why.to_owned()),
        What::Confirmed(what) => event(EventReason::AnswerConfirmed, what),
        What::Failing(why) => event(EventReason::SourceFailing, why),
        What::Recovered => event(EventReason::SourceRecovered, "the source answers again".to_owned()),
        What::ElementUnknown { element, why } => {
            let message = format!("element {element} has been unknown for more than an hour: {why}");
            of_element(EventReason::ElementUnknown, element, message)
        }
        What::ElementKnown { element } => {
            let message = format!("element {element} is known again");
            of_element(EventReason::ElementRecovered, element, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;
    use tracing_subscriber::{fmt, layer::SubscriberExt as _};

    use super::*;
    use crate::Current;
    use domain::clock::SystemClock;
    use engine::{
        answer::Engine,
        cache::{CacheLimits, Memory},
        route::RouteTable,
    };
    use telemetry::metrics::Metrics;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn giving_up_is_logged_and_counted() {
        let (clock, metrics) = (Arc::new(SystemClock), Arc::new(Metrics::new().unwrap()));
        let memory = Memory::new(&CacheLimits::default());
        let engine = Arc::new(Engine::new(memory, None, Arc::clone(&clock) as _, Arc::clone(&metrics)));
        let current = Current { routes: Arc::new(RouteTable::new(Vec::new())), argocd: None };
        let push = Push::new(engine, metrics, clock, Arc::default(), current);
        let right = "403; the gateway's service account needs the right to patch applicationsets.argoproj.io";
        let refused = Refreshed::Failed { error: right.to_owned(), after: None, refreshed: Vec::new() };
        let (mut queue, log, mut attempts) = (RefreshQueue::default(), Log::default(), 0);
        queue.want(&"a".into(), 1, Instant::now());
        let writer = log.clone();
        let layer = fmt::layer().with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            while let Some((name, refresh)) = queue.next(Instant::now() + Duration::from_hours(1)) {
                push.note_refresh(&mut queue, name, refresh, &refused);
                attempts += 1;
            }
        });
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        assert_eq!((count("ERROR"), count("WARN"), count(right)), (1, attempts - 1, attempts), "{log}");
        assert!(log.lines().last().is_some_and(|line| line.contains("is not refreshed")), "{log}");
        let exposed = String::from_utf8(push.metrics.encode().unwrap()).unwrap();
        assert!(exposed.contains("appset_gateway_refreshes_dropped_total 1\n"), "{exposed}");
        assert!(exposed.contains(&format!("refreshes_total{{result=\"failed\"}} {attempts}\n")), "{exposed}");
    }
}
