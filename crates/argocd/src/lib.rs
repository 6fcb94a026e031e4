//! ApplicationSets in a cluster: finds those that use this gateway, refreshes them (an annotation that starts a reconcile), and writes
//! Kubernetes Events about the answers that the gateway holds.
//!
//! Start at [`Argocd`]; all modules add methods to it. `directory` lists the ApplicationSets whose plugin generator points at this gateway.
//! `refresh` annotates them ([`Argocd::refresh`]). `event` writes Events ([`Argocd::record`]). `described` reads their Applications, for
//! `diff` and for held answers ([`Argocd::describe`]). `config` has the keys of the configuration. `api` is the way to the API server.

mod api;
mod config;
mod described;
mod directory;
mod event;
mod refresh;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::{
    api::Api,
    config::{ArgocdConfig, Cause},
    described::Described,
    event::{EventReason, SetEvent},
    refresh::Refreshed,
};
use self::{directory::Directory, event::Recorded};
use domain::{
    error::BackendError,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    section::Section,
};
use outbound::{
    Outbound, Reply, fixed_url, is_safe,
    kubernetes::{ApiAccess, ApiCall, ApiServer},
};

/// How many requests to the API server may be under way.
pub const AT_ONCE: usize = 4;
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The ApplicationSets of Argo CD, and the API server that has them.
pub struct Argocd {
    api: Arc<dyn Api>,
    token_file: Option<PathBuf>,
    namespaces: Vec<String>,
    config_maps: Vec<String>,
    on: Vec<Cause>,
    directory: tokio::sync::Mutex<Directory>,
    recorded: Mutex<Recorded>,
    /// How many annotations were written.
    written: AtomicU64,
}

impl fmt::Debug for Argocd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Argocd").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

impl Argocd {
    /// Checks `config`, at `path`. `None` if it has no `refresh`, or has errors. Sends nothing.
    pub fn build(
        config: &ArgocdConfig,
        base: &BaseDir,
        outbound: &Outbound,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let (config, path) = (config.refresh.as_ref()?, path.key("refresh"));
        for (key, list, what) in [
            ("namespaces", &config.namespaces, "namespaces of ApplicationSets"),
            ("configMaps", &config.config_maps, "ConfigMaps that point Argo CD at this gateway"),
        ] {
            // They are segments of paths.
            let is_name = |name: &String| {
                !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
            };
            if list.is_empty() || !list.iter().all(is_name) {
                problems.error(&path.key(key), format!("it must be a list of one or more names: the {what}"));
            }
        }
        let api = problems.note(&path.key("api"), fixed_url(&config.api));
        if api.as_ref().is_some_and(|url| !is_safe(url)) {
            problems.error(&path.key("api"), "it is not https, so anybody in between could read the token");
        }
        let access = ApiAccess { url: api, token: &config.token, ca: &config.ca, concurrency: AT_ONCE };
        let api = ApiServer::build(access, outbound, &mut Section::new(base, path, problems))?;
        let (namespaces, config_maps) = (config.namespaces.clone(), config.config_maps.clone());
        let token_file = api.token_file();
        Some(Self { token_file, on: config.on.clone(), ..Self::with_api(Arc::new(api), namespaces, config_maps) })
    }

    /// The ApplicationSets at `api`, in these namespaces and with these config maps, notified of all changes.
    pub fn with_api(api: Arc<dyn Api>, namespaces: Vec<String>, config_maps: Vec<String>) -> Self {
        Self {
            api,
            token_file: None,
            namespaces,
            config_maps,
            on: config::all_causes(),
            directory: tokio::sync::Mutex::default(),
            recorded: Mutex::default(),
            written: AtomicU64::new(0),
        }
    }

    /// The file with the token of the service account.
    pub fn token_file(&self) -> Option<PathBuf> {
        self.token_file.clone()
    }

    /// Whether ApplicationSets are notified of changes with this cause.
    pub fn follows(&self, cause: Cause) -> bool {
        self.on.contains(&cause)
    }

    /// Sends a request that needs the `right`.
    ///
    /// # Errors
    /// When there is no answer, or its status is not one of success or `expected`.
    async fn send(&self, call: ApiCall<'_>, right: &str, expected: &[u16]) -> Result<Reply, BackendError> {
        let (shown, reply) = self.api.send(call).await;
        let reply = reply?;
        if reply.status.is_success() || expected.contains(&reply.status.as_u16()) {
            return Ok(reply);
        }
        let error = reply.refusal();
        let message = match reply.status.as_u16() {
            403 if !reply.is_limit() => {
                format!("{}; the gateway's service account needs the right to {right}", error.message)
            }
            _ => error.message.clone(),
        };
        Err(BackendError { message, ..error }.within(shown))
    }
}

fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}
