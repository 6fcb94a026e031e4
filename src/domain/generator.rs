//! The domain's words: what Argo CD's plugin generator asks and what it may be told. No I/O.

pub(crate) mod watch;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use self::watch::Watch;

/// The input parameters of a call or a parameter set of an answer: names to any JSON values.
pub type Parameters = Map<String, Value>;

/// One question, as a backend sees it.
#[derive(Debug, Clone)]
pub struct Query {
    /// The asking ApplicationSet. The caller's own word: Argo CD sends no namespace and proves nothing.
    pub(crate) application_set: Arc<str>,
    /// `input.parameters`, checked against the route's `input` and with its defaults applied.
    pub(crate) parameters: Arc<Parameters>,
    /// When an answer comes too late to be of use.
    pub(crate) deadline: Instant,
    /// For how long the route's answers are fresh: what was learned for another question less long ago may be used.
    pub(crate) ttl: Duration,
    /// What the backend noted with the answers that this one follows.
    pub(crate) before: Before,
    /// What the step before found, a list of objects, where the backend is a later step of a pipeline.
    pub(crate) items: Option<Arc<Value>>,
    /// Who wants to see what is done for it.
    pub(crate) watch: Option<Watch>,
}

impl Query {
    /// A question of `application_set` that follows none, and wants nothing that was learned before.
    #[must_use]
    pub const fn new(application_set: Arc<str>, parameters: Arc<Parameters>, deadline: Instant) -> Self {
        Self {
            application_set,
            parameters,
            deadline,
            ttl: Duration::ZERO,
            before: Before { own: None, lineage: None },
            items: None,
            watch: None,
        }
    }
}

/// A backend's notes on earlier answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Before {
    /// With the last answer to this very question.
    pub(crate) own: Option<Arc<Value>>,
    /// With the last answer of its lineage, where that is another question's.
    pub(crate) lineage: Option<Arc<Value>>,
}

impl Before {
    /// What the part called `name` noted, in the notes of a whole.
    #[must_use]
    pub(crate) fn of_part(&self, name: &str) -> Self {
        let part = |note: &Option<Arc<Value>>| note.as_ref()?.get(name).cloned().map(Arc::new);
        Self { own: part(&self.own), lineage: part(&self.lineage) }
    }
}

/// What was asked: kept with the answer, so that it can be named and asked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The route's name.
    pub(crate) route: Arc<str>,
    /// The ApplicationSet's name, where the answer may depend on it.
    pub(crate) application_set: Option<Arc<str>>,
    /// The input parameters.
    pub(crate) parameters: Arc<Parameters>,
}

/// Which questions are meant: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The route's name.
    pub(crate) route: Option<String>,
    /// The ApplicationSet's name. An answer that does not depend on it belongs to all.
    pub(crate) application_set: Option<String>,
    /// Parameters and their values; others may have any.
    pub(crate) parameters: Parameters,
}

impl Selector {
    /// Whether `question` is meant.
    #[must_use]
    pub(crate) fn selects(&self, question: &Question) -> bool {
        let is_unlike = |wanted: &Option<String>, name: &str| wanted.as_ref().is_some_and(|wanted| wanted != name);
        let is_other_set = question.application_set.as_ref().is_some_and(|name| is_unlike(&self.application_set, name));
        let has = |(name, value): (&String, &Value)| question.parameters.get(name) == Some(value);
        !is_unlike(&self.route, &question.route) && !is_other_set && self.parameters.iter().all(has)
    }
}

/// One item of an answer: Argo CD renders one Application from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParameterSet(pub Parameters);

/// What a backend knows: parameter sets, or proof that there are none. What it does not know is a
/// [`crate::domain::error::BackendError`] (invariant I2).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) sets: Vec<ParameterSet>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) lasting: Option<Lasting>,
    pub(crate) note: Option<Arc<Value>>,
}

/// For how long an answer is fresh, by its backend's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// For so long, whatever the route's `ttl` is.
    For(Duration),
    /// For the route's `ttl`, and no longer than this: after that the backend is asked before it is served again.
    AtMost(Duration),
}

impl Outcome {
    /// There is something; `evidence` says where each of its items was found.
    #[must_use]
    pub(crate) fn present(set: ParameterSet, evidence: Vec<Evidence>) -> Self {
        Self { sets: vec![set], evidence, lasting: None, note: None }
    }

    /// There is provably nothing; `evidence` holds the proof.
    #[must_use]
    pub(crate) const fn absent(evidence: Vec<Evidence>) -> Self {
        Self { sets: Vec::new(), evidence, lasting: None, note: None }
    }

    /// The outcome of a complete list that `asked` gave: `empty` is what it answers when it is explicitly empty.
    #[must_use]
    pub(crate) fn of_list(sets: Vec<ParameterSet>, asked: impl Into<String>, empty: impl Into<String>) -> Self {
        let evidence = if sets.is_empty() { vec![Evidence::absent(asked, empty)] } else { Vec::new() };
        Self { sets, evidence, lasting: None, note: None }
    }

    /// The same, fresh for as long as the source itself says, if it does.
    #[must_use]
    pub(crate) fn lasting(self, ttl: Option<Duration>) -> Self {
        Self { lasting: ttl.map(Lasting::For), ..self }
    }

    /// The same, fresh for no longer than `most`.
    #[must_use]
    pub(crate) fn lasting_at_most(self, most: Duration) -> Self {
        Self { lasting: Some(Lasting::AtMost(most)), ..self }
    }

    /// The same, with `evidence` of what was learned on the way.
    #[must_use]
    pub(crate) fn having_learned(self, mut evidence: Vec<Evidence>) -> Self {
        evidence.extend(self.evidence);
        Self { evidence, ..self }
    }

    /// The same with a note, which the backend gets back with the questions that follow this one.
    #[must_use]
    pub(crate) fn noting(self, note: Value) -> Self {
        Self { note: Some(Arc::new(note)), ..self }
    }
}

/// What was learned of one item, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Which of several items, such as an image's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) item: Option<String>,
    /// Whether it is there.
    pub(crate) verdict: Verdict,
    /// What was asked: `the manifest of registry.example.com/org/front:main`.
    pub(crate) asked: String,
    /// What was answered: `404, the registry has no such tag or no such repository`.
    pub answered: String,
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// It is.
    Present,
    /// It provably is not.
    Absent,
    /// That is not known.
    Unknown,
}

impl Verdict {
    /// The name in logs.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }
}

impl Evidence {
    /// That it is there.
    pub(crate) fn present(asked: impl Into<String>, answered: impl Into<String>) -> Self {
        Self { item: None, verdict: Verdict::Present, asked: asked.into(), answered: answered.into() }
    }

    /// That it is not.
    pub(crate) fn absent(asked: impl Into<String>, answered: impl Into<String>) -> Self {
        Self { verdict: Verdict::Absent, ..Self::present(asked, answered) }
    }

    /// That it is not known.
    pub(crate) fn unknown(asked: impl Into<String>, answered: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, ..Self::present(asked, answered) }
    }

    /// The same, of the item called `name`.
    #[must_use]
    pub(crate) fn of(self, name: &str) -> Self {
        Self { item: Some(name.to_owned()), ..self }
    }

    /// The same, learned by the part called `name` of a whole.
    #[must_use]
    pub(crate) fn by(self, name: &str) -> Self {
        let item = self.item.as_ref().map_or_else(|| name.to_owned(), |item| format!("{name}, {item}"));
        Self { item: Some(item), ..self }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(item) = &self.item {
            write!(f, "{item}: ")?;
        }
        write!(f, "{}, {}: {}", self.verdict.as_str(), self.asked, self.answered)
    }
}
