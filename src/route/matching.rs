//! `match`: which calls a route takes, by globs over the ApplicationSet's name and parameters.

use std::collections::BTreeMap;

use globset::{Glob, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    generator::Parameters,
    problem::{Path, Problems},
};

/// Conditions that must all hold; none at all takes every call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchConfig {
    /// A glob over the ApplicationSet's name.
    pub application_set: Option<String>,
    /// Parameters that must be there, each with a glob over its value; `"*"` takes any value.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

impl MatchConfig {
    /// Whether there is no condition.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.application_set.as_deref().is_none_or(|glob| glob == "*") && self.parameters.is_empty()
    }
}

/// A compiled [`MatchConfig`].
#[derive(Debug)]
pub struct Matcher {
    application_set: Option<GlobMatcher>,
    parameters: Vec<(String, GlobMatcher)>,
}

impl Matcher {
    /// Compiles all globs, or `None` with the bad ones noted.
    pub fn build(config: &MatchConfig, path: &Path, problems: &mut Problems) -> Option<Self> {
        let mut compile =
            |glob: &str, path: Path| problems.note(&path, Glob::new(glob)).map(|glob| glob.compile_matcher());
        let application_set = config.application_set.as_ref().map(|glob| compile(glob, path.key("applicationSet")));
        let parameters: Vec<_> = config
            .parameters
            .iter()
            .map(|(name, glob)| Some((name.clone(), compile(glob, path.key("parameters").key(name))?)))
            .collect();
        Some(Self {
            application_set: match application_set {
                Some(compiled) => Some(compiled?),
                None => None,
            },
            parameters: parameters.into_iter().collect::<Option<_>>()?,
        })
    }

    /// Whether all conditions hold.
    #[must_use]
    pub fn fits(&self, application_set: &str, parameters: &Parameters) -> bool {
        self.application_set.as_ref().is_none_or(|glob| glob.is_match(application_set))
            && self.parameters.iter().all(|(name, glob)| {
                parameters.get(name).is_some_and(|value| match value {
                    Value::String(text) => glob.is_match(text),
                    other => glob.is_match(other.to_string()),
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_conditions_must_hold() {
        let config: MatchConfig =
            serde_json::from_value(json!({"applicationSet": "fb-*", "parameters": {"branch": "*", "n": "1*"}}))
                .unwrap();
        let matcher = Matcher::build(&config, &Path::root(), &mut Problems::default()).unwrap();
        let fits = |set: &str, parameters: Value| matcher.fits(set, parameters.as_object().unwrap());
        assert!(fits("fb-matrix", json!({"branch": "a/b", "n": 12, "x": 1})));
        assert!(!fits("matrix", json!({"branch": "a", "n": 12})));
        assert!(!fits("fb-matrix", json!({"n": 12})));
        assert!(!fits("fb-matrix", json!({"branch": "a", "n": 2})));
    }

    #[test]
    fn a_bad_glob_is_a_problem_at_its_place() {
        let config = MatchConfig { application_set: Some("a{".into()), parameters: BTreeMap::new() };
        let mut problems = Problems::default();
        assert!(Matcher::build(&config, &Path::root().key("match"), &mut problems).is_none());
        assert_eq!(problems.into_vec()[0].path.to_string(), "match.applicationSet");
    }
}
