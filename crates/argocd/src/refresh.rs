//! Refreshes ApplicationSets when there is another answer: an annotation makes Argo CD reconcile them at once. Its value must be one that was
//! never written, because the same value again changes nothing. Argo CD removes it after a successful reconcile.
//! <https://argo-cd.readthedocs.io/en/stable/operator-manual/applicationset/Controlling-Resource-Modification/>

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use http::{Method, StatusCode};
use serde_json::json;

use super::{
    ApiCall, Argocd, deadline,
    directory::{ApplicationSet, Listed},
};
use domain::error::{BackendError, ErrorKind};

/// The annotation that makes Argo CD reconcile an ApplicationSet.
const ANNOTATION: &str = "argocd.argoproj.io/application-set-refresh";
/// The largest answer that is read, in bytes: the whole ApplicationSet.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// The result of a refresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refreshed {
    /// So many ApplicationSets were annotated.
    Annotated(usize),
    /// There is no ApplicationSet of this name that asks this gateway.
    Unknown,
    /// The list of ApplicationSets is about to be read again, after this time. It may lack a new one.
    Unlisted(Duration),
    /// It did not work.
    Failed {
        /// Why.
        error: String,
        /// When it may work, if the API server named a time.
        after: Option<Duration>,
        /// The namespaces in which it worked, now or before.
        refreshed: Vec<Arc<str>>,
    },
}

impl Refreshed {
    /// The name in metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Annotated(_) => "annotated",
            Self::Unknown => "unknown",
            Self::Unlisted(_) => "unlisted",
            Self::Failed { .. } => "failed",
        }
    }
}

impl Argocd {
    /// Makes Argo CD reconcile the ApplicationSets with this name, in each of the namespaces except those of `refreshed`. A name may have a
    /// namespace before it, with a `/`.
    pub async fn refresh(&self, name: &str, refreshed: &[Arc<str>]) -> Refreshed {
        let mut refreshed = refreshed.to_vec();
        let Listed { sets, error, unlisted } = self.sets(name).await;
        let (mut annotated, mut errors) = (0, Vec::from_iter(error));
        for set in sets {
            if refreshed.contains(&set.namespace) {
                continue;
            }
            match self.annotate(&set).await {
                Ok(true) => {
                    annotated += 1;
                    refreshed.push(set.namespace);
                }
                Ok(false) => self.forget_sets().await,
                Err(error) => errors.push(error),
            }
        }
        match (errors.first(), unlisted) {
            (Some(error), _) => {
                let after = if let ErrorKind::Throttled { retry_after } = error.kind { retry_after } else { None };
                Refreshed::Failed { error: error.to_string(), after, refreshed }
            }
            (None, Some(after)) if annotated == 0 => Refreshed::Unlisted(after),
            (None, _) if annotated == 0 => Refreshed::Unknown,
            (None, _) => Refreshed::Annotated(annotated),
        }
    }

    /// Annotates `set`. Returns false if it is gone.
    async fn annotate(&self, set: &ApplicationSet) -> Result<bool, BackendError> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let at = humantime::format_rfc3339_nanos(SystemTime::now());
        let patch = json!({"metadata": {"annotations": {ANNOTATION: format!("{at}-{number}")}}});
        let namespace = &*set.namespace;
        let call = ApiCall {
            method: Method::PATCH,
            path: &["apis", "argoproj.io", "v1alpha1", "namespaces", namespace, "applicationsets", &set.name],
            query: &[("fieldManager", "appset-gateway")],
            body: Some(("application/merge-patch+json", patch.to_string().into())),
            max_bytes: MAX_REPLY_BYTES,
            deadline: deadline(),
            recorded_as: None,
        };
        let right = format!("patch applicationsets.argoproj.io in the namespace `{namespace}`");
        let reply = self.send(call, &right, &[404]).await?;
        Ok(reply.status != StatusCode::NOT_FOUND)
    }
}
