//! The configuration of the shared store.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    KeyedStore, Store, StoreError,
    keyed::KeySource,
    redis::{Address, RedisStore, StoreProbe},
};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems, Severity},
    secret::SecretRef,
    units::HumanDuration,
};
use outbound::warn_of_cleartext_to;
use telemetry::metrics::StoreMetrics;
use tls::pem::{content, trusted};

/// A Valkey or Redis server that replicas share.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoreConfig {
    /// The server's URL: `redis://host:6379/0`, or `rediss://` for TLS. With Sentinel: `redis+sentinel://host:26379,host:26379/name/0`,
    /// where `name` is the primary's name. Give this or `cluster`.
    pub url: Option<String>,
    /// Nodes of a cluster, each as a URL: `redis://host:6379`. All keys are in one slot.
    #[serde(default)]
    pub cluster: Vec<String>,
    /// The user name. Needs `password`.
    pub username: Option<String>,
    /// The password.
    pub password: Option<SecretRef>,
    /// A PEM file with the certificate authority of the server's certificate, relative to the configuration file. The system's
    /// authorities are then not trusted.
    pub ca: Option<PathBuf>,
    /// The keys with which the replicas prove to each other that they made what the store holds, one on each line of the file, each of
    /// 32 characters or more. The first one makes, all of them verify. Needed unless the store is on this host. The same for all replicas.
    pub key: Option<SecretRef>,
    /// The beginning of all keys. Gateways that share one memory have the same prefix. One store can serve several groups of gateways,
    /// each with a prefix of its own.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// How long one request to the store may take. A replica without contact answers nothing until it is back.
    #[serde(default = "timeout")]
    pub timeout: HumanDuration,
}

fn prefix() -> String {
    "appset-gateway".to_owned()
}

fn timeout() -> HumanDuration {
    HumanDuration(std::time::Duration::from_millis(200))
}

/// Why a store cannot be tried, or not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Its configuration has errors, which were reported.
    #[error("its configuration has errors")]
    Configuration,
    /// It cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreConfig {
    /// The store. Does not connect yet. Problems are noted at `path`.
    pub fn build(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<RedisStore> {
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

    /// The store, with the keys that prove what is in it.
    pub fn build_keyed(&self, base: &BaseDir, metrics: &StoreMetrics) -> Option<impl Store> {
        let store = self.build(base, &Path::root(), &mut Problems::default())?.counted(metrics.clone());
        Some(KeyedStore::new(store, self.keys(base), Some(metrics.clone())))
    }

    fn keys(&self, base: &BaseDir) -> Option<KeySource> {
        self.key.clone().map(|key| KeySource::new(&self.prefix, key, base))
    }

    /// Tries the store once.
    ///
    /// # Errors
    /// Why the store cannot be used, for the operator.
    pub async fn probe(&self, base: &BaseDir) -> Result<StoreProbe, ProbeError> {
        let store = self.build(base, &Path::root(), &mut Problems::default()).ok_or(ProbeError::Configuration)?;
        let mut probe = store.probe().await?;
        // Without ids of its own, the store's key is only read.
        if let Ok(Some(other)) = store.name_key(&[]).await
            && let Err(problem) = KeySource::compare(self.keys(base).as_ref(), &other)
        {
            probe.problems.push(problem.to_string());
        }
        Ok(probe)
    }

    fn check(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Address> {
        let address = self.address(path, problems);
        if self.username.is_some() && self.password.is_none() {
            problems.error(&path.key("username"), "a user name needs a `password`");
        }
        if let Some(password) = &self.password {
            password.check(base, &path.key("password"), problems);
        }
        match self.keys(base) {
            Some(keys) => keys.check(&path.key("key"), problems),
            None if address.as_ref().is_some_and(Address::is_remote) => problems.error(
                &path.key("key"),
                "a store on another host, behind Sentinels or in a cluster needs a `key`, so that nobody but the replicas can write an answer: \
                 `openssl rand -hex 32 > store.key`, and `key: { file: store.key }` for all replicas",
            ),
            None => {}
        }
        if let Some(host) = address.as_ref().and_then(Address::in_cleartext).filter(|_| self.password.is_some()) {
            let at = if self.url.is_some() { "url" } else { "cluster" };
            warn_of_cleartext_to(&host, "rediss://", &path.key(at), problems);
        }
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        if self.prefix.is_empty() || self.prefix.len() > 100 || !self.prefix.chars().all(is_good) {
            let message = "a prefix has 1 to 100 letters, digits, `-`, `_`, `.`, `:` and `/`";
            problems.error(&path.key("prefix"), message);
        }
        if self.timeout.0.is_zero() || self.timeout.0 > std::time::Duration::from_millis(800) {
            let message =
                "a timeout is more than 0 and at most 800 ms: a replica answers for one second after the last contact";
            problems.error(&path.key("timeout"), message);
        }
        if let Some(ca) = self.ca.as_ref().map(|ca| base.resolve(ca)) {
            let read = content(&ca, "CA").and_then(|pem| trusted(&ca, &pem));
            problems.note_secret(&path.key("ca"), read);
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
