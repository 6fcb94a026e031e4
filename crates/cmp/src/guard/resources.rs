//! The resources in manifests: kind, namespace and name of each.

use std::collections::{BTreeMap, BTreeSet};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, options::MergeKeyPolicy};

use domain::visible::one_line;

/// The most nodes in a stream. Each use of an alias counts in full.
const MAX_NODES: usize = 2_000_000;
/// What a resource takes beside its texts, in bytes.
const RESOURCE: usize = 40;
/// The longest text of a resource, in bytes. Kubernetes takes names of 253.
const LONGEST: usize = 300;

/// Resources by their kind and namespace, such as `Deployment.apps in shop`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resources(BTreeMap<Box<str>, BTreeSet<Box<str>>>);

/// What identifies a resource. `items` has those of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    api_version: Value,
    kind: Value,
    metadata: Value,
    /// `Some` also for `items: null`, which Argo CD takes for an empty list.
    #[serde(deserialize_with = "present")]
    items: Option<Value>,
    spec: Option<IgnoredAny>,
    status: Option<IgnoredAny>,
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl Resources {
    /// Those in `manifests`, each a stream of documents, read as leniently as Argo CD reads them.
    ///
    /// # Errors
    /// When a document is neither a mapping nor empty.
    pub(super) fn read(manifests: &[String]) -> Result<Self, serde_saphyr::Error> {
        let mut resources = Self::default();
        for document in documents::<Document>(manifests)? {
            let Document { api_version, kind, metadata, items, spec, status } = document;
            // A list of nothing (`isNullList` in Argo CD's repo-server).
            if items == Some(Value::Null) && spec.is_none() && status.is_none() {
                continue;
            }
            resources.add(&api_version, &kind, &metadata, &items.unwrap_or_default());
        }
        Ok(resources)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of = |names: &BTreeSet<Box<str>>| names.iter().map(|name| name.len() + RESOURCE).sum::<usize>();
        self.0.iter().map(|(group, names)| group.len() + RESOURCE + of(names)).sum()
    }

    /// Those that `now` lacks, of each kind and namespace that has fewer. Another name in place of one is not a loss: some plugins name a job by
    /// the time.
    pub(super) fn lost(&self, now: &Self) -> Vec<String> {
        let mut lost = Vec::new();
        let none = BTreeSet::new();
        for (group, before) in &self.0 {
            let now = now.0.get(group).unwrap_or(&none);
            if now.len() < before.len() {
                lost.extend(before.difference(now).map(|name| format!("{group}: {name}")));
            }
        }
        lost
    }

    fn add(&mut self, api_version: &Value, kind: &Value, metadata: &Value, items: &Value) {
        // Argo CD takes the items out of an object of any kind. Items that are not objects are an error for it.
        if let Some(items) = items.as_array().filter(|items| items.iter().all(Value::is_object)) {
            for item in items {
                self.add(&item["apiVersion"], &item["kind"], &item["metadata"], &item["items"]);
            }
            return;
        }
        let (group, name) = identity(api_version, kind, metadata);
        self.0.entry(group.into()).or_default().insert(name.into());
    }
}

/// All documents of `manifests` but empty ones.
///
/// # Errors
/// When a text is not YAML, or a document is not a `T`.
pub(crate) fn documents<T: DeserializeOwned>(manifests: &[String]) -> Result<Vec<T>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::Merge,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: 2 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_documents: MAX_NODES,
        },
    };
    let mut all = Vec::new();
    for text in manifests {
        let documents: Vec<Option<T>> = serde_saphyr::from_multiple_with_options(text, options.clone())?;
        all.extend(documents.into_iter().flatten());
    }
    Ok(all)
}

/// The kind and namespace of a resource, such as `Deployment.apps in shop`, and its name.
pub(crate) fn identity(api_version: &Value, kind: &Value, metadata: &Value) -> (String, String) {
    let of = |key: &str| text(&metadata[key]);
    let mut group = text(kind);
    if let Some((api, _)) = text(api_version).split_once('/') {
        group = format!("{group}.{api}");
    }
    if !of("namespace").is_empty() {
        group = format!("{group} in {}", of("namespace"));
    }
    let name = if of("name").is_empty() { format!("{}*", of("generateName")) } else { of("name") };
    (group, name)
}

/// A value as messages show it.
fn text(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, one_line);
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}
