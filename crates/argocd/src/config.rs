//! The configuration of what the gateway does at Argo CD's side.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use domain::secret::SecretRef;
use outbound::kubernetes::{default_api, default_ca, default_token};

/// The gateway's access to Argo CD's cluster.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArgocdConfig {
    /// Notifies ApplicationSets of another answer, so that Argo CD asks at once. Also writes Kubernetes Events on them.
    pub refresh: Option<RefreshConfig>,
}

/// Which ApplicationSets are notified of another answer, and by which API server. The service account needs `list` and `patch` of
/// `applicationsets.argoproj.io`, and `create` and `patch` of `events`, in the namespaces.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshConfig {
    /// The namespaces of the ApplicationSets.
    pub namespaces: Vec<String>,
    /// The names of the config maps that point Argo CD at this gateway: the `configMapRef` of plugin generators. Other ApplicationSets are left alone.
    pub(crate) config_maps: Vec<String>,
    /// After which changes they are notified.
    #[serde(default = "all_causes")]
    pub on: Vec<Cause>,
    /// The API server's URL: https, or http on this machine only.
    #[serde(default = "default_api")]
    pub api: String,
    /// The gateway's own token for the API server; read at each use. Unless set, the token of its pod's service account.
    #[serde(default = "default_token")]
    pub token: SecretRef,
    /// A PEM file with the API server's CA. Unless set, the CA of the pod.
    #[serde(default = "default_ca")]
    pub ca: PathBuf,
}

/// Why there is another answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// An event of a hook.
    Events,
    /// A renewal in the background.
    Renewals,
    /// A held answer that an operator released.
    Releases,
}

pub(crate) fn all_causes() -> Vec<Cause> {
    vec![Cause::Events, Cause::Renewals, Cause::Releases]
}
