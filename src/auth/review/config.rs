//! What the configuration says of token reviews.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    auth::{Role, grants::entry_config},
    domain::secret::SecretRef,
};

/// Where a pod finds its service account's token and the API server's CA.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Tokens that a cluster's API server vouches for (`TokenReview`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TokenReviewConfig {
    /// The API server, by https; by http on this machine only.
    #[serde(default = "api")]
    pub(crate) api: String,
    /// Who asks; read at each use. The service account of the gateway's pod unless set. It needs the
    /// cluster role `system:auth-delegator`.
    #[serde(default = "token")]
    pub(crate) token: SecretRef,
    /// A PEM file with the API server's CA. That of the pod unless set.
    #[serde(default = "ca")]
    pub(crate) ca: PathBuf,
    /// For whom a token must be: one of these.
    pub(crate) audiences: Vec<String>,
    /// Whose tokens are taken; the first that fits.
    pub(crate) callers: Vec<ReviewedConfig>,
}

entry_config! {
    /// Users of the cluster, and what they may ask.
    pub(crate) struct ReviewedConfig {
        /// A glob over the user's name: `system:serviceaccount:argocd:*`.
        pub(crate) user: String,
        /// Globs over the user's groups, of which one must fit; any groups, or none, unless set.
        pub(crate) groups: Option<Vec<String>>,
        /// What the caller is called; the user's name unless set.
        pub(crate) name: Option<String>,
        /// What their tokens are for.
        #[serde(default)]
        pub(crate) role: Role,
    }
}

fn api() -> String {
    "https://kubernetes.default.svc".to_owned()
}

fn token() -> SecretRef {
    SecretRef::File(format!("{SERVICE_ACCOUNT}/token").into())
}

fn ca() -> PathBuf {
    format!("{SERVICE_ACCOUNT}/ca.crt").into()
}
