//! Why a question has no new answer.

use std::{fmt, hash::BuildHasher as _, time::Duration};

use foldhash::quality::FixedState;
use serde::{Deserialize, Serialize};

use crate::{
    cache::{self, Subject, question_size},
    guard::Held,
};
use domain::{
    error::{BackendError, ErrorKind},
    generator::{Evidence, Question},
};
use store::StoreError;

/// The overhead of one stored failure, in bytes.
const BESIDE: usize = 256;
/// The size of a piece of evidence without its texts, in bytes.
const EACH: usize = 96;

/// Why a run brought no answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Failure {
    /// The backend failed.
    Backend(BackendError),
    /// The deadline passed. The run may still end, and its answer is then stored.
    Deadline,
    /// The run panicked.
    Crashed,
    /// The backend answered, and the guard holds the answer.
    Held(Box<Held>),
    /// The shared store is needed and does not answer, or another replica must answer.
    Store(String),
}

impl Failure {
    /// The findings about each item, if the backend queried several.
    #[must_use]
    pub fn evidence(&self) -> &[Evidence] {
        if let Self::Backend(error) = self { &error.evidence } else { &[] }
    }

    /// Whether the question itself is invalid, such as one with a shortened commit.
    pub(crate) const fn is_invalid_question(&self) -> bool {
        matches!(self, Self::Backend(BackendError { kind: ErrorKind::InvalidInput, .. }))
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Backend(error) => error.kind.as_str(),
            Self::Deadline => "timeout",
            Self::Crashed => "crashed",
            Self::Held(_) => "held",
            Self::Store(_) => "store",
        }
    }

    /// The failure, after which another run may help in `time`.
    #[must_use]
    pub(crate) fn retried_in(self, time: Option<Duration>) -> Self {
        match self {
            Self::Backend(error) => Self::Backend(error.retried_in(time)),
            other => other,
        }
    }

    /// How long the source wants no calls.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Backend(BackendError { kind: ErrorKind::Throttled { retry_after }, .. }) => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Deadline => f.write_str("no answer by the deadline"),
            Self::Crashed => f.write_str("the gateway failed; its log says where"),
            Self::Held(held) => held.fmt(f),
            Self::Store(why) => write!(f, "the shared store cannot be used: {why}"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// A question that failed, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub question: Question,
    pub failure: Failure,
}

impl Failed {
    /// The subject of `question`, if it is an element: the same for each item that it has.
    pub(crate) fn subject_of(question: &Question) -> Option<Subject> {
        let element = question.part.as_ref()?.element()?;
        let parameters = serde_json::to_string(&*question.parameters).ok()?;
        let of_whole = (&*question.route, question.application_set.as_deref(), parameters);
        Some(Subject(FixedState::default().hash_one((of_whole, &*element.id))))
    }
}

impl cache::Failed for Failed {
    fn subject(&self) -> Option<Subject> {
        Self::subject_of(&self.question)
    }

    fn weight(&self) -> usize {
        let of_failure = match &self.failure {
            Failure::Backend(error) => {
                let evidence = error.evidence.iter().map(|each| each.query.len() + each.answer.len() + EACH);
                error.message.len() + evidence.sum::<usize>()
            }
            Failure::Held(held) => held.weight(),
            Failure::Store(why) => why.len(),
            Failure::Deadline | Failure::Crashed => 0,
        };
        BESIDE + question_size(&self.question) + of_failure
    }
}
