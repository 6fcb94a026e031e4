//! The changes of a run: the answer, the baseline, the held answer, the failure. [`Run::changes`] decides without changing anything,
//! so that a shared store can refuse the changes. [`Run::apply`] makes them in this process.

use std::{sync::Arc, time::Duration};

use crate::{
    cache::{Backoff, Delay, Entry, LastServed, Life, PackedQuestion},
    failure::{Failed, Failure},
    guard::{Baseline, GuardVerdict, Held, Standing},
    run::{Ended, Finished, Run, RunAnswer, Wanted},
    state::{EngineState, notices::What},
};
use domain::{
    clock::Timestamp,
    error::BackendError,
    generator::{Evidence, Verdict},
};

/// The changes of a run.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The answer that passed, or the failure, with its backoff.
    pub(crate) outcome: Result<NewAnswer, Backoff<Failed>>,
    /// The change of the lineage's held answer.
    pub(crate) held: HeldChange,
    /// Whether no invalidation cut the run off.
    pub(crate) is_current: bool,
}

/// An answer that passed the guard.
#[derive(Debug)]
pub(crate) struct NewAnswer {
    pub(crate) entry: Arc<Entry>,
    /// Whether it replaces the stored answer to its question. A later run may have stored one.
    pub(crate) is_latest: bool,
    /// The next baseline of the lineage, if the answer is the lineage's last one.
    pub(crate) head: Option<Arc<Baseline>>,
}

/// The change of a lineage's held answer.
#[derive(Debug)]
pub(crate) enum HeldChange {
    /// Nothing.
    None,
    /// It is no longer held, for this reason.
    End(Box<Held>, &'static str),
    /// It is accepted, because further runs agreed or an operator released it.
    Accept(Box<Held>),
    /// This answer is held.
    Hold(Box<Held>),
    /// The held answer stays, and its confirmations restart: this run had a different result, but cannot replace it.
    Contradict(Box<Held>),
}

/// The end of a run.
#[derive(Clone, Copy)]
struct End<'a> {
    known: &'a EngineState,
    ended: &'a Ended,
    /// Whether no invalidation cut the run off.
    is_current: bool,
    now: Timestamp,
}

impl Run {
    /// The changes by `ended` at `now`, as far as this process has the records.
    pub(crate) fn changes(&self, known: &EngineState, ended: &Ended, now: Timestamp) -> Changes {
        let is_current = self.guard.finish(|is_current| is_current);
        let end = End { known, ended, is_current, now };
        let before = known.held_of(&self.resolved, now);
        known.erase_forgotten();
        let check = match &ended.result {
            Ok(found) => {
                let check = self.check(end, found, before.as_ref());
                check.map(|check| (found, check))
            }
            Err(failure) => Err(failure.clone()),
        };
        // A run that an invalidation cut off, or whose answer is invalid, does not end what is held. A run without an answer says nothing.
        let mut held_change = match (before, &check) {
            (Some(before), Ok((_, GuardVerdict::Held(held)))) if held.agrees_with(&before) => HeldChange::None,
            (Some(before), _) if ended.result.is_ok() => HeldChange::Contradict(Box::new(before.contradicted(now))),
            _ => HeldChange::None,
        };
        let outcome = match check {
            Ok((found, GuardVerdict::Passed(next))) => Ok((found, next)),
            Ok((found, GuardVerdict::Cleared(held, next))) => {
                held_change = HeldChange::End(held, "what was held is not what the source says now");
                Ok((found, next))
            }
            Ok((found, GuardVerdict::Accepted(held, next))) => {
                held_change = HeldChange::Accept(held);
                Ok((found, next))
            }
            Ok((found, GuardVerdict::Held(held))) => {
                let mut held = held.with_evidence(&found.evidence);
                // A run that an invalidation cut off decides nothing.
                if is_current && known.held.fits(&held) {
                    held_change = HeldChange::Hold(Box::new(held.clone()));
                } else if is_current {
                    held = held.unlisted();
                }
                let held = Box::new(held);
                Err(Failure::Held(held))
            }
            Err(failure) => Err(failure),
        };
        let outcome = match outcome {
            Ok((found, next)) => Ok(self.new_answer(end, found, next)),
            Err(failure) => {
                let delay = delay_after(&failure, now);
                let failed = Failed { question: self.resolved.question.clone(), failure };
                Err(known.failing.next(&self.resolved.key, failed, delay, now))
            }
        };
        Changes { outcome, held: held_change, is_current }
    }

    /// Lets the guard compare `found` with the baseline of its lineage, however old that is.
    fn check(&self, end: End<'_>, found: &RunAnswer, before: Option<&Held>) -> Result<GuardVerdict, Failure> {
        let known = end.known;
        let (key, lineage, guard) = (self.resolved.key, self.resolved.lineage(), &self.resolved.route.guard);
        if self.resolved.question.part.is_some() {
            // The whole answer is compared with the last one. Of a part it is only remembered how many sets it had.
            return Ok(GuardVerdict::Passed(Baseline::of(guard.config(), &found.sets)));
        }
        let baseline = known.baseline(&self.resolved).ok();
        let last = || known.last_answer(&self.resolved).map(|last| last.encoded.decode()).unwrap_or_default();
        let of = Standing {
            question: &self.resolved.question,
            key,
            lineage,
            queried_at: self.wanted.queried_at(),
            is_new: lineage != key && matches!(known.answers.try_get(&key), Ok(None)),
            is_current: end.is_current,
            began: end.ended.began,
            now: end.now,
        };
        let check = guard.check(of, baseline.as_deref(), last, before, &found.sets);
        check.map_err(|error| Failure::Backend(BackendError::invalid_output(error.to_string())))
    }

    fn new_answer(&self, end: End<'_>, found: &RunAnswer, next: Baseline) -> NewAnswer {
        let End { known, ended, is_current, now } = end;
        let (key, lineage) = (self.resolved.key, self.resolved.lineage());
        let before = known.answers.try_get_again(&key).ok().flatten();
        let entry = Entry {
            encoded: found.encoded.clone(),
            question: PackedQuestion::from(&self.resolved.question),
            made_under: self.made_under(),
            stored_at: now,
            queried_at: self.wanted.queried_at().unwrap_or(now),
            first_at: before.map_or(now, |before| before.first_at.min(now)),
            run_number: ended.number,
            life: if is_current {
                self.resolved.route.policy.life(&key, found.lasting, now)
            } else {
                // An invalidation came after this run began, so its answer is never fresh.
                Life::For(Duration::ZERO)
            },
            took: ended.took,
            evidence: found.evidence.clone(),
            note: found.note.clone(),
            elements: found.elements.clone(),
            last_served: if matches!(self.wanted, Wanted::Prefetch(_)) {
                LastServed::prefetched()
            } else {
                LastServed::default()
            },
        };
        let own = || known.answers.is_latest(&key, &entry);
        let is_latest = known.peers.is_latest_run(&key, entry.run_number, own);
        let is_head = if lineage == key { is_latest } else { known.answers.is_lineage_head(&lineage, &entry) };
        NewAnswer { entry: Arc::new(entry), is_latest, head: is_head.then(|| Arc::new(next)) }
    }

    /// Makes `changes` in this process. Returns the result for the run's callers.
    pub(crate) fn apply(&self, known: &EngineState, changes: Changes) -> Finished {
        let lineage = self.resolved.lineage();
        if !matches!(changes.held, HeldChange::None) {
            known.end_holds_under_other_names(&self.resolved);
        }
        match changes.held {
            HeldChange::None => {}
            HeldChange::End(held, why) => {
                self.log_end_of_hold(why, &held);
                known.notices.send(held.key, &held.question, || What::HoldEnded(why));
                known.held.remove(&lineage);
                known.erase(lineage);
            }
            HeldChange::Accept(held) => {
                self.report_acceptance(known, &held);
                known.held.remove(&lineage);
                known.erase(lineage);
            }
            HeldChange::Hold(held) => {
                if held.since == held.seen_at {
                    known.notices.send(held.key, &held.question, || What::Held(held.to_string()));
                }
                known.hold(lineage, *held);
            }
            HeldChange::Contradict(held) => {
                tracing::info!(
                    route = &*self.resolved.route.name, id = %lineage,
                    "a run disagrees with the held answer, whose confirmations restart"
                );
                known.hold(lineage, *held);
            }
        }
        match changes.outcome {
            Ok(answer) => Ok(self.record(known, answer, changes.is_current)),
            Err(backoff) => {
                let failure = backoff.failure.failure.clone();
                let is_part = self.resolved.question.part.is_some();
                if !is_part {
                    self.resolved.route.metrics.failed(failure.as_str());
                }
                self.log_failure(&failure);
                if is_part {
                    let before = self.last_failure(known);
                    known.notices.element_failed(&self.resolved, before.as_ref(), &backoff, &failure);
                } else if !matches!(failure, Failure::Held(_)) {
                    known.notices.failed(self.resolved.key, &self.resolved.question, backoff.times, &failure);
                }
                self.guard.finish(|is_current| {
                    if is_current {
                        known.failing.put(self.resolved.key, backoff);
                    }
                });
                Err(failure)
            }
        }
    }

    fn record(&self, known: &EngineState, answer: NewAnswer, was_current: bool) -> Arc<Entry> {
        let (key, lineage, NewAnswer { mut entry, is_latest, head }) =
            (self.resolved.key, self.resolved.lineage(), answer);
        let is_part = self.resolved.question.part.is_some();
        if is_part {
            known.notices.element_known(&self.resolved, self.last_failure(known).as_ref());
        } else {
            known.notices.recovered(key, &self.resolved.question, known.failing.times(&key));
        }
        self.log_absence(&entry.evidence);
        self.guard.finish(|is_current| {
            if was_current && !is_current {
                entry = Arc::new(Entry { life: Life::For(Duration::ZERO), ..(*entry).clone() });
            }
            if !is_part {
                self.resolved.route.metrics.now.succeeded(entry.stored_at);
            }
            if is_latest {
                known.answers.put(key, &entry);
            }
            if let Some(baseline) = head {
                if lineage != key {
                    known.answers.put(lineage, &entry);
                }
                if !is_part {
                    known.served.note(lineage, &self.resolved.route.name, &entry);
                }
                known.baselines.put(lineage, baseline, &known.answers);
            }
            if is_current {
                known.failing.recovered(&key);
                if let Some(subject) = Failed::subject_of(&self.resolved.question) {
                    known.failing.recovered_at(subject, entry.stored_at);
                }
            }
        });
        entry
    }

    /// The last failure about this question, or else about another item of its element.
    fn last_failure(&self, known: &EngineState) -> Option<Backoff<Failed>> {
        let of_element = || known.failing.about(Failed::subject_of(&self.resolved.question)?);
        known.failing.get(&self.resolved.key).or_else(of_element)
    }

    fn log_end_of_hold(&self, why: &str, held: &Held) {
        tracing::info!(
            route = &*self.resolved.route.name, id = %self.resolved.lineage(), reason = held.breach.reason,
            sets = held.sets, agreed = held.agreed, "{why}"
        );
    }

    /// Logs that `held` is accepted, and sends a notice. If further runs have confirmed it, perhaps no operator has seen it.
    fn report_acceptance(&self, known: &EngineState, held: &Held) {
        const RELEASED: &str = "what was held is accepted: an operator released it";
        if held.decision.is_some() {
            self.log_end_of_hold(RELEASED, held);
            known.notices.send(held.key, &held.question, || What::HoldEnded(RELEASED));
            return;
        }
        let deleted = held.loss();
        tracing::warn!(
            route = &*self.resolved.route.name, application_set = held.question.application_set.as_deref(), id = %held.lineage,
            reason = held.breach.reason, sets = held.sets, agreed = held.agreed, deleted,
            "what was held is accepted without an operator, because further runs agreed"
        );
        let deleted = deleted.map_or_else(String::new, |loss| format!("; Argo CD will delete {loss}"));
        let message = format!(
            "accepted without an operator, because {} further runs agreed: {}{deleted}",
            held.agreed, held.breach.reason
        );
        known.notices.send(held.key, &held.question, || What::Confirmed(message));
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
                route = &*self.resolved.route.name,
                application_set = self.resolved.question.application_set.as_deref(), key = %self.resolved.key,
                kind = failure.as_str(), error = %failure, "a run in the background brought no answer"
            );
        }
        for each in failure.evidence() {
            self.log_evidence(each);
        }
    }

    fn log_evidence(&self, evidence: &Evidence) {
        if evidence.verdict == Verdict::Refused {
            self.resolved.route.metrics.refused();
            tracing::warn!(
                route = &*self.resolved.route.name,
                application_set = self.resolved.question.application_set.as_deref(), key = %self.resolved.key,
                item = evidence.item, query = evidence.query, answer = evidence.answer, "refused: it is not what it claims to be"
            );
            return;
        }
        tracing::info!(
            route = &*self.resolved.route.name,
            application_set = self.resolved.question.application_set.as_deref(), key = %self.resolved.key,
            item = evidence.item, query = evidence.query, answer = evidence.answer,
            "{}", evidence.verdict.as_str()
        );
    }
}

/// The backoff after `failure`. A held answer is confirmed again at the time that the guard's rules set. What was refused because its destination
/// gets no requests is tried when it does again.
fn delay_after(failure: &Failure, now: Timestamp) -> Delay {
    if let Some(least) = failure.retry_after() {
        return Delay::AtLeast(least);
    }
    let most = match failure {
        Failure::Held(held) => held.due_at().map(|due| due.since(now).unwrap_or_default()),
        Failure::Backend(error) => error.retry_in,
        _ => None,
    };
    most.map_or(Delay::Usual, Delay::AtMost)
}
