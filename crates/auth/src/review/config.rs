//! The configuration of token reviews.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Role, grants::entry_config};
use domain::secret::SecretRef;
use outbound::kubernetes::{default_api, default_ca, default_token};

/// Tokens that a cluster's API server checks (`TokenReview`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenReviewConfig {
    /// The API server's URL: https, or http on this machine only.
    #[serde(default = "default_api")]
    pub api: String,
    /// The gateway's own token for the API server; read at each use. Unless set, the token of its pod's service account. That account needs the
    /// cluster role `system:auth-delegator`.
    #[serde(default = "default_token")]
    pub token: SecretRef,
    /// A PEM file with the API server's CA. Unless set, the CA of the pod.
    #[serde(default = "default_ca")]
    pub ca: PathBuf,
    /// The accepted audiences: a token must be for one of them.
    pub audiences: Vec<String>,
    /// The accepted users. The first entry that matches counts.
    pub callers: Vec<ReviewedConfig>,
}

entry_config! {
    /// Users of the cluster, and their permissions.
    pub struct ReviewedConfig {
        /// A glob over the user's name: `system:serviceaccount:argocd:*`.
        pub user: String,
        /// Globs over the user's groups. One group must match. Unless set, groups do not matter.
        pub groups: Option<Vec<String>>,
        /// The caller's name; the user's name unless set.
        pub name: Option<String>,
        /// The role of its callers.
        #[serde(default)]
        pub role: Role,
    }
}
