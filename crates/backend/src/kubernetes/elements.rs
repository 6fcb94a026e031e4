//! The objects of several clusters. Each cluster is an element: the engine asks for the list of clusters, then for each cluster, and remembers each
//! by itself. Where the engine does not, as in a step of a pipeline, all clusters answer or the answer is unknown.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{clusters::Directory, discovery, objects::CLUSTER, reader::Reader};
use crate::{Nature, each::fetch_all};
use domain::{
    error::BackendError,
    generator::{Outcome, ParameterSet, Query},
    secret::Secrets,
};
use outbound::kubernetes::ApiServer;
use source::{Backend, Each, MaxUnknown, Reached};

/// The kind of this backend, of its list and of its elements.
pub(super) const KIND: &str = "kubernetes";
/// What makes a cluster the same element in the next list. Its URL and labels may change.
const KEY: &str = "cluster.name";

/// The objects of all clusters.
#[derive(Debug)]
pub(super) struct OfClusters {
    each: Each,
    nature: Nature,
    directory: Arc<Directory>,
}

impl OfClusters {
    /// The objects that `reader` finds in the clusters of `directory`. `list` is the nature of the list, and `nature` that of the sets.
    pub(super) fn new(
        directory: Directory,
        reader: Reader,
        max_unknown: Option<MaxUnknown>,
        (list, nature): (Nature, Nature),
    ) -> Self {
        let directory = Arc::new(directory);
        let each = Each {
            kinds: [KIND; 2],
            list: Arc::new(ClusterList { directory: Arc::clone(&directory), nature: list }),
            element: Arc::new(OfCluster { directory: Arc::clone(&directory), reader, nature: nature.clone() }),
            key: vec![KEY.to_owned()],
            max_unknown: max_unknown.unwrap_or(MaxUnknown::HALF),
            has_item_in_sets: false,
        };
        Self { each, nature, directory }
    }
}

#[async_trait]
impl Backend for OfClusters {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        fetch_all(&self.each, query).await
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn each(&self) -> Option<&Each> {
        Some(&self.each)
    }

    fn parts(&self) -> Vec<&dyn Backend> {
        vec![&*self.each.list, &*self.each.element]
    }

    fn secrets(&self) -> Secrets {
        self.directory.secrets()
    }
}

/// The list of clusters: an item for each.
struct ClusterList {
    directory: Arc<Directory>,
    nature: Nature,
}

#[async_trait]
impl Backend for ClusterList {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let clusters = self.directory.all(query.deadline).await?;
        let set = |described: &Value| match json!({CLUSTER: described}) {
            Value::Object(set) => ParameterSet(set),
            _ => ParameterSet::default(),
        };
        let sets = clusters.values().map(|cluster| set(&cluster.described)).collect();
        Ok(Outcome::of_list(sets, "Argo CD's cluster Secrets", "200, an explicit empty list"))
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn forget(&self) {
        self.directory.forget();
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        let source = self.directory.own().url().origin().ascii_serialization();
        let clusters = self.directory.all(deadline).await;
        let result = clusters.map(|clusters| format!("{} clusters", clusters.len()));
        vec![Reached { source, result, needs: None }]
    }

    fn secrets(&self) -> Secrets {
        self.directory.secrets()
    }
}

/// The objects of one cluster.
struct OfCluster {
    directory: Arc<Directory>,
    reader: Reader,
    nature: Nature,
}

#[async_trait]
impl Backend for OfCluster {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let described = query.item().and_then(|item| item.get(CLUSTER));
        let text = |key: &str| described.and_then(|cluster| cluster.get(key)).and_then(Value::as_str);
        let (Some(described), Some(name), Some(url)) = (described, text("name"), text("server")) else {
            return Err(BackendError::invalid_input("a cluster is queried without its name and URL"));
        };
        let cluster = self.directory.find(name, url, query.deadline).await?;
        self.reader.read(&cluster.server?, described, query).await
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn forget(&self) {
        self.reader.discovery.forget_all();
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        let Ok(clusters) = self.directory.all(deadline).await else { return Vec::new() };
        let tries = clusters.iter().map(|(name, cluster)| async move {
            match &cluster.server {
                Ok(server) => reach(server, &self.reader, format!("cluster {name}"), deadline).await,
                Err(error) => Reached { source: format!("cluster {name}"), result: Err(error.clone()), needs: None },
            }
        });
        futures_util::future::join_all(tries).await
    }
}

/// Whether `server` serves the objects of `reader`.
pub(super) async fn reach(server: &ApiServer, reader: &Reader, source: String, deadline: Instant) -> Reached {
    let of = &reader.selection.of;
    let found = discovery::ask(server, of, deadline).await;
    let result = found.map(|resource| format!("serves {} ({})", of.kind, of.full_name(&resource.name)));
    Reached { source, result, needs: None }
}
