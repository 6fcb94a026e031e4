//! Credentials from a Docker `config.json`, as `docker login` and Kubernetes' pull secrets write it: matched by host, by
//! host and path, or by a pattern, the longest first. The file is read again when it changes.

mod docker_config;
mod helper;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

pub use self::docker_config::DockerConfig;
use crate::domain::{
    error::{BackendError, ErrorKind},
    secret::Secret,
};

/// For how long a helper's credential is used before the helper is asked again.
const HELPER_LIFE: Duration = Duration::from_mins(5);

/// What opens a registry.
#[derive(Debug, Clone)]
pub enum Credential {
    /// User name and password.
    Password {
        /// The user.
        username: String,
        /// The password or token.
        password: Secret,
    },
    /// A token that buys tokens at the registry's token server (OAuth 2.0 `refresh_token`).
    Identity(Secret),
}

impl Credential {
    /// The value of an `Authorization` header with user name and password; `None` for an identity token.
    #[must_use]
    pub(crate) fn basic(&self) -> Option<Secret> {
        let Self::Password { username, password } = self else { return None };
        let pair = format!("{username}:{}", password.expose());
        Some(Secret::from(format!("Basic {}", STANDARD.encode(pair))))
    }

    /// What tells it from others, without showing it.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let (kind, user, secret) = match self {
            Self::Password { username, password } => ("password", username.as_str(), password),
            Self::Identity(token) => ("identity", "", token),
        };
        Sha256::digest([kind, user, secret.expose()].join("\n")).into()
    }
}

/// Where the credentials of one registry come from.
#[derive(Debug)]
pub(crate) struct Credentials {
    file: Option<PathBuf>,
    allowed_helpers: Vec<String>,
    read: Mutex<Option<Read>>,
    helped: tokio::sync::Mutex<Option<(String, Instant, Credential)>>,
}

/// A file as it was read, and what tells that it is still the same.
#[derive(Debug)]
struct Read {
    stamp: (SystemTime, u64),
    config: std::sync::Arc<DockerConfig>,
}

impl Credentials {
    /// The credentials in `file`; helpers that it names run only when they are in `allowed_helpers`.
    #[must_use]
    pub(crate) fn new(file: Option<PathBuf>, allowed_helpers: Vec<String>) -> Self {
        Self { file, allowed_helpers, read: Mutex::default(), helped: tokio::sync::Mutex::default() }
    }

    /// What opens `repository` on `registry`; `None` when the file holds nothing for it, or there is no file. With `afresh`
    /// nothing that is remembered is used.
    ///
    /// # Errors
    /// When the file or the helper gives no clear answer; the message holds nothing of their secrets.
    pub(crate) async fn find(
        &self,
        registry: &str,
        repository: &str,
        afresh: bool,
    ) -> Result<Option<Credential>, BackendError> {
        let Some(file) = &self.file else { return Ok(None) };
        let config = self.config(file, afresh)?;
        let Some(name) = config.helper(registry) else {
            return config.find(registry, repository).map_err(|why| denied(file, &why));
        };
        if !self.allowed_helpers.iter().any(|allowed| allowed == name) {
            let why = format!(
                "it names the credential helper `{name}` for {registry}, which is not allowed to run; add it to \
                 `credentialHelpers` of this registry"
            );
            return Err(denied(file, &why));
        }
        let mut helped = self.helped.lock().await;
        if let Some((of, until, credential)) = &*helped
            && !afresh
            && of == name
            && *until > Instant::now()
        {
            return Ok(Some(credential.clone()));
        }
        let found = helper::ask(name, registry).await.map_err(|why| denied(file, &why))?;
        *helped = found.clone().map(|credential| (name.to_owned(), Instant::now() + HELPER_LIFE, credential));
        Ok(found)
    }

    fn config(&self, file: &Path, afresh: bool) -> Result<std::sync::Arc<DockerConfig>, BackendError> {
        let cannot = |error: std::io::Error| denied(file, &error.to_string());
        let metadata = std::fs::metadata(file).map_err(cannot)?;
        let stamp = (metadata.modified().map_err(cannot)?, metadata.len());
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.as_ref().filter(|known| known.stamp == stamp && !afresh) {
            return Ok(std::sync::Arc::clone(&known.config));
        }
        let config = DockerConfig::read(file).map_err(|why| denied(file, &why))?;
        let config = std::sync::Arc::new(config);
        *read = Some(Read { stamp, config: std::sync::Arc::clone(&config) });
        Ok(config)
    }
}

fn denied(file: &Path, why: &str) -> BackendError {
    BackendError::new(ErrorKind::Denied, format!("{}: {why}", file.display()))
}
