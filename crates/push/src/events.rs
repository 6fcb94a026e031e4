//! Deliveries of hooks until their questions are rechecked: events about one question are one recheck, few rechecks are under way
//! at once, and one that finds nothing new is repeated, since registries and CI may be behind their events.

mod late;
mod queue;

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use self::{
    late::Late,
    queue::{AGAIN, AT_ONCE, Batch, Concern, Due, Queue, Receipt},
};
use crate::{Push, deliveries::Origins};
use domain::{bounded_cache::Recent, generator::Question, lifecycle::Phase};
use engine::{
    cache::Key,
    renewal::recheck::{Recheck, Rechecked},
};
use hooks::{Delivery, Others, Pushed, Pushes, Subject, Subjects};

/// How many subjects may wait to be compared with the known questions.
const MAX_WAITING: usize = 10_000;
/// Subjects that come within this time are compared together.
const GATHER: Duration = Duration::from_millis(50);
/// When subjects are compared once more, with the answers on disk and with questions that came for the first time meanwhile.
const LATE: Duration = Duration::from_secs(30);
/// For how long other replicas leave a delivery to the one that took it. Once its work is done, it is seen for [`SEEN_FOR`].
const TAKEN_FOR: Duration = Duration::from_mins(2);
/// How many delivery ids are remembered, and for how long.
const MAX_SEEN: usize = 20_000;
const SEEN_FOR: Duration = Duration::from_hours(24);

/// The way of events from the listener to the task that follows them.
pub(crate) struct Events {
    sender: Sender<Event>,
    receiver: parking_lot::Mutex<Option<Receiver<Event>>>,
    seen: Recent<Receipt, ()>,
}

/// The subjects of an event, and its delivery.
struct Event {
    subject: Subject,
    receipt: Option<Arc<Receipt>>,
    /// The number of the delivery.
    number: u64,
    arrived: Instant,
}

impl Default for Events {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let seen = Recent::new(MAX_SEEN).with_ttl(SEEN_FOR);
        Self { sender, receiver: parking_lot::Mutex::new(Some(receiver)), seen }
    }
}

impl Push {
    /// Takes a delivery of `hook`. Returns the result.
    pub async fn take_delivery(&self, hook: &Arc<str>, delivery: Delivery) -> &'static str {
        let arrived = Instant::now();
        // Noted first: once its subjects are sent, their rechecks may end at any time.
        let number = self.deliveries.add(hook, "ignored", None, &delivery.subjects, self.now());
        let outcome = self.enqueue(hook, delivery, number, arrived).await;
        self.deliveries.set_outcome(number, outcome);
        outcome
    }

    async fn enqueue(&self, hook: &Arc<str>, delivery: Delivery, number: u64, arrived: Instant) -> &'static str {
        let Delivery { id, subjects } = delivery;
        let receipt = id.map(|id| Receipt { hook: Arc::clone(hook), id });
        // Of deliveries with the same id that come together, one is the first.
        let is_fresh = |receipt: &Receipt| self.events.seen.insert_if_absent(receipt.clone(), ());
        if receipt.as_ref().is_some_and(|receipt| !is_fresh(receipt)) {
            return "duplicate";
        }
        // All of its subjects are taken, or none.
        let Ok(permits) = self.events.sender.try_reserve_many(subjects.len()) else {
            if let Some(receipt) = &receipt {
                self.events.seen.remove(receipt);
            }
            return "refused";
        };
        if let Some(receipt) = &receipt
            && !self.engine.is_first(&receipt.name(), TAKEN_FOR).await
        {
            // The replica that took it may end before its work is done. Then the delivery may come again.
            self.events.seen.remove(receipt);
            return "duplicate";
        }
        let outcome = if subjects.is_empty() { "ignored" } else { "taken" };
        let receipt = receipt.map(Arc::new);
        permits.zip(subjects).for_each(|(permit, subject)| {
            permit.send(Event { subject, receipt: receipt.clone(), number, arrived });
        });
        outcome
    }

    /// Rechecks the questions that events concern. Returns at [`Phase::Closing`], after a note about the questions that were not rechecked.
    pub async fn follow_events(self: &Arc<Self>) {
        let Some(mut events) = self.events.receiver.lock().take() else { return };
        let (mut queue, mut late, mut rechecks) = (Queue::default(), Late::default(), JoinSet::new());
        let mut draining = std::pin::pin!(self.lifecycle.reached(Phase::Draining));
        let mut closing = std::pin::pin!(self.lifecycle.reached(Phase::Closing));
        let (mut ticks, mut is_draining) = (interval(LATE), false);
        // While nothing waits, no tick is taken, and those that were missed must not come at once afterwards.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if is_draining {
                // Nobody is left for further rechecks. The next call makes the backend be called.
                self.expire_questions(queue.take_repeats()).await;
            }
            while let Some((key, due)) = queue.next(Instant::now()) {
                let push = Arc::clone(self);
                rechecks.spawn(async move {
                    let rechecked = AssertUnwindSafe(push.recheck(key, &due)).catch_unwind().await;
                    (key, rechecked.unwrap_or((Recheck::Failed, Pushed::Untold)), due)
                });
            }
            let next = queue.next_at().unwrap_or_else(|| Instant::now() + AGAIN[2]);
            // In a fixed order, so that a simulated history is the same each time. New events may come without an end, so they come late.
            tokio::select! {
                biased;
                () = &mut draining, if !is_draining => is_draining = true,
                () = &mut closing => {
                    return self.leave_unfinished(queue, late, events).await;
                }
                Some(Ok((key, rechecked, due))) = rechecks.join_next() => {
                    for batch in queue.ended(key, due, rechecked, Instant::now()) {
                        self.finish(batch);
                    }
                }
                _ = ticks.tick(), if !late.is_empty() => {
                    let due = late.take_due();
                    for (key, (question, others)) in self.concerned(due.subjects, true).await.1 {
                        if !due.found.contains(&key) {
                            let concern = Concern { batch: &Arc::default(), pushes: None, others };
                            queue.concern(key, question, &concern, Instant::now());
                        }
                    }
                    for batch in due.batches {
                        self.finish(batch);
                    }
                }
                Some(event) = events.recv() => {
                    let (all, batch) = gather(event, &mut events).await;
                    let (subjects, pushes) = sorted(all).await;
                    let (subjects, found) = self.concerned(subjects, false).await;
                    self.deliveries.concern(&batch.origins.numbers, found.len());
                    late.add(&subjects, &batch, found.keys().copied());
                    for (key, (question, others)) in found {
                        let concern = Concern { batch: &batch, pushes: Some(&pushes), others };
                        queue.concern(key, question, &concern, Instant::now());
                    }
                    self.finish(batch);
                }
                () = sleep_until(next), if rechecks.len() < AT_ONCE => {}
            }
        }
    }

    /// Makes the backends be called about everything that no recheck has ended for. The process is about to end.
    async fn leave_unfinished(self: &Arc<Self>, queue: Queue, late: Late, mut events: Receiver<Event>) {
        let mut subjects = late.into_subjects();
        // A delivery that is being taken has its place already, and is waited for.
        events.close();
        while let Some(event) = events.recv().await {
            subjects.add(event.subject);
        }
        let (_, found) = self.concerned(subjects, true).await;
        let found = found.into_values().map(|(question, _)| question);
        self.expire_questions(found.chain(queue.into_unfinished()).collect()).await;
    }

    /// Notes for other replicas that all work for `batch` is done, if this is the last question that had it. In the background: the store
    /// may be slow, and rechecks must not wait for it.
    fn finish(self: &Arc<Self>, batch: Arc<Batch>) {
        let Some(batch) = Arc::into_inner(batch).filter(|batch| !batch.receipts.is_empty()) else { return };
        let push = Arc::clone(self);
        tokio::spawn(async move {
            for receipt in batch.receipts {
                if !push.engine.note_done(&receipt.name(), SEEN_FOR).await {
                    return;
                }
            }
        });
    }

    /// Makes the backends of `questions` be called before their answers are served again.
    async fn expire_questions(&self, questions: Vec<Question>) {
        if let Err(error) = self.engine.expire_questions(&self.current().routes, &questions).await {
            tracing::warn!(%error, questions = questions.len(), "events are lost: the shared store does not answer");
        }
    }

    /// The questions that `subjects` concern, and which subjects without a digest do.
    async fn concerned(
        self: &Arc<Self>,
        subjects: Subjects,
        everywhere: bool,
    ) -> (Subjects, BTreeMap<Key, (Question, Others)>) {
        if subjects.len() == 0 {
            return Default::default();
        }
        let push = Arc::clone(self);
        let compare = move || {
            let found = push.engine.concerned(&push.current().routes, &subjects, everywhere);
            (subjects, found.into_iter().collect())
        };
        let (subjects, found): (_, BTreeMap<_, _>) = tokio::task::spawn_blocking(compare).await.unwrap_or_default();
        if !everywhere {
            self.metrics.hooks.concerned(found.len());
        }
        (subjects, found)
    }

    /// Asks the source of a question again. Returns the result, and the answer's notes about the pushes.
    async fn recheck(&self, key: Key, due: &Due) -> (Recheck, Pushed) {
        let (current, question) = (self.current(), &due.question);
        // None after 30 seconds: then no single delivery led to it.
        let origins = Origins::of(due.batches.iter().map(|batch| &batch.origins));
        if let Some(origins) = origins.clone() {
            self.deliveries.recheck(key, origins);
        }
        let rechecked = self.engine.recheck(&current.routes, question).await.unwrap_or_else(|error| {
            tracing::warn!(%error, route = &*question.route, "a recheck after an event failed and is repeated: the shared store does not answer");
            Rechecked::from(Recheck::Failed)
        });
        let recheck = rechecked.result;
        self.metrics.hooks.rechecked(recheck.as_str());
        self.deliveries.rechecked(&origins.map_or_else(Vec::new, |origins| origins.numbers), key, question, recheck);
        tracing::info!(route = &*question.route, result = recheck.as_str(), "rechecked after an event");
        (recheck, Pushes::known(due.pushes(), rechecked.entry.as_ref().map_or(&[], |entry| &entry.evidence)))
    }
}

/// `first` and all subjects that come shortly after it, and their deliveries.
async fn gather(first: Event, events: &mut Receiver<Event>) -> (Vec<Subject>, Arc<Batch>) {
    sleep(GATHER).await;
    let (mut subjects, mut receipts, mut origins) = (Vec::new(), Vec::new(), Origins::default());
    let mut next = Some(first);
    while let Some(Event { subject, receipt, number, arrived }) = next {
        origins.add(number, arrived);
        subjects.push(subject);
        receipts.extend(receipt.filter(|receipt| receipts.last().is_none_or(|last| !Arc::ptr_eq(last, receipt))));
        next = if subjects.len() < MAX_WAITING { events.try_recv().ok() } else { None };
    }
    (subjects, Arc::new(Batch { receipts, origins }))
}

/// The subjects of `all`, each once, and the pushes. There may be thousands, so no thread that serves does it.
async fn sorted(all: Vec<Subject>) -> (Subjects, Arc<Pushes>) {
    let sort = move || {
        let (mut subjects, mut pushes) = (Subjects::default(), Pushes::default());
        for subject in all {
            if pushes.add(&subject) {
                subjects.add(subject);
            } else {
                subjects.add(subject.without_digest());
            }
        }
        (subjects, Arc::new(pushes))
    };
    tokio::task::spawn_blocking(sort).await.unwrap_or_default()
}
