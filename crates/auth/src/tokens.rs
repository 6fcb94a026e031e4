//! Static bearer tokens. A presented token is compared by its SHA-256 with all entries in constant time, so that the time reveals nothing
//! about the entries. Files with tokens are read again when they may have changed.

mod duplicates;
mod entry;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use self::{
    duplicates::{Duplicate, duplicates},
    entry::{StaticToken, source_path},
};
use super::{Allowance, Caller, Refused, Role, TokenHash, grants::entry_config};
use domain::{
    clock::Timestamp,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

entry_config! {
    /// One bearer token: its name, and exactly one of `file`, `env` and `sha256`.
    pub struct TokenConfig {
        /// The caller's name in logs.
        pub name: String,
        /// A file that holds the token; one trailing newline is trimmed.
        pub file: Option<PathBuf>,
        /// An environment variable that holds the token.
        pub env: Option<String>,
        /// The token's SHA-256 in hexadecimal, as `appset-gateway hash-token` prints it.
        pub sha256: Option<String>,
        /// The role of its callers.
        #[serde(default)]
        pub role: Role,
        /// When the token becomes valid, such as `2026-11-21T10:00:00Z`.
        pub(crate) not_before: Option<String>,
        /// When the token stops being valid.
        pub not_after: Option<String>,
    }
}

/// All static tokens.
pub(crate) struct Tokens {
    entries: Vec<StaticToken>,
    /// The hash of each entry's token, in the same order.
    hashes: ArcSwap<Vec<TokenHash>>,
    base: BaseDir,
    /// The problems of the last refresh, so that each is logged once.
    trouble: Mutex<Vec<Trouble>>,
}

/// Something wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    /// Its token cannot be read.
    Unreadable { caller: String, why: String },
    /// It has the same token as another entry.
    Duplicate(Duplicate),
}

impl Tokens {
    /// Reads all tokens. Problems are noted below `path`, the path of the list.
    pub(crate) fn build(
        configs: &[TokenConfig],
        base: &BaseDir,
        now: Timestamp,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let (mut entries, mut hashes, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        for (index, config) in configs.iter().enumerate() {
            let path = path.index(index);
            if configs[..index].iter().any(|other| other.name == config.name) {
                problems.error(&path.key("name"), format!("two tokens are called `{}`", config.name));
            }
            if let Some((token, hash)) = StaticToken::build(config, base, now, &path, problems) {
                entries.push(token);
                hashes.push(hash);
                paths.push(source_path(config, &path));
            }
        }
        let duplicates = duplicates(&entries, &hashes);
        for (duplicate, path_of_source) in duplicates.iter().map(|duplicate| (duplicate, &paths[duplicate.index])) {
            if duplicate.is_serious {
                problems.error_with_help(
                    path_of_source,
                    duplicate.to_string(),
                    "give each a token of its own: `openssl rand -hex 32`",
                );
            } else {
                let help = "give each a token of its own, or let both ask the same";
                problems.warning(path_of_source, duplicate.to_string(), help);
            }
        }
        let trouble = Mutex::new(duplicates.into_iter().map(Trouble::Duplicate).collect());
        Self { entries, hashes: ArcSwap::from_pointee(hashes), base: base.clone(), trouble }
    }

    /// The allowances, by the entries' names.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = (&str, &Arc<Allowance>)> {
        self.entries.iter().map(|token| token.caller.allowance())
    }

    /// The same, for replacing them.
    pub(crate) fn allowances_mut(&mut self) -> impl Iterator<Item = (&str, &mut Arc<Allowance>)> {
        self.entries.iter_mut().map(|token| Arc::make_mut(&mut token.caller).allowance_mut())
    }

    /// The files that hold tokens.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.entries.iter().filter_map(|token| token.file(&self.base))
    }

    /// Reads the files again. A usable token replaces the previous one. A file that cannot be read keeps its token, and this is logged. If one
    /// token would get two roles, all tokens stay as they were.
    pub(crate) fn refresh(&self) {
        let known = self.hashes.load();
        let (mut hashes, mut found) = (Vec::clone(&known), Vec::new());
        let from_files = self.entries.iter().zip(&mut hashes).filter(|(token, _)| token.file(&self.base).is_some());
        for (token, hash) in from_files {
            match token.read(&self.base) {
                Ok(new) => *hash = new,
                Err(why) => {
                    let caller = token.caller.name.clone();
                    found.push(Trouble::Unreadable { caller, why: why.to_string() });
                }
            }
        }
        let duplicates = duplicates(&self.entries, &hashes);
        let is_usable = !duplicates.iter().any(|duplicate| duplicate.is_serious);
        found.extend(duplicates.into_iter().map(Trouble::Duplicate));
        self.log(found);
        if is_usable && hashes != **known {
            for (token, _) in
                self.entries.iter().zip(hashes.iter().zip(known.iter())).filter(|(_, (new, old))| new != old)
            {
                tracing::info!(caller = token.caller.name, "a new token replaces the previous one");
            }
            self.hashes.store(Arc::new(hashes));
        }
    }

    /// Logs the problems that the last refresh did not have.
    fn log(&self, found: Vec<Trouble>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        for trouble in found.iter().filter(|trouble| !known.contains(trouble)) {
            match trouble {
                Trouble::Unreadable { caller, why } => tracing::warn!(caller, why, "the previous token stays valid"),
                Trouble::Duplicate(duplicate) if duplicate.is_serious => {
                    tracing::error!(why = %duplicate, "no token is replaced, all previous tokens stay valid (auth.tokens)");
                }
                Trouble::Duplicate(duplicate) => {
                    tracing::warn!(why = %duplicate, "the first entry that is valid now counts (auth.tokens)");
                }
            }
        }
        *known = found;
    }

    /// The caller whose token has this hash, by the first entry that is valid at `now`. `None` if no entry has it.
    ///
    /// # Errors
    /// When entries have it, but none is valid now.
    pub(crate) fn find(&self, presented: &TokenHash, now: Timestamp) -> Result<Option<Arc<Caller>>, Refused> {
        const NONE: u32 = u32::MAX;
        let (mut valid, mut any) = (NONE, NONE);
        for ((index, hash), token) in (0_u32..).zip(self.hashes.load().iter()).zip(&self.entries) {
            let is_equal: Choice = hash.ct_eq(presented);
            let is_valid = Choice::from(u8::from(token.is_valid(now)));
            valid.conditional_assign(&index, is_equal & is_valid & valid.ct_eq(&NONE));
            any.conditional_assign(&index, is_equal & any.ct_eq(&NONE));
        }
        let entry = |index: u32| usize::try_from(index).ok().and_then(|index| self.entries.get(index));
        match (entry(valid), entry(any)) {
            (Some(token), _) => Ok(Some(Arc::clone(&token.caller))),
            (None, Some(token)) => Err(token.refusal(now)),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::hash_token;
    use domain::clock::{Clock as _, SystemClock};

    fn build(configs: &str, base: &BaseDir) -> (Tokens, Vec<String>) {
        let mut problems = Problems::default();
        let configs: Vec<TokenConfig> = serde_json::from_str(configs).unwrap();
        let tokens = Tokens::build(&configs, base, SystemClock.now(), &Path::root().key("tokens"), &mut problems);
        let messages = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (tokens, messages.collect())
    }

    fn find(tokens: &Tokens, token: &str) -> Result<Option<String>, Refused> {
        let found = tokens.find(&Sha256::digest(token).into(), SystemClock.now())?;
        Ok(found.map(|caller| caller.name.clone()))
    }

    #[test]
    fn a_token_has_its_time() {
        let ask = |limits: &str| {
            let config = format!(r#"[{{"name":"a","sha256":"{}"{limits}}}]"#, hash_token("t"));
            let (tokens, messages) = build(&config, &BaseDir::default());
            // A caller with another token learns nothing about when this one changes.
            assert_eq!(find(&tokens, "x"), Ok(None));
            (find(&tokens, "t").err(), messages.join("; "))
        };
        let (past, future) = (r#""2020-01-01T00:00:00Z""#, r#""2099-01-01T00:00:00Z""#);
        assert_eq!(ask(&format!(r#","notBefore":{past},"notAfter":{future}"#)), (None, String::new()));
        let (refused, messages) = ask(&format!(r#","notAfter":{past}"#));
        let unfit = |why: &str| Some(Refused::Unfit { who: Some("a".to_owned()), why: why.to_owned() });
        assert_eq!(refused, unfit("the token `a` was valid until 2020-01-01T00:00:00Z, see `auth.tokens`"));
        assert_eq!(messages, "tokens[0].notAfter: the token is no longer valid");
        let why = "the token `a` is valid from 2099-01-01T00:00:00Z, see `auth.tokens`";
        assert_eq!(ask(&format!(r#","notBefore":{future}"#)).0, unfit(why));
        assert!(ask(&format!(r#","notBefore":{future},"notAfter":{past}"#)).1.contains("ends before it begins"));
        assert!(ask(r#","notAfter":"soon""#).1.contains("`soon` is not a time"));
    }

    #[test]
    fn a_file_is_read_again_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("token"), text).unwrap();
        write("one\n");
        let (tokens, messages) = build(r#"[{"name":"a","file":"token"}]"#, &BaseDir::new(folder.path()));
        assert_eq!(messages, Vec::<String>::new());
        let accepts = |token: &str| find(&tokens, token) == Ok(Some("a".to_owned()));
        assert!(tokens.files().eq([folder.path().join("token")]));
        write("two");
        assert!(accepts("one") && !accepts("two"));
        tokens.refresh();
        assert!(!accepts("one") && accepts("two"));
        for bad in ["", "\n", " two", "a b "] {
            write(bad);
            tokens.refresh();
            assert!(accepts("two"), "{bad:?}");
        }
        std::fs::remove_file(folder.path().join("token")).unwrap();
        tokens.refresh();
        assert!(accepts("two"));
    }

    #[test]
    fn a_token_without_exactly_one_source_is_a_problem() {
        let messages = |config: &str| build(config, &BaseDir::default()).1;
        let both = r#"[{"name":"a","env":"X","sha256":"00"}]"#;
        assert_eq!(messages(both), ["tokens[0]: a token has exactly one of `file`, `env` and `sha256`"]);
        let short = &messages(r#"[{"name":"a","sha256":"xyz"}]"#)[0];
        assert!(short.starts_with("tokens[0].sha256: `sha256` is 64 hexadecimal digits"), "{short}");
        assert!(messages(r#"[{"name":"a","env":"APPSET_GATEWAY_NOT_SET"}]"#)[0].contains("is not set"));
        let hash = hash_token("t");
        let twice = messages(&format!(r#"[{{"name":"a","sha256":"{hash}"}},{{"name":"a","sha256":"{hash}"}}]"#));
        assert_eq!(twice, ["tokens[1].name: two tokens are called `a`"]);
        let admin =
            format!(r#"[{{"name":"a","sha256":"{hash}","role":"admin","routes":["x"],"applicationSets":["x"]}}]"#);
        let opens = "the role `admin` may not call routes";
        assert_eq!(
            messages(&admin),
            [format!("tokens[0].routes: {opens}"), format!("tokens[0].applicationSets: {opens}")]
        );
    }
    #[test]
    fn of_entries_with_one_token_the_first_valid_one_counts() {
        let ask = |entries: &[&str]| {
            let hash = hash_token("t");
            let entries: Vec<String> = entries.iter().map(|more| format!(r#"{{"sha256":"{hash}",{more}}}"#)).collect();
            let (tokens, messages) = build(&format!("[{}]", entries.join(",")), &BaseDir::default());
            (
                find(&tokens, "t"),
                messages.into_iter().filter(|messages| !messages.contains("no longer valid")).collect::<Vec<_>>(),
            )
        };
        let old = r#""name":"old","notAfter":"2020-01-01T00:00:00Z""#;
        let soon = r#""name":"soon","notBefore":"2099-01-01T00:00:00Z""#;
        for entries in [[r#""name":"new""#, old, soon], [old, r#""name":"new""#, soon], [soon, old, r#""name":"new""#]]
        {
            assert_eq!(ask(&entries), (Ok(Some("new".to_owned())), vec![]), "{entries:?}");
        }
        assert_eq!(ask(&[r#""name":"a""#, r#""name":"b","routes":["*"]"#]), (Ok(Some("a".to_owned())), vec![]));
        let Err(Refused::Unfit { who, .. }) = ask(&[old, soon]).0 else { panic!("none is valid") };
        assert_eq!(who.as_deref(), Some("old"), "the first one says why");
        // One that opens more or less, or something else.
        let (found, messages) = ask(&[r#""name":"a""#, r#""name":"b","routes":["r"]"#]);
        assert_eq!(found, Ok(Some("a".to_owned())));
        let says = "tokens[1].sha256: `a` and `b` hold the same token, but do not let it ask the same";
        assert!(messages.len() == 1 && messages[0].starts_with(says), "{messages:?}");
        let (_, messages) = ask(&[r#""name":"a""#, r#""name":"b","role":"admin""#]);
        assert_eq!(
            messages,
            ["tokens[1].sha256: `a` and `b` hold the same token, but have different roles, and a token has one"]
        );
    }

    #[test]
    fn a_renewal_that_gives_a_token_two_roles_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let files = [("now", "one"), ("next", "two"), ("admin", "ops")];
        for (name, text) in files {
            write(name, text);
        }
        let (tokens, messages) = build(
            r#"[{"name":"now","file":"now"},{"name":"next","file":"next"},{"name":"admin","file":"admin","role":"admin"}]"#,
            &BaseDir::new(folder.path()),
        );
        assert_eq!(messages, Vec::<String>::new());
        let who = |token: &str| find(&tokens, token).unwrap();
        // The next token becomes the current one. For a while both are accepted.
        write("now", "two");
        tokens.refresh();
        assert_eq!((who("one"), who("two").as_deref()), (None, Some("now")));
        write("next", "ops");
        write("now", "three");
        for _ in 0..2 {
            tokens.refresh();
            assert_eq!(
                (who("two").as_deref(), who("three"), who("ops").as_deref()),
                (Some("now"), None, Some("admin"))
            );
            assert_eq!(tokens.trouble.lock().unwrap().len(), 1);
        }
        write("next", "four");
        tokens.refresh();
        assert_eq!((who("two"), who("three").as_deref(), who("four").as_deref()), (None, Some("now"), Some("next")));
        assert_eq!(*tokens.trouble.lock().unwrap(), []);
    }
}
