//! The keys of a route about the shape of its parameter sets.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// The treatment of a `null` in a parameter set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Nulls {
    /// An error: Argo CD prints it as `<nil>` or `<no value>`, also in names.
    #[default]
    Refuse,
    /// The key is left out.
    Drop,
}

/// The configuration of a [`Shape`](super::Shape): keys of a route.
#[derive(Debug, Clone, Copy)]
pub struct ShapeConfig<'a> {
    /// Templates over the items and the call.
    pub output: Option<&'a IndexMap<String, String>>,
    /// Input parameters that come back in each set.
    pub echo: &'a [String],
    /// Whether numbers become text.
    pub stringify: bool,
    /// The treatment of a `null`.
    pub nulls: Nulls,
}
