//! The remembered answers: their questions, states and ages, and why the source is not called again yet.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{date, elements::AnswerElements, failure::LastFailure, held::HeldAnswer, milliseconds};
use crate::app::App;
use domain::{
    document,
    generator::{Evidence, Parameters, Selector},
};
use engine::{
    cache::{KeyStart, NotOne},
    operators::Overview,
};

/// Remembered answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answers {
    /// In the order of their keys.
    pub(crate) answers: Vec<RememberedAnswer>,
    /// How many are selected in all.
    pub(crate) total: usize,
}

/// All that is known about a question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RememberedAnswer {
    /// Its key.
    pub(crate) key: String,
    /// The key of its lineage.
    pub(crate) lineage: String,
    /// The route.
    pub(crate) route: String,
    /// The ApplicationSet, if the answer may depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) application_set: Option<String>,
    /// ApplicationSets that called recently, the last one first.
    pub(crate) requesters: Vec<String>,
    /// The input parameters.
    pub(crate) input: Parameters,
    /// `fresh`, `stale_while_revalidate`, `stale_if_error`, `expired`, `failing` without an answer, or `none`.
    pub(crate) state: String,
    /// The stored answer.
    #[serde(default, flatten)]
    pub(crate) stored: Option<StoredAnswer>,
    /// The elements that it is made of, if its route has elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elements: Option<AnswerElements>,
    /// For how long it is fresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fresh_for_seconds: Option<u64>,
    /// Why the last run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failing: Option<LastFailure>,
    /// The held answer of its lineage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<HeldAnswer>,
}

/// The record of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredAnswer {
    /// When the backend had it.
    pub(crate) stored_at: String,
    /// The time since then.
    pub(crate) age_seconds: u64,
    /// About how much memory it takes.
    pub(crate) size_bytes: usize,
    /// How many parameter sets it has.
    pub(crate) parameter_sets: usize,
    /// How long the backend took.
    pub(crate) backend_milliseconds: f64,
    /// The findings about each item.
    pub(crate) evidence: Vec<Evidence>,
}

/// One answer, with its parameter sets.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WholeAnswer {
    /// The records of the question.
    #[serde(flatten)]
    pub(crate) about: RememberedAnswer,
    /// The answer as Argo CD gets it. `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
}

/// Written by hand: a derived reader of a flattened struct loses the texts of numbers.
impl<'de> Deserialize<'de> for WholeAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all: Parameters = document::exact::read(deserializer)?;
        let answer = all.remove("answer").filter(|answer| !answer.is_null());
        let about = serde_json::from_value(Value::Object(all)).map_err(D::Error::custom)?;
        Ok(Self { about, answer })
    }
}

impl RememberedAnswer {
    /// Whether the answer may depend on the ApplicationSet that asks, and none was named.
    pub(crate) fn depends_on_unnamed_set(&self) -> bool {
        self.application_set.as_deref() == Some("")
    }

    /// The view of `overview`.
    pub(crate) fn of(overview: &Overview) -> Self {
        let question = &overview.question;
        Self {
            key: overview.key.to_string(),
            lineage: overview.lineage.to_string(),
            route: question.route.to_string(),
            application_set: question.application_set.as_ref().map(ToString::to_string),
            requesters: overview.requesters.iter().map(ToString::to_string).collect(),
            input: (*question.parameters).clone(),
            state: overview.state.to_owned(),
            stored: overview.answer.as_ref().map(|answer| StoredAnswer {
                stored_at: date(answer.stored_at),
                age_seconds: overview.age.unwrap_or_default().as_secs(),
                size_bytes: answer.size,
                parameter_sets: answer.sets,
                backend_milliseconds: milliseconds(answer.took),
                evidence: answer.evidence.clone(),
            }),
            elements: overview.answer.as_ref().and_then(|answer| answer.elements).map(AnswerElements::counted),
            fresh_for_seconds: overview.fresh_for.map(|left| left.as_secs()),
            failing: overview.failing.as_ref().map(|(failure, left)| LastFailure::of(failure, *left)),
            held: overview
                .held
                .as_ref()
                .map(|held| HeldAnswer::of(overview.lineage, held, &overview.requesters, overview.now)),
        }
    }
}

/// The answers that `selector` selects, at most `limit` of them. Reads the whole file, if there is one.
pub(crate) fn answers(app: &App, selector: &Selector, limit: usize) -> Answers {
    let all = app.engine.list(&app.setup().routes, selector);
    Answers { answers: all.iter().take(limit).map(RememberedAnswer::of).collect(), total: all.len() }
}

/// The answer whose key begins with `start`, with at most `listed` of its elements. Reads the whole file, if there is one.
///
/// # Errors
/// When no key begins so, or several do.
pub(crate) fn answer(app: &App, start: &KeyStart, listed: usize) -> Result<WholeAnswer, NotOne> {
    let routes = &app.setup().routes;
    let all = app.engine.list(routes, &Selector::default());
    let overview = start.find(all.iter().map(|overview| (overview.key, overview)))?;
    let answer = app.engine.encoded(overview);
    let answer = answer.and_then(|encoded| document::read_back(encoded.body()).ok());
    let mut about = RememberedAnswer::of(overview);
    if let Some(elements) = app.engine.elements_of(routes, &overview.question) {
        about.elements = Some(AnswerElements::of(&elements, listed));
    }
    Ok(WholeAnswer { about, answer })
}
