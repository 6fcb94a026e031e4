//! What became of the incidents: the Applications that Argo CD would have deleted.

use super::Incident;
use crate::kept::Kept;

/// What became of one question in one incident.
#[derive(Debug)]
pub struct PlayedQuestion {
    /// The name of the case.
    pub case: String,
    /// How many Applications Argo CD had before.
    pub before: usize,
    /// How many of them it would have deleted.
    pub deletes: usize,
    /// The replies that Argo CD would have acted on, or that are not clear.
    pub replies: Vec<String>,
    /// Whether a reply could not be judged.
    pub is_unclear: bool,
    /// Whether the source's reply was the incident's, at least once.
    pub(super) is_played: bool,
    /// Whether a reply of the source was never the incident's.
    pub(super) is_missed: bool,
    /// The answer before.
    pub(super) kept: Kept,
}

/// One incident, and what Argo CD would have deleted.
#[derive(Debug)]
pub struct Played {
    /// The incident.
    pub incident: &'static Incident,
    /// The questions that met it.
    pub questions: Vec<PlayedQuestion>,
    /// Why it was not played, or not to its end.
    pub why: Option<String>,
}

/// All incidents that were chosen.
#[derive(Debug)]
pub struct Findings {
    /// The incidents, in the order of the list.
    pub played: Vec<Played>,
    /// Why not all of them were played in time.
    pub unfinished: Option<String>,
    /// Whether the incidents are meant one by one.
    pub(super) is_named: bool,
}

impl Played {
    /// How many Applications Argo CD would have deleted.
    pub fn deletes(&self) -> usize {
        self.questions.iter().map(|question| question.deletes).sum()
    }

    /// How many Applications there were.
    pub fn before(&self) -> usize {
        self.questions.iter().map(|question| question.before).sum()
    }

    /// `deletes`, `unknown`, `not played`, or `keeps`.
    pub fn result(&self) -> &'static str {
        match self {
            _ if self.deletes() > 0 => "deletes",
            _ if self.questions.iter().any(|question| question.is_unclear) => "unknown",
            _ if self.questions.is_empty() => "not played",
            _ if self.why.is_some() => "unknown",
            _ => "keeps",
        }
    }
}

impl Findings {
    /// Whether Argo CD would have kept all Applications, and enough was played to say so.
    pub fn is_safe(&self) -> bool {
        let is_kept = |played: &Played| match played.result() {
            "keeps" => true,
            "not played" => !self.is_named,
            _ => false,
        };
        let has_played = self.played.iter().any(|played| !played.questions.is_empty());
        self.unfinished.is_none() && has_played && self.played.iter().all(is_kept)
    }
}
