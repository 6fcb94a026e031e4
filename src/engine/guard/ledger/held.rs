//! A held answer, and its message.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::super::{Breach, short};
use crate::{
    domain::{
        clock::Timestamp,
        generator::{Evidence, Question},
    },
    engine::cache::Key,
};

/// How many of the Applications' names that would be deleted are listed in a message.
const MAX_NAMED: usize = 20;
/// How much evidence a held answer keeps.
const MAX_EVIDENCE: usize = 50;
/// A held answer that no caller asks about for this long is forgotten: its pull request is closed.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
/// For how long a release waits for a run that agrees.
const RELEASED_FOR: Duration = Duration::from_hours(1);
/// The shortest time between two runs that the gateway starts by itself.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// An answer that waits for agreement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The question.
    pub(crate) question: Question,
    /// The question's key.
    pub(crate) key: Key,
    /// The key of its lineage, which is also the id of the held answer.
    pub(crate) lineage: Key,
    /// Why it is held.
    pub(crate) breach: Breach,
    /// How many parameter sets it has.
    pub(crate) sets: usize,
    /// How many runs have agreed since the first.
    pub(crate) agreed: u32,
    /// How many runs must agree.
    pub(crate) wanted: u32,
    /// The time between those runs.
    pub(crate) apart: Duration,
    /// When the first run found it.
    pub(crate) since: Timestamp,
    /// When the last agreeing run found it.
    pub(crate) seen_at: Timestamp,
    /// When a caller last asked about it.
    #[serde(default = "long_ago")]
    pub(crate) asked_at: Timestamp,
    /// What the last run learned, at most [`MAX_EVIDENCE`] entries.
    #[serde(default)]
    pub(crate) evidence: Vec<Evidence>,
    /// The operator's decision.
    pub(crate) decision: Option<Decision>,
    /// When the operator decided.
    pub(crate) decided_at: Timestamp,
    /// Whether runs that agree count. They do not while an empty answer to a new question is held.
    pub(in crate::engine::guard) counts: bool,
    pub(in crate::engine::guard) fingerprint: [u8; 32],
    pub(in crate::engine::guard) counted_at: Timestamp,
}

/// For records of earlier versions, which lack the time. The next call sets it.
const fn long_ago() -> Timestamp {
    Timestamp(0)
}

/// An operator's decision about a held answer. It applies to that answer only: a different answer is held anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// The next run that agrees is accepted, within the hour.
    Released,
    /// Runs that agree are never enough.
    Rejected,
}

impl Held {
    /// The same with what its run learned.
    #[must_use]
    pub(crate) fn with_evidence(self, evidence: &[Evidence]) -> Self {
        Self { evidence: evidence.iter().take(MAX_EVIDENCE).cloned().collect(), ..self }
    }

    /// The earliest time at which the gateway asks the source again by itself; `None` if runs that agree are never enough.
    #[must_use]
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        let is_pending = self.breach.can_be_confirmed && self.counts && self.decision != Some(Decision::Rejected);
        is_pending.then(|| self.counted_at.plus(self.apart).max(self.seen_at.plus(MIN_INTERVAL)))
    }

    /// The same with an operator's decision.
    #[must_use]
    pub(crate) fn decided(self, decision: Decision, now: Timestamp) -> Self {
        Self { decision: Some(decision), decided_at: now, ..self }
    }

    /// Identifies its parameter sets, as hexadecimal digits.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> String {
        base16ct::lower::encode_string(&self.fingerprint[..8])
    }

    /// Whether no caller has asked about it for a day.
    #[must_use]
    pub(super) fn is_forgotten(&self, now: Timestamp) -> bool {
        now.since(self.asked_at.max(self.since)).is_some_and(|idle| idle > FORGOTTEN_AFTER)
    }

    /// Whether a decision still stands at `now`: a release waits for an hour.
    #[must_use]
    pub(in crate::engine::guard) fn standing_decision(&self, now: Timestamp) -> Option<Decision> {
        self.decision.filter(|decision| {
            let passed = now.since(self.decided_at);
            *decision == Decision::Rejected || passed.is_some_and(|passed| passed < RELEASED_FOR)
        })
    }
}

/// The same cause always has the same text, because Argo CD rewrites a condition when its text changes.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held: {}", self.breach.reason)?;
        if !self.breach.identity.is_empty() && !self.breach.gone.is_empty() {
            write!(f, " (sets are told apart by `{}`)", self.breach.identity.join("`, `"))?;
        }
        if !self.breach.gone.is_empty() {
            let named: Vec<String> = self.breach.gone.iter().take(MAX_NAMED).map(|name| short(name)).collect();
            let rest = self.breach.gone.len() - named.len();
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            write!(f, "; Argo CD would delete what was made of {}{rest}", named.join(", "))?;
        }
        if self.decision == Some(Decision::Rejected) {
            f.write_str("; an operator rejected it")?;
        } else if self.breach.can_be_confirmed {
            let apart = humantime::format_duration(self.apart);
            write!(f, "; accepted once {} further runs, {apart} apart, agree", self.wanted)?;
        } else {
            f.write_str("; it is not accepted without an operator")?;
        }
        write!(f, "; if it is right, accept it now with `appset-gateway held release {}`", self.lineage)
    }
}
