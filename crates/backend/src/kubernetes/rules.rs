//! What the configuration says of other clusters, and the error about a Secret that does not comply.

use std::sync::Arc;

use domain::error::{BackendError, ErrorKind};
use outbound::Identity;

/// What the configuration says of clusters.
#[derive(Debug)]
pub(super) struct Rules {
    /// Argo CD's namespace.
    pub namespace: String,
    /// The clusters' labels.
    pub label_selector: Option<String>,
    /// Whether the own cluster is there without a Secret.
    pub has_own: bool,
    /// Whether certificates may be unchecked.
    pub allow_insecure: bool,
    /// The identities of the configuration for clusters of clouds.
    pub identities: Vec<Arc<dyn Identity>>,
}

/// The error about a Secret. Another request does not help; another Secret does.
pub(super) fn unusable(why: impl Into<String>) -> BackendError {
    BackendError::new(ErrorKind::Denied, why)
}
