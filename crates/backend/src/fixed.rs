//! `fixed`: a list in the configuration, for tests, for a first try, and for lists that rarely change.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Backend, Building, KindConfig, Nature};
use domain::{
    document::exact,
    error::BackendError,
    generator::{Outcome, ParameterSet, Parameters, Query},
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
    nature: Nature,
}

impl KindConfig for Config {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        for (index, set) in self.parameters.iter().enumerate() {
            let path = building.path.key("parameters").index(index);
            for (name, value) in set.iter().filter_map(|(name, value)| Some((name, value.as_str()?))) {
                literal::check_answered(name, value, &path.key(name), building.problems);
            }
        }
        let item = ValueType::any_of(self.parameters.iter().map(ValueType::of_object));
        let nature = Nature { gets_old: false, ..building.nature(item) };
        Some(Arc::new(Fixed { sets: self.parameters.iter().cloned().map(ParameterSet).collect(), nature }))
    }

    fn reads_items(&self) -> bool {
        false
    }
}

#[async_trait]
impl Backend for Fixed {
    async fn fetch(&self, _: &Query) -> Result<Outcome, BackendError> {
        Ok(Outcome::of_list(self.sets.clone(), "the configuration", "an empty list"))
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }
}
