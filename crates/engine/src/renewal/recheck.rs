//! Events: which known questions they concern, and the recheck of these. Its answers pass the guard as all answers do.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    answer::{
        Engine,
        live::{live, live_under},
    },
    cache::{Disk, Entry, Key},
    failure::Failure,
    route::RouteTable,
    run::{Wanted, wait},
    state::notices::What,
};
use domain::generator::{Evidence, Question, Selector};
use flight::FlightJoin;
use hooks::{Others, Subjects};
use store::StoreError;

/// The result of a recheck after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recheck {
    /// There is another answer than before.
    Changed,
    /// The answer is the same.
    Unchanged,
    /// The guard holds the answer.
    Held,
    /// There is no answer.
    Failed,
    /// The source wants no calls for this time.
    Backoff(Duration),
}

impl Recheck {
    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Held => "held",
            Self::Failed | Self::Backoff(_) => "failed",
        }
    }
}

/// The result of a recheck.
#[derive(Debug)]
pub struct Rechecked {
    /// The result.
    pub result: Recheck,
    /// The answer, if there is one.
    pub entry: Option<Arc<Entry>>,
}

impl From<Recheck> for Rechecked {
    fn from(result: Recheck) -> Self {
        Self { result, entry: None }
    }
}

impl Engine {
    /// The questions that `subjects` concern, answered or not, by their keys, with the subjects without a digest: those in memory, and with
    /// `everywhere` also those on disk, which reads the whole file.
    #[must_use]
    pub fn concerned(
        &self,
        routes: &RouteTable,
        subjects: &Subjects,
        everywhere: bool,
    ) -> HashMap<Key, (Question, Others)> {
        let (mut found, search) = (HashMap::new(), subjects.search());
        let concerned = |texts: &[&str], evidence: &[Evidence], open: &dyn Fn() -> Question| {
            // A hook may select by the name that the route has now.
            let open = || {
                let question = open();
                let route = routes.by_any_name(&question.route).map(|route| Arc::clone(&route.name));
                Question { route: route.unwrap_or(question.route), ..question }
            };
            search.concerns(texts, evidence, open).then(|| {
                let question = open();
                let others = subjects.others(texts, evidence, &question);
                (question, others)
            })
        };
        for (key, listed) in self.answers().disk().filter(|_| everywhere).map(Disk::list).into_iter().flatten() {
            let [parameters, part] = texts_of(&listed.question);
            let concern = concerned(&[&parameters, &part], &listed.evidence, &|| listed.question.clone());
            found.extend(concern.map(|concern| (key, concern)));
        }
        for (key, entry) in self.answers().memory().iter() {
            let (packed, evidence) = (&entry.question, &entry.evidence);
            let concern =
                concerned(&[packed.parameters(), packed.part().unwrap_or_default()], evidence, &|| packed.open());
            found.extend(concern.map(|concern| (key, concern)));
        }
        for (key, failed) in self.known.failing.all() {
            let question = &failed.question;
            let [parameters, part] = texts_of(question);
            let concern = concerned(&[&parameters, &part], failed.failure.evidence(), &|| question.clone());
            found.extend(concern.map(|concern| (key, concern)));
        }
        // The record of a lineage is a copy of a question's answer.
        let with_name = |(key, (question, others)): (Key, (Question, Others))| {
            let resolved = live_under(routes, &question, &key)?;
            Some((key, (resolved.question, others)))
        };
        found.into_iter().filter_map(with_name).collect()
    }

    /// Calls the backend for `question` again, whatever is remembered of it. A run that is under way may have begun too early, so it does
    /// not count.
    ///
    /// # Errors
    /// When replicas share a store, and it does not answer.
    pub async fn recheck(&self, routes: &RouteTable, question: &Question) -> Result<Rechecked, StoreError> {
        let Some(mut resolved) = live(routes, question) else { return Ok(Recheck::Failed.into()) };
        let backoff = self.known.failing.backoff(&resolved.key, self.clock.now());
        if let Some((_, left)) = backoff.filter(|(backoff, _)| backoff.failure.failure.retry_after().is_some()) {
            // An event is no reason to call it.
            return Ok(Recheck::Backoff(left).into());
        }
        resolved.query.must_ask = true;
        self.expire_only(routes, question, resolved.query.deadline).await?;
        let before = self.answers().get(&resolved.key);
        let (key, deadline, now) = (resolved.key, resolved.query.deadline, self.clock.now());
        let queried_at = before.as_ref().map_or(now, |entry| entry.queried_at);
        let finished = match self.join(&Arc::new(resolved), Wanted::Event(queried_at)) {
            FlightJoin::Finished(finished) => finished,
            FlightJoin::Joined(result) | FlightJoin::Started(result) => wait(result, deadline).await,
        };
        self.known.notices.send(key, question, || What::Rechecked);
        let rechecked = match finished {
            Ok(entry) => {
                let is_same = before.is_some_and(|before| before.encoded.body() == entry.encoded.body());
                let result = if is_same { Recheck::Unchanged } else { Recheck::Changed };
                Rechecked { result, entry: Some(entry) }
            }
            Err(Failure::Held(_)) => Recheck::Held.into(),
            Err(_) => Recheck::Failed.into(),
        };
        if question.part.is_some() && rechecked.result == Recheck::Changed {
            return Ok(self.make_whole(routes, &question.whole(), rechecked).await);
        }
        Ok(rechecked)
    }

    /// Makes the answer to `whole` again after a part of it was `rechecked`. Its other parts are queried only if they are due.
    async fn make_whole(&self, routes: &RouteTable, whole: &Question, rechecked: Rechecked) -> Rechecked {
        let Some(resolved) = live(routes, whole) else { return rechecked };
        let (now, deadline) = (self.clock.now(), resolved.query.deadline);
        let (key, queried_at) = (resolved.key, self.answers().get(&resolved.key).map_or(now, |entry| entry.queried_at));
        let finished = match self.join(&Arc::new(resolved), Wanted::Event(queried_at)) {
            FlightJoin::Finished(finished) => finished,
            FlightJoin::Joined(result) | FlightJoin::Started(result) => wait(result, deadline).await,
        };
        // Callers ask for the whole, so a notice about the part refreshes nobody.
        self.known.notices.send(key, whole, || What::Rechecked);
        match finished {
            Ok(_) => rechecked,
            Err(Failure::Held(_)) => Recheck::Held.into(),
            Err(_) => Recheck::Failed.into(),
        }
    }

    /// Makes the next run call the backend for `question`, at all replicas.
    async fn expire_only(&self, routes: &RouteTable, question: &Question, until: Instant) -> Result<(), StoreError> {
        let formerly = routes.by_any_name(&question.route).map_or(&[][..], |route| route.formerly());
        let selector = Selector::only(question).also_named(formerly);
        self.known.peers.publish_invalidation(&selector).await?;
        if let Some(replica) = self.known.peers.replica() {
            // It comes back with a sync, and must not cut off a run that follows.
            replica.next_sync(until).await?;
        } else {
            self.expire_in_memory(routes, &selector);
        }
        Ok(())
    }

    /// Makes the answers to `questions` wait for a call of the backend, at any replica.
    ///
    /// # Errors
    /// When replicas share a store, and it does not answer. The questions before that are expired.
    pub async fn expire_questions(&self, routes: &RouteTable, questions: &[Question]) -> Result<(), StoreError> {
        let (mut published, mut result) = (Vec::new(), Ok(()));
        for question in questions {
            // No recheck follows, so the next caller must not get what backends remember either.
            let formerly = routes.by_any_name(&question.route).map_or(&[][..], |route| route.formerly());
            // A part without its whole would not be queried by the next caller.
            let is_exact = question.part.is_some();
            let selector = Selector { is_exact, ..Selector::only(question) }.also_named(formerly);
            result = self.known.peers.publish_invalidation(&selector).await;
            if result.is_err() {
                break;
            }
            published.push(selector);
        }
        if !published.is_empty() {
            self.expire(routes, &published);
        }
        result
    }
}

/// The texts of a question that an event may name, as JSON: its parameters, and the item of its part.
fn texts_of(question: &Question) -> [String; 2] {
    let part = question.part.as_ref().map(serde_json::to_string);
    [serde_json::to_string(&*question.parameters), part.unwrap_or_else(|| Ok(String::new()))]
        .map(Result::unwrap_or_default)
}
