//! Who calls, and which routes that caller may ask: bearer tokens, compared by their SHA-256 in
//! constant time over all entries, so that time tells neither which token came close nor how many
//! there are before it.

use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{
    base_dir::BaseDir,
    problem::{Path, Problems},
    secret::SecretRef,
};

/// Who may call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthConfig {
    /// Bearer tokens. Several may be valid at once, so that one can be rotated.
    #[serde(default)]
    pub tokens: Vec<TokenConfig>,
}

/// One bearer token: its name, and exactly one of `file`, `env` and `sha256`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenConfig {
    /// The caller's name in logs.
    pub name: String,
    /// A file that holds the token; one trailing newline is trimmed.
    pub file: Option<std::path::PathBuf>,
    /// An environment variable that holds the token.
    pub env: Option<String>,
    /// The token's SHA-256 in hexadecimal, as `appset-gateway hash-token` prints it.
    pub sha256: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub role: Role,
    /// The routes that it opens, as globs over their names; all of them unless set. Not with the role `admin`.
    pub routes: Option<Vec<String>>,
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
    /// The name of its token.
    pub name: String,
    /// What it may do.
    pub role: Role,
    routes: GlobSet,
}

impl Caller {
    /// Whether this caller may ask `route`.
    #[must_use]
    pub fn may_ask(&self, route: &str) -> bool {
        self.role == Role::Caller && self.routes.is_match(route)
    }
}

/// All callers.
#[derive(Debug)]
pub struct Auth {
    tokens: Vec<(TokenHash, Arc<Caller>)>,
}

type TokenHash = [u8; 32];

/// The SHA-256 of a token, in hexadecimal.
#[must_use]
pub fn hash_token(token: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(token.as_bytes()))
}

impl Auth {
    /// Reads all tokens. No token at all, or an empty one, is an error: an open gateway is never a default.
    pub fn build(config: &AuthConfig, base: &BaseDir, path: &Path, problems: &mut Problems) -> Self {
        let path = path.key("tokens");
        if config.tokens.iter().all(|token| token.role == Role::Admin) {
            problems.error_with_help(
                &path,
                "no token is configured that may ask routes, so nobody could call",
                "name one: `tokens: [ { name: argocd, file: /var/run/argo/token } ]`",
            );
        }
        let mut tokens = Vec::new();
        for (index, token) in config.tokens.iter().enumerate() {
            let path = path.index(index);
            if config.tokens[..index].iter().any(|other| other.name == token.name) {
                problems.error(&path.key("name"), format!("two tokens are called `{}`", token.name));
            }
            if token.name.is_empty() || token.name.chars().any(char::is_control) {
                problems.error(&path.key("name"), "a token needs a printable name");
            }
            if token.role == Role::Admin && token.routes.is_some() {
                problems.error_with_help(
                    &path.key("routes"),
                    "a token with the role `admin` opens no routes",
                    "leave `routes` out, and name another token for callers",
                );
            }
            let all = &["*".to_owned()];
            let routes = build_globs(token.routes.as_deref().unwrap_or(all), &path.key("routes"), problems);
            let hash = problems.note(&source_path(token, &path), token_hash(token, base));
            if let (Some(hash), Some(routes)) = (hash, routes) {
                tokens.push((hash, Arc::new(Caller { name: token.name.clone(), role: token.role, routes })));
            }
        }
        Self { tokens }
    }

    /// The caller that sent this `Authorization` header; `None` for a missing, malformed or wrong one.
    #[must_use]
    pub fn authenticate(&self, authorization: Option<&HeaderValue>) -> Option<&Arc<Caller>> {
        let token = bearer(authorization?.as_bytes())?;
        let presented: TokenHash = Sha256::digest(token).into();
        let mut found = u32::MAX;
        for (index, (hash, _)) in (0_u32..).zip(&self.tokens) {
            let is_equal: Choice = hash.ct_eq(&presented);
            found.conditional_assign(&index, is_equal);
        }
        self.tokens.get(usize::try_from(found).ok()?).map(|(_, caller)| caller)
    }
}

/// The token of `Bearer <token>`; the scheme is case-insensitive (RFC 9110, section 11.1).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// Where a token's value comes from, as far as that is clear.
fn source_path(token: &TokenConfig, path: &Path) -> Path {
    match (&token.file, &token.env, &token.sha256) {
        (Some(_), None, None) => path.key("file"),
        (None, Some(_), None) => path.key("env"),
        (None, None, Some(_)) => path.key("sha256"),
        _ => path.clone(),
    }
}

fn token_hash(token: &TokenConfig, base: &BaseDir) -> Result<TokenHash, String> {
    let reference = match (&token.file, &token.env, &token.sha256) {
        (Some(file), None, None) => SecretRef::File(file.clone()),
        (None, Some(name), None) => SecretRef::Env(name.clone()),
        (None, None, Some(hash)) => {
            return parse_hash(hash).ok_or_else(|| {
                "`sha256` is 64 hexadecimal digits; `appset-gateway hash-token` prints them".to_owned()
            });
        }
        _ => return Err("a token has exactly one of `file`, `env` and `sha256`".to_owned()),
    };
    let secret = reference.read(base)?;
    if secret.expose() != secret.expose().trim() {
        return Err(format!("the token in {reference} begins or ends with white space, which no header carries"));
    }
    Ok(Sha256::digest(secret.expose().as_bytes()).into())
}

fn parse_hash(text: &str) -> Option<TokenHash> {
    let mut hash = TokenHash::default();
    let decoded = base16ct::mixed::decode(text, &mut hash).ok()?;
    (decoded.len() == size_of::<TokenHash>()).then_some(hash)
}

/// One set of the globs `patterns`, or `None` with each bad one noted.
fn build_globs(patterns: &[String], path: &Path, problems: &mut Problems) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        set.add(problems.note(&path.index(index), Glob::new(pattern))?);
    }
    problems.note(path, set.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(tokens: &[(&str, &str, &str)]) -> Auth {
        let tokens = tokens.iter().map(|(name, token, routes)| TokenConfig {
            name: (*name).to_owned(),
            file: None,
            env: None,
            sha256: Some(hash_token(token)),
            role: Role::Caller,
            routes: Some(vec![(*routes).to_owned()]),
        });
        let mut problems = Problems::default();
        let config = AuthConfig { tokens: tokens.collect() };
        let auth = Auth::build(&config, &BaseDir::default(), &Path::root(), &mut problems);
        assert_eq!(problems.into_vec(), vec![]);
        auth
    }

    fn caller<'a>(auth: &'a Auth, header: &str) -> Option<&'a str> {
        let value = HeaderValue::from_str(header).unwrap();
        auth.authenticate(Some(&value)).map(|caller| caller.name.as_str())
    }

    #[test]
    fn the_right_token_names_its_caller() {
        let auth = auth(&[("old", "s3cret", "*"), ("new", "s4cret", "pr-*")]);
        assert_eq!(caller(&auth, "Bearer s3cret"), Some("old"));
        assert_eq!(caller(&auth, "bearer  s4cret "), Some("new"));
        for wrong in
            ["Bearer s5cret", "Bearer ", "Bearer", "s3cret", "Basic s3cret", "Bearer s3cret x", "$plugin.token", ""]
        {
            assert_eq!(caller(&auth, wrong), None, "{wrong}");
        }
        assert!(auth.authenticate(None).is_none());
    }

    #[test]
    fn a_scope_is_a_glob_over_route_names() {
        let auth = auth(&[("a", "t", "pr-*")]);
        let value = HeaderValue::from_static("Bearer t");
        let caller = auth.authenticate(Some(&value)).unwrap();
        assert!(caller.may_ask("pr-digests"));
        assert!(!caller.may_ask("tenants"));
    }

    #[test]
    fn no_token_or_an_unclear_one_is_a_problem() {
        let problems = |config: &str| {
            let mut problems = Problems::default();
            let config: AuthConfig = serde_json::from_str(config).unwrap();
            Auth::build(&config, &BaseDir::default(), &Path::root().key("auth"), &mut problems);
            problems.into_vec().into_iter().map(|p| format!("{}: {}", p.path, p.message)).collect::<Vec<_>>()
        };
        assert!(problems("{}")[0].starts_with("auth.tokens: no token is configured"));
        let hash = hash_token("t");
        let admin =
            |more: &str| problems(&format!(r#"{{"tokens":[{{"name":"a","sha256":"{hash}","role":"admin"{more}}}]}}"#));
        assert!(admin("")[0].contains("nobody could call"));
        assert!(admin(r#","routes":["x"]"#)[1].contains("opens no routes"));
        let both = r#"{"tokens":[{"name":"a","env":"X","sha256":"00"}]}"#;
        assert_eq!(problems(both), ["auth.tokens[0]: a token has exactly one of `file`, `env` and `sha256`"]);
        let short = &problems(r#"{"tokens":[{"name":"a","sha256":"xyz"}]}"#)[0];
        assert!(short.starts_with("auth.tokens[0].sha256: `sha256` is 64 hexadecimal digits"), "{short}");
        assert!(problems(r#"{"tokens":[{"name":"a","env":"APPSET_GATEWAY_NOT_SET"}]}"#)[0].contains("is not set"));
    }
}
