//! Credentials from a Docker `config.json`, as `docker login` and Kubernetes' pull secrets write it. Entries match by host, by
//! host and path, or by a pattern; the longest match wins. The file is read again when it changes.

mod docker_config;
mod helper;

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

pub use self::docker_config::{DockerConfig, DockerConfigError};
use domain::{
    error::{BackendError, ErrorKind},
    secret::Secret,
};

/// How long a helper's credential is used before the helper runs again.
const HELPER_LIFE: Duration = Duration::from_mins(5);

/// A credential for a registry.
#[derive(Debug, Clone)]
pub enum RegistryCredential {
    /// User name and password.
    Password {
        /// The user.
        username: String,
        /// The password or token.
        password: Secret,
    },
    /// An identity token: the registry's token server sells tokens for it (OAuth 2.0 `refresh_token`).
    Identity(Secret),
}

impl RegistryCredential {
    /// The value of an `Authorization` header. `None` for an identity token.
    #[must_use]
    pub fn basic(&self) -> Option<Secret> {
        let Self::Password { username, password } = self else { return None };
        let pair = format!("{username}:{}", password.expose());
        Some(Secret::from(format!("Basic {}", STANDARD.encode(pair))))
    }

    /// A hash of the credential.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        let (kind, user, secret) = match self {
            Self::Password { username, password } => ("password", username.as_str(), password),
            Self::Identity(token) => ("identity", "", token),
        };
        Sha256::digest([kind, user, secret.expose()].join("\n")).into()
    }
}

/// The source of the credentials of one registry.
#[derive(Debug)]
pub struct Credentials {
    file: Option<PathBuf>,
    allowed_helpers: Vec<String>,
    read: Mutex<Option<Read>>,
    helped: tokio::sync::Mutex<Option<(String, Instant, RegistryCredential)>>,
}

/// The content of a file, and the stamp by which a change is noticed.
#[derive(Debug)]
struct Read {
    stamp: (SystemTime, u64),
    config: std::sync::Arc<DockerConfig>,
}

impl Credentials {
    /// The credentials in `file`. A helper that it names runs only if `allowed_helpers` lists it.
    #[must_use]
    pub fn new(file: Option<PathBuf>, allowed_helpers: Vec<String>) -> Self {
        Self { file, allowed_helpers, read: Mutex::default(), helped: tokio::sync::Mutex::default() }
    }

    /// The credential for `repository` on `registry`. `None` when there is no file, or it has no entry. With `afresh`, ignores
    /// remembered credentials.
    ///
    /// # Errors
    /// When the file or the helper returns no clear answer. The message holds no secret.
    pub async fn find(
        &self,
        registry: &str,
        repository: &str,
        afresh: bool,
    ) -> Result<Option<RegistryCredential>, BackendError> {
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
        // Locked while the helper runs: other callers wait for its result, and do not start it again.
        let mut helped = self.helped.lock().await;
        if let Some((of, until, credential)) = &*helped
            && !afresh
            && of == name
            && *until > Instant::now()
        {
            return Ok(Some(credential.clone()));
        }
        let found = helper::credential(name, registry).await.map_err(|why| denied(file, &why.to_string()))?;
        *helped = found.clone().map(|credential| (name.to_owned(), Instant::now() + HELPER_LIFE, credential));
        Ok(found)
    }

    fn config(&self, file: &Path, afresh: bool) -> Result<std::sync::Arc<DockerConfig>, BackendError> {
        let cannot = |error: std::io::Error| denied(file, &error.to_string());
        let metadata = std::fs::metadata(file).map_err(cannot)?;
        let stamp = (metadata.modified().map_err(cannot)?, metadata.len());
        let mut read = self.read.lock();
        if let Some(known) = read.as_ref().filter(|known| known.stamp == stamp && !afresh) {
            return Ok(std::sync::Arc::clone(&known.config));
        }
        let config = DockerConfig::read(file).map_err(|why| denied(file, &why.to_string()))?;
        let config = std::sync::Arc::new(config);
        *read = Some(Read { stamp, config: std::sync::Arc::clone(&config) });
        Ok(config)
    }
}

fn denied(file: &Path, why: &str) -> BackendError {
    BackendError::new(ErrorKind::Denied, format!("{}: {why}", file.display()))
}
