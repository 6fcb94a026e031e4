//! An identity at a cloud, as registries and backends use it: something that logs in at a registry, and authorizes a request.
//! How an identity proves itself is not known here.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use reqwest::Url;
use tokio::time::Instant;

use super::{Call, Reply, Tls};
use domain::{
    error::BackendError,
    secret::{Secret, Secrets},
};

/// The name that turns the automatic identity of a registry off.
pub const NO_IDENTITY: &str = "none";

/// A registry that an identity logs in at.
#[derive(Debug, Clone, Copy)]
pub struct LoginPlace<'a> {
    /// The registry's name in image references.
    pub name: &'a str,
    /// Where it is reached.
    pub base: &'a Url,
    /// How its certificate is checked there, and the certificate that it wants.
    pub tls: &'a Tls,
}

/// The login of an identity at a registry.
#[derive(Debug, Clone)]
pub enum Login {
    /// A user name and a password.
    Password {
        /// The user.
        username: String,
        /// The password.
        password: Secret,
    },
    /// A refresh token, for which the registry's token server issues tokens.
    RefreshToken(Secret),
}

/// A Kubernetes cluster that an identity logs in to.
#[derive(Debug, Clone, Copy)]
pub struct ClusterLogin<'a> {
    /// The name of the cluster at its cloud, where the login depends on it.
    pub name: Option<&'a str>,
    /// The role to assume before.
    pub role: Option<&'a str>,
    /// The application that the token is for, in place of the cloud's usual one.
    pub audience: Option<&'a str>,
}

/// An identity at a cloud.
#[async_trait]
pub trait Identity: fmt::Debug + Send + Sync {
    /// The identity for `check`, from the configuration and the environment alone.
    fn describe(&self) -> String;

    /// The cloud: the identity of one never takes the place of another's.
    fn cloud(&self) -> &'static str;

    /// Whether the registry called `name` is one of the identity's cloud.
    fn covers(&self, name: &str) -> bool;

    /// Why every use of it fails, if that is known at the start.
    fn flaw(&self) -> Option<&str> {
        None
    }

    /// The permission by which a registry of its cloud lets it read, in the words of the cloud.
    fn to_read(&self) -> Option<&'static str> {
        None
    }

    /// Whether the identity can authorize requests to `url`, a URL of the configuration.
    ///
    /// # Errors
    /// When it cannot. The text names the keys to configure.
    fn check_url(&self, url: &Url) -> Result<(), String>;

    /// `call` with the identity's credential. With `afresh`, the credential before was refused and is renewed.
    ///
    /// # Errors
    /// When there is no credential by the call's deadline.
    async fn authorize(&self, call: Call, afresh: bool) -> Result<Call, BackendError>;

    /// Whether `reply` means that the credential ended, so that a renewed one may be accepted.
    fn is_ended(&self, reply: &Reply) -> bool {
        reply.status.as_u16() == 401
    }

    /// The login at the registry at `place`. With `afresh`, the login before was refused and is renewed.
    ///
    /// # Errors
    /// When there is none by `deadline`.
    async fn log_in(&self, place: LoginPlace<'_>, afresh: bool, deadline: Instant) -> Result<Login, BackendError>;

    /// The bearer token for the API server of `cluster`. With `afresh`, the token before was refused and is renewed.
    ///
    /// # Errors
    /// When there is none by `deadline`.
    async fn log_in_to_cluster(
        &self,
        cluster: ClusterLogin<'_>,
        afresh: bool,
        deadline: Instant,
    ) -> Result<Secret, BackendError>;

    /// The name of the identity at the cloud. Sends a request.
    ///
    /// # Errors
    /// When the cloud does not name it.
    async fn who(&self, deadline: Instant) -> Result<String, BackendError>;

    /// The account for rate limits.
    fn account(&self) -> Arc<str>;

    /// The current secrets, which an answer could repeat.
    fn secrets(&self) -> Secrets;
}

/// The pod's own identity at one cloud, for registries that the configuration gives no identity.
#[derive(Debug, Clone)]
pub struct AutomaticIdentity {
    /// Whether a registry of this name belongs to the cloud.
    pub covers: fn(&str) -> bool,
    /// The identity.
    pub identity: Arc<dyn Identity>,
}

/// No identity has a name that the configuration uses.
#[derive(Debug, thiserror::Error)]
#[error("there is no identity called `{}`: {}", .name.escape_debug(), listed(.known))]
pub struct UnknownIdentity {
    name: String,
    /// The names that there are.
    known: Vec<String>,
}

fn listed(known: &[String]) -> String {
    match known {
        [] => "`identities` is empty".to_owned(),
        known => format!("`identities` has {}", known.join(", ")),
    }
}

/// All identities of a configuration.
#[derive(Debug, Default)]
pub struct Identities {
    named: BTreeMap<String, Arc<dyn Identity>>,
    automatic: Vec<AutomaticIdentity>,
}

impl Identities {
    /// Those of the key `identities`, and those of the pod itself.
    #[must_use]
    pub const fn new(named: BTreeMap<String, Arc<dyn Identity>>, automatic: Vec<AutomaticIdentity>) -> Self {
        Self { named, automatic }
    }

    /// The identity called `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(&self, name: &str) -> Result<Arc<dyn Identity>, UnknownIdentity> {
        let unknown = || UnknownIdentity { name: name.to_owned(), known: self.named.keys().cloned().collect() };
        self.named.get(name).cloned().ok_or_else(unknown)
    }

    /// The pod's own identity for the registry called `host`, if it is one of a cloud and the pod has an identity there.
    pub fn automatic(&self, host: &str) -> Option<Arc<dyn Identity>> {
        let found = self.automatic.iter().find(|automatic| (automatic.covers)(host));
        found.map(|automatic| Arc::clone(&automatic.identity))
    }

    /// The pod's own identity at `cloud`, if it has one.
    pub fn automatic_at(&self, cloud: &str) -> Option<Arc<dyn Identity>> {
        let found = self.automatic.iter().find(|automatic| automatic.identity.cloud() == cloud);
        found.map(|automatic| Arc::clone(&automatic.identity))
    }

    /// All identities of the key `identities`, by name.
    pub const fn all(&self) -> &BTreeMap<String, Arc<dyn Identity>> {
        &self.named
    }
}
