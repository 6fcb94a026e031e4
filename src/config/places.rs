//! The keys that the configuration accepts at each place, from its JSON Schema: for advice about misplaced keys.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::Value;

use super::tree::{Node, NodeKind};
use domain::problem::{Path, Segment};

/// The schema of a configuration file.
#[derive(Debug)]
pub(crate) struct Places(Value);

/// How many levels below a mapping are searched for the place of a key.
const DEPTH: usize = 2;

impl Places {
    /// Those of the configuration file.
    pub(crate) fn get() -> &'static Self {
        static PLACES: LazyLock<Places> = LazyLock::new(|| Places(super::schema().to_value()));
        &PLACES
    }

    /// All forms that the value at `path` can have.
    fn at(&self, path: &Path) -> Vec<&Value> {
        path.segments().iter().fold(self.forms(&self.0), |forms, segment| {
            let inner = forms.into_iter().filter_map(|form| match segment {
                Segment::Key(key) => {
                    let other = form.get("additionalProperties").filter(|form| form.is_object());
                    form["properties"].get(key).or(other)
                }
                Segment::Index(_) => form.get("items"),
            });
            inner.flat_map(|form| self.forms(form)).collect()
        })
    }

    /// The alternatives of `form`, without references.
    fn forms<'a>(&'a self, form: &'a Value) -> Vec<&'a Value> {
        if let Some(name) = form["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/")) {
            return self.forms(&self.0["$defs"][name]);
        }
        let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| form[*key].as_array()).flatten();
        // A step of a pipeline has its keys beside the alternatives, which only say what is required.
        alternatives.flat_map(|form| self.forms(form)).chain([form]).collect()
    }

    /// The keys that the mapping at `path` can have.
    pub(super) fn keys(&self, path: &Path) -> BTreeSet<&str> {
        let properties = self.at(path).into_iter().filter_map(|form| form["properties"].as_object());
        properties.flat_map(|keys| keys.keys().map(String::as_str)).collect()
    }

    /// The description of the value at `path`, in one sentence, and its alternative keys, if it must have exactly one of several.
    pub(super) fn description(&self, path: &Path) -> Option<String> {
        let parent = path.parent()?;
        let Some(Segment::Key(key)) = path.segments().last() else { return None };
        let form = self.at(&parent).into_iter().find_map(|form| form["properties"].get(key))?;
        let own = form.get("description").or_else(|| self.forms(form).last()?.get("description"))?.as_str()?;
        let (first, _) = own.split_once(". ").unwrap_or((own, ""));
        let first = first.replace('\n', " ");
        let first = first.trim_end_matches('.');
        let kinds: Vec<&str> = self.keys(path).into_iter().collect();
        let is_kind = self.forms(form).into_iter().any(|form| form.get("oneOf").is_some());
        Some(if is_kind && !kinds.is_empty() {
            format!("`{key}`: {first}; one of {}", kinds.join(", "))
        } else {
            format!("`{key}`: {first}")
        })
    }

    /// Whether the value at `path` must be a mapping.
    pub(super) fn is_mapping(&self, path: &Path) -> bool {
        let types: Vec<&str> =
            self.at(path).iter().flat_map(|form| types(form)).filter(|kind| *kind != "null").collect();
        !types.is_empty() && types.iter().all(|kind| *kind == "object")
    }

    /// Whether the key at `path` is known, and not one of the user's own, which may be null.
    pub(super) fn needs_value(&self, path: &Path) -> bool {
        let forms = self.at(path);
        !forms.is_empty() && !forms.iter().flat_map(|form| types(form)).any(|kind| kind == "any")
    }

    /// Whether the value at `path` is a duration.
    pub(super) fn is_duration(&self, path: &Path) -> bool {
        let duration = &self.0["$defs"]["Duration"];
        self.at(path).into_iter().any(|form| std::ptr::eq(form, duration))
    }

    /// Where `key` belongs, which is in the mapping at `path` of `tree` and unknown there.
    pub(super) fn advice(&self, tree: &Node, path: &Path, key: &str) -> Option<String> {
        self.above(path, key).or_else(|| {
            let below = self.below(tree, path, key, DEPTH)?;
            Some(format!("`{key}` belongs to `{}`: write it below that key, and indent it further", name_of(&below)))
        })
    }

    /// Where `key` belongs, if that is around the mapping at `path`.
    pub(super) fn above(&self, path: &Path, key: &str) -> Option<String> {
        let segments = path.segments();
        let ends = (0..segments.len()).rev();
        let around = ends.map(|end| (segments[..end].iter().cloned().collect::<Path>(), &segments[end]));
        let (home, beside) = around
            .filter_map(
                |(around, beside)| if let Segment::Key(beside) = beside { Some((around, beside)) } else { None },
            )
            .find(|(around, _)| self.keys(around).contains(key))?;
        let of = match home.segments() {
            [] => "the top of the file".to_owned(),
            [Segment::Key(list), Segment::Index(_)] if list == "routes" => "the route".to_owned(),
            _ => format!("`{}`", name_of(&home)),
        };
        Some(format!("`{key}` belongs to {of}: write it in the same column as `{beside}`"))
    }

    /// The mapping at most `depth` levels below `path` that can have `key`.
    fn below(&self, tree: &Node, path: &Path, key: &str, depth: usize) -> Option<Path> {
        let NodeKind::Mapping(entries) = &tree.at(path)?.kind else { return None };
        let inner: Vec<Path> = entries.iter().map(|(name, ..)| path.key(name)).collect();
        let has = |path: &&Path| self.keys(path).contains(key);
        inner.iter().find(has).cloned().or_else(|| {
            let deeper = depth.checked_sub(1).filter(|depth| *depth > 0)?;
            inner.iter().find_map(|path| self.below(tree, path, key, deeper))
        })
    }
}

/// The types of a form.
fn types(form: &Value) -> Vec<&str> {
    match &form["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        // A form without a type allows all, unless its alternatives say more.
        _ if ["anyOf", "oneOf", "required", "$ref"].iter().any(|key| form.get(*key).is_some()) => Vec::new(),
        _ => vec!["any"],
    }
}

/// The last key of `path`.
fn name_of(path: &Path) -> String {
    let keys = path.segments().iter().rev().find_map(|segment| match segment {
        Segment::Key(key) => Some(key.clone()),
        Segment::Index(_) => None,
    });
    keys.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_key_is_known() {
        let places = Places::get();
        let route = Path::root().key("routes").index(1);
        let backend = route.key("backend");
        let help = |path: &Path, key: &str| places.above(path, key);
        let of_route =
            |key: &str| Some(format!("`{key}` belongs to the route: write it in the same column as `backend`"));
        assert_eq!(help(&backend, "cache"), of_route("cache"));
        assert_eq!(help(&backend.key("script"), "guard"), of_route("guard"));
        assert_eq!(help(&backend.key("pipeline").index(0).key("http"), "guard"), of_route("guard"));
        assert_eq!(
            help(&route, "auth").as_deref(),
            Some("`auth` belongs to the top of the file: write it in the same column as `routes`")
        );
        assert_eq!(help(&backend, "timeout"), None);
        assert!(places.keys(&backend).contains("script") && places.keys(&backend.key("script")).contains("timeout"));
        assert!(places.is_mapping(&backend.key("http")) && places.is_mapping(&route.key("match")));
        assert!(!places.is_mapping(&backend.key("pipeline")) && !places.is_mapping(&Path::root().key("routes")));
        assert!(places.is_duration(&route.key("cache").key("ttl")) && !places.is_duration(&route.key("name")));
    }
}
