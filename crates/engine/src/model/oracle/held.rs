//! The oracle's accepted and held answers, and the times of the gateway's own runs.

use crate::{
    guard::Decision,
    model::{
        oracle::{Flight, Fresh, Oracle, Worth},
        rules::{ModelQuery, Slot},
        source::Ran,
        verdict::{Accepted, Verdict},
    },
};
use domain::clock::Timestamp;

/// An answer that waits for others that agree.
#[allow(clippy::struct_excessive_bools, reason = "each says something of its own")]
#[derive(Debug, Clone)]
pub(crate) struct OracleHeld {
    pub ran: Ran,
    agreed: u32,
    counted_at: Timestamp,
    since: Timestamp,
    seen_at: Timestamp,
    /// When a caller last queried it.
    pub(super) queried_at: Timestamp,
    /// That time as the record in the file has it: a call alone writes nothing.
    recorded_queried_at: Timestamp,
    can_be_confirmed: bool,
    /// Whether it is held for what was there before.
    compares: bool,
    decision: Option<Decision>,
    decided_at: Timestamp,
    /// Whether the runs that agree count.
    counts: bool,
    /// Whether a later run disagreed, and this answer stayed.
    is_contradicted: bool,
}

impl OracleHeld {
    /// When the gateway makes its next own run, in milliseconds; `None` if it makes none.
    pub(super) fn due_at(&self) -> Option<u64> {
        let is_pending = self.can_be_confirmed && self.counts && self.decision != Some(Decision::Rejected);
        let interval = self.ran.query.rules().confirm_for * 1000;
        is_pending.then(|| (self.counted_at.0 + interval).max(self.seen_at.0 + 1000))
    }

    /// Writes it to the file.
    const fn record(&mut self) {
        self.recorded_queried_at = self.queried_at;
    }

    /// Reads it from the file.
    pub(super) const fn read_back(&mut self) {
        self.queried_at = self.recorded_queried_at;
    }

    /// Takes over the state of `before`, an earlier answer that agrees with this one, which came at `at`.
    fn agree_with(&mut self, before: &Self, at: Timestamp) {
        let began_at = self.ran.began_at.min(at);
        let is_due = began_at.0 >= before.counted_at.0 + self.ran.query.rules().confirm_for * 1000;
        if !self.counts {
            (self.agreed, self.counted_at, self.counts) = (before.agreed, before.counted_at, before.counts);
            self.is_contradicted = before.is_contradicted;
        } else if before.counts && !before.is_contradicted {
            self.agreed = before.agreed + u32::from(is_due);
            if !is_due && at >= before.counted_at {
                self.counted_at = before.counted_at;
            }
        }
        self.since = before.since.min(at);
        self.queried_at = self.queried_at.max(before.queried_at);
        // A release waits for an hour.
        let waits = at >= before.decided_at && at.0 < before.decided_at.0 + 3_600_000;
        self.decision = before.decision.filter(|decision| waits || *decision == Decision::Rejected);
        self.decided_at = before.decided_at;
    }
}

impl Oracle {
    /// An answer with `names` is now the last accepted one in `lineage`.
    pub(super) fn believe(&mut self, lineage: Slot, names: Vec<u8>, begins_anew: bool, at: Timestamp) {
        self.forgotten.remove(&lineage);
        let accepted = self.accepted.entry(lineage).or_default();
        if begins_anew || names.is_empty() {
            accepted.clear();
        }
        for before in accepted.iter_mut() {
            // The clock was put back: no earlier answer was the last one until later than now.
            before.until = Some(before.until.map_or(at, |until| until.min(at)));
        }
        accepted.retain(|before| before.is_recent(at));
        accepted.push(Accepted { names, until: None });
    }

    /// Checks the answer of `ran`. Returns whether the baseline of its lineage is replaced, or why the answer is not accepted.
    pub(super) fn check(&mut self, flight: Flight, ran: &Ran, at: Timestamp) -> Result<bool, &'static str> {
        self.forget(at);
        let Flight { query, is_current, queried_at, .. } = flight;
        let (rules, lineage) = (query.rules(), query.lineage());
        let before = self.accepted.get(&lineage).map_or(&[][..], Vec::as_slice);
        let was_nothing = before.iter().all(|accepted| accepted.names.is_empty());
        let is_lost = self.forgotten.contains(&lineage)
            || (was_nothing && self.held.get(&lineage).is_some_and(|held| held.compares));
        let verdict = match (rules.evaluate((!is_lost).then_some(before), ran, at), self.held.get(&lineage)) {
            (Verdict::Good, Some(held)) if rules.agree(&held.ran, ran) => {
                rules.evaluate_again(held.decision == Some(Decision::Rejected), held.compares, ran)
            }
            (verdict, _) => verdict,
        };
        let (can_be_confirmed, compares, counts) = match verdict {
            Verdict::Good => {
                // An outdated run takes nothing away, but it disagrees.
                if is_current {
                    self.held.remove(&lineage);
                } else {
                    self.contradict(lineage, at);
                }
                return Ok(is_lost);
            }
            Verdict::Nonsense => {
                self.contradict(lineage, at);
                return Err("invalid_output");
            }
            // A commit without images yet says nothing about the commit before.
            Verdict::Loss { can_be_confirmed, compares } => {
                let own = Slot::Own(query);
                let is_new = rules.follows && !self.known.contains_key(&own) && !self.unreadable.contains(&own);
                let counts = !(is_new && ran.names() == Some(Vec::new()));
                (can_be_confirmed && counts, compares, counts)
            }
        };
        if !is_current {
            if self.held.get(&lineage).is_some_and(|before| !rules.agree(&before.ran, ran)) {
                self.contradict(lineage, at);
            }
            return Err("held");
        }
        let mut held = OracleHeld {
            ran: ran.clone(),
            agreed: 0,
            counted_at: at,
            since: at,
            seen_at: at,
            queried_at: queried_at.unwrap_or(at),
            recorded_queried_at: at,
            can_be_confirmed,
            compares,
            decision: None,
            decided_at: at,
            counts,
            is_contradicted: false,
        };
        if let Some(before) = self.held.remove(&lineage).filter(|before| rules.agree(&before.ran, ran)) {
            held.agree_with(&before, at);
        }
        let is_accepted = match held.decision {
            Some(decision) => decision == Decision::Released,
            None => can_be_confirmed && held.agreed >= rules.confirm_after,
        };
        if is_accepted {
            return Ok(true);
        }
        held.record();
        self.held.insert(lineage, held);
        Err("held")
    }

    /// A run disagreed at `at`. The next one that agrees with what is held is the first of a row.
    fn contradict(&mut self, lineage: Slot, at: Timestamp) {
        if let Some(held) = self.held.get_mut(&lineage) {
            (held.agreed, held.counted_at, held.is_contradicted) = (0, at, true);
            held.record();
        }
    }

    /// Whether a run has disagreed with the answer that is held in `lineage` since the last one that agreed.
    pub(crate) fn is_contradicted(&self, lineage: Slot) -> bool {
        self.held.get(&lineage).is_some_and(|held| held.is_contradicted)
    }

    /// A caller sends `query`, whose answer is held.
    pub(crate) fn note_queried(&mut self, query: ModelQuery, now: Timestamp) {
        if let Some(held) = self.held.get_mut(&query.lineage()) {
            held.queried_at = now;
        }
    }

    /// The gateway's next own runs: their times and questions.
    pub(crate) fn confirmations(&self, now: Timestamp) -> Vec<(u64, ModelQuery)> {
        let due = |held: &OracleHeld| {
            let (query, due) = (held.ran.query, held.due_at()?);
            if self.flight(query).is_some() {
                return None;
            }
            let backoff = self
                .backoffs
                .get(&query)
                .filter(|backoff| now >= backoff.since)
                .map_or(0, |backoff| backoff.since.0 + backoff.lasts);
            let known = self.known.get(&Slot::Own(query)).filter(|_| self.own_worth(query, now) == Worth::Fresh);
            let fresh = known.map_or(0, |known| if let Fresh::For(life) = known.fresh { known.at.0 + life } else { 0 });
            Some((due.max(backoff).max(fresh), query))
        };
        self.held.values().filter_map(due).collect()
    }

    /// An operator decides on the answer held for `lineage`. Returns the question that brought it, if there is a held answer.
    pub(crate) fn decide(&mut self, lineage: Slot, decision: Decision, now: Timestamp) -> Option<ModelQuery> {
        self.forget(now);
        let held = self.held.get_mut(&lineage)?;
        (held.decision, held.decided_at) = (Some(decision), now);
        held.record();
        let query = held.ran.query;
        if decision == Decision::Released {
            self.backoffs.remove(&query);
        }
        Some(query)
    }

    /// An answer that no caller has queried for a day is no longer held. One that an operator rejected stays for 90 days.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        self.held.retain(|_, held| {
            let queried_at = held.queried_at.max(held.since);
            let (last, days) = match held.decision {
                Some(Decision::Rejected) => (queried_at.max(held.decided_at), 90),
                _ => (queried_at, 1),
            };
            now.0 <= last.0 + days * 24 * 3_600_000
        });
    }
}
