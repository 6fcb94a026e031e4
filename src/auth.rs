//! Who calls, and which routes that caller may ask: bearer tokens, compared by their SHA-256 in
//! constant time over all entries, so that time tells neither which token came close nor how many
//! there are before it.

use std::{fmt, path::PathBuf, sync::Arc, time::UNIX_EPOCH};

use arc_swap::ArcSwap;
use globset::{Glob, GlobSet, GlobSetBuilder};
use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{
    base_dir::BaseDir,
    clock::{Clock, Timestamp},
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
    /// From when on it is valid, as `2026-11-21T10:00:00Z`.
    pub not_before: Option<String>,
    /// Until when it is valid.
    pub not_after: Option<String>,
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
pub struct Auth {
    tokens: Vec<Token>,
    /// The hash of each token, in their order.
    hashes: ArcSwap<Vec<TokenHash>>,
    base: BaseDir,
    clock: Arc<dyn Clock>,
}

/// One token, but for what it is now.
#[derive(Debug)]
struct Token {
    config: TokenConfig,
    caller: Arc<Caller>,
    not_before: Option<Timestamp>,
    not_after: Option<Timestamp>,
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
        let (mut tokens, mut hashes) = (Vec::new(), Vec::new());
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
            let time = |key: &str, text: &Option<String>, problems: &mut Problems| match text {
                Some(text) => problems.note(&path.key(key), timestamp(text)),
                None => None,
            };
            let not_before = time("notBefore", &token.not_before, problems);
            let not_after = time("notAfter", &token.not_after, problems);
            if not_before.zip(not_after).is_some_and(|(from, until)| from >= until) {
                problems.error(&path.key("notAfter"), "it ends before it begins, so the token is never valid");
            } else if not_after.is_some_and(|until| until <= clock.now()) {
                problems.warning(&path.key("notAfter"), "the token is valid no more", "leave the token out");
            }
            if let (Some(hash), Some(routes)) = (hash, routes) {
                let caller = Arc::new(Caller { name: token.name.clone(), role: token.role, routes });
                tokens.push(Token { config: token.clone(), caller, not_before, not_after });
                hashes.push(hash);
            }
        }
        Self { tokens, hashes: ArcSwap::from_pointee(hashes), base: base.clone(), clock }
    }

    /// The files that hold tokens.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.tokens.iter().filter_map(|token| Some(self.base.resolve(token.config.file.as_ref()?))).collect()
    }

    /// Reads the files again. A token that can be used takes the place of the one before; what cannot be read changes
    /// nothing but a line in the log.
    pub fn refresh(&self) {
        let known = self.hashes.load();
        let mut hashes = Vec::clone(&known);
        for (token, hash) in self.tokens.iter().zip(&mut hashes).filter(|(token, _)| token.config.file.is_some()) {
            let caller = &*token.caller.name;
            match token_hash(&token.config, &self.base) {
                Ok(new) if new == *hash => {}
                Ok(new) => {
                    *hash = new;
                    tracing::info!(caller, "a new token is in place of the one before");
                }
                Err(why) => tracing::warn!(caller, %why, "the token from before stays valid"),
            }
        }
        if hashes != **known {
            self.hashes.store(Arc::new(hashes));
        }
    }

    /// The caller that sent this `Authorization` header.
    ///
    /// # Errors
    /// When it is none, or none now.
    pub fn authenticate(&self, authorization: Option<&HeaderValue>) -> Result<&Arc<Caller>, Refused> {
        let token = authorization.and_then(|value| bearer(value.as_bytes())).ok_or(Refused::Wrong)?;
        let presented: TokenHash = Sha256::digest(token).into();
        let mut found = u32::MAX;
        for (index, hash) in (0_u32..).zip(self.hashes.load().iter()) {
            let is_equal: Choice = hash.ct_eq(&presented);
            found.conditional_assign(&index, is_equal);
        }
        let found = usize::try_from(found).ok().and_then(|found| self.tokens.get(found)).ok_or(Refused::Wrong)?;
        found.check(&*self.clock)?;
        Ok(&found.caller)
    }
}

impl Token {
    /// Whether it is valid now.
    fn check(&self, clock: &dyn Clock) -> Result<(), Refused> {
        let Self { not_before, not_after, .. } = self;
        let limits = not_before.map(|from| (from, false)).into_iter().chain(not_after.map(|until| (until, true)));
        for (limit, is_end) in limits {
            if (clock.now() >= limit) == is_end {
                let when = if is_end { "was valid until" } else { "is valid from" };
                let (name, date) = (&self.caller.name, limit.to_date());
                return Err(Refused::NotNow(format!("the token `{name}` {when} {date}, see `auth.tokens`")));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("tokens", &self.tokens.len()).finish_non_exhaustive()
    }
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    let time = humantime::parse_rfc3339_weak(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    time.map(Timestamp).ok_or_else(|| format!("`{text}` is no time such as 2026-11-21T10:00:00Z"))
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
    use crate::clock::SystemClock;

    fn auth(tokens: &[(&str, &str, &str)]) -> Auth {
        let tokens = tokens.iter().map(|(name, token, routes)| TokenConfig {
            name: (*name).to_owned(),
            file: None,
            env: None,
            sha256: Some(hash_token(token)),
            role: Role::Caller,
            routes: Some(vec![(*routes).to_owned()]),
            not_before: None,
            not_after: None,
        });
        let mut problems = Problems::default();
        let config = AuthConfig { tokens: tokens.collect() };
        let auth = Auth::build(&config, &BaseDir::default(), Arc::new(SystemClock), &Path::root(), &mut problems);
        assert_eq!(problems.into_vec(), vec![]);
        auth
    }

    fn caller<'a>(auth: &'a Auth, header: &str) -> Option<&'a str> {
        let value = HeaderValue::from_str(header).unwrap();
        auth.authenticate(Some(&value)).ok().map(|caller| caller.name.as_str())
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
        assert_eq!(auth.authenticate(None).err(), Some(Refused::Wrong));
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
    fn a_token_has_its_time() {
        let config = |limits: &str| format!(r#"{{"tokens":[{{"name":"a","sha256":"{}"{limits}}}]}}"#, hash_token("t"));
        let ask = |limits: &str| {
            let mut problems = Problems::default();
            let config: AuthConfig = serde_json::from_str(&config(limits)).unwrap();
            let auth = Auth::build(&config, &BaseDir::default(), Arc::new(SystemClock), &Path::root(), &mut problems);
            let told = problems.into_vec().into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ");
            let refused = auth.authenticate(Some(&HeaderValue::from_static("Bearer t"))).err();
            // Whoever does not know the token is not told its time.
            assert_eq!(auth.authenticate(Some(&HeaderValue::from_static("Bearer x"))).err(), Some(Refused::Wrong));
            (refused, told)
        };
        let (past, future) = (r#""2020-01-01T00:00:00Z""#, r#""2099-01-01T00:00:00Z""#);
        assert_eq!(ask(&format!(r#","notBefore":{past},"notAfter":{future}"#)), (None, String::new()));
        let (refused, told) = ask(&format!(r#","notAfter":{past}"#));
        let why = "the token `a` was valid until 2020-01-01T00:00:00Z, see `auth.tokens`";
        assert_eq!((refused, told.as_str()), (Some(Refused::NotNow(why.into())), "the token is valid no more"));
        let why = "the token `a` is valid from 2099-01-01T00:00:00Z, see `auth.tokens`";
        assert_eq!(ask(&format!(r#","notBefore":{future}"#)).0, Some(Refused::NotNow(why.into())));
        assert!(ask(&format!(r#","notBefore":{future},"notAfter":{past}"#)).1.contains("ends before it begins"));
        assert!(ask(r#","notAfter":"soon""#).1.contains("`soon` is no time"));
    }

    #[test]
    fn a_file_is_read_again_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("token"), text).unwrap();
        write("one\n");
        let config: AuthConfig = serde_json::from_str(r#"{"tokens":[{"name":"a","file":"token"}]}"#).unwrap();
        let mut problems = Problems::default();
        let base = BaseDir::new(folder.path());
        let auth = Auth::build(&config, &base, Arc::new(SystemClock), &Path::root(), &mut problems);
        let knows = |token: &str| caller(&auth, &format!("Bearer {token}")).is_some();
        assert_eq!(auth.files(), [folder.path().join("token")]);
        write("two");
        assert!(knows("one") && !knows("two"));
        auth.refresh();
        assert!(!knows("one") && knows("two"));
        for bad in ["", "\n", " two", "a b "] {
            write(bad);
            auth.refresh();
            assert!(knows("two"), "{bad:?}");
        }
        std::fs::remove_file(folder.path().join("token")).unwrap();
        auth.refresh();
        assert!(knows("two"));
    }

    #[test]
    fn no_token_or_an_unclear_one_is_a_problem() {
        let problems = |config: &str| {
            let mut problems = Problems::default();
            let config: AuthConfig = serde_json::from_str(config).unwrap();
            Auth::build(&config, &BaseDir::default(), Arc::new(SystemClock), &Path::root().key("auth"), &mut problems);
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
