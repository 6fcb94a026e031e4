//! The configuration of the `kubernetes` backend.

use std::{borrow::Cow, fmt, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use domain::{secret::SecretRef, units::HumanDuration};
use outbound::kubernetes::{default_api, default_ca, default_token};
use source::MaxUnknown;

/// Which objects, of which clusters, and how to make parameter sets of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "KubernetesBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The group and version of the objects, as in their `apiVersion`: `v1`, `apps/v1`, `example.com/v1alpha1`.
    pub(super) api_version: String,
    /// The kind of the objects, such as `Namespace`.
    pub(super) kind: String,
    /// The plural name of the kind in URLs, such as `namespaces`. Unless set, the cluster names it.
    pub(super) resource: Option<String>,
    /// The namespaces of the objects; templates. All namespaces unless set.
    #[serde(default)]
    pub(super) namespaces: Vec<String>,
    /// Only objects with these labels: a template of a selector, as `kubectl get -l` takes it.
    pub(super) label_selector: Option<String>,
    /// Only objects with these fields: a template of a selector, as `kubectl get --field-selector` takes it.
    pub(super) field_selector: Option<String>,
    /// Which clusters have the objects.
    #[serde(default)]
    pub(super) clusters: Clusters,
    /// A CEL expression over each `object`, which gives one parameter set, or a list of them; an empty list leaves the object out. It can
    /// also use `cluster` (`name`, `server`, `project`, `labels`, `annotations`), `params`, and below another step `items` or `item`. Unless
    /// set, a set has `name`, `namespace` and `labels`, and with several clusters `cluster` and `server`.
    pub(super) parameters: Option<String>,
    /// The most objects of one cluster. More are an error.
    #[serde(default = "default_max_objects")]
    pub(super) max_objects: u32,
    /// How long all requests to one cluster may take, with all waits and retries.
    #[serde(default = "default_timeout")]
    pub(super) timeout: HumanDuration,
    /// The URL of the own cluster's API server: https, or http on this machine only.
    #[serde(default = "default_api")]
    pub(super) api: String,
    /// The gateway's own token for that server; read at each use. Unless set, the token of its pod's service account.
    #[serde(default = "default_token")]
    pub(super) token: SecretRef,
    /// A PEM file with that server's CA. Unless set, the CA of the pod.
    #[serde(default = "default_ca")]
    pub(super) ca: PathBuf,
}

const fn default_max_objects() -> u32 {
    10_000
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

/// Which clusters are read.
#[derive(Debug, Clone, Default)]
pub(super) enum Clusters {
    /// The gateway's own.
    #[default]
    Own,
    /// Those that Argo CD knows.
    Argocd(ArgocdClusters),
}

/// The clusters that Argo CD knows: those of its Secrets with the label `argocd.argoproj.io/secret-type: cluster`. Each is an element: one that
/// does not answer keeps its last parameter sets, for at most `staleIfError`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ArgocdClusters {
    /// Only the clusters whose Secrets have these labels, as `kubectl get -l` takes them.
    pub(super) label_selector: Option<String>,
    /// The namespace of Argo CD in the own cluster.
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    /// Whether the own cluster is among them if no Secret names it, as in Argo CD's cluster generator: unless set, it is if there is no
    /// `labelSelector`.
    pub(super) own_cluster: Option<bool>,
    /// Accept Secrets with `insecure: true`, or with a login over plain http. Somebody between the gateway and that cluster can then read the
    /// login and change the answers.
    #[serde(default)]
    pub(super) allow_insecure: bool,
    /// The names in `identities` that log in to clusters of their clouds. Without one for a cloud, the pod's own identity there does.
    #[serde(default)]
    pub(super) identities: Vec<String>,
    /// How many clusters may be unknown, as a number or a share. With more, or with more than half, the whole answer is unknown.
    pub(super) max_unknown: Option<MaxUnknown>,
}

impl Default for ArgocdClusters {
    fn default() -> Self {
        Self {
            label_selector: None,
            namespace: default_namespace(),
            own_cluster: None,
            allow_insecure: false,
            identities: Vec::new(),
            max_unknown: None,
        }
    }
}

fn default_namespace() -> String {
    "argocd".to_owned()
}

impl JsonSchema for Clusters {
    fn schema_name() -> Cow<'static, str> {
        "KubernetesClusters".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let of_argocd = generator.subschema_for::<ArgocdClusters>();
        json_schema!({
            "description": "`self`: the gateway's own cluster. `argocd`: all clusters that Argo CD knows. An object: some of these.",
            "default": "self",
            "anyOf": [{ "type": "string", "enum": ["self", "argocd"] }, of_argocd],
        })
    }
}

impl<'de> Deserialize<'de> for Clusters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Clusters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`self`, `argocd`, or an object such as `{ labelSelector: env=prod }`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Clusters, E> {
        match text {
            "self" => Ok(Clusters::Own),
            "argocd" => Ok(Clusters::Argocd(ArgocdClusters::default())),
            other => Err(E::custom(format!(
                "`{}` is neither `self` nor `argocd`; some of Argo CD's clusters are `{{ labelSelector: … }}`",
                other.escape_debug()
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Clusters, A::Error> {
        ArgocdClusters::deserialize(MapAccessDeserializer::new(map)).map(Clusters::Argocd)
    }
}
