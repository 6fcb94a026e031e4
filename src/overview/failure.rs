//! Why a question or an element has no new answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::generator::Evidence;
use engine::failure::Failure;

/// Why the last run of a question failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastFailure {
    /// The kind of failure, as in metrics.
    pub(crate) kind: String,
    /// The failure.
    pub(crate) message: String,
    /// The findings about each item.
    pub(crate) evidence: Vec<Evidence>,
    /// How long until the backend is called again, at the earliest. 0: the next call does so.
    #[serde(rename = "retryInSeconds")]
    pub(crate) retry_in_seconds: u64,
}

impl LastFailure {
    /// The view of `failure`; `left`: how long until the backend is called again.
    pub(crate) fn of(failure: &Failure, left: Duration) -> Self {
        Self {
            kind: failure.as_str().to_owned(),
            message: failure.to_string(),
            evidence: failure.evidence().to_vec(),
            retry_in_seconds: if left.is_zero() { 0 } else { left.as_secs() + 1 },
        }
    }

    /// When the source is called again, in words.
    pub(crate) fn again(&self) -> String {
        match self.retry_in_seconds {
            0 => "the next call reads the source again".to_owned(),
            seconds => format!("the source is read again in {seconds} s at the earliest"),
        }
    }
}
