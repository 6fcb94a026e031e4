//! One issuer: its keys, the claims that its tokens must have, and their callers.

use std::sync::Arc;

use jsonwebtoken::Algorithm;

use super::{
    KnownToken,
    claims::Expected,
    compact::Compact,
    config::JwtConfig,
    keys::Keys,
    mapping::Mapping,
    set::{KeySet, SignatureCheck},
};
use crate::{Allowance, AuthContext, Refused};
use domain::{
    clock::Clock,
    problem::{Path, Problems},
};

/// One entry of `auth.jwt`.
pub(super) struct Issuer {
    /// Its path in the configuration.
    path: String,
    expected: Expected,
    algorithms: Vec<Algorithm>,
    keys: Arc<Keys>,
    mapping: Mapping,
}

impl Issuer {
    /// The issuer of `config`, at `path`.
    pub(super) fn build(
        config: &JwtConfig,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        if config.issuer.is_empty() {
            problems.error(&path.key("issuer"), "an issuer has a name, to which `iss` is compared");
        }
        let audiences = config.audience.clone().into_vec();
        if audiences.is_empty() || audiences.iter().any(String::is_empty) {
            let help = "name what the issuer writes in `aud` for this gateway alone, such as appset-gateway";
            problems.error_with_help(
                &path.key("audience"),
                "without an audience, tokens for other services would be accepted",
                help,
            );
        }
        let keys = Keys::build(config, means, path, problems);
        let mapping = Mapping::build(config, path, problems);
        Some(Self {
            path: path.to_string(),
            expected: Expected { issuer: config.issuer.clone(), audiences },
            algorithms: config.algorithms.clone(),
            keys: keys?,
            mapping: mapping?,
        })
    }

    /// Whether this is its name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.expected.issuer == name
    }

    /// Its name, and the limits of its callers.
    pub(crate) fn allowance(&self) -> (&str, &Arc<Allowance>) {
        (&self.expected.issuer, self.mapping.allowance())
    }

    /// The same, for replacing the limits.
    pub(crate) fn allowance_mut(&mut self) -> (&str, &mut Arc<Allowance>) {
        (&self.expected.issuer, self.mapping.allowance_mut())
    }

    /// Its keys.
    pub(super) const fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// Verifies `token`, which must be genuine and valid now.
    ///
    /// # Errors
    /// When it is not. The message has the reason only for a genuine token.
    pub(super) async fn admit(&self, token: &Compact<'_>, clock: &dyn Clock) -> Result<KnownToken, Refused> {
        let path = &self.path;
        let algorithm = token.algorithm(&self.algorithms).map_err(|why| Refused::wrong(format!("{path}: {why}")))?;
        let set = self.verify(token, algorithm).await?;
        let expires = self.expected.check(&token.claims, clock.now());
        let expires = expires
            .map_err(|why| Refused::Unfit { who: self.mapping.name(&token.claims).ok(), why: why.to_string() })?;
        let caller = self.mapping.caller(&token.claims).map_err(|why| {
            tracing::warn!(issuer = self.expected.issuer, %why, "a token's claims do not fit {path}");
            Refused::unfit(format!(
                "the token's claims do not fit what `{path}` makes of them; the gateway's log says why"
            ))
        })?;
        Ok(KnownToken { caller: Arc::new(caller), expires, keys: Arc::clone(&self.keys), set })
    }

    /// The key set with the key that signed `token`.
    async fn verify(&self, token: &Compact<'_>, algorithm: Algorithm) -> Result<Arc<KeySet>, Refused> {
        let path = &self.path;
        let unknown = |error| Refused::Unknown(format!("{path}: the issuer's keys are not known: {error}"));
        let mut set = self.keys.get().await.map_err(unknown)?;
        let mut verdict = set.verify(token, algorithm);
        if verdict == SignatureCheck::UnknownKey
            && let Ok(newer) = self.keys.newer(&set).await
            && !Arc::ptr_eq(&newer, &set)
        {
            set = newer;
            verdict = set.verify(token, algorithm);
        }
        match verdict {
            SignatureCheck::Genuine => Ok(set),
            SignatureCheck::Forged => {
                Err(Refused::wrong(format!("{path}: its signature is not by the key that it names")))
            }
            SignatureCheck::UnknownKey => Err(Refused::wrong(format!("{path}: none of the issuer's keys signed it"))),
        }
    }
}
