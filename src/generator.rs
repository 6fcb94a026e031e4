//! The domain's words: what Argo CD's plugin generator asks and what it may be told. No I/O.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

/// The input parameters of a call or a parameter set of an answer: names to any JSON values.
pub type Parameters = Map<String, Value>;

/// One question, as a backend sees it.
#[derive(Debug, Clone)]
pub struct Query {
    /// The asking ApplicationSet. The caller's own word: Argo CD sends no namespace and proves nothing.
    pub application_set: Arc<str>,
    /// `input.parameters`, checked against the route's `input` and with its defaults applied.
    pub parameters: Arc<Parameters>,
    /// When an answer comes too late to be of use.
    pub deadline: Instant,
}

/// One item of an answer: Argo CD renders one Application from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParameterSet(pub Parameters);

/// What a backend knows. What it does not know is a [`crate::error::BackendError`] (invariant I2).
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// There is something: at least one parameter set.
    Present(Vec<ParameterSet>),
    /// There is provably nothing.
    Absent(Vec<Evidence>),
}

impl Outcome {
    /// The outcome of a complete list: present, or absent with `evidence` when it is explicitly empty.
    #[must_use]
    pub fn of_list(sets: Vec<ParameterSet>, evidence: impl FnOnce() -> Evidence) -> Self {
        if sets.is_empty() { Self::Absent(vec![evidence()]) } else { Self::Present(sets) }
    }
}

/// Why a backend is sure that there is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was asked: `HEAD registry.example.com/org/front:main`.
    pub asked: String,
    /// What was answered: `404`.
    pub answered: String,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.asked, self.answered)
    }
}
