//! The configuration of the shared store.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::redis::{Address, RedisStore, StoreProbe};
use crate::{
    domain::{
        problem::{Path, Problems, Severity},
        secret::SecretRef,
        units::HumanDuration,
    },
    file::base_dir::BaseDir,
};

/// A Valkey or Redis server that replicas share.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// The server's URL: `redis://host:6379/0`, or `rediss://` for TLS. With Sentinel: `redis+sentinel://host:26379,host:26379/name/0`,
    /// where `name` is the primary's name. Give this or `cluster`.
    pub(crate) url: Option<String>,
    /// Nodes of a cluster, each as a URL: `redis://host:6379`. All keys are in one slot.
    #[serde(default)]
    pub(crate) cluster: Vec<String>,
    /// The user name. Needs `password`.
    pub(crate) username: Option<String>,
    /// The password.
    pub(crate) password: Option<SecretRef>,
    /// A PEM file with the certificate authority of the server's certificate, relative to the configuration file. The system's
    /// authorities are then not trusted.
    pub(crate) ca: Option<PathBuf>,
    /// The beginning of all keys. Gateways that share one memory have the same prefix. One store can serve several groups of gateways,
    /// each with a prefix of its own.
    #[serde(default = "prefix")]
    pub(crate) prefix: String,
    /// How long one request to the store may take. After that, this replica goes on alone.
    #[serde(default = "timeout")]
    pub(crate) timeout: HumanDuration,
}

fn prefix() -> String {
    "appset-gateway".to_owned()
}

fn timeout() -> HumanDuration {
    HumanDuration(std::time::Duration::from_millis(200))
}

impl StoreConfig {
    /// The store. Does not connect yet. Problems are noted at `path`.
    pub(crate) fn build(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<RedisStore> {
        let mut own = Problems::default();
        let address = self.check(base, path, &mut own);
        let own = own.into_vec();
        let has_errors = own.iter().any(|problem| problem.severity == Severity::Error);
        for problem in own {
            problems.add(problem);
        }
        let ca = self.ca.as_ref().map(|ca| base.resolve(ca));
        Some(RedisStore::new(address.filter(|_| !has_errors)?, self.clone(), base.clone(), ca))
    }

    /// Tries the store once.
    ///
    /// # Errors
    /// Why the store cannot be used, for the operator.
    pub(crate) async fn probe(&self, base: &BaseDir) -> Result<StoreProbe, String> {
        let store = self.build(base, &Path::root(), &mut Problems::default());
        store.ok_or("its configuration has errors")?.probe().await.map_err(|error| error.to_string())
    }

    fn check(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Address> {
        let address = self.address(path, problems);
        if self.username.is_some() && self.password.is_none() {
            problems.error(&path.key("username"), "a user name needs a `password`");
        }
        if let Some(password) = &self.password {
            password.check(base, &path.key("password"), problems);
        }
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        if self.prefix.is_empty() || self.prefix.len() > 100 || !self.prefix.chars().all(is_good) {
            let message = "a prefix has 1 to 100 letters, digits, `-`, `_`, `.`, `:` and `/`";
            problems.error(&path.key("prefix"), message);
        }
        if self.timeout.0.is_zero() || self.timeout.0 > std::time::Duration::from_millis(800) {
            let message = "a timeout is more than 0 and at most 800 ms: answers count as fresh for one second after the last contact";
            problems.error(&path.key("timeout"), message);
        }
        if let Some(ca) = self.ca.as_ref().map(|ca| base.resolve(ca))
            && let Err(error) = crate::file::read(&ca)
        {
            problems.error(&path.key("ca"), format!("cannot read {}: {error}", ca.display()));
        }
        address
    }

    fn address(&self, path: &Path, problems: &mut Problems) -> Option<Address> {
        match (&self.url, self.cluster.is_empty()) {
            (Some(url), true) => problems.note(&path.key("url"), Address::parse(url)),
            (None, false) => {
                let mut nodes = Vec::new();
                for (index, url) in self.cluster.iter().enumerate() {
                    nodes.extend(problems.note(&path.key("cluster").index(index), Address::parse_node(url)));
                }
                (nodes.len() == self.cluster.len()).then_some(Address::Cluster(nodes))
            }
            _ => {
                problems.error(path, "a shared store has exactly one of `url` and `cluster`");
                None
            }
        }
    }
}
