//! `fixed`: a list in the configuration, for tests, for a first try, and for lists that rarely change.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Backend, BuildContext, KindConfig};
use domain::{
    document::exact,
    error::BackendError,
    generator::{Outcome, ParameterSet, Parameters, Query},
    problem::{Path, Problems},
    secret::literal,
};
use lang::scope::ValueType;

/// The list.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "FixedBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The parameter sets, one per Application.
    #[serde(deserialize_with = "exact::read")]
    pub parameters: Vec<Parameters>,
}

/// A list that is always the same.
#[derive(Debug)]
pub struct Fixed {
    sets: Vec<ParameterSet>,
}

impl KindConfig for Config {
    fn build(&self, _: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Backend>> {
        for (index, set) in self.parameters.iter().enumerate() {
            let path = path.key("parameters").index(index);
            for (name, value) in set.iter().filter_map(|(name, value)| Some((name, value.as_str()?))) {
                literal::check_answered(name, value, &path.key(name), problems);
            }
        }
        Some(Arc::new(Fixed { sets: self.parameters.iter().cloned().map(ParameterSet).collect() }))
    }

    fn reads_items(&self) -> bool {
        false
    }

    fn gets_old(&self) -> bool {
        false
    }
}

#[async_trait]
impl Backend for Fixed {
    async fn resolve(&self, _: &Query) -> Result<Outcome, BackendError> {
        Ok(Outcome::of_list(self.sets.clone(), "the configuration", "an empty list"))
    }

    fn item(&self) -> ValueType {
        ValueType::any_of(self.sets.iter().map(|set| ValueType::of_object(&set.0)))
    }

    fn reads_application_set(&self) -> bool {
        false
    }
}
