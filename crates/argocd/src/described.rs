//! The ApplicationSets that call this gateway: which Applications they have, and how these are named. They show which
//! Applications would be deleted if parameter sets went away.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Argocd;
use domain::error::BackendError;

/// An ApplicationSet as its specification and status describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Described {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The template of its Applications' names.
    #[serde(default)]
    pub name_template: String,
    /// Whether the template is a Go template.
    #[serde(default)]
    pub go_template: bool,
    /// Whether a `templatePatch` may change the names.
    #[serde(default)]
    pub is_patched: bool,
    /// Its generator, if the parameters of the template are not only those of one plugin generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combines: Option<String>,
    /// `syncPolicy.applicationsSync`, such as `create-only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications_sync: Option<String>,
    /// `syncPolicy.preserveResourcesOnDeletion`.
    #[serde(default)]
    pub preserves_resources: bool,
    /// The Applications that it has now, by its status.
    #[serde(default)]
    pub applications: Vec<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

impl Argocd {
    /// All ApplicationSets that ask this gateway, as they are now.
    ///
    /// # Errors
    /// When the list of a namespace cannot be read.
    pub async fn describe(&self) -> Result<Vec<Described>, BackendError> {
        let mut all = Vec::new();
        for namespace in &self.namespaces {
            let ours = |item: Item| self.is_asked_by(&item.spec).then(|| describe(item));
            all.extend(self.read_list(namespace, ours).await?);
        }
        Ok(all)
    }
}

fn describe(Item { metadata, spec, status }: Item) -> Described {
    let text = |at: &str| spec.pointer(at).and_then(Value::as_str).filter(|text| !text.is_empty());
    let is_true = |at: &str| spec.pointer(at) == Some(&Value::Bool(true));
    // The template of a generator goes before that of the ApplicationSet.
    let name_template = text("/generators/0/plugin/template/metadata/name").or_else(|| text("/template/metadata/name"));
    let applications = status.resources.into_iter().filter(|resource| resource.kind == "Application");
    Described {
        namespace: metadata.namespace,
        name: metadata.name,
        name_template: name_template.unwrap_or_default().to_owned(),
        go_template: is_true("/goTemplate"),
        is_patched: text("/templatePatch").is_some(),
        combines: combined(&spec["generators"]),
        applications_sync: text("/syncPolicy/applicationsSync").map(str::to_owned),
        preserves_resources: is_true("/syncPolicy/preserveResourcesOnDeletion"),
        applications: applications.map(|resource| resource.name).collect(),
    }
}

/// The kinds of `generators`, unless there is one plugin generator alone.
fn combined(generators: &Value) -> Option<String> {
    const KINDS: [&str; 9] = [
        "matrix",
        "merge",
        "plugin",
        "list",
        "clusters",
        "git",
        "scmProvider",
        "clusterDecisionResource",
        "pullRequest",
    ];
    let list = generators.as_array().map(Vec::as_slice).unwrap_or_default();
    let kind = |generator: &Value| KINDS.into_iter().find(|kind| generator.get(*kind).is_some());
    match list {
        [one] if kind(one) == Some("plugin") => None,
        all => Some(all.iter().map(|each| kind(each).unwrap_or("another")).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(spec: &Value) -> Described {
        let resources = json!([{"kind": "Application", "name": "one"}, {"kind": "Other", "name": "two"}]);
        let item = json!({"metadata": {"name": "s", "namespace": "argocd"}, "spec": spec,
            "status": {"resources": resources}});
        describe(serde_json::from_value(item).unwrap())
    }

    #[test]
    fn one_plugin_generator_alone_gives_all_parameters() {
        let one = described(&json!({"goTemplate": true, "generators": [{"plugin": {}}],
            "template": {"metadata": {"name": "{{.name}}"}},
            "syncPolicy": {"applicationsSync": "create-only", "preserveResourcesOnDeletion": true}}));
        assert_eq!((one.combines, one.applications), (None, vec!["one".to_owned()]));
        assert!(one.go_template && one.preserves_resources && one.name_template == "{{.name}}");
        assert_eq!(one.applications_sync.as_deref(), Some("create-only"));
        let own = json!({"generators": [{"plugin": {"template": {"metadata": {"name": "own"}}}}],
            "template": {"metadata": {"name": "usual"}}});
        assert_eq!(described(&own).name_template, "own");
        for (generators, combines) in
            [(json!([{"matrix": {}}]), "matrix"), (json!([{"plugin": {}}, {"list": {}}]), "plugin, list")]
        {
            assert_eq!(described(&json!({ "generators": generators })).combines.as_deref(), Some(combines));
        }
    }
}
