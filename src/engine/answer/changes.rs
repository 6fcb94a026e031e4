//! What a run changes: the answer, the baseline, the held answer, the failure. [`Run::changes`] decides without changing anything,
//! so that a shared store can refuse the changes. [`Run::apply`] makes them in this process.

use std::{sync::Arc, time::Duration};

use super::{
    Failure, Landed, Wanted,
    baselines::last_answer,
    notices::What,
    run::{Ended, Found, Run},
    state::{EngineState, Failed},
};
use crate::{
    domain::{
        clock::Timestamp,
        error::BackendError,
        generator::{Evidence, Verdict},
    },
    engine::{
        cache::{Entry, Life, PackedQuestion, Rest, Turn, Wish},
        guard::{Baseline, Held, Review, Standing},
    },
};

/// What a run changes.
#[derive(Debug)]
pub(super) struct Changes {
    /// The answer that passed, or the failure, which the question then rests from.
    pub(super) outcome: Result<NewAnswer, Rest<Failed>>,
    /// What happens to the held answer of the lineage.
    pub(super) held: HeldChange,
    /// Whether no invalidation cut the run off.
    pub(super) is_current: bool,
}

/// An answer that passed the guard.
#[derive(Debug)]
pub(super) struct NewAnswer {
    pub(super) entry: Arc<Entry>,
    /// Whether it replaces the stored answer to its question. A later run may have stored one.
    pub(super) is_latest: bool,
    /// The next baseline of the lineage, if the answer is the lineage's last one.
    pub(super) head: Option<Arc<Baseline>>,
}

/// What happens to the held answer of a lineage.
#[derive(Debug)]
pub(super) enum HeldChange {
    /// Nothing.
    None,
    /// It is no longer held, for this reason.
    End(Box<Held>, &'static str),
    /// This answer is held.
    Hold(Box<Held>),
}

impl Run {
    /// What `ended` changes at `now`, as far as this process knows.
    pub(super) fn changes(&self, known: &EngineState, ended: &Ended, now: Timestamp) -> Changes {
        let is_current = self.guard.land(|is_current| is_current);
        let review = match &ended.result {
            Ok(found) => self.review(known, found, ended.began, is_current, now).map(|review| (found, review)),
            Err(failure) => Err(failure.clone()),
        };
        let mut held_change = HeldChange::None;
        let outcome = match review {
            Ok((found, Review::Passed(next))) => Ok((found, next)),
            Ok((found, Review::Cleared(held, next))) => {
                held_change = HeldChange::End(held, "what was held is not what the source says now");
                Ok((found, next))
            }
            Ok((found, Review::Accepted(held, next))) => {
                held_change = HeldChange::End(held, "what was held is accepted");
                Ok((found, next))
            }
            Ok((found, Review::Held(held))) => {
                let held = Box::new(held.with_evidence(&found.evidence));
                // A run that an invalidation cut off decides nothing.
                if is_current {
                    held_change = HeldChange::Hold(held.clone());
                }
                Err(Failure::Held(held))
            }
            Err(failure) => Err(failure),
        };
        let outcome = match outcome {
            Ok((found, next)) => Ok(self.new_answer(known, ended, found, next, is_current, now)),
            Err(failure) => {
                let wish = rest(&failure, now);
                let failed = Failed { question: self.asked.question.clone(), failure };
                Err(known.failing.next(&self.asked.key, failed, wish, now))
            }
        };
        Changes { outcome, held: held_change, is_current }
    }

    /// Lets the guard compare `found` with the baseline of its lineage, however old that is.
    fn review(
        &self,
        known: &EngineState,
        found: &Found,
        began: Timestamp,
        is_current: bool,
        now: Timestamp,
    ) -> Result<Review, Failure> {
        let (key, lineage, guard) = (self.asked.key, self.asked.lineage(), &self.asked.route.guard);
        let baseline = known.baseline(&lineage, &key, guard).ok();
        let last = || {
            let last = last_answer(&lineage, &key, &known.answers).ok().flatten();
            last.map(|last| last.encoded.decode()).unwrap_or_default()
        };
        let of = Standing {
            question: &self.asked.question,
            key,
            lineage,
            asked_at: self.wanted.asked_at(),
            is_new: lineage != key && matches!(known.answers.try_get(&key), Ok(None)),
            is_current,
            began,
        };
        let before = known.held.get(&lineage, now);
        known.erase_forgotten();
        let review = guard.review(of, baseline.as_deref(), last, before.as_ref(), &found.sets, now);
        review.map_err(|error| Failure::Backend(BackendError::invalid_output(error)))
    }

    fn new_answer(
        &self,
        known: &EngineState,
        ended: &Ended,
        found: &Found,
        next: Baseline,
        is_current: bool,
        now: Timestamp,
    ) -> NewAnswer {
        let (key, lineage) = (self.asked.key, self.asked.lineage());
        let before = known.answers.try_get_again(&key).ok().flatten();
        let entry = Entry {
            encoded: found.encoded.clone(),
            question: PackedQuestion::from(&self.asked.question),
            made_under: self.made_under(),
            stored_at: now,
            asked_at: self.wanted.asked_at().unwrap_or(now),
            first_at: before.map_or(now, |before| before.first_at.min(now)),
            run_number: ended.number,
            life: if is_current {
                self.asked.route.policy.life(&key, found.lasting, now)
            } else {
                // An invalidation came after this run began, so its answer is never fresh.
                Life::For(Duration::ZERO)
            },
            took: ended.took,
            evidence: found.evidence.clone(),
            note: found.note.clone(),
            turn: if matches!(self.wanted, Wanted::Ahead(_)) { Turn::ahead() } else { Turn::default() },
        };
        let is_latest = match &known.shared {
            Some(shared) => shared.is_latest_run(&key, entry.run_number),
            None => known.answers.is_latest(&key, &entry),
        };
        let is_head = if lineage == key { is_latest } else { known.answers.is_lineage_head(&lineage, &entry) };
        NewAnswer { entry: Arc::new(entry), is_latest, head: is_head.then(|| Arc::new(next)) }
    }

    /// Makes `changes` in this process. Returns what the run's callers get.
    pub(super) fn apply(&self, known: &EngineState, changes: Changes) -> Landed {
        let lineage = self.asked.lineage();
        match changes.held {
            HeldChange::None => {}
            HeldChange::End(held, why) => {
                self.log_end_of_hold(why, &held);
                known.notices.send(held.key, &held.question, || What::HoldEnded(why));
                known.held.remove(&lineage);
                known.erase(lineage);
            }
            HeldChange::Hold(held) => {
                if held.since == held.seen_at {
                    known.notices.send(held.key, &held.question, || What::Held(held.to_string()));
                }
                known.hold(lineage, *held);
            }
        }
        match changes.outcome {
            Ok(answer) => Ok(self.record(known, answer, changes.is_current)),
            Err(rest) => {
                let failure = rest.failure.failure.clone();
                self.asked.route.metrics.failed(failure.as_str());
                self.log_failure(&failure);
                if !matches!(failure, Failure::Held(_)) {
                    known.notices.failed(self.asked.key, &self.asked.question, rest.times, &failure);
                }
                self.guard.land(|is_current| {
                    if is_current {
                        known.failing.put(self.asked.key, rest);
                    }
                });
                Err(failure)
            }
        }
    }

    fn record(&self, known: &EngineState, answer: NewAnswer, was_current: bool) -> Arc<Entry> {
        let (key, lineage, NewAnswer { mut entry, is_latest, head }) = (self.asked.key, self.asked.lineage(), answer);
        known.notices.recovered(key, &self.asked.question, known.failing.times(&key));
        self.log_absence(&entry.evidence);
        self.guard.land(|is_current| {
            if was_current && !is_current {
                entry = Arc::new(Entry { life: Life::For(Duration::ZERO), ..(*entry).clone() });
            }
            self.asked.route.metrics.now.succeeded(entry.stored_at);
            if is_latest {
                known.answers.put(key, &entry);
            }
            if let Some(baseline) = head {
                if lineage != key {
                    known.answers.put(lineage, &entry);
                }
                known.served.note(lineage, &self.asked.route.name, &entry);
                known.baselines.put(lineage, baseline, &known.answers);
            }
            if is_current {
                known.failing.recovered(&key);
            }
        });
        entry
    }

    fn log_end_of_hold(&self, why: &str, held: &Held) {
        tracing::info!(
            route = &*self.asked.route.name, id = %self.asked.lineage(), reason = held.breach.reason, sets = held.sets, agreed = held.agreed, "{why}"
        );
    }

    /// Logs the evidence if something is absent or was refused, once per run: it explains why an Application is missing.
    fn log_absence(&self, evidence: &[Evidence]) {
        if !evidence.iter().any(|each| matches!(each.verdict, Verdict::Absent | Verdict::Refused)) {
            return;
        }
        for each in evidence {
            self.log_evidence(each);
        }
    }

    /// Logs why there is no answer. A waiting caller's own log line has the reason already, so only the items are added to it.
    fn log_failure(&self, failure: &Failure) {
        if self.wanted != Wanted::Now {
            tracing::warn!(
                route = &*self.asked.route.name, application_set = self.asked.question.application_set.as_deref(), key = %self.asked.key,
                kind = failure.as_str(), error = %failure, "a run in the background brought no answer"
            );
        }
        for each in failure.evidence() {
            self.log_evidence(each);
        }
    }

    fn log_evidence(&self, evidence: &Evidence) {
        if evidence.verdict == Verdict::Refused {
            self.asked.route.metrics.refused();
            tracing::warn!(
                route = &*self.asked.route.name, application_set = self.asked.question.application_set.as_deref(), key = %self.asked.key,
                item = evidence.item, asked = evidence.asked, answered = evidence.answered, "refused: it is not what it claims to be"
            );
            return;
        }
        tracing::info!(
            route = &*self.asked.route.name, application_set = self.asked.question.application_set.as_deref(), key = %self.asked.key,
            item = evidence.item, asked = evidence.asked, answered = evidence.answered,
            "{}", evidence.verdict.as_str()
        );
    }
}

/// How long a question rests after `failure`. A held answer is asked about again when the guard's rules say so.
fn rest(failure: &Failure, now: Timestamp) -> Wish {
    if let Some(asked) = failure.retry_after() {
        return Wish::AtLeast(asked);
    }
    let due = if let Failure::Held(held) = failure { held.due_at() } else { None };
    due.map_or(Wish::Usual, |due| Wish::AtMost(due.since(now).unwrap_or_default()))
}
