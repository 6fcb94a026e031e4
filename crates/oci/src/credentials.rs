//! Credentials of an identity at a cloud, or from a Docker `config.json`, as `docker login` and Kubernetes' pull secrets write it. Entries match by host, by
//! host and path, or by a pattern; the longest match wins. The file is read again when it changes.

mod docker_config;
mod helper;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout_at};

pub use self::docker_config::{DockerConfig, DockerConfigError, UnreadableEntry};
pub(crate) use self::helper::{Helpers, has_helper};
use domain::{
    error::{BackendError, ErrorKind},
    secret::Secret,
};
use outbound::{Identity, Login, LoginPlace, Tls};

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

impl From<Login> for RegistryCredential {
    fn from(login: Login) -> Self {
        match login {
            Login::Password { username, password } => Self::Password { username, password },
            Login::RefreshToken(token) => Self::Identity(token),
        }
    }
}

/// The source of the credentials of one registry.
#[derive(Debug)]
pub struct Credentials {
    file: Option<PathBuf>,
    helpers: Helpers,
    identity: Option<IdentityLogin>,
    read: Mutex<Option<Read>>,
    helped: tokio::sync::Mutex<Option<(String, Instant, RegistryCredential)>>,
}

/// An identity that logs in at a registry.
#[derive(Debug)]
struct IdentityLogin {
    identity: Arc<dyn Identity>,
    /// Where the registry is reached, and how.
    base: Url,
    tls: Tls,
}

/// The content of a file, and the stamp by which a change is noticed.
#[derive(Debug)]
struct Read {
    stamp: (SystemTime, u64),
    config: Arc<DockerConfig>,
}

impl Credentials {
    /// The credentials in `file`. A helper that it names runs only if `helpers` has it.
    #[must_use]
    pub(crate) fn new(file: Option<PathBuf>, helpers: Helpers) -> Self {
        Self { file, helpers, identity: None, read: Mutex::default(), helped: tokio::sync::Mutex::default() }
    }

    /// The credentials by which `identity` logs in at the registry that is reached at `base`, with `tls`.
    #[must_use]
    pub(crate) fn of_identity(identity: Arc<dyn Identity>, base: Url, tls: Tls) -> Self {
        Self { identity: Some(IdentityLogin { identity, base, tls }), ..Self::new(None, Helpers::default()) }
    }

    /// The account for rate limits of the identity that logs in. Several identities of a cloud have the same user name.
    pub(crate) fn account(&self) -> Option<Arc<str>> {
        self.identity.as_ref().map(|login| login.identity.account())
    }

    /// The credential for `repository` on `registry`. `None` when there is no file, or it has no entry. With `afresh`, ignores
    /// remembered credentials.
    ///
    /// # Errors
    /// When the identity, the file or the helper returns no clear answer; then no request may go without a credential. The message holds no
    /// secret.
    pub async fn find(
        &self,
        registry: &str,
        repository: &str,
        afresh: bool,
        deadline: Instant,
    ) -> Result<Option<RegistryCredential>, BackendError> {
        if let Some(IdentityLogin { identity, base, tls }) = &self.identity {
            let login = identity.log_in(LoginPlace { name: registry, base, tls }, afresh, deadline).await;
            return login.map(|login| Some(login.into())).map_err(|error| error.within("identity"));
        }
        let Some(file) = &self.file else { return Ok(None) };
        let config = self.config(file, afresh)?;
        let Some(name) = config.helper(registry) else {
            return config.find(registry, repository).map_err(|why| denied(file, &why.to_string()));
        };
        if !self.helpers.allow(name) {
            let why = format!(
                "it names the credential helper `{name}` for {registry}, which is not allowed to run; add it to \
                 `credentialHelpers` of this registry"
            );
            return Err(denied(file, &why));
        }
        // Locked while the helper runs: other callers wait for its result, and do not start it again.
        let late = |_| BackendError::timeout("the credential helper had no answer in time");
        let mut helped = timeout_at(deadline, self.helped.lock()).await.map_err(late)?;
        if let Some((of, until, credential)) = &*helped
            && !afresh
            && of == name
            && *until > Instant::now()
        {
            return Ok(Some(credential.clone()));
        }
        let found = self.helpers.credential(name, registry, config.wants_credential(registry), deadline).await;
        let found = found.map_err(|why| denied(file, &why.to_string()))?;
        *helped = found.clone().map(|credential| (name.to_owned(), Instant::now() + HELPER_LIFE, credential));
        Ok(found)
    }

    fn config(&self, file: &Path, afresh: bool) -> Result<Arc<DockerConfig>, BackendError> {
        let cannot = |error: std::io::Error| denied(file, &error.to_string());
        let metadata = std::fs::metadata(file).map_err(cannot)?;
        let stamp = (metadata.modified().map_err(cannot)?, metadata.len());
        let mut read = self.read.lock();
        if let Some(known) = read.as_ref().filter(|known| known.stamp == stamp && !afresh) {
            return Ok(Arc::clone(&known.config));
        }
        let config = DockerConfig::read(file).map_err(|why| denied(file, &why.to_string()))?;
        let config = Arc::new(config);
        *read = Some(Read { stamp, config: Arc::clone(&config) });
        Ok(config)
    }
}

fn denied(file: &Path, why: &str) -> BackendError {
    BackendError::new(ErrorKind::Denied, format!("{}: {why}", file.display()))
}
