//! Callers with JSON Web Tokens (RFC 7519). A token's own claims only choose among the issuers, keys and algorithms of the configuration.
//! Nothing of a token is shown to its sender before its signature is verified.

mod claims;
mod compact;
mod config;
mod issuer;
mod key;
mod keys;
mod mapping;
mod published;
mod set;
mod source;

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::join_all;
use moka::sync::Cache;

pub(crate) use self::compact::Compact;
pub use self::config::JwtConfig;
use self::{issuer::Issuer, keys::Keys, set::KeySet};
use super::{Allowance, AuthContext, Caller, Refused, TokenHash};
use domain::{
    clock::{Clock, Timestamp},
    problem::{Path, Problems},
};

/// How many verified tokens are remembered.
const MAX_KNOWN: u64 = 4096;

/// All issuers, and their verified tokens.
pub(crate) struct Issuers {
    issuers: Vec<Issuer>,
    known: Cache<TokenHash, KnownToken>,
}

/// A verified token.
#[derive(Clone)]
struct KnownToken {
    caller: Arc<Caller>,
    expires: Timestamp,
    /// The keys that verified it. When they are no longer in use, the token is verified again.
    keys: Arc<Keys>,
    set: Arc<KeySet>,
}

impl Issuers {
    /// Checks all of `configs`, the list at `path`, and reads keys that are on this machine.
    pub(crate) fn build(configs: &[JwtConfig], means: AuthContext<'_>, path: &Path, problems: &mut Problems) -> Self {
        let issuers = configs.iter().enumerate();
        let issuers = issuers.filter_map(|(index, config)| Issuer::build(config, means, &path.index(index), problems));
        Self { issuers: issuers.collect(), known: Cache::new(MAX_KNOWN) }
    }

    /// The caller whose token has this hash, if it was verified before and that still holds at `now`.
    pub(crate) fn known(&self, token: &TokenHash, now: Timestamp) -> Option<Arc<Caller>> {
        let known = self.known.get(token)?;
        (now < known.expires && known.keys.is_current(&known.set)).then_some(known.caller)
    }

    /// Whether `token` claims to come from one of the issuers.
    pub(crate) fn name(&self, token: &Compact<'_>) -> bool {
        token.issuer().is_some_and(|named| self.issuers.iter().any(|issuer| issuer.is_called(named)))
    }

    /// The caller of `token`, whose hash is `hash`, by the issuer that it names. If several entries have that issuer, one that accepts the token
    /// is enough.
    ///
    /// # Errors
    /// When no entry accepts it. An unknown result comes before a wrong token.
    pub(crate) async fn admit(
        &self,
        token: &Compact<'_>,
        hash: TokenHash,
        clock: &dyn Clock,
    ) -> Result<Arc<Caller>, Refused> {
        let mut refused = Refused::wrong("no entry of `auth.jwt` has its issuer");
        for issuer in self.issuers.iter().filter(|issuer| token.issuer().is_some_and(|named| issuer.is_called(named))) {
            match issuer.admit(token, clock).await {
                Ok(known) => {
                    let caller = Arc::clone(&known.caller);
                    self.known.insert(hash, known);
                    return Ok(caller);
                }
                Err(why) => refused = refused.or(why),
            }
        }
        Err(refused)
    }

    /// Fetches the keys of all issuers regularly.
    pub(crate) async fn keep_keys(&self) {
        join_all(self.issuers.iter().map(|issuer| Arc::clone(issuer.keys()).keep())).await;
    }

    /// Each issuer that publishes its keys: when these were last read without an error, and how often they are read.
    pub(crate) fn key_reads(&self) -> impl Iterator<Item = (&str, Option<Timestamp>, Duration)> {
        let of = |issuer: &'_ Issuer| issuer.keys().last_read();
        self.issuers.iter().filter_map(move |issuer| {
            let (at, every) = of(issuer)?;
            Some((issuer.allowance().0, at, every))
        })
    }

    /// The files that hold keys.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.issuers.iter().filter_map(|issuer| issuer.keys().file())
    }

    /// Reads these files again.
    pub(crate) fn reread(&self) {
        self.issuers.iter().for_each(|issuer| issuer.keys().reread());
    }

    /// The allowances, by issuer.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.issuers.iter().map(Issuer::allowance)
    }

    /// The same, for replacing them.
    pub(crate) fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        self.issuers.iter_mut().map(Issuer::allowance_mut)
    }

    /// Takes over the fetched keys of `former`, so that a new configuration does not wait for them.
    pub(crate) fn take_over(&self, former: &Self) {
        for own in &self.issuers {
            former.issuers.iter().for_each(|other| own.keys().take_over(other.keys()));
        }
    }
}
