//! The invariants, checked against the source's log alone, independent of the oracle.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    cache::Entry,
    guard::Decision,
    model::{
        rules::{ModelQuery, Slot},
        source::{ModelSource, Ran, RunEnd},
        verdict::{Accepted, Verdict},
    },
};
use domain::clock::Timestamp;

/// What happened in a lineage since its last answer was accepted.
#[derive(Debug, Clone)]
enum Event {
    /// A run said something. One that an invalidation cut off agrees with nothing, but may disagree.
    Said {
        ran: Ran,
        at: Timestamp,
        is_current: bool,
    },
    /// A caller queried what is held.
    Queried(Timestamp),
    Decided(Decision),
}

/// Checks the engine against the invariants.
#[derive(Debug, Default)]
pub(super) struct InvariantWatch {
    accepted: BTreeMap<Slot, Ran>,
    events: BTreeMap<Slot, Vec<Event>>,
}

impl InvariantWatch {
    /// A run ended.
    pub(super) fn ended(&mut self, ran: &Ran, is_current: bool) {
        if let (Some(_), Some((at, RunEnd::Said))) = (ran.names(), ran.ended) {
            let said = Event::Said { ran: ran.clone(), at, is_current };
            self.events.entry(ran.query.lineage()).or_default().push(said);
        }
    }

    /// A caller queried what is held, and was answered without a run.
    pub(super) fn queried(&mut self, lineage: Slot, at: Timestamp) {
        self.events.entry(lineage).or_default().push(Event::Queried(at));
    }

    /// An operator decided.
    pub(super) fn decided(&mut self, lineage: Slot, decision: Decision) {
        self.events.entry(lineage).or_default().push(Event::Decided(decision));
    }

    /// Everything was forgotten.
    pub(super) fn forgotten(&mut self) {
        *self = Self::default();
    }

    /// I4: the answer accepted now in `lineage` loses no more than it may, unless further runs agreed or an operator released it.
    /// Returns how a loss was justified. The answer of an outdated run leaves what is held.
    pub(super) fn accepted(
        &mut self,
        lineage: Slot,
        entry: &Entry,
        source: &ModelSource,
        is_current: bool,
    ) -> Result<Option<&'static str>, String> {
        let ran = whole(lineage.query(), entry, source)?;
        let before = self.accepted.get(&lineage);
        if before.is_some_and(|before| before.began == ran.began) {
            return Ok(None);
        }
        let events = if is_current { self.events.remove(&lineage) } else { self.events.get(&lineage).cloned() };
        let events = events.unwrap_or_default();
        let last = before.and_then(Ran::names).map(|names| Accepted { names, until: None });
        let verdict = ran.query.rules().evaluate(Some(last.as_slice()), &ran, entry.stored_at);
        let reason = match verdict {
            Verdict::Loss { can_be_confirmed, .. } => justification(&events, &ran, can_be_confirmed),
            Verdict::Good | Verdict::Nonsense => None,
        };
        if verdict != Verdict::Good && reason.is_none() {
            return Err(format!("I4: {ran:?} was accepted after {before:?}: {verdict:?}, {events:?}"));
        }
        self.accepted.insert(lineage, ran);
        Ok(reason)
    }
}

/// I1 and I2: `entry` is a whole answer that the source once gave to this question or to one of its lineage, and an empty
/// list only if the source had proof. Returns the run that gave it.
pub(super) fn whole(query: ModelQuery, entry: &Entry, source: &ModelSource) -> Result<Ran, String> {
    let from = ModelQuery::of(&entry.question.open().parameters);
    if from.lineage() != query.lineage() {
        return Err(format!("I1: {query:?} is answered with what was said of {from:?}"));
    }
    let body: Value = serde_json::from_slice(entry.encoded.body()).map_err(|error| format!("I1: {error}"))?;
    let gave = |ran: &Ran| {
        let is_that_run = ran.query == from && ran.ended == Some((entry.stored_at, RunEnd::Said));
        is_that_run && ran.sets().is_some_and(|sets| body == json!({"output": {"parameters": sets}}))
    };
    source.find(gave).ok_or_else(|| format!("I1: the source never said {body} of {from:?} at {:?}", entry.stored_at))
}

/// The answer that is held, as far as the events say.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Timestamp,
    agreed: u32,
    /// Whether a run disagreed since.
    is_contradicted: bool,
}

/// Why `ran` is accepted: enough runs agreed one after the other, with enough time between them, or an operator released it.
fn justification(events: &[Event], ran: &Ran, can_be_confirmed: bool) -> Option<&'static str> {
    let rules = ran.query.rules();
    let mut counted: Option<Counted> = None;
    let mut decision = None;
    let mut seen_at: Option<Timestamp> = None;
    for event in events {
        if let Event::Said { at, .. } | Event::Queried(at) = event {
            // A held answer that no caller queried for a day is forgotten, with the operator's decision.
            if seen_at.is_some_and(|seen_at| at.0 > seen_at.0 + 24 * 3_600_000) {
                (counted, decision) = (None, None);
            }
            if !matches!(event, Event::Said { is_current: false, .. }) {
                // The clock may have been put back since the query.
                seen_at = seen_at.filter(|_| counted.is_some()).max(Some(*at));
            }
        }
        match event {
            Event::Said { ran: other, is_current: false, .. } if rules.agree(other, ran) => {}
            Event::Said { ran: other, at, .. } if rules.agree(other, ran) => {
                // An earlier decision was about another answer.
                decision = decision.filter(|_| counted.is_some());
                let first = Counted { at: *at, agreed: 0, is_contradicted: false };
                counted = Some(match counted {
                    None | Some(Counted { is_contradicted: true, .. }) => first,
                    Some(before) if other.began_at.min(*at).0 >= before.at.0 + rules.confirm_for * 1000 => {
                        Counted { agreed: before.agreed + 1, ..first }
                    }
                    Some(before) => Counted { at: before.at.min(*at), ..before },
                });
            }
            Event::Said { ran: other, is_current, .. } => {
                let is_invalid = rules.evaluate(Some(&[]), other, Timestamp(0)) == Verdict::Nonsense;
                if is_invalid || !is_current {
                    // What is held stays.
                    counted = counted.map(|before| Counted { is_contradicted: true, ..before });
                } else {
                    (counted, decision) = (None, None);
                }
            }
            Event::Decided(what) => decision = Some(*what),
            Event::Queried(_) => {}
        }
    }
    let agreed = counted.is_some_and(|counted| !counted.is_contradicted && counted.agreed >= rules.confirm_after);
    match decision {
        Some(Decision::Released) => Some("released"),
        None if can_be_confirmed && agreed => Some("accepted at last"),
        Some(Decision::Rejected) | None => None,
    }
}
