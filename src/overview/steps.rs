//! The steps of an answer: the input of each backend, its result, and how long it took.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::milliseconds;
use domain::{document::exact, generator::watch::RecordedStep, secret::Secrets};

/// One backend's part in an answer. Without output and error, it did not finish in time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepView {
    /// Its name.
    pub(crate) name: String,
    /// The backend's kind.
    pub(crate) kind: String,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) milliseconds: Option<f64>,
    /// The CPU time of a program and its children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_milliseconds: Option<f64>,
    /// The most memory that a program had at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peak_memory_bytes: Option<u64>,
    /// The items of the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) input: Option<Value>,
    /// Its result, before the route shaped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) output: Option<Value>,
    /// Why it found nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The end of a program's stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stderr: Option<String>,
}

/// The views of `steps`, without `secrets`: the output of a single step may hold one that the answer does not.
pub(crate) fn steps(steps: &[RecordedStep], secrets: &Secrets) -> Vec<StepView> {
    steps.iter().map(|step| StepView::of(step, secrets)).collect()
}

impl StepView {
    fn of(step: &RecordedStep, secrets: &Secrets) -> Self {
        let stderr = step.stderr.as_ref().filter(|text| !text.trim().is_empty());
        Self {
            name: secrets.redact(&step.name),
            kind: step.kind.to_owned(),
            milliseconds: step.took.map(milliseconds),
            cpu_milliseconds: step.cpu.map(milliseconds),
            peak_memory_bytes: step.peak_memory,
            input: step.input.as_deref().map(|input| secrets.redact_json(input.clone())),
            output: step.output.clone().map(|output| secrets.redact_json(Value::Array(output))),
            error: step.error.as_deref().map(|error| secrets.redact(error)),
            stderr: stderr.map(|text| secrets.redact(text)),
        }
    }
}
