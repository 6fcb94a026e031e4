//! The clusters that Argo CD knows: its cluster Secrets in the gateway's own cluster. The list has no logins, since it is stored; an element finds
//! the login of its cluster here.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{
    cluster_secret::{Cluster, ClusterSecret, OWN_SERVER, own_described, without_logins},
    list::Listing,
    rules::Rules,
};
use domain::{
    error::BackendError,
    secret::{Secret, Secrets},
};
use outbound::{Outbound, kubernetes::ApiServer};

/// The label of cluster Secrets.
const LABEL: &str = "argocd.argoproj.io/secret-type=cluster";
/// For how long the Secrets are used that an element finds its login in.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// For how long a failure is kept: otherwise all elements that wait for the list would wait one after the other.
const FAILS_FOR: Duration = Duration::from_secs(1);
/// How long one reading may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most clusters: as many as an answer may have elements.
const MAX_CLUSTERS: usize = 10_000;

/// The clusters, by name.
pub(super) type Clusters = BTreeMap<String, Cluster>;

/// Finds clusters.
pub(super) struct Directory {
    own: ApiServer,
    rules: Rules,
    outbound: Arc<Outbound>,
    read: Mutex<Option<Read>>,
    secrets: parking_lot::Mutex<Secrets>,
}

struct Read {
    at: Instant,
    result: Result<Arc<Clusters>, BackendError>,
}

impl Directory {
    /// Nothing is read yet. `own` is the server that has the Secrets.
    pub(super) fn new(own: ApiServer, rules: Rules, outbound: Arc<Outbound>) -> Self {
        Self { own, rules, outbound, read: Mutex::default(), secrets: parking_lot::Mutex::default() }
    }

    /// The server that has the Secrets.
    pub(super) const fn own(&self) -> &ApiServer {
        &self.own
    }

    /// All clusters, as they are now.
    ///
    /// # Errors
    /// When the list of Secrets cannot be read whole, or two clusters have one name.
    pub(super) async fn all(&self, deadline: Instant) -> Result<Arc<Clusters>, BackendError> {
        self.get(Duration::ZERO, deadline).await
    }

    /// The cluster called `name`, by Secrets that were read a moment ago.
    ///
    /// # Errors
    /// When the Secrets cannot be read, or name no such cluster any more.
    pub(super) async fn find(&self, name: &str, url: &str, deadline: Instant) -> Result<Cluster, BackendError> {
        let clusters = self.get(KEPT_FOR, deadline).await?;
        let cluster = clusters.get(name).filter(|cluster| cluster.url == url);
        cluster.cloned().ok_or_else(|| {
            BackendError::unavailable(
                "its cluster Secret changed or went since the list was read; the next list has it as it is",
            )
        })
    }

    /// Forgets the Secrets.
    pub(super) fn forget(&self) {
        // Whoever reads them now reads them as they are now.
        if let Ok(mut read) = self.read.try_lock() {
            *read = None;
        }
    }

    /// The logins of all clusters.
    pub(super) fn secrets(&self) -> Secrets {
        let mut secrets = self.secrets.lock().clone();
        secrets.extend(self.own.secrets());
        secrets
    }

    async fn get(&self, max_age: Duration, deadline: Instant) -> Result<Arc<Clusters>, BackendError> {
        let late = || BackendError::timeout("the cluster Secrets did not arrive in time");
        let asked_at = Instant::now();
        let mut read = timeout_at(deadline, self.read.lock()).await.map_err(|_| late())?;
        if let Some(Read { at, result }) = &*read {
            let max_age = if result.is_err() { FAILS_FOR } else { max_age };
            // Read after this call began, or a moment before.
            if *at >= asked_at || at.elapsed() < max_age {
                return result.clone();
            }
        }
        let result = self.list(deadline.min(Instant::now() + TIMEOUT)).await;
        *read = Some(Read { at: Instant::now(), result: result.clone() });
        result
    }

    async fn list(&self, deadline: Instant) -> Result<Arc<Clusters>, BackendError> {
        let selector =
            self.rules.label_selector.as_ref().map_or_else(|| LABEL.to_owned(), |own| format!("{LABEL},{own}"));
        let namespace = &*self.rules.namespace;
        let listing = Listing {
            path: &["api", "v1", "namespaces", namespace, "secrets"],
            query: &[("labelSelector", &selector)],
            of: ("v1", "Secret"),
            right: &format!("`list` secrets in the namespace `{namespace}`"),
            max: MAX_CLUSTERS,
            recorded_as: Some(without_logins),
            deadline,
        };
        let secrets = listing.read(&self.own).await.map_err(|error| error.within("Argo CD's cluster Secrets"))?;
        let found: Vec<ClusterSecret> = secrets.items.iter().map(ClusterSecret::read).collect();
        let mut clusters = Clusters::new();
        let mut logins: Vec<Secret> = Vec::new();
        let has_own = found.iter().any(|cluster| cluster.server == OWN_SERVER);
        for secret in &found {
            let server = secret.server(&self.own, &self.rules, &self.outbound);
            let server = server.map(|(server, own)| {
                logins.extend(own);
                server
            });
            let described = Arc::new(secret.described.clone());
            let cluster = Cluster { url: secret.server.clone(), described, server };
            if clusters.insert(secret.name.clone(), cluster).is_some() {
                return Err(twice(&secret.name, &found));
            }
        }
        if self.rules.has_own && !has_own {
            let described: Value = own_described();
            let name = described["name"].as_str().unwrap_or_default().to_owned();
            let own =
                Cluster { url: OWN_SERVER.to_owned(), described: Arc::new(described), server: Ok(self.own.clone()) };
            if clusters.insert(name.clone(), own).is_some() {
                return Err(twice(&name, &found));
            }
        }
        *self.secrets.lock() = logins.into_iter().collect();
        Ok(Arc::new(clusters))
    }
}

/// The error for a name that two clusters have.
fn twice(name: &str, found: &[ClusterSecret]) -> BackendError {
    let secrets: Vec<&str> = found.iter().filter(|each| each.name == name).map(|each| each.secret.as_str()).collect();
    BackendError::invalid_output(format!(
        "several clusters are called `{}`, which is what makes them elements (Secrets: {}); give each its own `name`",
        name.escape_debug(),
        secrets.join(", ")
    ))
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("rules", &self.rules).finish_non_exhaustive()
    }
}
