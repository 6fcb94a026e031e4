//! The Applications that Argo CD would delete, as far as they are known: the ApplicationSet's template gives the names that go away, and
//! its status lists those that exist. Only templates that copy parameters are followed.
//! <https://argo-cd.readthedocs.io/en/stable/operator-manual/applicationset/GoTemplate/>

use std::{collections::BTreeSet, sync::LazyLock};

use regex::{Captures, Regex};
use serde::Serialize;
use serde_json::Value;

use argocd::Described;
use domain::generator::{ParameterSet, Parameters};

/// A parameter in a template, such as `{{name}}` or `{{ .cluster.name }}`.
static PARAMETER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{\{-?\s*(\.?[\w.-]+?)\s*-?\}\}").ok());

/// The parameter sets of an ApplicationSet, now and next.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    /// The answers to its calls.
    pub(crate) before: Vec<ParameterSet>,
    /// The answers by the next configuration.
    pub(crate) after: Vec<ParameterSet>,
    /// Whether the earlier answer to one of its calls is unknown.
    pub(crate) is_before_unknown: bool,
    /// Whether each of its calls would be answered. After an error, Argo CD deletes nothing.
    pub(crate) is_answered: bool,
    /// Whether each of its calls was sent.
    pub(crate) is_complete: bool,
}

/// The Applications of one ApplicationSet that would be deleted.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deleted {
    /// The ApplicationSet's namespace.
    pub(crate) namespace: String,
    /// They exist, and no answer would have them any more.
    pub(crate) certain: Vec<String>,
    /// They would have these names, but it is not certain that they exist, or that nothing else makes them.
    pub(crate) perhaps: Vec<String>,
    /// Further remarks.
    pub(crate) notes: Vec<String>,
}

impl Deleted {
    /// How many Applications would be deleted, at most.
    #[must_use]
    pub(crate) const fn count(&self) -> usize {
        self.certain.len() + self.perhaps.len()
    }
}

/// The Applications that would be deleted of the ApplicationSets called `name` in `described`: a name, or a namespace and a name with a
/// `/` between them.
#[must_use]
pub(crate) fn deleted(described: &[Described], name: &str, sets: &Sets) -> Vec<Deleted> {
    let (namespace, name) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    let is_meant = |set: &&Described| set.name == name && namespace.is_none_or(|namespace| namespace == set.namespace);
    let meant: Vec<&Described> = described.iter().filter(is_meant).collect();
    let is_alone = meant.len() == 1;
    meant.into_iter().map(|set| of_set(set, sets, is_alone)).collect()
}

/// `is_alone`: whether the answers are certainly for `set`.
fn of_set(set: &Described, sets: &Sets, is_alone: bool) -> Deleted {
    let mut deleted =
        Deleted { namespace: set.namespace.clone(), certain: Vec::new(), perhaps: Vec::new(), notes: Vec::new() };
    if !sets.is_complete {
        deleted
            .notes
            .push("another call of it was not sent, so it is not known what else it would have (`--limit`)".to_owned());
    }
    if !sets.is_answered {
        deleted.notes.push("another call of it would end with an error, and Argo CD then deletes nothing".to_owned());
    }
    if let Some(policy @ ("create-only" | "create-update")) = set.applications_sync.as_deref() {
        deleted.notes.push(format!(
            "its `applicationsSync: {policy}` forbids it to delete Applications, unless the controller's `--policy` says otherwise"
        ));
    }
    if set.preserves_resources {
        deleted.notes.push("its `preserveResourcesOnDeletion` leaves what the Applications deployed".to_owned());
    }
    if let Some(combines) = &set.combines {
        let count = set.applications.len();
        deleted.notes.push(format!(
            "the names are not known, because its generators ({combines}) add other parameters; it has {count} Applications now"
        ));
        return deleted;
    }
    let render = |sets: &[ParameterSet]| -> Option<BTreeSet<String>> {
        sets.iter().map(|each| rendered(&set.name_template, set.go_template, &each.0)).collect()
    };
    let (Some(before), Some(after)) = (render(&sets.before), render(&sets.after)) else {
        deleted.notes.push(format!(
            "the names do not follow from the template `{}`, which does more than to copy parameters",
            set.name_template
        ));
        return deleted;
    };
    let exists = |name: &String| set.applications.contains(name);
    let is_certain =
        |name: &String| is_alone && sets.is_answered && sets.is_complete && !set.is_patched && exists(name);
    (deleted.certain, deleted.perhaps) = before.difference(&after).cloned().partition(is_certain);
    if sets.is_before_unknown {
        // Existing Applications may come from the call whose earlier answer is unknown.
        let is_left = |name: &&String| !after.contains(*name) && !before.contains(*name);
        deleted.perhaps.extend(set.applications.iter().filter(is_left).cloned());
        deleted.notes.push("the previous answer to one of its calls is not known, so its status was read".to_owned());
    }
    if set.is_patched && !deleted.perhaps.is_empty() {
        deleted.notes.push("its `templatePatch` may give other names".to_owned());
    }
    deleted
}

/// The name that `template` makes of `set`. `None` if that takes more than to copy texts.
fn rendered(template: &str, is_go: bool, set: &Parameters) -> Option<String> {
    let pattern = PARAMETER.as_ref()?;
    let mut is_known = !template.is_empty();
    let name = pattern.replace_all(template, |found: &Captures<'_>| {
        let text = match (is_go, found[1].strip_prefix('.')) {
            (true, Some(path)) => nested(set, path),
            (false, None) => flat(set, &found[1]),
            _ => None,
        };
        is_known &= text.is_some();
        text.and_then(Value::as_str).unwrap_or_default().to_owned()
    });
    (is_known && !name.contains("{{") && !name.contains("}}") && !name.is_empty()).then(|| name.into_owned())
}

/// The text at `path`, such as `cluster.name`.
fn nested<'v>(set: &'v Parameters, path: &str) -> Option<&'v Value> {
    let mut keys = path.split('.');
    let first = set.get(keys.next()?)?;
    keys.try_fold(first, |at, key| at.get(key)).filter(|value| value.is_string())
}

/// The text under the flattened name `path`, such as `cluster.name` or `list.0`.
fn flat<'v>(set: &'v Parameters, path: &str) -> Option<&'v Value> {
    if let Some(value) = set.get(path).filter(|value| value.is_string()) {
        return Some(value);
    }
    let mut keys = path.split('.');
    let mut at = set.get(keys.next()?)?;
    for key in keys {
        at = match at {
            Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
            other => other.get(key)?,
        };
    }
    Some(at).filter(|value| value.is_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> ParameterSet {
        serde_json::from_value(value).map(ParameterSet).unwrap()
    }

    #[test]
    fn a_template_that_copies_is_followed() {
        let one = set(json!({"name": "a", "n": 1, "cluster": {"name": "c"}, "list": ["x"]}));
        for (template, is_go, name) in [
            ("{{name}}", false, Some("a")),
            ("p-{{ name }}-{{cluster.name}}-{{list.0}}", false, Some("p-a-c-x")),
            ("p-{{ .name }}-{{- .cluster.name -}}", true, Some("p-a-c")),
            ("{{.name}}", false, None),
            ("{{name}}", true, None),
            ("{{ .name | lower }}", true, None),
            ("{{ .missing }}", true, None),
            ("{{ .cluster }}", true, None),
            ("{{n}}", false, None),
            ("", true, None),
        ] {
            assert_eq!(rendered(template, is_go, &one.0).as_deref(), name, "{template}");
        }
    }

    #[test]
    fn certain_is_what_exists_and_nothing_else_makes() {
        let described = Described {
            namespace: "argocd".to_owned(),
            name: "s".to_owned(),
            name_template: "{{name}}".to_owned(),
            applications: vec!["a".to_owned(), "b".to_owned()],
            ..Described::default()
        };
        let sets = |is_answered| Sets {
            before: ["a", "b", "c"].map(|name| set(json!({ "name": name }))).into(),
            after: vec![set(json!({"name": "a"}))],
            is_before_unknown: false,
            is_answered,
            is_complete: true,
        };
        let names = |described: &[Described], sets: &Sets| {
            let [deleted] = &deleted(described, "argocd/s", sets)[..] else { panic!("not one") };
            (deleted.certain.join(","), deleted.perhaps.join(","), deleted.notes.len())
        };
        let names = |described: &Described, is_answered| names(std::slice::from_ref(described), &sets(is_answered));
        assert_eq!(names(&described, true), ("b".to_owned(), "c".to_owned(), 0));
        assert_eq!(names(&described, false), (String::new(), "b,c".to_owned(), 1));
        let patched = Described { is_patched: true, ..described.clone() };
        assert_eq!(names(&patched, true), (String::new(), "b,c".to_owned(), 1));
        let combined = Described { combines: Some("matrix".to_owned()), ..described.clone() };
        assert_eq!(names(&combined, true), (String::new(), String::new(), 1));
        let kept = Described { applications_sync: Some("create-only".to_owned()), ..described.clone() };
        assert_eq!(names(&kept, true), ("b".to_owned(), "c".to_owned(), 1));
        assert!(deleted(std::slice::from_ref(&described), "teams/s", &sets(true)).is_empty());
        // The previous answer to a call is not known: what exists, and would not be made, may go away.
        let unknown = Sets { before: Vec::new(), is_before_unknown: true, ..sets(true) };
        let [found] = &deleted(std::slice::from_ref(&described), "argocd/s", &unknown)[..] else { panic!("not one") };
        assert_eq!(
            (found.certain.join(","), found.perhaps.join(","), found.notes.len()),
            (String::new(), "b".to_owned(), 1)
        );
        // A call that names no namespace may come from either.
        let other = Described { namespace: "teams".to_owned(), ..described.clone() };
        let both = deleted(&[described, other], "s", &sets(true));
        assert!(both.len() == 2 && both.iter().all(|each| each.certain.is_empty() && each.perhaps == ["b", "c"]));
    }
}
