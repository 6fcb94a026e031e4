//! Callers that an issuer vouches for by JSON Web Tokens (RFC 7519). What a token says of itself chooses among what the
//! configuration names: the issuer, one of its keys, one of its algorithms. Nothing that it says is told before its signature is
//! verified.

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

use std::{path::PathBuf, sync::Arc};

use futures_util::future::join_all;

pub(crate) use self::{compact::Compact, config::JwtConfig};
use self::{issuer::Issuer, keys::Keys, set::KeySet};
use super::{Allowance, AuthContext, Caller, Refused, TokenHash};
use crate::{
    bounded_cache::{self, Bounded},
    domain::{
        clock::{Clock, Timestamp},
        problem::{Path, Problems},
    },
};

/// How many verified tokens are remembered.
const MAX_KNOWN: u64 = 4096;

/// All issuers, and the tokens of theirs that were verified.
pub(crate) struct Issuers {
    issuers: Vec<Issuer>,
    known: Bounded<TokenHash, KnownToken>,
}

/// A token that was verified.
#[derive(Clone)]
struct KnownToken {
    caller: Arc<Caller>,
    expires: Timestamp,
    /// What it was verified with. When that is no longer in use, the token is verified again.
    keys: Arc<Keys>,
    set: Arc<KeySet>,
}

impl Issuers {
    /// Checks all of `configs`, the list at `path`, and reads keys that are on this machine.
    pub(crate) fn build(configs: &[JwtConfig], means: AuthContext<'_>, path: &Path, problems: &mut Problems) -> Self {
        let issuers = configs.iter().enumerate();
        let issuers = issuers.filter_map(|(index, config)| Issuer::build(config, means, &path.index(index), problems));
        Self { issuers: issuers.collect(), known: bounded_cache::new(MAX_KNOWN) }
    }

    /// The caller whose token has this hash, if it was verified before and that still holds at `now`.
    pub(crate) fn known(&self, token: &TokenHash, now: Timestamp) -> Option<Arc<Caller>> {
        let known = self.known.get(token)?;
        (now < known.expires && known.keys.is_current(&known.set)).then_some(known.caller)
    }

    /// Whether one of them issued `token`, by its own word.
    pub(crate) fn name(&self, token: &Compact<'_>) -> bool {
        token.issuer().is_some_and(|named| self.issuers.iter().any(|issuer| issuer.is_called(named)))
    }

    /// The caller of `token`, whose hash is `hash`, by the issuer that it names. Where several entries name that issuer, one that
    /// takes it is enough.
    ///
    /// # Errors
    /// When none takes it. What cannot be told now is told before what is wrong.
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

    /// Keeps the keys of all issuers fresh, for as long as it is polled.
    pub(crate) async fn keep_keys(&self) {
        join_all(self.issuers.iter().map(|issuer| Arc::clone(issuer.keys()).keep())).await;
    }

    /// The files that hold keys.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.issuers.iter().filter_map(|issuer| issuer.keys().file())
    }

    /// Reads these files again.
    pub(crate) fn reread(&self) {
        self.issuers.iter().for_each(|issuer| issuer.keys().reread());
    }

    /// What callers may ask, by issuer.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.issuers.iter().map(Issuer::allowance)
    }

    /// The same, to be put in another's place.
    pub(crate) fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        self.issuers.iter_mut().map(Issuer::allowance_mut)
    }

    /// Takes over what `former` knows of the keys that are published, so that a new configuration waits for none of them.
    pub(crate) fn take_over(&self, former: &Self) {
        for own in &self.issuers {
            former.issuers.iter().for_each(|other| own.keys().take_over(other.keys()));
        }
    }
}
