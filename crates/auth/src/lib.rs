//! Callers, and what each may request. A caller authenticates with a static token, a JWT of an issuer, a token that a Kubernetes API server
//! reviews, or a client certificate. This is checked before a request's body is read.
//!
//! Start at [`Auth::authenticate`], which returns a [`Caller`] or the reason to refuse one.
//!
//! - Static tokens: `tokens`. Client certificates: `certificates`.
//! - JWT: `jwt/set` picks the issuer, `jwt/keys` has its keys, `jwt/claims` checks audience and time, and `jwt/mapping` makes a caller of the
//!   claims.
//! - Token reviews: `review` sends tokens to the API server and caches its verdicts.
//! - Rights: `grants` are the keys that all kinds of entries share; [`Scope`] is the set of routes and ApplicationSets of a caller.
//! - Limits: `budget` per address (failed attempts), [`Allowance`] per entry (rate, concurrency), `questions` per entry (different questions
//!   a day).
//! - The page for people: [`Sessions`].
//!
//! `url_policy` decides which URLs may publish keys.

mod allowance;
mod budget;
mod caller;
mod certificates;
mod grants;
mod jwt;
mod questions;
mod review;
mod scope;
mod sessions;
mod tokens;
mod url_policy;

use std::{borrow::Cow, fmt, net::IpAddr, num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

pub use self::caller::{Caller, Refused};
use self::{
    allowance::carry_over,
    budget::Budget,
    caller::check_name,
    certificates::Certificates,
    jwt::{Compact, Issuers},
    review::Reviews,
    tokens::Tokens,
};
pub use self::{
    allowance::{Allowance, CallLimits, CallPermit, Excess},
    caller::Role,
    certificates::CertificateConfig,
    jwt::JwtConfig,
    review::TokenReviewConfig,
    scope::Scope,
    sessions::{Session, Sessions},
    tokens::TokenConfig,
};
use domain::{
    clock::{Clock, Timestamp},
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use outbound::Outbound;
use telemetry::metrics::Metrics;

/// The longest token that is checked by an issuer or an API server, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// How many failed attempts of one address are free.
const FAILURES_AT_ONCE: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");
/// How many more failed attempts per second one address then gets.
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("it is not 0");

/// The callers, by the ways to authenticate.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthConfig {
    /// Bearer tokens. Several may be valid at once, so that one can be rotated.
    #[serde(default)]
    pub tokens: Vec<TokenConfig>,
    /// Issuers whose tokens (JWT) are accepted.
    #[serde(default)]
    pub jwt: Vec<JwtConfig>,
    /// A cluster's API server, which checks tokens that no other entry has.
    pub(crate) token_review: Option<TokenReviewConfig>,
    /// Callers by client certificate. `server.tls.clientCa` verifies the certificates.
    #[serde(default)]
    pub certificates: Vec<CertificateConfig>,
}

impl AuthConfig {
    /// The roles of all configured callers.
    fn roles(&self) -> impl Iterator<Item = Role> {
        let reviewed = self.token_review.iter().flat_map(|review| &review.callers).map(|callers| callers.role);
        let shown = self.certificates.iter().map(|_| Role::Caller);
        let brought = self.tokens.iter().map(|token| token.role).chain(self.jwt.iter().map(|jwt| jwt.role));
        brought.chain(reviewed).chain(shown)
    }
}

/// All callers.
pub struct Auth {
    tokens: Tokens,
    issuers: Issuers,
    reviews: Option<Arc<Reviews>>,
    certificates: Certificates,
    failures: Arc<Budget>,
    clock: Arc<dyn Clock>,
}

/// The context for building [`Auth`].
#[derive(Clone, Copy)]
pub struct AuthContext<'a> {
    /// Where relative paths start.
    pub base: &'a BaseDir,
    /// The clock.
    pub clock: &'a Arc<dyn Clock>,
    /// The HTTP client for issuers and API servers.
    pub outbound: &'a Outbound,
    /// All metrics.
    pub metrics: &'a Metrics,
}

type TokenHash = [u8; 32];

/// The SHA-256 of a token, in hexadecimal.
#[must_use]
pub fn hash_token(token: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(token.as_bytes()))
}

impl Auth {
    /// Reads all tokens and local keys. It is an error to configure no token, or an empty one: the gateway never accepts all callers.
    pub fn build(config: &AuthConfig, means: AuthContext<'_>, path: &Path, problems: &mut Problems) -> Self {
        if !means.base.is_offline() && !config.roles().any(|role| role == Role::Caller) {
            problems.error_with_help(
                &path.key("tokens"),
                "no token is configured that may ask routes, so nobody could call",
                "name one: `tokens: [ { name: argocd, file: /var/run/argo/token } ]`",
            );
        }
        let now = means.clock.now();
        Self {
            tokens: Tokens::build(&config.tokens, means.base, now, &path.key("tokens"), problems),
            issuers: Issuers::build(&config.jwt, means, &path.key("jwt"), problems),
            reviews: config
                .token_review
                .as_ref()
                .and_then(|config| Reviews::build(config, means, &path.key("tokenReview"), problems))
                .map(Arc::new),
            certificates: Certificates::build(&config.certificates, &path.key("certificates"), problems),
            failures: Arc::new(Budget::new(FAILURES_AT_ONCE, FAILURES_PER_SECOND)),
            clock: Arc::clone(means.clock),
        }
    }

    /// The files that may change while the gateway runs.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.tokens.files().chain(self.issuers.files()).collect()
    }

    /// Reads the files again. New content replaces the old. A file that cannot be used keeps its old content, and this is logged.
    pub fn refresh(&self) {
        self.tokens.refresh();
        self.issuers.reread();
    }

    /// Each issuer that publishes its keys: when these were last read without an error, and how often they are read.
    pub fn key_reads(&self) -> impl Iterator<Item = (&str, Option<Timestamp>, Duration)> {
        self.issuers.key_reads()
    }

    /// Fetches the published keys of issuers regularly.
    pub async fn keep_fresh(&self) {
        self.issuers.keep_keys().await;
    }

    /// Takes over from `former` the results of issuers and API servers that are still configured, the callers' used allowances, and the failed
    /// attempts.
    pub fn take_over(&mut self, former: &Self) {
        self.failures = Arc::clone(&former.failures);
        carry_over(former.tokens.allowances(), self.tokens.allowances_mut());
        carry_over(former.issuers.allowances(), self.issuers.allowances_mut());
        carry_over(former.certificates.allowances(), self.certificates.allowances_mut());
        self.issuers.take_over(&former.issuers);
        if let (Some(own), Some(former)) = (self.reviews.as_mut().and_then(Arc::get_mut), &former.reviews) {
            carry_over(former.allowances(), own.allowances_mut());
            own.take_over(former);
        }
    }

    /// The caller whose verified certificate has this subject or one of these URIs.
    #[must_use]
    pub fn by_certificate(&self, subject: &str, uris: &[String]) -> Option<Arc<Caller>> {
        self.certificates.find(subject, uris)
    }

    /// Notes a refused attempt from `peer`. If there were too many, returns when the next attempt is allowed.
    #[must_use]
    pub fn failed(&self, peer: IpAddr) -> Option<Duration> {
        self.failures.spend(peer).err()
    }

    /// The caller of a request with these `headers` from `peer`.
    ///
    /// # Errors
    /// When the token is wrong or not valid now, or cannot be checked. More than one `Authorization` header is refused, because a proxy may
    /// have checked a different one.
    pub async fn authenticate(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Arc<Caller>, Refused> {
        let mut authorization = headers.get_all(header::AUTHORIZATION).iter();
        let token = authorization.next().and_then(|value| bearer(value.as_bytes()));
        if authorization.next().is_some() {
            return Err(Refused::Wrong(Cow::Borrowed("there is more than one `Authorization` header")));
        }
        let token = token.ok_or(Refused::Wrong(Cow::Borrowed("there is no bearer token")))?;
        self.holder(token, peer).await
    }

    /// The caller who has `token`.
    ///
    /// # Errors
    /// When the token is wrong or not valid now, or cannot be checked.
    async fn holder(&self, token: &[u8], peer: IpAddr) -> Result<Arc<Caller>, Refused> {
        let presented: TokenHash = Sha256::digest(token).into();
        let now = self.clock.now();
        if let Some(caller) = self.tokens.find(&presented, now)? {
            return Ok(caller);
        }
        if let Some(caller) = self.issuers.known(&presented, now) {
            return Ok(caller);
        }
        if let Some(verdict) = self.reviews.as_ref().and_then(|reviews| reviews.known(&presented, now)) {
            return verdict;
        }
        // Boxed, because this future is rare and larger than the rest of a request's.
        Box::pin(self.verify(token, presented, peer)).await
    }

    /// The caller whose token has this hash, if the hash is enough to find it.
    fn known(&self, token: &TokenHash) -> Option<Arc<Caller>> {
        let now = self.clock.now();
        let of_static = self.tokens.find(token, now).ok()?;
        of_static.or_else(|| self.issuers.known(token, now))
    }

    /// The caller of a `token` that was not seen before.
    async fn verify(&self, token: &[u8], hash: TokenHash, peer: IpAddr) -> Result<Arc<Caller>, Refused> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Refused::wrong(format!("the token has more than {MAX_TOKEN_BYTES} bytes")));
        }
        let token = Compact::parse(token);
        let token = token.map_err(|why| Refused::wrong(format!("it is none of `auth.tokens`, and {why}")))?;
        match &self.reviews {
            Some(reviews) if !self.issuers.name(&token) => reviews.admit(&token, hash, peer).await,
            _ => self.issuers.admit(&token, hash, &*self.clock).await,
        }
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

/// The token of `Bearer <token>`; the scheme is case-insensitive (RFC 9110, section 11.1).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use domain::clock::SystemClock;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn build(config: &str) -> (Auth, Vec<String>) {
        let mut problems = Problems::default();
        let config: AuthConfig = serde_json::from_str(config).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (base, outbound) = (BaseDir::default(), Outbound::new(Arc::clone(&clock)));
        let means = AuthContext { base: &base, clock: &clock, outbound: &outbound, metrics: &Metrics::new().unwrap() };
        let auth = Auth::build(&config, means, &Path::root().key("auth"), &mut problems);
        let messages = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (auth, messages.collect())
    }

    fn headers(authorization: &[&str]) -> HeaderMap {
        authorization.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[tokio::test]
    async fn several_authorization_headers_are_refused() {
        let hash = hash_token("s3cret");
        let (auth, _) = build(&format!(r#"{{"tokens":[{{"name":"a","sha256":"{hash}"}}]}}"#));
        for several in [
            &["Bearer s3cret", "Bearer s3cret"][..],
            &["Bearer s3cret", "Bearer other"],
            &["Bearer other", "Bearer s3cret"],
            &["Bearer s3cret", "Basic eDp5"],
            &["", "Bearer s3cret"],
            &["Bearer s3cret", ""],
        ] {
            let refused = auth.authenticate(&headers(several), PEER).await.err();
            assert_eq!(refused, Some(Refused::wrong("there is more than one `Authorization` header")), "{several:?}");
        }
        for joined in ["Bearer s3cret, Bearer s3cret", "Bearer s3cret,Bearer other", "Bearer other, Bearer s3cret"] {
            let refused = auth.authenticate(&headers(&[joined]), PEER).await.err();
            assert!(matches!(refused, Some(Refused::Wrong(_))), "{joined}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn the_right_token_names_its_caller() {
        let (old, new) = (hash_token("s3cret"), hash_token("s4cret"));
        let (auth, messages) =
            build(&format!(r#"{{"tokens":[{{"name":"old","sha256":"{old}"}},{{"name":"new","sha256":"{new}"}}]}}"#));
        assert_eq!(messages, Vec::<String>::new());
        let caller =
            async |header: &str| auth.authenticate(&headers(&[header]), PEER).await.map(|caller| caller.name.clone());
        assert_eq!(caller("Bearer s3cret").await, Ok("old".to_owned()));
        assert_eq!(caller("bearer  s4cret ").await, Ok("new".to_owned()));
        for wrong in
            ["Bearer s5cret", "Bearer ", "Bearer", "s3cret", "Basic s3cret", "Bearer s3cret x", "$plugin.token", ""]
        {
            assert!(matches!(caller(wrong).await, Err(Refused::Wrong(_))), "{wrong}");
        }
        assert_eq!(
            auth.authenticate(&headers(&[]), PEER).await.err(),
            Some(Refused::wrong("there is no bearer token"))
        );
    }

    #[test]
    fn a_configuration_without_callers_is_a_problem() {
        assert!(build("{}").1[0].starts_with("auth.tokens: no token is configured"));
        let hash = hash_token("t");
        let admin = format!(r#"{{"tokens":[{{"name":"a","sha256":"{hash}","role":"admin"}}]}}"#);
        assert!(build(&admin).1[0].contains("nobody could call"));
    }
}
