//! A held answer, and its message.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    cache::{Key, question_size},
    guard::{Breach, rules::MAX_NAMED as MAX_GONE, short},
};
use domain::{
    clock::Timestamp,
    generator::{Evidence, Question},
};

/// How many of the Applications' names that would be deleted are listed in a message.
const MAX_NAMED: usize = 20;
/// How many of them are listed in short.
const MAX_LISTED: usize = 8;
/// How much evidence a held answer keeps.
const MAX_EVIDENCE: usize = 50;
/// A held answer that no caller queries for this long is forgotten: its pull request is closed.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
/// A rejection stands this long after the last query, as a baseline does without use.
const REJECTED_FOR: Duration = Duration::from_hours(90 * 24);
/// The overhead of one held answer in memory, in bytes.
const BESIDE: usize = 512;
/// The size of a piece of evidence or of a name without its texts, in bytes.
const EACH: usize = 96;
/// For how long a release waits for a run that agrees.
const RELEASED_FOR: Duration = Duration::from_hours(1);
/// The shortest time between two runs that the gateway starts by itself.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// An answer that waits for agreement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Held {
    /// The question.
    pub question: Question,
    /// The question's key.
    pub key: Key,
    /// The key of its lineage, which is also the id of the held answer.
    pub lineage: Key,
    /// Why it is held.
    pub breach: Breach,
    /// How many parameter sets it has.
    pub sets: usize,
    /// How many runs have agreed since the first.
    pub agreed: u32,
    /// How many runs must agree.
    pub wanted: u32,
    // Earlier builds stored it as `apart`, and the time below as `asked_at`: a rejection must outlive an upgrade.
    /// The time between those runs.
    #[serde(alias = "apart")]
    pub interval: Duration,
    /// When the first run found it.
    pub since: Timestamp,
    /// When the last agreeing run found it.
    pub seen_at: Timestamp,
    /// When a caller last queried it.
    #[serde(alias = "asked_at", default = "long_ago")]
    pub queried_at: Timestamp,
    /// The findings of the last run, at most [`MAX_EVIDENCE`] entries.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// The operator's decision.
    pub decision: Option<Decision>,
    /// When the operator decided.
    pub(crate) decided_at: Timestamp,
    /// Whether the limit was reached, so that agreeing runs are not counted, and no operator can decide on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::guard) is_unlisted: bool,
    /// Whether runs that agree count. They do not while an empty answer to a new question is held.
    pub(in crate::guard) counts: bool,
    pub(in crate::guard) fingerprint: [u8; 32],
    pub(in crate::guard) counted_at: Timestamp,
    /// Whether a later run had a different result, and did not replace this answer. The next run that agrees is then the first one again.
    #[serde(default)]
    pub(in crate::guard) is_contradicted: bool,
}

/// For records of earlier versions, which lack the time. The next call sets it.
const fn long_ago() -> Timestamp {
    Timestamp(0)
}

/// An operator's decision about a held answer. It applies to that answer only: a different answer is checked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The next run that agrees is accepted, within the hour.
    Released,
    /// Runs that agree are never enough.
    Rejected,
}

impl Held {
    /// The same with the question `question`, which has these keys: its route has another name than before.
    #[must_use]
    pub(crate) fn requeried_as(self, question: Question, key: Key, lineage: Key) -> Self {
        Self { question, key, lineage, ..self }
    }

    /// The same with the notes of its run.
    #[must_use]
    pub(crate) fn with_evidence(self, evidence: &[Evidence]) -> Self {
        Self { evidence: evidence.iter().take(MAX_EVIDENCE).cloned().collect(), ..self }
    }

    /// Whether runs that agree are enough to accept it.
    #[must_use]
    pub fn may_be_confirmed(&self) -> bool {
        self.breach.can_be_confirmed && self.counts && self.decision != Some(Decision::Rejected)
    }

    /// The earliest time at which the gateway calls the source again by itself; `None` if runs that agree are never enough.
    #[must_use]
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        self.may_be_confirmed().then(|| self.counted_at.plus(self.interval).max(self.seen_at.plus(MIN_INTERVAL)))
    }

    /// About when it is accepted, as seen at `now`, if all further runs agree and no operator decides otherwise. `None` if runs that agree
    /// are never enough.
    #[must_use]
    pub fn accepted_at(&self, now: Timestamp) -> Option<Timestamp> {
        // A run that is late, as after a pause of the gateway, delays those after it.
        let due = self.due_at()?.max(now);
        let left = match self.decision {
            Some(Decision::Released) => 1,
            // After a run that disagreed, the next one that agrees is the first.
            _ => self.wanted.saturating_sub(self.agreed) + u32::from(self.is_contradicted),
        };
        Some(due.plus(self.interval.saturating_mul(left.saturating_sub(1))))
    }

    /// The same after a run with a different result at `now`. Only runs that agree one after the other confirm an answer.
    #[must_use]
    pub fn contradicted(self, now: Timestamp) -> Self {
        Self { agreed: 0, counted_at: now, is_contradicted: true, ..self }
    }

    /// Whether it has the same parameter sets as `other`.
    #[must_use]
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }

    /// The same with an operator's decision.
    #[must_use]
    pub fn decided(self, decision: Decision, now: Timestamp) -> Self {
        Self { decision: Some(decision), decided_at: now, ..self }
    }

    /// How many of the last good answer's sets are gone, and the names of the first ones, such as `2: acme, globex`. `None` if none is
    /// known.
    #[must_use]
    pub fn loss(&self) -> Option<String> {
        let gone = &self.breach.gone;
        let named: Vec<String> = gone.iter().take(MAX_LISTED).map(|name| short(name)).collect();
        let least = if gone.len() < MAX_GONE { "" } else { "at least " };
        let more = if gone.len() > named.len() { ", …" } else { "" };
        (!gone.is_empty()).then(|| format!("{least}{}: {}{more}", gone.len(), named.join(", ")))
    }

    /// Identifies its parameter sets, as hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        base16ct::lower::encode_string(&self.fingerprint[..8])
    }

    /// Whether it is forgotten at `now`: no caller has queried it for a day, or for 90 days after an operator has rejected it.
    #[must_use]
    pub(super) fn is_forgotten(&self, now: Timestamp) -> bool {
        let queried_at = self.queried_at.max(self.since);
        let (last, lasts) = match self.decision {
            Some(Decision::Rejected) => (queried_at.max(self.decided_at), REJECTED_FOR),
            _ => (queried_at, FORGOTTEN_AFTER),
        };
        now.since(last).is_some_and(|idle| idle > lasts)
    }

    /// Whether it may be evicted at `now`: it has no decision of an operator that still holds. If the clock was put back, a release
    /// still holds.
    #[must_use]
    pub(super) fn may_leave(&self, now: Timestamp) -> bool {
        match self.decision {
            None => true,
            Some(Decision::Released) => now.since(self.decided_at).is_some_and(|passed| passed >= RELEASED_FOR),
            Some(Decision::Rejected) => false,
        }
    }

    /// The same for an answer that is not listed, because the limit is reached ([`super::HeldAnswers::fits`]).
    #[must_use]
    pub fn unlisted(self) -> Self {
        Self { is_unlisted: true, ..self }
    }

    /// About how much memory it takes, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let names = self.breach.gone.iter().chain(&self.breach.identity).map(|name| EACH + name.len());
        let evidence = self.evidence.iter().map(|each| EACH + each.query.len() + each.answer.len());
        let texts = self.breach.reason.len() + names.sum::<usize>() + evidence.sum::<usize>();
        BESIDE + size_of::<Self>() + question_size(&self.question) + texts
    }

    /// Whether a decision still stands at `now`: a release waits for an hour.
    #[must_use]
    pub(in crate::guard) fn standing_decision(&self, now: Timestamp) -> Option<Decision> {
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
            write!(f, " (sets are identified by `{}`)", self.breach.identity.join("`, `"))?;
        }
        if !self.breach.gone.is_empty() {
            let named: Vec<String> = self.breach.gone.iter().take(MAX_NAMED).map(|name| short(name)).collect();
            let rest = self.breach.gone.len() - named.len();
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            write!(f, "; Argo CD would delete what was made of {}{rest}", named.join(", "))?;
        }
        if self.is_unlisted {
            return f.write_str(
                "; the runs that agree are not counted, because other held answers use up the share of this route; \
                 wait until some are accepted, or release some",
            );
        }
        if self.decision == Some(Decision::Rejected) {
            f.write_str("; an operator rejected it")?;
        } else if self.breach.can_be_confirmed {
            let interval = humantime::format_duration(self.interval);
            write!(f, "; accepted once {} further runs, {interval} apart, agree", self.wanted)?;
        } else {
            f.write_str("; it is not accepted without an operator")?;
        }
        write!(f, "; if it is right, accept it now with `appset-gateway held release {}`", self.lineage)
    }
}
