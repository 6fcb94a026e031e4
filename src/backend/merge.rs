//! `merge`: several backends at once, whose items are joined by the values of keys, as Argo CD's merge generator does.
//! All or none: one backend that does not know makes the whole answer *unknown*.

mod join;

use async_trait::async_trait;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::join::{Join, join};
use super::{
    Backend, Surroundings,
    part::PartConfig,
    parts::{Parts, Said},
};
use crate::domain::{
    error::BackendError,
    generator::{Outcome, Query},
    problem::{Path, Problems},
    secret::Secrets,
};

/// Backends, and how their items are joined.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Items belong together when the values of all these keys are equal. A dot leads into an object: `values.cluster`.
    /// Each item must have them, and no two of one backend the same.
    #[schemars(length(min = 1))]
    pub merge_keys: Vec<String>,
    /// Which items there are in the end.
    #[serde(default)]
    pub join: Join,
    /// The backends. What later ones say of an item overrides what earlier ones do, key by key, also within objects; a
    /// list is replaced.
    #[schemars(length(min = 2))]
    pub backends: Vec<PartConfig>,
}

/// The backends, ready to be asked.
#[derive(Debug)]
pub struct Merge {
    keys: Vec<String>,
    join: Join,
    parts: Parts,
}

impl Merge {
    /// Builds the backends.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let keys_path = path.key("mergeKeys");
        if config.merge_keys.is_empty() {
            problems.error_with_help(
                &keys_path,
                "there are no keys",
                "name what items have in common: `mergeKeys: [cluster]`",
            );
        }
        for (index, key) in config.merge_keys.iter().enumerate() {
            if key.split('.').any(str::is_empty) {
                problems.error(&keys_path.index(index), "a key is a name, or names with dots between them");
            } else if config.merge_keys[..index].contains(key) {
                problems.error(&keys_path.index(index), format!("`{}` stands here twice", key.escape_debug()));
            }
        }
        let path = path.key("backends");
        if config.backends.len() < 2 {
            problems.error_with_help(&path, "there is nothing to merge", "name two backends or more");
        }
        let raw = around.raw.pointer("/backend/merge/backends").unwrap_or(&Value::Null);
        let parts = Parts::build(&config.backends, "backend", false, Surroundings { raw, ..around }, &path, problems);
        Some(Self { keys: config.merge_keys.clone(), join: config.join, parts: parts? })
    }
}

#[async_trait]
impl Backend for Merge {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let asked = (0..self.parts.count()).map(|index| self.parts.ask(index, query, query.items.clone()));
        let (mut lists, mut said) = (Vec::new(), Vec::new());
        for outcome in all(join_all(asked).await)? {
            let (sets, rest) = Said::apart(outcome);
            lists.push(sets);
            said.push(rest);
        }
        let counts: Vec<String> = lists.iter().map(|list| list.len().to_string()).collect();
        let asked =
            format!("the {} join of {} items by {}", self.join.as_str(), counts.join(" and "), self.keys.join(", "));
        let sets = join(lists, &self.keys, self.join).map_err(|(index, why)| {
            self.parts.secrets().clean(&BackendError::invalid_output(why)).within(self.parts.label(index))
        })?;
        Ok(self.parts.conclude(Outcome::of_list(sets, asked, "nothing is left"), said, query.ttl))
    }

    fn reads_application_set(&self) -> bool {
        self.parts.reads_application_set()
    }

    fn takes_notes(&self) -> bool {
        self.parts.takes_notes()
    }

    fn forget(&self) {
        self.parts.forget();
    }

    fn start_ahead(&self) {
        self.parts.start_ahead();
    }

    fn secrets(&self) -> Secrets {
        self.parts.secrets()
    }
}

/// All outcomes, or all errors in one (invariant I3).
fn all(results: Vec<Result<Outcome, BackendError>>) -> Result<Vec<Outcome>, BackendError> {
    let (mut outcomes, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => errors.push(error),
        }
    }
    let Some(first) = errors.first() else { return Ok(outcomes) };
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    let learned = outcomes.into_iter().flat_map(|outcome| outcome.evidence);
    let evidence = learned.chain(errors.iter().flat_map(|error| error.evidence.clone())).collect();
    Err(BackendError { kind: first.kind, message: messages.join("; "), evidence })
}
