//! The source of an issuer's keys.

use std::path::PathBuf;

use jsonwebtoken::{Algorithm, AlgorithmFamily};

use super::{
    config::{JwksConfig, JwtConfig},
    published::Published,
    set::{KeySet, KeySetError},
};
use crate::AuthContext;
use domain::{
    error::BackendError,
    file::{self, FileError, base_dir::BaseDir},
    problem::{Path, Problems},
    secret::{SecretError, SecretRef},
};

/// The source of an issuer's keys.
#[derive(Debug)]
pub(super) enum KeySource {
    /// A server that publishes them.
    Published(Box<Published>),
    /// A file or secret on this machine.
    Local(Local),
}

/// Local keys.
#[derive(Debug)]
pub(super) enum Local {
    /// A file with a set of keys.
    Set(PathBuf),
    /// A file with one public key.
    PublicKey(PathBuf),
    /// The shared secret.
    Secret(SecretRef, BaseDir),
}

/// Why local keys cannot be used. The text names their source.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocalKeysError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        cause: FileError,
    },
    /// The secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// They are not keys for the issuer's algorithms.
    #[error("{place}: {cause}")]
    Unusable {
        /// The file, or the reference to the secret.
        place: String,
        /// Why they cannot be used.
        #[source]
        cause: KeySetError,
    },
}

impl From<LocalKeysError> for BackendError {
    fn from(error: LocalKeysError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl KeySource {
    /// The source of `config`, at `path`, and the path of the key that names it.
    pub(super) fn build(
        config: &JwtConfig,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(Self, Path)> {
        let source = match (&config.jwks, &config.public_key, &config.secret) {
            (Some(jwks), None, None) => Self::of_set(jwks, &config.issuer, means, &path.key("jwks"), problems),
            (None, Some(file), None) => {
                Some((Self::Local(Local::PublicKey(means.base.resolve(file))), path.key("publicKey")))
            }
            (None, None, Some(secret)) => {
                Some((Self::Local(Local::Secret(secret.clone(), means.base.clone())), path.key("secret")))
            }
            _ => {
                problems.error(path, "an issuer has exactly one of `jwks`, `publicKey` and `secret`");
                return None;
            }
        };
        check_algorithms(config, path, problems);
        source
    }

    fn of_set(
        config: &JwksConfig,
        issuer: &str,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(Self, Path)> {
        match (&config.url, &config.file, config.discovery) {
            (None, Some(file), false) => {
                for (key, is_there) in [("ca", config.ca.is_some()), ("token", config.token.is_some())] {
                    if is_there {
                        problems.error(&path.key(key), "it has no effect for a file");
                    }
                }
                Some((Self::Local(Local::Set(means.base.resolve(file))), path.key("file")))
            }
            (Some(_), None, false) | (None, None, true) => {
                let published = Published::build(config, issuer, means, path, problems)?;
                Some((Self::Published(Box::new(published)), path.clone()))
            }
            _ => {
                problems.error(path, "a set of keys has exactly one of `url`, `file` and `discovery: true`");
                None
            }
        }
    }

    /// The file that may change while the gateway runs.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Local(Local::Set(file) | Local::PublicKey(file)) => Some(file.clone()),
            Self::Local(Local::Secret(SecretRef::File(file), base)) => Some(base.resolve(file)),
            Self::Local(Local::Secret(SecretRef::Env(_), _)) | Self::Published(_) => None,
        }
    }
}

impl Local {
    /// Reads the keys, for the `pinned` algorithms.
    ///
    /// # Errors
    /// When they cannot be read or used; the text names the source.
    pub(super) fn read(&self, pinned: &[Algorithm]) -> Result<KeySet, LocalKeysError> {
        match self {
            Self::Set(path) | Self::PublicKey(path) => {
                let text = file::read(path).map_err(|cause| LocalKeysError::File { path: path.clone(), cause })?;
                let set = match self {
                    Self::Set(_) => KeySet::of_jwks(text.as_bytes(), pinned),
                    _ => KeySet::of_pem(&text, pinned),
                };
                set.map_err(|cause| LocalKeysError::Unusable { place: path.display().to_string(), cause })
            }
            Self::Secret(reference, base) => {
                let secret = reference.read(base)?;
                KeySet::of_secret(&secret, pinned)
                    .map_err(|cause| LocalKeysError::Unusable { place: reference.to_string(), cause })
            }
        }
    }
}

/// Checks that algorithms with a shared secret and with a key pair are not mixed. Otherwise an attacker could use a public key as the shared
/// secret.
fn check_algorithms(config: &JwtConfig, path: &Path, problems: &mut Problems) {
    let path = path.key("algorithms");
    if config.algorithms.is_empty() {
        problems.error(&path, "without algorithms, no token is accepted; name those with which the issuer signs");
    }
    for (index, algorithm) in config.algorithms.iter().enumerate() {
        let is_shared = algorithm.family() == AlgorithmFamily::Hmac;
        if is_shared && config.secret.is_none() {
            problems.error(&path.index(index), format!("`{algorithm:?}` needs a `secret`; public keys are not secret"));
        } else if !is_shared && config.secret.is_some() {
            problems
                .error(&path.index(index), format!("`{algorithm:?}` needs `jwks` or a `publicKey`, not a `secret`"));
        }
    }
}
