//! Explains an answer: the source is called once, and each step is shown, with the guard's verdict and the answer to a caller. Nothing is
//! stored. It delays no caller by more than one run: at most one explanation of a route is under way (`app::Explaining`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    answers::RememberedAnswer,
    elements::{AnswerElements, DEFAULT_LISTED},
    milliseconds,
    steps::{self, StepView},
};
use crate::app::App;
use domain::{
    document::{self, exact},
    generator::{Evidence, OutcomeKind, Parameters, watch::Watch},
};
use engine::{
    answer::Unknown,
    failure::Failure,
    operators::explain::{Explained, FoundNow},
    route::ResolvedQuery,
};

/// An explanation of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    /// The route.
    pub(crate) route: String,
    /// Its backend's kind.
    pub(crate) backend: String,
    /// The input parameters, with defaults.
    #[serde(deserialize_with = "exact::read")]
    pub(crate) input: Parameters,
    /// The key of the question.
    pub(crate) key: String,
    /// The key of its lineage.
    pub(crate) lineage: String,
    /// The source's result just now: `present`, `absent` or `unknown`.
    pub(crate) outcome: OutcomeKind,
    /// How long that took.
    pub(crate) milliseconds: f64,
    /// The input and the result of each backend.
    pub(crate) steps: Vec<StepView>,
    /// The findings about each item.
    pub(crate) evidence: Vec<Evidence>,
    /// The elements that the answer would be made of, as they are now. Left out if its route has no elements, or its list is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elements: Option<AnswerElements>,
    /// The keys that identify a parameter set. Empty if they are only counted.
    pub(crate) identity: Vec<String>,
    /// Why the answer found just now would not be served, or why there is none: the error that Argo CD would get without a fallback.
    pub(crate) because: Option<Refusal>,
    /// The answer to a caller if nothing were cached: the answer found just now, the last good answer, or the error.
    pub(crate) answer: ExplainedAnswer,
    /// The stored answer, which a caller gets as long as its state allows.
    pub(crate) remembered: RememberedAnswer,
}

impl Explanation {
    /// The answer to a caller now, in words, if the source is not called first.
    pub(crate) fn gets_now(&self) -> Option<String> {
        let remembered = &self.remembered;
        let left = remembered.fresh_for_seconds.unwrap_or_default();
        match (&*remembered.state, &remembered.failing) {
            ("fresh", _) => Some(format!("the remembered answer, which is fresh for {left} s")),
            ("stale_while_revalidate", _) => {
                Some("the remembered answer, while the source is called in the background".to_owned())
            }
            (state, Some(failing)) if failing.retry_in_seconds > 0 => {
                let seconds = failing.retry_in_seconds;
                let what = if state == "stale_if_error" || self.answer.is_fallback {
                    "the last good answer".to_owned()
                } else {
                    format!("the error of the last run ({})", failing.kind)
                };
                Some(format!("{what}, as the source is not called for {seconds} s"))
            }
            _ => None,
        }
    }

    /// The answer to a caller after a call of the source, if its answer stays as it is now. In words.
    pub(crate) fn gets_afterwards(&self) -> String {
        match (self.answer.is_fallback, &self.answer.error) {
            (true, _) => "the last good answer".to_owned(),
            (false, Some(error)) => format!("the error {} {}", error.status, error.code),
            (false, None) => "what was found now".to_owned(),
        }
    }
}

/// The answer to a caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainedAnswer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// Whether it is the last good answer, as a fallback.
    #[serde(rename = "isFallback")]
    pub(crate) is_fallback: bool,
    /// The answer's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) body: Option<Value>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Refusal>,
}

/// An error, as Argo CD gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The code.
    pub(crate) code: String,
    /// The message.
    pub(crate) message: String,
}

/// Calls the source of `resolved`, which `watch` follows, and explains its answer. `refusal` makes the error that Argo CD would get, or
/// the reason for the fallback, if there is one by its last argument.
pub(crate) async fn explain(
    app: &App,
    resolved: &ResolvedQuery,
    watch: &Watch,
    refusal: impl Fn(Unknown, &ResolvedQuery, bool) -> Refusal,
) -> Explanation {
    let explained = app.engine.explain(resolved).await;
    let secrets = resolved.route.backend.secrets();
    let steps = steps::steps(&watch.steps(), &secrets);
    let remembered = RememberedAnswer::of(&app.engine.overview_of(resolved));
    let Explained { found, took, refused, fallback, unusable, identity, elements } = explained;
    let (outcome, evidence) = match &found {
        Ok(FoundNow { encoded, evidence }) => {
            (if encoded.sets() == 0 { OutcomeKind::Absent } else { OutcomeKind::Present }, evidence.clone())
        }
        Err(failure) => (OutcomeKind::Unknown, failure.evidence().to_vec()),
    };
    let body = |bytes: &[u8]| document::read_back(bytes).ok();
    let failure: Option<Failure> = refused.or_else(|| found.as_ref().err().cloned());
    let because =
        failure.map(|failure| refusal(Unknown { failure, retry_after: None, unusable }, resolved, fallback.is_some()));
    let answer = match (&because, &fallback, &found) {
        (None, _, Ok(found)) => {
            ExplainedAnswer { status: 200, is_fallback: false, body: body(found.encoded.body()), error: None }
        }
        (Some(_), Some(entry), _) => {
            ExplainedAnswer { status: 200, is_fallback: true, body: body(entry.encoded.body()), error: None }
        }
        (because, _, _) => {
            let status = because.as_ref().map_or(500, |because| because.status);
            ExplainedAnswer { status, is_fallback: false, body: None, error: because.clone() }
        }
    };
    Explanation {
        route: resolved.route.name.to_string(),
        backend: resolved.route.kind.to_owned(),
        input: (*resolved.question.parameters).clone(),
        key: resolved.key.to_string(),
        lineage: resolved.lineage().to_string(),
        outcome,
        milliseconds: milliseconds(took),
        steps,
        evidence,
        elements: elements.map(|elements| AnswerElements::of(&elements, DEFAULT_LISTED)),
        identity,
        because,
        answer,
        remembered,
    }
}
