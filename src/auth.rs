//! Who calls, and what that caller may ask. A bearer token is taken to its caller before the body is read.

mod scope;
mod tokens;

use std::{fmt, path::PathBuf, sync::Arc};

use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use self::tokens::Tokens;
pub use self::{scope::Scope, tokens::TokenConfig};
use crate::{
    base_dir::BaseDir,
    clock::Clock,
    problem::{Path, Problems},
};

/// Who may call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthConfig {
    /// Bearer tokens. Several may be valid at once, so that one can be rotated.
    #[serde(default)]
    pub tokens: Vec<TokenConfig>,
}

/// What a token is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// To ask routes, as Argo CD does.
    #[default]
    Caller,
    /// To see and change what is remembered and held, on the admin listener.
    Admin,
}

/// An authenticated caller.
#[derive(Debug)]
pub struct Caller {
    /// What it is called in logs.
    pub name: String,
    /// What it is for.
    pub role: Role,
    scope: Scope,
}

impl Caller {
    /// The caller called `name`, which may ask what `scope` holds if its `role` lets it ask at all.
    #[must_use]
    pub const fn new(name: String, role: Role, scope: Scope) -> Self {
        Self { name, role, scope }
    }

    /// Whether it may ask `route`.
    #[must_use]
    pub fn may_ask(&self, route: &str) -> bool {
        self.role == Role::Caller && self.scope.has_route(route)
    }

    /// Whether it may ask for the ApplicationSet that a call names.
    #[must_use]
    pub fn may_ask_for(&self, application_set: &str) -> bool {
        self.role == Role::Caller && self.scope.has_application_set(application_set)
    }
}

/// All callers.
pub struct Auth {
    tokens: Tokens,
    clock: Arc<dyn Clock>,
}

/// Why a caller is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The token is missing, malformed or wrong.
    Wrong,
    /// The token is right, and not valid now: the text says since or from when.
    NotNow(String),
}

type TokenHash = [u8; 32];

/// The SHA-256 of a token, in hexadecimal.
#[must_use]
pub fn hash_token(token: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(token.as_bytes()))
}

impl Auth {
    /// Reads all tokens. No token at all, or an empty one, is an error: an open gateway is never a default.
    pub fn build(
        config: &AuthConfig,
        base: &BaseDir,
        clock: Arc<dyn Clock>,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let path = path.key("tokens");
        if config.tokens.iter().all(|token| token.role == Role::Admin) {
            problems.error_with_help(
                &path,
                "no token is configured that may ask routes, so nobody could call",
                "name one: `tokens: [ { name: argocd, file: /var/run/argo/token } ]`",
            );
        }
        Self { tokens: Tokens::build(&config.tokens, base, clock.now(), &path, problems), clock }
    }

    /// The files that may be renewed while the gateway runs.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.tokens.files().collect()
    }

    /// Reads the files again. What can be used takes the place of what was there before; what cannot be read changes
    /// nothing but a line in the log.
    pub fn refresh(&self) {
        self.tokens.refresh();
    }

    /// The caller that sent this `Authorization` header.
    ///
    /// # Errors
    /// When it is none, or none now.
    #[expect(clippy::unused_async, reason = "who vouches for a caller may have to be asked")]
    pub async fn authenticate(&self, authorization: Option<&HeaderValue>) -> Result<Arc<Caller>, Refused> {
        let token = authorization.and_then(|value| bearer(value.as_bytes())).ok_or(Refused::Wrong)?;
        let presented: TokenHash = Sha256::digest(token).into();
        self.tokens.find(&presented, self.clock.now())?.ok_or(Refused::Wrong)
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// Notes a name that no log line could show.
fn check_name(name: &str, path: &Path, problems: &mut Problems) {
    if name.is_empty() || name.chars().any(char::is_control) {
        problems.error(path, "a caller needs a printable name");
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
    use super::*;
    use crate::clock::SystemClock;

    fn build(config: &str) -> (Auth, Vec<String>) {
        let mut problems = Problems::default();
        let config: AuthConfig = serde_json::from_str(config).unwrap();
        let path = Path::root().key("auth");
        let auth = Auth::build(&config, &BaseDir::default(), Arc::new(SystemClock), &path, &mut problems);
        let told = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (auth, told.collect())
    }

    #[tokio::test]
    async fn the_right_token_names_its_caller() {
        let (old, new) = (hash_token("s3cret"), hash_token("s4cret"));
        let (auth, told) =
            build(&format!(r#"{{"tokens":[{{"name":"old","sha256":"{old}"}},{{"name":"new","sha256":"{new}"}}]}}"#));
        assert_eq!(told, Vec::<String>::new());
        let caller = async |header: &str| {
            let value = HeaderValue::from_str(header).unwrap();
            auth.authenticate(Some(&value)).await.map(|caller| caller.name.clone())
        };
        assert_eq!(caller("Bearer s3cret").await, Ok("old".to_owned()));
        assert_eq!(caller("bearer  s4cret ").await, Ok("new".to_owned()));
        for wrong in
            ["Bearer s5cret", "Bearer ", "Bearer", "s3cret", "Basic s3cret", "Bearer s3cret x", "$plugin.token", ""]
        {
            assert_eq!(caller(wrong).await, Err(Refused::Wrong), "{wrong}");
        }
        assert_eq!(auth.authenticate(None).await.err(), Some(Refused::Wrong));
    }

    #[test]
    fn a_gateway_that_nobody_could_ask_is_a_problem() {
        assert!(build("{}").1[0].starts_with("auth.tokens: no token is configured"));
        let hash = hash_token("t");
        let admin = format!(r#"{{"tokens":[{{"name":"a","sha256":"{hash}","role":"admin"}}]}}"#);
        assert!(build(&admin).1[0].contains("nobody could call"));
    }

    #[test]
    fn an_admin_asks_nothing() {
        let caller = |role| Caller::new("a".to_owned(), role, Scope::all());
        assert!(caller(Role::Caller).may_ask("r") && caller(Role::Caller).may_ask_for("a"));
        assert!(!caller(Role::Admin).may_ask("r") && !caller(Role::Admin).may_ask_for("a"));
    }
}
