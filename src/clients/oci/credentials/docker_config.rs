//! Reads Docker's `config.json`.

use std::{collections::BTreeMap, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::RegistryCredential;
use crate::{clients::oci::reference::canonical_registry, domain::secret::Secret, file};

/// The parts of a Docker `config.json` that concern registries.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
struct Entry {
    auth: Option<Secret>,
    username: Option<String>,
    password: Option<Secret>,
    identitytoken: Option<Secret>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("username", &self.username).finish_non_exhaustive()
    }
}

impl Entry {
    fn is_blank(&self) -> bool {
        let is_given = |secret: &Option<Secret>| secret.as_ref().is_some_and(|secret| !secret.expose().is_empty());
        !is_given(&self.auth) && !is_given(&self.password) && !is_given(&self.identitytoken)
    }
}

impl DockerConfig {
    /// Reads `file`.
    ///
    /// # Errors
    /// When it cannot be read or parsed. The text holds nothing of its content.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        Self::parse(&file::bytes(file)?)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it cannot be parsed. The text holds nothing of its content.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| format!("line {}: not a Docker config.json", error.line()))
    }

    /// The helper for the credential of `registry`, if the file itself does not hold it.
    #[must_use]
    pub fn helper(&self, registry: &str) -> Option<&str> {
        let own = self.cred_helpers.iter().find(|(key, _)| Pattern::of(key).covers(registry, ""));
        let helper = match own {
            Some((_, name)) => name.as_str(),
            None if self.entry(registry, "").is_none() => self.creds_store.as_deref()?,
            None => return None,
        };
        if helper.is_empty() { None } else { Some(helper) }
    }

    /// Whether the file itself has an entry for `registry` or some of its repositories.
    #[must_use]
    pub fn knows(&self, registry: &str) -> bool {
        self.auths.iter().any(|(key, entry)| !entry.is_blank() && Pattern::of(key).is_host(registry))
    }

    /// The credential in the file itself for `repository` on `registry`.
    ///
    /// # Errors
    /// When its entry cannot be parsed.
    pub fn find(&self, registry: &str, repository: &str) -> Result<Option<RegistryCredential>, String> {
        let Some((key, entry)) = self.entry(registry, repository) else { return Ok(None) };
        if let Some(token) = entry.identitytoken.as_ref().filter(|token| !token.expose().is_empty()) {
            return Ok(Some(RegistryCredential::Identity(token.clone())));
        }
        if let (Some(username), Some(password)) = (&entry.username, &entry.password) {
            return Ok(Some(RegistryCredential::Password { username: username.clone(), password: password.clone() }));
        }
        let Some(encoded) = &entry.auth else { return Ok(None) };
        let decoded = STANDARD.decode(encoded.expose().trim()).map(Zeroizing::new).ok();
        let (username, password) = decoded
            .as_ref()
            .and_then(|bytes| str::from_utf8(bytes).ok()?.split_once(':'))
            .ok_or_else(|| format!("`auth` of {key} is not base64 of `user:password`"))?;
        // Docker pads passwords with zero bytes.
        let password = Secret::from(password.trim_end_matches('\0').to_owned());
        Ok(Some(RegistryCredential::Password { username: username.to_owned(), password }))
    }

    /// The best entry: the longest path wins, then a host without a pattern, then the longest host.
    fn entry(&self, registry: &str, repository: &str) -> Option<(&str, &Entry)> {
        let fits = self.auths.iter().filter(|(_, entry)| !entry.is_blank()).filter_map(|(key, entry)| {
            let pattern = Pattern::of(key);
            pattern.covers(registry, repository).then_some((pattern.rank(), key.as_str(), entry))
        });
        fits.max_by_key(|(rank, ..)| *rank).map(|(_, key, entry)| (key, entry))
    }
}

/// A key of `auths`: `registry.example.com`, `https://registry.example.com/v1/`, `registry.example.com/org`, `*.example.com`.
/// As in Kubernetes ("Interpretation of config.json"), a `*` stands for one part of the host.
struct Pattern<'a> {
    host: &'a str,
    path: &'a str,
}

impl<'a> Pattern<'a> {
    fn of(key: &'a str) -> Self {
        let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        let path = path.trim_end_matches('/');
        // `docker login` writes this for a registry's whole API.
        Self { host: canonical_registry(host), path: if matches!(path, "v1" | "v2") { "" } else { path } }
    }

    fn covers(&self, registry: &str, repository: &str) -> bool {
        let is_within = self.path.is_empty()
            || repository.strip_prefix(self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        is_within && self.is_host(registry)
    }

    fn is_host(&self, registry: &str) -> bool {
        let (own, asked) = (self.host.split('.'), registry.split('.'));
        own.clone().count() == asked.clone().count()
            && own.zip(asked).all(|(own, asked)| match own.split_once('*') {
                Some((start, end)) => {
                    asked.len() >= start.len() + end.len() && asked.starts_with(start) && asked.ends_with(end)
                }
                None => own.eq_ignore_ascii_case(asked),
            })
    }

    fn rank(&self) -> (usize, bool, usize) {
        (self.path.len(), !self.host.contains('*'), self.host.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn user(config: &Value, registry: &str, repository: &str) -> Option<String> {
        let config: DockerConfig = serde_json::from_value(config.clone()).unwrap();
        config.find(registry, repository).unwrap().map(|credential| match credential {
            RegistryCredential::Password { username, .. } => username,
            RegistryCredential::Identity(token) => format!("identity {}", token.expose()),
        })
    }

    #[test]
    fn the_best_entry_wins() {
        let entry = |name: &str| json!({"username": name, "password": "p"});
        let config = json!({"auths": {
            "r.example": entry("host"),
            "r.example/org": entry("org"),
            "r.example/org/app": entry("app"),
            "*.example": entry("pattern"),
            "eu-*.pkg.example:5000": entry("port"),
            "https://index.docker.io/v1/": entry("hub"),
            "https://old.test/v2/": entry("old"),
            "token.test": {"identitytoken": "it", "username": "x", "password": "y"},
            "harbor.test": {"auth": STANDARD.encode("robot$ci:p:w\0\0")},
            "blank.test": {},
            "r.example/blank": {"auth": ""},
        }});
        for (registry, repository, expected) in [
            ("r.example", "other", Some("host")),
            ("r.example", "org", Some("org")),
            ("r.example", "org/x", Some("org")),
            ("r.example", "organic", Some("host")),
            ("r.example", "org/app/x", Some("app")),
            ("r.example", "blank/x", Some("host")),
            ("s.example", "org", Some("pattern")),
            ("a.b.example", "org", None),
            ("example", "org", None),
            ("eu-west.pkg.example:5000", "x", Some("port")),
            ("eu-west.pkg.example", "x", None),
            ("docker.io", "library/nginx", Some("hub")),
            ("old.test", "x", Some("old")),
            ("token.test", "x", Some("identity it")),
            ("harbor.test", "x", Some("robot$ci")),
            ("blank.test", "x", None),
        ] {
            assert_eq!(user(&config, registry, repository).as_deref(), expected, "{registry}/{repository}");
        }
    }

    #[test]
    fn an_unreadable_entry_is_an_error() {
        let config: DockerConfig = serde_json::from_value(json!({"auths": {"c.example": {"auth": "!"}}})).unwrap();
        let error = config.find("c.example", "x").unwrap_err();
        assert!(error.contains("base64") && error.contains("c.example"), "{error}");
    }

    #[test]
    fn helpers_by_registry() {
        let config: DockerConfig = serde_json::from_value(json!({
            "auths": {"own.example": {"auth": "dTpw"}},
            "credHelpers": {"1.dkr.ecr.eu-west-1.amazonaws.com": "ecr-login"},
            "credsStore": "desktop",
        }))
        .unwrap();
        assert_eq!(config.helper("1.dkr.ecr.eu-west-1.amazonaws.com"), Some("ecr-login"));
        assert_eq!(config.helper("other.example"), Some("desktop"));
        assert_eq!(config.helper("own.example"), None);
    }
}
