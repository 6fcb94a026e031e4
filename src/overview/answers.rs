//! The remembered answers: what was asked, the answer's state and age, and why the source is not asked again yet.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{date, held::HeldAnswer, milliseconds};
use crate::{
    app::App,
    domain::generator::{Evidence, Parameters, Selector},
    engine::answer::admin_ops::Overview,
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
    /// ApplicationSets that asked recently, the last one first.
    pub(crate) asked_by: Vec<String>,
    /// The input parameters.
    pub(crate) input: Parameters,
    /// `fresh`, `stale_while_revalidate`, `stale_if_error`, `expired`, `failing` without an answer, or `none`.
    pub(crate) state: String,
    /// The stored answer.
    #[serde(default, flatten)]
    pub(crate) stored: Option<StoredAnswer>,
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

/// What is stored of an answer.
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
    /// What was learned of each item.
    pub(crate) evidence: Vec<Evidence>,
}

/// Why the last run of a question failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastFailure {
    /// The kind of failure, as in metrics.
    pub(crate) kind: String,
    /// What happened.
    pub(crate) message: String,
    /// What was learned of each item.
    pub(crate) evidence: Vec<Evidence>,
    /// How long until the backend is asked again, at the earliest.
    pub(crate) asked_again_in_seconds: u64,
}

/// One answer, with its parameter sets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WholeAnswer {
    /// What is known about the question.
    #[serde(flatten)]
    pub(crate) about: RememberedAnswer,
    /// The answer as Argo CD gets it. `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
}

/// Why no single answer has an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotOne {
    /// No answer's key begins so.
    None,
    /// Several keys begin so.
    Several(usize),
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
            asked_by: overview.asked_by.iter().map(ToString::to_string).collect(),
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
            fresh_for_seconds: overview.fresh_for.map(|left| left.as_secs()),
            failing: overview.failing.as_ref().map(|(failure, left)| LastFailure {
                kind: failure.as_str().to_owned(),
                message: failure.to_string(),
                evidence: failure.evidence().to_vec(),
                asked_again_in_seconds: left.as_secs() + 1,
            }),
            held: overview.held.as_ref().map(|held| HeldAnswer::of(overview.lineage, held, &overview.asked_by)),
        }
    }
}

/// The answers that `selector` selects, at most `limit` of them. Reads the whole file, if there is one.
pub(crate) fn answers(app: &App, selector: &Selector, limit: usize) -> Answers {
    let all = app.engine.list(&app.setup().routes, selector);
    Answers { answers: all.iter().take(limit).map(RememberedAnswer::of).collect(), total: all.len() }
}

/// The answer whose key begins with `id`. Reads the whole file, if there is one.
///
/// # Errors
/// When no key begins so, or several do.
pub(crate) fn answer(app: &App, id: &str) -> Result<WholeAnswer, NotOne> {
    let all = app.engine.list(&app.setup().routes, &Selector::default());
    let mut found = all.iter().filter(|overview| !id.is_empty() && overview.key.to_string().starts_with(id));
    let overview = found.next().ok_or(NotOne::None)?;
    let others = found.count();
    if others > 0 {
        return Err(NotOne::Several(others + 1));
    }
    let answer = app.engine.encoded(overview);
    let answer = answer.and_then(|encoded| serde_json::from_slice(encoded.body()).ok());
    Ok(WholeAnswer { about: RememberedAnswer::of(overview), answer })
}
