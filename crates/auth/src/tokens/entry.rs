//! One static token: its source, its validity and its caller.

use std::{path::PathBuf, sync::Arc, time::UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use super::TokenConfig;
use crate::{Caller, Refused, TokenHash, check_name};
use domain::{
    clock::Timestamp,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::{SecretError, SecretRef},
};

/// Why an entry of `auth.tokens` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    /// This text is not a time.
    #[error("`{0}` is not a time such as 2026-11-21T10:00:00Z")]
    Time(String),
    /// The hash is not one of SHA-256.
    #[error("`sha256` is 64 hexadecimal digits; `appset-gateway hash-token` prints them")]
    Hash,
    /// It has no source, or several.
    #[error("a token has exactly one of `file`, `env` and `sha256`")]
    Sources,
    /// The token cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The token at this place has white space around it.
    #[error("the token in {0} begins or ends with white space, which no header can carry")]
    WhiteSpace(SecretRef),
}

/// One entry of `auth.tokens`, without the token's hash, which may change.
#[derive(Debug)]
pub(super) struct StaticToken {
    /// Its caller.
    pub caller: Arc<Caller>,
    config: TokenConfig,
    not_before: Option<Timestamp>,
    not_after: Option<Timestamp>,
}

impl StaticToken {
    /// The entry of `config`, at `path`, and the current hash of its token.
    pub(super) fn build(
        config: &TokenConfig,
        base: &BaseDir,
        now: Timestamp,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(Self, TokenHash)> {
        check_name(&config.name, &path.key("name"), problems);
        let caller = config.grants(config.role).caller(&config.name, path, problems);
        let (at, hash) = (source_path(config, path), hash(config, base));
        let is_reference = config.sha256.is_none() && at != *path;
        let hash = if is_reference { problems.note_secret(&at, hash) } else { problems.note(&at, hash) };
        let (not_before, not_after) = limits(config, now, path, problems);
        Some((Self { caller: Arc::new(caller?), config: config.clone(), not_before, not_after }, hash?))
    }

    /// The file of the token, if it comes from a file.
    pub(super) fn file(&self, base: &BaseDir) -> Option<PathBuf> {
        Some(base.resolve(self.config.file.as_ref()?))
    }

    /// The current hash of its token.
    ///
    /// # Errors
    /// When the token cannot be read or used; the text names the file.
    pub(super) fn read(&self, base: &BaseDir) -> Result<TokenHash, TokenError> {
        hash(&self.config, base)
    }

    /// Whether `other` grants its callers the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.config.grants(self.config.role).is_same(other.config.grants(other.config.role))
    }

    /// Whether it is valid at `now`.
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.not_before.is_none_or(|from| from <= now) && self.not_after.is_none_or(|until| now < until)
    }

    /// Why the token is not valid at `now`.
    pub(super) fn refusal(&self, now: Timestamp) -> Refused {
        let (name, early) = (&self.caller.name, self.not_before.filter(|from| now < *from));
        let (when, limit) = early.map_or(("was valid until", self.not_after), |from| ("is valid from", Some(from)));
        let date = limit.map(Timestamp::to_date).unwrap_or_default();
        Refused::Unfit { who: Some(name.clone()), why: format!("the token `{name}` {when} {date}, see `auth.tokens`") }
    }
}

/// When a token becomes valid, and when it stops being valid.
fn limits(
    config: &TokenConfig,
    now: Timestamp,
    path: &Path,
    problems: &mut Problems,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let mut time = |key: &str, text: Option<&String>| problems.note(&path.key(key), timestamp(text?));
    let not_before = time("notBefore", config.not_before.as_ref());
    let not_after = time("notAfter", config.not_after.as_ref());
    if not_before.zip(not_after).is_some_and(|(from, until)| from >= until) {
        problems.error(&path.key("notAfter"), "it ends before it begins, so the token is never valid");
    } else if not_after.is_some_and(|until| until <= now) {
        problems.warning(&path.key("notAfter"), "the token is no longer valid", "leave the token out");
    }
    (not_before, not_after)
}

fn timestamp(text: &str) -> Result<Timestamp, TokenError> {
    let time = humantime::parse_rfc3339_weak(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    time.map(Timestamp).ok_or_else(|| TokenError::Time(text.to_owned()))
}

/// The path of the key that names a token's source; the entry's path if there is not exactly one.
pub(super) fn source_path(token: &TokenConfig, path: &Path) -> Path {
    match (&token.file, &token.env, &token.sha256) {
        (Some(_), None, None) => path.key("file"),
        (None, Some(_), None) => path.key("env"),
        (None, None, Some(_)) => path.key("sha256"),
        _ => path.clone(),
    }
}

fn hash(token: &TokenConfig, base: &BaseDir) -> Result<TokenHash, TokenError> {
    let reference = match (&token.file, &token.env, &token.sha256) {
        (Some(file), None, None) => SecretRef::File(file.clone()),
        (None, Some(name), None) => SecretRef::Env(name.clone()),
        (None, None, Some(hash)) => {
            return parse_hash(hash).ok_or(TokenError::Hash);
        }
        _ => return Err(TokenError::Sources),
    };
    let secret = reference.read(base)?;
    if secret.expose() != secret.expose().trim() {
        return Err(TokenError::WhiteSpace(reference));
    }
    Ok(Sha256::digest(secret.expose().as_bytes()).into())
}

fn parse_hash(text: &str) -> Option<TokenHash> {
    let mut hash = TokenHash::default();
    let decoded = base16ct::mixed::decode(text, &mut hash).ok()?;
    (decoded.len() == size_of::<TokenHash>()).then_some(hash)
}
