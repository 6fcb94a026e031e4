//! Tells ApplicationSets that there is another answer: an annotation makes Argo CD reconcile them at once. Its value must be one that was
//! never written, because the same value again changes nothing. Argo CD removes it after a successful reconcile.
//! <https://argo-cd.readthedocs.io/en/stable/operator-manual/applicationset/Controlling-Resource-Modification/>

use std::{
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use http::{Method, StatusCode};
use serde_json::json;

use super::{ApiCall, Argocd, deadline, directory::ApplicationSet};
use crate::domain::error::{BackendError, ErrorKind};

/// The annotation that makes Argo CD reconcile an ApplicationSet.
const ANNOTATION: &str = "argocd.argoproj.io/application-set-refresh";
/// The largest answer that is read, in bytes: the whole ApplicationSet.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// The result of a refresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refreshed {
    /// So many ApplicationSets were annotated.
    Annotated(usize),
    /// There is no ApplicationSet of this name that asks this gateway.
    Unknown,
    /// It did not work, for this reason. It may later, after this time if the API server said so.
    Failed(String, Option<Duration>),
}

impl Refreshed {
    /// The name in metrics.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Annotated(_) => "annotated",
            Self::Unknown => "unknown",
            Self::Failed(..) => "failed",
        }
    }
}

impl Argocd {
    /// Makes Argo CD reconcile the ApplicationSets with this name, in each of the namespaces.
    pub(crate) async fn refresh(&self, name: &str) -> Refreshed {
        let sets = match self.sets(name).await {
            Ok(sets) => sets,
            Err(error) => return failed(&error),
        };
        let mut annotated = 0;
        for set in &sets {
            match self.annotate(set).await {
                Ok(true) => annotated += 1,
                Ok(false) => self.forget_sets().await,
                Err(error) => return failed(&error),
            }
        }
        if annotated == 0 { Refreshed::Unknown } else { Refreshed::Annotated(annotated) }
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
        };
        let right = format!("patch applicationsets.argoproj.io in the namespace `{namespace}`");
        let reply = self.send(call, &right, &[404]).await?;
        Ok(reply.status != StatusCode::NOT_FOUND)
    }
}

fn failed(error: &BackendError) -> Refreshed {
    let after = if let ErrorKind::Throttled { retry_after } = error.kind { retry_after } else { None };
    Refreshed::Failed(error.to_string(), after)
}
