//! What a caller gets, by the table of states.

use std::collections::BTreeMap;

use crate::{
    answer::{Answer, AnswerSource, Unknown},
    model::{
        oracle::{EngineState, Finished, Oracle, Worth},
        rules::{ModelQuery, Slot},
    },
};
use domain::{clock::Timestamp, error::ErrorKind};

/// Why there is no new answer: the failure, and whether it happened to an earlier call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Why(pub &'static str, pub bool);

impl Why {
    pub(super) fn of(unknown: &Unknown) -> Self {
        Self(unknown.failure.as_str(), unknown.retry_after.is_some())
    }
}

/// What a caller gets. An answer is named by its question and by the time at which the source gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    Hit(ModelQuery, Timestamp),
    Stale(ModelQuery, Timestamp),
    Instead(ModelQuery, Timestamp, Why),
    New(ModelQuery, Timestamp),
    Nothing(Why),
}

impl Got {
    pub(super) fn of(result: &Result<Answer, Unknown>) -> Self {
        let answer = match result {
            Ok(answer) => answer,
            Err(unknown) => return Self::Nothing(Why::of(unknown)),
        };
        let (query, at) = (ModelQuery::of(&answer.entry.question.open().parameters), answer.entry.stored_at);
        match &answer.source {
            AnswerSource::Hit { .. } => Self::Hit(query, at),
            AnswerSource::StaleWhileRevalidate(..) => Self::Stale(query, at),
            AnswerSource::StaleIfError(_, unknown) => Self::Instead(query, at, Why::of(unknown)),
            AnswerSource::Miss { .. } => Self::New(query, at),
        }
    }
}

/// What is known when a caller asks.
#[derive(Debug, Clone)]
pub(super) struct StateBefore {
    pub query: ModelQuery,
    pub at: Timestamp,
    pub worth: Worth,
    known: Option<EngineState>,
    backoff: Option<&'static str>,
}

impl StateBefore {
    pub(super) fn new(oracle: &Oracle, query: ModelQuery, at: Timestamp) -> Self {
        let slot = Slot::Own(query);
        let (worth, known) = (oracle.own_worth(query, at), oracle.known.get(&slot).cloned());
        Self { query, at, worth, known, backoff: oracle.backoff(query, at) }
    }

    /// Whether the caller joins or starts a run.
    pub(crate) fn wants_run(&self) -> bool {
        self.worth != Worth::Fresh && self.backoff.is_none()
    }

    /// Whether the question's answer is held, and the caller is answered without a run.
    pub(crate) fn is_about_held_answer(&self) -> bool {
        self.worth != Worth::Fresh && self.backoff == Some("held")
    }

    /// What the caller gets once the run that it waits for has `finished`; `None` while it waits.
    pub(super) fn expected(
        &self,
        oracle: &Oracle,
        run: Option<usize>,
        finished: &BTreeMap<usize, Finished>,
    ) -> Option<Got> {
        let place = |known: &EngineState| (known.ran.query, known.at);
        let known = self.known.as_ref().map(place);
        if let (Worth::Fresh, Some((query, at))) = (self.worth, known) {
            return Some(Got::Hit(query, at));
        }
        if let (Worth::WhileRevalidate, Some((query, at))) = (self.worth, known) {
            return Some(Got::Stale(query, at));
        }
        let why = match (self.backoff, finished.get(&run.unwrap_or(usize::MAX))) {
            (Some(why), _) => Why(why, true),
            (None, Some(Finished::Bad(why))) => Why(why, false),
            (None, Some(Finished::Good(new))) => return Some(Got::New(new.ran.query, new.at)),
            (None, None) => return None,
        };
        let instead = match self.worth {
            Worth::IfError => known,
            // An invalid question has no lineage.
            _ if why.0 == ErrorKind::InvalidInput.as_str() => None,
            _ => oracle.known.get(&self.query.lineage()).map(place),
        };
        let is_usable = self.worth == Worth::IfError || oracle.worth(self.query.lineage(), self.at) != Worth::Nothing;
        Some(match instead.filter(|_| is_usable) {
            Some((query, at)) => Got::Instead(query, at, why),
            None => Got::Nothing(why),
        })
    }
}
