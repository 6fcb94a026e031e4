//! `fixed`: a list in the configuration. For tests, for a start, and for lists that rarely change.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Backend;
use crate::domain::{
    error::BackendError,
    generator::{Outcome, ParameterSet, Parameters, Query},
};

/// The list.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "FixedBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The parameter sets, one per Application.
    pub(crate) parameters: Vec<Parameters>,
}

/// A list that is always the same.
#[derive(Debug)]
pub(crate) struct Fixed {
    sets: Vec<ParameterSet>,
}

impl Fixed {
    /// Keeps the list.
    #[must_use]
    pub(crate) fn build(config: &Config) -> Self {
        Self { sets: config.parameters.iter().cloned().map(ParameterSet).collect() }
    }
}

#[async_trait]
impl Backend for Fixed {
    async fn resolve(&self, _: &Query) -> Result<Outcome, BackendError> {
        Ok(Outcome::of_list(self.sets.clone(), "the configuration", "an empty list"))
    }

    fn reads_application_set(&self) -> bool {
        false
    }
}
