//! The configuration in use, and the result of the last reload.

use std::sync::Arc;

use serde::Serialize;

use super::date;
use crate::app::{App, Attempt, Changes, Outline};

/// The configuration in use.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigInUse {
    /// How many configurations were in use since the start, with this one.
    pub(crate) generation: u64,
    /// Since when it is in use.
    pub(crate) since: String,
    /// The routes' names, in order.
    pub(crate) routes: Vec<String>,
    /// Values that take effect at the next start only.
    pub(crate) at_the_next_start: Vec<String>,
    /// The last reload. `None` if there was none.
    pub(crate) last_reload: Option<Reload>,
    /// The path of each value, with a hash of it.
    pub(crate) outline: Outline,
}

/// The result of a reload.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reload {
    /// When it happened.
    pub(crate) at: String,
    /// Whether the new configuration is in use.
    pub(crate) is_good: bool,
    /// The change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changes: Option<Arc<Changes>>,
    /// Why the configuration before stays in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problems: Option<Vec<String>>,
}

impl Reload {
    fn of(attempt: &Attempt) -> Self {
        let (changes, problems) = match &attempt.result {
            Ok(changes) => (Some(Arc::clone(changes)), None),
            Err(problems) => (None, Some(problems.clone())),
        };
        Self { at: date(attempt.at), is_good: attempt.result.is_ok(), changes, problems }
    }
}

/// The configuration that `app` uses.
pub(crate) fn config(app: &App) -> ConfigInUse {
    let (setup, last) = app.setup_and_last_attempt();
    ConfigInUse {
        generation: setup.generation,
        since: date(setup.since),
        routes: setup.routes.iter().map(|route| route.name.to_string()).collect(),
        at_the_next_start: app.at_the_next_start(),
        last_reload: last.as_ref().map(Reload::of),
        outline: setup.outline.clone(),
    }
}
