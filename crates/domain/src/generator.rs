//! The queries of Argo CD's plugin generator, and the possible answers. No I/O.

mod note;
mod part;
mod trust;
pub mod watch;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use self::watch::Watch;
pub use self::{
    note::{BackendNote, Before},
    part::{Element, Part},
    trust::Trust,
};
use super::document::exact;

/// The input parameters of a request, or a parameter set of an answer: names and JSON values.
pub type Parameters = Map<String, Value>;

/// A request, as a backend sees it.
#[derive(Debug, Clone)]
pub struct Query {
    /// The ApplicationSet that sends the query, as the caller claims: Argo CD sends no namespace and no proof.
    pub application_set: Arc<str>,
    /// Its namespace, if the caller sends it. Not part of the cache key.
    pub namespace: Option<Arc<str>>,
    /// `input.parameters`, checked against the route's `input`, with defaults applied.
    pub parameters: Arc<Parameters>,
    /// The deadline.
    pub deadline: Instant,
    /// How long the route's answers are fresh.
    pub ttl: Duration,
    /// Whether to bypass memory of earlier requests (set after an event).
    pub must_ask: bool,
    /// The backend's notes with earlier answers.
    pub before: Before,
    /// The result of the previous step, a list of objects, if the backend is a later step of a pipeline.
    pub items: Option<Arc<Value>>,
    /// The part of the answer that is queried. `None`: the whole answer.
    pub part: Option<Part>,
    /// Records each step, if an operator wants to see them.
    pub watch: Option<Watch>,
}

impl Query {
    /// A request of `application_set` without notes of earlier answers.
    #[must_use]
    pub const fn new(application_set: Arc<str>, parameters: Arc<Parameters>, deadline: Instant) -> Self {
        Self {
            application_set,
            namespace: None,
            parameters,
            deadline,
            ttl: Duration::ZERO,
            must_ask: false,
            before: Before { own: None, lineage: None },
            items: None,
            part: None,
            watch: None,
        }
    }

    /// The ApplicationSet's name, with its namespace and a `/` before it if the caller sent it.
    #[must_use]
    pub fn requester(&self) -> Cow<'_, str> {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.application_set).into(),
            None => (&*self.application_set).into(),
        }
    }

    /// The element that is queried, if it is one.
    #[must_use]
    pub fn element(&self) -> Option<&Element> {
        self.part.as_ref().and_then(Part::element)
    }

    /// The item of the element that is queried.
    #[must_use]
    pub fn item(&self) -> Option<&Arc<Value>> {
        self.element().map(|element| &element.item)
    }

    /// How old knowledge from earlier requests may be.
    #[must_use]
    pub const fn reuses_for(&self) -> Duration {
        if self.must_ask { Duration::ZERO } else { self.ttl }
    }
}

/// The query that an answer belongs to. Kept with the answer, so that the answer can be named and renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The route's name.
    pub route: Arc<str>,
    /// The ApplicationSet's name, if the answer may depend on it.
    pub application_set: Option<Arc<str>>,
    /// The input parameters.
    #[serde(deserialize_with = "exact::read")]
    pub parameters: Arc<Parameters>,
    /// The part of the answer that it is about. `None`: the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

impl Question {
    /// The question about the whole answer.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self { part: None, ..self.clone() }
    }
}

/// Selects questions: those that match everything that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// The route's name.
    pub route: Option<String>,
    /// Former names of the route. Records may have one of these.
    pub formerly: Vec<String>,
    /// The ApplicationSet's name. An answer that does not depend on it matches any name.
    pub application_set: Option<String>,
    /// Parameters and their values. Other parameters may have any value. An element also has the values of its item.
    pub parameters: Parameters,
    /// Whether a question must not have other parameters, and is about the same [`part`](Self::part).
    pub is_exact: bool,
    /// The part of an answer, if `is_exact`. Without that, the answer with all of its parts is selected.
    pub part: Option<Part>,
}

impl Selector {
    /// Selects only `question`.
    #[must_use]
    pub fn only(question: &Question) -> Self {
        Self {
            route: Some(question.route.to_string()),
            formerly: Vec::new(),
            application_set: question.application_set.as_ref().map(ToString::to_string),
            parameters: (*question.parameters).clone(),
            is_exact: true,
            part: question.part.clone(),
        }
    }

    /// The same for a route that was called `formerly` before.
    #[must_use]
    pub fn also_named(self, formerly: &[Arc<str>]) -> Self {
        Self { formerly: formerly.iter().map(ToString::to_string).collect(), ..self }
    }

    /// Whether nothing is set, so that it selects all questions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.route.is_none() && self.application_set.is_none() && self.parameters.is_empty()
    }

    /// Whether `question` matches.
    #[must_use]
    pub fn selects(&self, question: &Question) -> bool {
        let is_unlike = |wanted: &Option<String>, name: &str| wanted.as_ref().is_some_and(|wanted| wanted != name);
        let is_other_set = question.application_set.as_ref().is_some_and(|name| is_unlike(&self.application_set, name));
        let item =
            question.part.as_ref().and_then(Part::element).filter(|_| !self.is_exact).map(|element| &element.item);
        let of_item = |name: &String, value: &Value| item.and_then(|item| item.get(name)) == Some(value);
        let has =
            |(name, value): (&String, &Value)| question.parameters.get(name) == Some(value) || of_item(name, value);
        let has_others =
            self.is_exact && (self.parameters.len() != question.parameters.len() || self.part != question.part);
        let is_formerly = self.formerly.iter().any(|name| **name == *question.route);
        (is_formerly || !is_unlike(&self.route, &question.route))
            && !is_other_set
            && !has_others
            && self.parameters.iter().all(has)
    }
}

/// One item of an answer. Argo CD renders one Application from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParameterSet(pub Parameters);

/// A backend's answer: parameter sets, or proof that there are none. Anything else is a [`crate::error::BackendError`]
/// (invariant I2).
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The parameter sets. None: there is evidence for that.
    pub sets: Vec<ParameterSet>,
    /// The queries of the backend to its sources, and their answers.
    pub evidence: Vec<Evidence>,
    /// How long the answer is fresh, if the backend sets it.
    pub lasting: Option<Lasting>,
    /// The note that the backend gets back at its next run for the same question.
    pub note: Option<BackendNote>,
}

/// How long an answer is fresh, as set by its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// For this time, independent of the route's `ttl`.
    For(Duration),
    /// For the route's `ttl`, but at most this long. Then the backend runs before the answer is served again.
    AtMost(Duration),
}

impl Outcome {
    /// There are items. `evidence` has where each was found.
    #[must_use]
    pub fn present(set: ParameterSet, evidence: Vec<Evidence>) -> Self {
        Self { sets: vec![set], evidence, lasting: None, note: None }
    }

    /// There are provably no items. `evidence` holds the proof.
    #[must_use]
    pub const fn absent(evidence: Vec<Evidence>) -> Self {
        Self { sets: Vec::new(), evidence, lasting: None, note: None }
    }

    /// The outcome of a complete list. `evidence` names each source, and is the proof of an empty list.
    #[must_use]
    pub const fn of_sources(sets: Vec<ParameterSet>, evidence: Vec<Evidence>) -> Self {
        Self { sets, evidence, lasting: None, note: None }
    }

    /// The outcome of a complete list that the source returned for `query`. `empty` is the source's answer when the list is empty.
    #[must_use]
    pub fn of_list(sets: Vec<ParameterSet>, query: impl Into<String>, empty: impl Into<String>) -> Self {
        let evidence = if sets.is_empty() { vec![Evidence::absent(query, empty)] } else { Vec::new() };
        Self { sets, evidence, lasting: None, note: None }
    }

    /// Sets how long the outcome is fresh by the source's own words, if it names a time.
    #[must_use]
    pub fn lasting(self, ttl: Option<Duration>) -> Self {
        Self { lasting: ttl.map(Lasting::For), ..self }
    }

    /// Limits how long the outcome is fresh to `max`.
    #[must_use]
    pub fn lasting_at_most(self, max: Duration) -> Self {
        Self { lasting: Some(Lasting::AtMost(max)), ..self }
    }

    /// Adds `evidence` that was found on the way.
    #[must_use]
    pub fn having_learned(self, mut evidence: Vec<Evidence>) -> Self {
        evidence.extend(self.evidence);
        Self { evidence, ..self }
    }

    /// Adds a note, which the backend gets back with later requests.
    #[must_use]
    pub fn noting(self, note: Option<BackendNote>) -> Self {
        Self { note, ..self }
    }
}

/// The verdict on one item, and the query and answer that it follows from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Which of several items, such as an image's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Whether the item exists.
    pub verdict: Verdict,
    // Earlier builds stored it, and the answer, as `asked` and `answered`.
    /// The query in words: `the manifest of registry.example.com/org/front:main`.
    #[serde(alias = "asked")]
    pub query: String,
    /// The answer in words: `404, the registry has no such tag or no such repository`.
    #[serde(alias = "answered")]
    pub answer: String,
}

/// The kinds of results of a backend's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeKind {
    /// Parameter sets.
    Present,
    /// The proof that there are none.
    Absent,
    /// No answer.
    Unknown,
}

impl OutcomeKind {
    /// The name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether an item exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It exists.
    Present,
    /// It provably does not exist.
    Absent,
    /// Unknown.
    Unknown,
    /// It exists, and must not be used: its claims are not true.
    Refused,
}

impl Verdict {
    /// The name in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
        }
    }
}

impl Evidence {
    /// Evidence that the item exists.
    pub fn present(query: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { item: None, verdict: Verdict::Present, query: query.into(), answer: answer.into() }
    }

    /// Evidence that the item does not exist.
    pub fn absent(query: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { verdict: Verdict::Absent, ..Self::present(query, answer) }
    }

    /// Evidence that this is unknown.
    pub fn unknown(query: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, ..Self::present(query, answer) }
    }

    /// Evidence that the item must not be used.
    pub fn refused(query: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { verdict: Verdict::Refused, ..Self::present(query, answer) }
    }

    /// Sets the name of the item.
    #[must_use]
    pub fn of(self, name: &str) -> Self {
        Self { item: Some(name.to_owned()), ..self }
    }

    /// Adds the name of the part that found it.
    #[must_use]
    pub fn by(self, name: &str) -> Self {
        let item = self.item.as_ref().map_or_else(|| name.to_owned(), |item| format!("{name}, {item}"));
        Self { item: Some(item), ..self }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(item) = &self.item {
            write!(f, "{item}: ")?;
        }
        write!(f, "{}, {}: {}", self.verdict.as_str(), self.query, self.answer)
    }
}
