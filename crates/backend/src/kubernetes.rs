//! `kubernetes`: the objects of a cluster, or of all clusters that Argo CD knows. A list is read whole, or the answer is *unknown*: only an empty
//! list of a resource that is there proves that there are no objects. A 404 proves nothing, since it may be that of a missing
//! definition of a custom resource.
//!
//! Start at [`Config`]. `selection` says which objects, `discovery` finds their plural name, `list` reads a list whole, and `objects` makes
//! parameter sets; `reader` does all of it for one cluster. `clusters` reads Argo CD's cluster Secrets, `cluster_secret` one of them,
//! `cluster_config` its login, and `cluster_login` says which identity logs in at a cloud; `rules` is what the configuration allows them.
//! `elements` makes each cluster an element.

mod cluster_config;
mod cluster_login;
mod cluster_secret;
mod clusters;
mod config;
mod discovery;
mod elements;
mod list;
mod objects;
mod reader;
mod rules;
mod selection;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;

pub use self::config::Config;
use self::{
    cluster_secret::own_described,
    clusters::Directory,
    config::{ArgocdClusters, Clusters},
    discovery::Discovery,
    elements::{OfClusters, reach},
    objects::{CLUSTER, Mapping},
    reader::Reader,
    rules::Rules,
    selection::{Selection, is_name},
};
use super::{Backend, Building, ITEM, KindConfig, Nature, Reached};
use domain::{
    error::BackendError,
    generator::{Outcome, Query},
    secret::Secrets,
};
use lang::scope::ValueType;
use outbound::{
    ClientOptions, fixed_url, is_safe,
    kubernetes::{ApiAccess, ApiServer},
};

/// The objects of the gateway's own cluster.
#[derive(Debug)]
struct OfOwn {
    server: ApiServer,
    reader: Reader,
    cluster: Value,
    nature: Nature,
}

impl Config {
    /// The server of the own cluster.
    fn own(&self, building: &mut Building<'_>) -> Option<ApiServer> {
        let api = building.key("api").note(fixed_url(&self.api));
        if api.as_ref().is_some_and(|url| !is_safe(url)) {
            building.key("api").error("it is not https, so anybody in between could read the token");
        }
        let concurrency = ClientOptions::default().concurrency;
        let access = ApiAccess { url: api, token: &self.token, ca: &self.ca, concurrency };
        ApiServer::build(access, building.context.outbound, &mut building.section())
    }
}

impl ArgocdClusters {
    fn rules(&self, building: &mut Building<'_>) -> Rules {
        if !is_name(&self.namespace) {
            building.key("namespace").error("it is not the name of a namespace");
        }
        if self.label_selector.as_ref().is_some_and(|selector| selector.trim().is_empty()) {
            building.key("labelSelector").error_with_help("it is empty", "leave it out to read all clusters");
        }
        if self.allow_insecure {
            building.key("allowInsecure").warning(
                "everybody between the gateway and a cluster with `insecure: true` can read the login and change the answers, which deletes \
                 Applications",
                "name the cluster's CA as `caData` in its Secret instead",
            );
        }
        let identities = self.identities.iter().enumerate().filter_map(|(index, name)| {
            let named = building.context.outbound.identities().named(name);
            building.key("identities").index(index).note(named)
        });
        let identities = identities.collect();
        Rules {
            namespace: self.namespace.clone(),
            label_selector: self.label_selector.clone(),
            has_own: self.own_cluster.unwrap_or(self.label_selector.is_none()),
            allow_insecure: self.allow_insecure,
            identities,
        }
    }
}

impl KindConfig for Config {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        building.problems.check_not_zero(&building.path.key("timeout"), self.timeout.0);
        if self.max_objects == 0 {
            building.key("maxObjects").error("with 0, every list has too many objects");
        }
        let of_argocd = if let Clusters::Argocd(clusters) = &self.clusters { Some(clusters) } else { None };
        let selection = Selection::build(self, building);
        let mapping = Mapping::build(self.parameters.as_deref(), of_argocd.is_some(), building);
        if of_argocd.is_some() && building.context.scope.has(ITEM) {
            let help = "each cluster is an element already: let it be the route's backend, or a step that makes the list before `each`";
            building.key("clusters").error_with_help("Argo CD's clusters are not possible below `each`", help);
            return None;
        }
        let rules = of_argocd.map(|clusters| (clusters.rules(&mut building.key("clusters")), clusters.max_unknown));
        let server = self.own(building);
        let (selection, mapping, server) = (selection?, mapping?, server?);
        let nature = building.nature(mapping.item.clone());
        let reader = Reader {
            selection,
            mapping,
            max_objects: usize::try_from(self.max_objects).unwrap_or(usize::MAX),
            timeout: self.timeout,
            discovery: Discovery::default(),
        };
        let Some((rules, max_unknown)) = rules else {
            return Some(Arc::new(OfOwn { server, reader, cluster: own_described(), nature }));
        };
        let list = Nature { reads_application_set: false, item: ValueType::object([CLUSTER]), ..Nature::default() };
        let directory = Directory::new(server, rules, Arc::clone(building.context.outbound));
        Some(Arc::new(OfClusters::new(directory, reader, max_unknown, (list, nature))))
    }
}

#[async_trait]
impl Backend for OfOwn {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        self.reader.read(&self.server, &self.cluster, query).await
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn forget(&self) {
        self.reader.discovery.forget_all();
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        let source = self.server.url().origin().ascii_serialization();
        vec![reach(&self.server, &self.reader, source, deadline).await]
    }

    fn secrets(&self) -> Secrets {
        self.server.secrets()
    }
}

#[cfg(test)]
mod tests;
