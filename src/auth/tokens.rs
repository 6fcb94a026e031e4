//! Static bearer tokens, compared by their SHA-256 in constant time over all entries, so that time tells neither which token came
//! close nor how many there are before it. Files that hold tokens are read again when they may have been renewed.

use std::{path::PathBuf, sync::Arc, time::UNIX_EPOCH};

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::{Allowance, Caller, Refused, Role, Scope, TokenHash, check_name};
use crate::{
    base_dir::BaseDir,
    clock::Timestamp,
    problem::{Path, Problems},
    secret::SecretRef,
};

/// One bearer token: its name, and exactly one of `file`, `env` and `sha256`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenConfig {
    /// The caller's name in logs.
    pub name: String,
    /// A file that holds the token; one trailing newline is trimmed.
    pub file: Option<PathBuf>,
    /// An environment variable that holds the token.
    pub env: Option<String>,
    /// The token's SHA-256 in hexadecimal, as `appset-gateway hash-token` prints it.
    pub sha256: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub role: Role,
    /// The routes that it opens, as globs over their names; all of them unless set. Not with the role `admin`.
    pub routes: Option<Vec<String>>,
    /// The ApplicationSets that it may ask for, as globs over the name in the call, which is the caller's own word; all of them
    /// unless set. Not with the role `admin`.
    pub application_sets: Option<Vec<String>>,
    /// How many calls per second they may make together; any unless set. More are refused with 429.
    #[schemars(range(min = 1))]
    pub rate: Option<u32>,
    /// How many of their calls may be under way at once; any unless set. More are refused with 429.
    #[schemars(range(min = 1))]
    pub concurrency: Option<usize>,
    /// From when on it is valid, as `2026-11-21T10:00:00Z`.
    pub not_before: Option<String>,
    /// Until when it is valid.
    pub not_after: Option<String>,
}

/// All static tokens.
pub struct Tokens {
    entries: Vec<Token>,
    /// The hash of each token, in their order.
    hashes: ArcSwap<Vec<TokenHash>>,
    base: BaseDir,
}

/// One token, but for what it is now.
#[derive(Debug)]
struct Token {
    config: TokenConfig,
    caller: Arc<Caller>,
    not_before: Option<Timestamp>,
    not_after: Option<Timestamp>,
}

impl Tokens {
    /// Reads all tokens. What is wrong is noted below `path`, which is that of the list.
    pub fn build(
        configs: &[TokenConfig],
        base: &BaseDir,
        now: Timestamp,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let (mut entries, mut hashes) = (Vec::new(), Vec::new());
        for (index, config) in configs.iter().enumerate() {
            let path = path.index(index);
            if configs[..index].iter().any(|other| other.name == config.name) {
                problems.error(&path.key("name"), format!("two tokens are called `{}`", config.name));
            }
            check_name(&config.name, &path.key("name"), problems);
            let (routes, application_sets) = (config.routes.as_deref(), config.application_sets.as_deref());
            let scope = Scope::build(config.role, routes, application_sets, &path, problems);
            let allowance = Allowance::build(config.rate, config.concurrency, &path, problems);
            let hash = problems.note(&source_path(config, &path), token_hash(config, base));
            let (not_before, not_after) = limits(config, now, &path, problems);
            if let (Some(hash), Some(scope)) = (hash, scope) {
                let caller = Arc::new(Caller::new(config.name.clone(), config.role, scope, allowance));
                entries.push(Token { config: config.clone(), caller, not_before, not_after });
                hashes.push(hash);
            }
        }
        Self { entries, hashes: ArcSwap::from_pointee(hashes), base: base.clone() }
    }

    /// The files that hold tokens.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.entries.iter().filter_map(|token| Some(self.base.resolve(token.config.file.as_ref()?)))
    }

    /// Reads the files again. A token that can be used takes the place of the one before; what cannot be read changes
    /// nothing but a line in the log.
    pub fn refresh(&self) {
        let known = self.hashes.load();
        let mut hashes = Vec::clone(&known);
        for (token, hash) in self.entries.iter().zip(&mut hashes).filter(|(token, _)| token.config.file.is_some()) {
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

    /// The caller whose token has this hash; `None` when it is nobody's.
    ///
    /// # Errors
    /// When it is not valid at `now`.
    pub fn find(&self, presented: &TokenHash, now: Timestamp) -> Result<Option<Arc<Caller>>, Refused> {
        let mut found = u32::MAX;
        for (index, hash) in (0_u32..).zip(self.hashes.load().iter()) {
            let is_equal: Choice = hash.ct_eq(presented);
            found.conditional_assign(&index, is_equal);
        }
        let Some(token) = usize::try_from(found).ok().and_then(|found| self.entries.get(found)) else {
            return Ok(None);
        };
        token.check(now)?;
        Ok(Some(Arc::clone(&token.caller)))
    }
}

impl Token {
    /// Whether it is valid at `now`.
    fn check(&self, now: Timestamp) -> Result<(), Refused> {
        let Self { not_before, not_after, .. } = self;
        let limits = not_before.map(|from| (from, false)).into_iter().chain(not_after.map(|until| (until, true)));
        for (limit, is_end) in limits {
            if (now >= limit) == is_end {
                let when = if is_end { "was valid until" } else { "is valid from" };
                let (name, date) = (&self.caller.name, limit.to_date());
                return Err(Refused::Unfit(format!("the token `{name}` {when} {date}, see `auth.tokens`")));
            }
        }
        Ok(())
    }
}

/// From and until when a token is valid.
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
        problems.warning(&path.key("notAfter"), "the token is valid no more", "leave the token out");
    }
    (not_before, not_after)
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    let time = humantime::parse_rfc3339_weak(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    time.map(Timestamp).ok_or_else(|| format!("`{text}` is no time such as 2026-11-21T10:00:00Z"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::hash_token,
        clock::{Clock as _, SystemClock},
    };

    fn build(configs: &str, base: &BaseDir) -> (Tokens, Vec<String>) {
        let mut problems = Problems::default();
        let configs: Vec<TokenConfig> = serde_json::from_str(configs).unwrap();
        let tokens = Tokens::build(&configs, base, SystemClock.now(), &Path::root().key("tokens"), &mut problems);
        let told = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (tokens, told.collect())
    }

    fn find(tokens: &Tokens, token: &str) -> Result<Option<String>, Refused> {
        let found = tokens.find(&Sha256::digest(token).into(), SystemClock.now())?;
        Ok(found.map(|caller| caller.name.clone()))
    }

    #[test]
    fn a_token_has_its_time() {
        let ask = |limits: &str| {
            let config = format!(r#"[{{"name":"a","sha256":"{}"{limits}}}]"#, hash_token("t"));
            let (tokens, told) = build(&config, &BaseDir::default());
            // Whoever does not know the token is not told its time.
            assert_eq!(find(&tokens, "x"), Ok(None));
            (find(&tokens, "t").err(), told.join("; "))
        };
        let (past, future) = (r#""2020-01-01T00:00:00Z""#, r#""2099-01-01T00:00:00Z""#);
        assert_eq!(ask(&format!(r#","notBefore":{past},"notAfter":{future}"#)), (None, String::new()));
        let (refused, told) = ask(&format!(r#","notAfter":{past}"#));
        let why = "the token `a` was valid until 2020-01-01T00:00:00Z, see `auth.tokens`";
        assert_eq!(refused, Some(Refused::Unfit(why.into())));
        assert_eq!(told, "tokens[0].notAfter: the token is valid no more");
        let why = "the token `a` is valid from 2099-01-01T00:00:00Z, see `auth.tokens`";
        assert_eq!(ask(&format!(r#","notBefore":{future}"#)).0, Some(Refused::Unfit(why.into())));
        assert!(ask(&format!(r#","notBefore":{future},"notAfter":{past}"#)).1.contains("ends before it begins"));
        assert!(ask(r#","notAfter":"soon""#).1.contains("`soon` is no time"));
    }

    #[test]
    fn a_file_is_read_again_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("token"), text).unwrap();
        write("one\n");
        let (tokens, told) = build(r#"[{"name":"a","file":"token"}]"#, &BaseDir::new(folder.path()));
        assert_eq!(told, Vec::<String>::new());
        let knows = |token: &str| find(&tokens, token) == Ok(Some("a".to_owned()));
        assert!(tokens.files().eq([folder.path().join("token")]));
        write("two");
        assert!(knows("one") && !knows("two"));
        tokens.refresh();
        assert!(!knows("one") && knows("two"));
        for bad in ["", "\n", " two", "a b "] {
            write(bad);
            tokens.refresh();
            assert!(knows("two"), "{bad:?}");
        }
        std::fs::remove_file(folder.path().join("token")).unwrap();
        tokens.refresh();
        assert!(knows("two"));
    }

    #[test]
    fn an_unclear_token_is_a_problem() {
        let told = |config: &str| build(config, &BaseDir::default()).1;
        let both = r#"[{"name":"a","env":"X","sha256":"00"}]"#;
        assert_eq!(told(both), ["tokens[0]: a token has exactly one of `file`, `env` and `sha256`"]);
        let short = &told(r#"[{"name":"a","sha256":"xyz"}]"#)[0];
        assert!(short.starts_with("tokens[0].sha256: `sha256` is 64 hexadecimal digits"), "{short}");
        assert!(told(r#"[{"name":"a","env":"APPSET_GATEWAY_NOT_SET"}]"#)[0].contains("is not set"));
        let hash = hash_token("t");
        let twice = told(&format!(r#"[{{"name":"a","sha256":"{hash}"}},{{"name":"a","sha256":"{hash}"}}]"#));
        assert_eq!(twice, ["tokens[1].name: two tokens are called `a`"]);
        let admin =
            format!(r#"[{{"name":"a","sha256":"{hash}","role":"admin","routes":["x"],"applicationSets":["x"]}}]"#);
        let opens = "the role `admin` opens no routes";
        assert_eq!(told(&admin), [format!("tokens[0].routes: {opens}"), format!("tokens[0].applicationSets: {opens}")]);
    }
}
