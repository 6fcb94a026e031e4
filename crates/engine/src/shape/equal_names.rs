//! Values of `output` that are made by the filter `name` to be names, and that two parameter sets of one answer share.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde_json::Value;

use domain::{
    generator::{ParameterSet, Parameters},
    problem::{Path, Problems},
};
use lang::template::{Template, value_of};

/// How many names are remembered, so that each is in the log once.
const MAX_WARNED: usize = 1000;

/// The keys of `output` with such values, and the values that were warned of.
#[derive(Debug, Default)]
pub(super) struct EqualNames {
    keys: Vec<String>,
    warned: Mutex<BTreeSet<(String, String)>>,
}

impl EqualNames {
    /// Those of the mapping `output`.
    pub(super) fn of(output: Option<&[(String, Template)]>) -> Self {
        let makes_name = output.into_iter().flatten().filter(|(_, template)| template.makes_name());
        Self { keys: makes_name.map(|(key, _)| key.clone()).collect(), warned: Mutex::default() }
    }

    /// Warns in the log of each name that two of `sets`, an answer of `route`, share and that was not warned of.
    pub(super) fn warn(&self, route: &str, sets: &[ParameterSet]) {
        for key in &self.keys {
            for (name, count) in shared(sets.iter().filter_map(|set| set.0.get(key).and_then(Value::as_str))) {
                let mut warned = self.warned.lock();
                if warned.len() >= MAX_WARNED {
                    warned.clear();
                }
                if warned.insert((key.clone(), name.to_owned())) {
                    tracing::warn!(
                        route,
                        key,
                        name,
                        sets = count,
                        "parameter sets of one answer have the same name; Argo CD can make one Application of them"
                    );
                }
            }
        }
    }
}

/// Warns at `path`, that of `output`, of names that two of `items` share. They are the backend's items, known from the configuration. A name
/// that depends on the call is not known.
pub(super) fn check(output: &[(String, Template)], items: &[Parameters], path: &Path, problems: &mut Problems) {
    for (key, template) in output.iter().filter(|(_, template)| template.makes_name()) {
        let made = items.iter().filter_map(|item| template.render(&value_of(&Value::Object(item.clone()))).ok());
        let made: Vec<String> = made.collect();
        for (name, count) in shared(made.iter().map(String::as_str)) {
            let message = format!("{count} parameter sets have the name `{name}`");
            problems.warning(
                &path.key(key),
                message,
                "make it of all values by which the items differ, such as `(a ~ '-' ~ b) | name`",
            );
        }
    }
}

/// The texts that occur more than once, and how often they do.
fn shared<'a>(texts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (&'a str, usize)> {
    let mut counts = BTreeMap::<&str, usize>::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    counts.into_iter().filter(|(_, count)| *count > 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output() -> Vec<(String, Template)> {
        let all = [("name", "{{ app | name(20) }}"), ("team", "{{ team }}"), ("call", "{{ params.x | name }}")];
        all.map(|(key, source)| (key.to_owned(), Template::parse_open(source).unwrap())).into()
    }

    fn items(apps: &[&str]) -> Vec<Parameters> {
        let item =
            |app: &&str| Parameters::from_iter([("app".to_owned(), json!(app)), ("team".to_owned(), json!("red"))]);
        apps.iter().map(item).collect()
    }

    #[test]
    fn items_of_the_configuration_are_checked() {
        let found = |apps: &[&str]| {
            let mut problems = Problems::default();
            check(&output(), &items(apps), &Path::root().key("output"), &mut problems);
            problems.into_vec().into_iter().map(|problem| problem.message).collect::<Vec<_>>()
        };
        assert_eq!(found(&["shop", "Shop", "blog"]), [""; 0]);
        assert_eq!(found(&["shop", "blog", "shop"]), ["2 parameter sets have the name `shop`"]);
    }

    #[test]
    fn each_shared_name_is_warned_of_once() {
        let names = EqualNames::of(Some(&output()));
        assert_eq!(names.keys, ["name", "call"]);
        let set = |name: &str| {
            ParameterSet(Parameters::from_iter([("name".to_owned(), json!(name)), ("team".to_owned(), json!("red"))]))
        };
        let warned = |sets: &[ParameterSet]| {
            names.warn("r", sets);
            names.warned.lock().iter().map(|(key, name)| format!("{key} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(warned(&[set("a"), set("b")]), [""; 0]);
        assert_eq!(warned(&[set("a"), set("b"), set("a")]), ["name a"]);
        assert_eq!(warned(&[set("a"), set("a"), set("c"), set("c")]), ["name a", "name c"]);
    }
}
