//! What a caller gets, by the table of states.

use std::collections::BTreeMap;

use crate::answer::{
    Answer, AnswerSource, Unknown,
    model::{
        oracle::{EngineState, Landed, Oracle, Worth},
        rules::{Asked, Slot},
    },
};
use domain::{clock::Timestamp, error::ErrorKind};

/// Why there is no new answer: the failure, and whether it happened to an earlier call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Why(pub &'static str, pub bool);

impl Why {
    pub(super) fn of(unknown: &Unknown) -> Self {
        Self(unknown.failure.as_str(), unknown.rests.is_some())
    }
}

/// What a caller gets. An answer is named by its question and by the time at which the source gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    Hit(Asked, Timestamp),
    Stale(Asked, Timestamp),
    Instead(Asked, Timestamp, Why),
    New(Asked, Timestamp),
    Nothing(Why),
}

impl Got {
    pub(super) fn of(result: &Result<Answer, Unknown>) -> Self {
        let answer = match result {
            Ok(answer) => answer,
            Err(unknown) => return Self::Nothing(Why::of(unknown)),
        };
        let (asked, at) = (Asked::of(&answer.entry.question.open().parameters), answer.entry.stored_at);
        match &answer.source {
            AnswerSource::Hit { .. } => Self::Hit(asked, at),
            AnswerSource::StaleWhileRevalidate(..) => Self::Stale(asked, at),
            AnswerSource::StaleIfError(_, unknown) => Self::Instead(asked, at, Why::of(unknown)),
            AnswerSource::Miss { .. } => Self::New(asked, at),
        }
    }
}

/// What is known when a caller asks.
#[derive(Debug, Clone)]
pub(super) struct StateBefore {
    pub asked: Asked,
    pub at: Timestamp,
    pub worth: Worth,
    known: Option<EngineState>,
    resting: Option<&'static str>,
}

impl StateBefore {
    pub(super) fn new(oracle: &Oracle, asked: Asked, at: Timestamp) -> Self {
        let slot = Slot::Own(asked);
        let (worth, known) = (oracle.own_worth(asked, at), oracle.known.get(&slot).cloned());
        Self { asked, at, worth, known, resting: oracle.resting(asked, at) }
    }

    /// Whether the caller joins or starts a run.
    pub(crate) fn wants_run(&self) -> bool {
        self.worth != Worth::Fresh && self.resting.is_none()
    }

    /// Whether the question's answer is held, and the caller is answered without a run.
    pub(crate) fn asks_about_what_is_held(&self) -> bool {
        self.worth != Worth::Fresh && self.resting == Some("held")
    }

    /// What the caller gets once the run that it waits for has `landed`; `None` while it waits.
    pub(super) fn expected(
        &self,
        oracle: &Oracle,
        run: Option<usize>,
        landed: &BTreeMap<usize, Landed>,
    ) -> Option<Got> {
        let place = |known: &EngineState| (known.ran.asked, known.at);
        let known = self.known.as_ref().map(place);
        if let (Worth::Fresh, Some((asked, at))) = (self.worth, known) {
            return Some(Got::Hit(asked, at));
        }
        if let (Worth::WhileRevalidate, Some((asked, at))) = (self.worth, known) {
            return Some(Got::Stale(asked, at));
        }
        let why = match (self.resting, landed.get(&run.unwrap_or(usize::MAX))) {
            (Some(why), _) => Why(why, true),
            (None, Some(Landed::Bad(why))) => Why(why, false),
            (None, Some(Landed::Good(new))) => return Some(Got::New(new.ran.asked, new.at)),
            (None, None) => return None,
        };
        let instead = match self.worth {
            Worth::IfError => known,
            // An invalid question has no lineage.
            _ if why.0 == ErrorKind::InvalidInput.as_str() => None,
            _ => oracle.known.get(&self.asked.lineage()).map(place),
        };
        let is_usable = self.worth == Worth::IfError || oracle.worth(self.asked.lineage(), self.at) != Worth::Nothing;
        Some(match instead.filter(|_| is_usable) {
            Some((asked, at)) => Got::Instead(asked, at, why),
            None => Got::Nothing(why),
        })
    }
}
