//! One issuer: its keys, what its tokens must say, and who their holders are.

use std::sync::Arc;

use jsonwebtoken::Algorithm;

use super::{
    KnownToken,
    claims::Expected,
    compact::Compact,
    config::JwtConfig,
    keys::Keys,
    mapping::Mapping,
    set::{KeySet, Verdict},
};
use crate::{
    auth::{Allowance, AuthContext, Refused},
    domain::{
        clock::Clock,
        problem::{Path, Problems},
    },
};

/// One entry of `auth.jwt`.
pub(crate) struct Issuer {
    /// Where it stands in the configuration.
    place: String,
    expected: Expected,
    algorithms: Vec<Algorithm>,
    keys: Arc<Keys>,
    mapping: Mapping,
}

impl Issuer {
    /// The issuer of `config`, which stands at `path`.
    pub(crate) fn build(
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
                "without an audience, tokens for others would be taken",
                help,
            );
        }
        let keys = Keys::build(config, means, path, problems);
        let mapping = Mapping::build(config, path, problems);
        Some(Self {
            place: path.to_string(),
            expected: Expected { issuer: config.issuer.clone(), audiences },
            algorithms: config.algorithms.clone(),
            keys: keys?,
            mapping: mapping?,
        })
    }

    /// Whether this is its name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.expected.issuer == name
    }

    /// What it is called, and how much its callers may ask.
    pub(crate) fn allowance(&self) -> (&str, &Arc<Allowance>) {
        (&self.expected.issuer, self.mapping.allowance())
    }

    /// The same, to be put in another's place.
    pub(crate) fn allowance_mut(&mut self) -> (&str, &mut Arc<Allowance>) {
        (&self.expected.issuer, self.mapping.allowance_mut())
    }

    /// Its keys.
    pub(crate) const fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// What `token` is worth, if it is genuine and valid now.
    ///
    /// # Errors
    /// When it is not. Only of a genuine token it is told what is wrong with it.
    pub(crate) async fn admit(&self, token: &Compact<'_>, clock: &dyn Clock) -> Result<KnownToken, Refused> {
        let place = &self.place;
        let algorithm = token.algorithm(&self.algorithms).map_err(|why| Refused::wrong(format!("{place}: {why}")))?;
        let set = self.verify(token, algorithm).await?;
        let expires = self.expected.check(&token.claims, clock.now());
        let expires = expires.map_err(|why| Refused::Unfit { who: self.mapping.name(&token.claims).ok(), why })?;
        let caller = self.mapping.caller(&token.claims).map_err(|why| {
            tracing::warn!(issuer = self.expected.issuer, %why, "a token's claims do not fit {place}");
            Refused::unfit(format!(
                "the token's claims do not fit what `{place}` makes of them; the gateway's log says why"
            ))
        })?;
        Ok(KnownToken { caller: Arc::new(caller), expires, keys: Arc::clone(&self.keys), set })
    }

    /// The keys of which one signed `token`.
    async fn verify(&self, token: &Compact<'_>, algorithm: Algorithm) -> Result<Arc<KeySet>, Refused> {
        let place = &self.place;
        let unknown = |error| Refused::Unknown(format!("{place}: the issuer's keys are not known: {error}"));
        let mut set = self.keys.get().await.map_err(unknown)?;
        let mut verdict = set.verify(token, algorithm);
        if verdict == Verdict::UnknownKey
            && let Ok(newer) = self.keys.newer(&set).await
            && !Arc::ptr_eq(&newer, &set)
        {
            set = newer;
            verdict = set.verify(token, algorithm);
        }
        match verdict {
            Verdict::Genuine => Ok(set),
            Verdict::Forged => Err(Refused::wrong(format!("{place}: its signature is not by the key that it names"))),
            Verdict::UnknownKey => Err(Refused::wrong(format!("{place}: none of the issuer's keys signed it"))),
        }
    }
}
