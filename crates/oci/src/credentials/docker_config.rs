//! Reads Docker's `config.json` as the Go code of Docker and the kubelet does: names of fields in any case, `null` as absent, `auth` before
//! `username` and `password`. An entry that cannot be read concerns its own registry only.

mod error;

use std::{collections::BTreeMap, path::Path};

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

pub use self::error::{DockerConfigError, UnreadableEntry};
use self::error::{EntryError, FormError};
use super::RegistryCredential;
use crate::reference::registry_key;
use domain::{file, secret::Secret};

/// Base64 as Go reads it, with or without padding. Docker wants the padding, the kubelet takes both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The parts of a Docker `config.json` that concern registries.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct DockerConfig {
    /// The entries, or why one cannot be read.
    auths: BTreeMap<String, Result<Entry, EntryError>>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

/// The fields that are not empty.
#[derive(Default)]
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
    /// Reads an entry. The error quotes nothing of it.
    fn read(value: Value) -> Result<Self, EntryError> {
        let mut fields = object(value).ok_or(EntryError::NotObject)?;
        let mut text = |name: &'static str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(_) => Err(EntryError::NotText(name)),
        };
        Ok(Self {
            auth: text("auth")?.map(Secret::from),
            username: text("username")?,
            password: text("password")?.map(Secret::from),
            identitytoken: text("identitytoken")?.map(Secret::from),
        })
    }

    fn is_blank(&self) -> bool {
        self.auth.is_none() && self.password.is_none() && self.identitytoken.is_none()
    }

    /// The credential. `None` in a blank entry. The error quotes nothing of it.
    fn credential(&self) -> Result<Option<RegistryCredential>, EntryError> {
        if let Some(token) = &self.identitytoken {
            return Ok(Some(RegistryCredential::Identity(token.clone())));
        }
        let Some(encoded) = &self.auth else {
            let password = self.password.clone();
            return Ok(password.map(|password| RegistryCredential::Password {
                username: self.username.clone().unwrap_or_default(),
                password,
            }));
        };
        // Go skips line ends, and both programs trim the ends.
        let encoded: Zeroizing<String> = encoded.expose().trim().replace(['\r', '\n'], "").into();
        let decoded = BASE64.decode(encoded.as_bytes()).map(Zeroizing::new).ok();
        let (username, password) =
            decoded.as_ref().and_then(|bytes| str::from_utf8(bytes).ok()?.split_once(':')).ok_or(EntryError::Auth)?;
        // Docker pads passwords with zero bytes.
        let password = Secret::from(password.trim_matches('\0').to_owned());
        Ok(Some(RegistryCredential::Password { username: username.to_owned(), password }))
    }
}

/// The fields of an object, with names in lower case. `null` has none. `None` if it is anything else.
fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Null => Some(Map::new()),
        Value::Object(fields) => {
            Some(fields.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
        }
        _ => None,
    }
}

impl TryFrom<Value> for DockerConfig {
    type Error = FormError;

    fn try_from(value: Value) -> Result<Self, FormError> {
        let mut fields = object(value).ok_or(FormError::NotObject)?;
        let mut map = |name: &'static str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(entries)) => Ok(entries),
            Some(_) => Err(FormError::NoMap(name)),
        };
        let (auths, helpers) = (map("auths")?, map("credhelpers")?);
        let mut auths: BTreeMap<_, _> = auths.into_iter().map(|(key, entry)| (key, Entry::read(entry))).collect();
        let mut cred_helpers = BTreeMap::new();
        for (key, helper) in helpers {
            match helper {
                Value::String(name) => _ = cred_helpers.insert(key, name),
                Value::Null => {}
                _ => _ = auths.insert(key, Err(EntryError::Helper)),
            }
        }
        let creds_store = match fields.remove("credsstore") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(FormError::CredsStore),
        };
        Ok(Self { auths, cred_helpers, creds_store })
    }
}

impl DockerConfig {
    /// Reads `file`.
    ///
    /// # Errors
    /// When it cannot be read or parsed. The text holds nothing of its content.
    pub fn read(file: &Path) -> Result<Self, DockerConfigError> {
        Self::parse(&file::bytes(file)?)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it cannot be parsed. The text holds nothing of its content. An entry that cannot be read is not such an error.
    pub fn parse(text: &[u8]) -> Result<Self, DockerConfigError> {
        let value: Value = serde_json::from_slice(text).map_err(|error| DockerConfigError::Syntax(error.line()))?;
        Self::try_from(value).map_err(DockerConfigError::Form)
    }

    /// The helper for the credential of `registry`, if the file itself does not hold it.
    #[must_use]
    pub fn helper(&self, registry: &str) -> Option<&str> {
        let helper = match self.own_helper(registry) {
            Some(name) => name,
            None if self.entry(registry, "").is_none() => self.creds_store.as_deref()?,
            None => return None,
        };
        if helper.is_empty() { None } else { Some(helper) }
    }

    /// Whether `credHelpers` names a helper for `registry`. `credsStore` is for all registries, also for those without a credential.
    #[must_use]
    pub fn wants_credential(&self, registry: &str) -> bool {
        self.own_helper(registry).is_some_and(|name| !name.is_empty())
    }

    fn own_helper(&self, registry: &str) -> Option<&str> {
        Some(self.cred_helpers.iter().find(|(key, _)| Pattern::of(key).covers(registry, ""))?.1.as_str())
    }

    /// Whether the file itself has an entry for `registry` or some of its repositories.
    #[must_use]
    pub fn has_entry(&self, registry: &str) -> bool {
        self.filled().any(|(key, _)| Self::concerns(key, registry))
    }

    /// Whether the entry called `key` is for `registry` or some of its repositories.
    #[must_use]
    pub fn concerns(key: &str, registry: &str) -> bool {
        Pattern::of(key).is_host(&registry_key(registry))
    }

    /// The credential in the file itself for `repository` on `registry`.
    ///
    /// # Errors
    /// When its entry cannot be read.
    pub fn find(&self, registry: &str, repository: &str) -> Result<Option<RegistryCredential>, UnreadableEntry> {
        let Some((key, entry)) = self.entry(registry, repository) else { return Ok(None) };
        let credential = entry.as_ref().map_err(Clone::clone).and_then(Entry::credential);
        credential.map_err(|cause| UnreadableEntry { key: key.to_owned(), cause })
    }

    /// The entries that cannot be read, and why.
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, EntryError)> {
        self.auths.iter().filter_map(|(key, entry)| {
            let credential = entry.as_ref().map_err(Clone::clone).and_then(Entry::credential);
            Some((key.as_str(), credential.err()?))
        })
    }

    /// The entries that are not blank.
    fn filled(&self) -> impl Iterator<Item = (&str, &Result<Entry, EntryError>)> {
        let all = self.auths.iter().map(|(key, entry)| (key.as_str(), entry));
        all.filter(|(_, entry)| !entry.as_ref().is_ok_and(Entry::is_blank))
    }

    /// The best entry: the longest path wins, then a host without a pattern, then the longest host.
    fn entry(&self, registry: &str, repository: &str) -> Option<(&str, &Result<Entry, EntryError>)> {
        let fits = self.filled().filter_map(|(key, entry)| {
            let pattern = Pattern::of(key);
            pattern.covers(registry, repository).then_some((pattern.rank(), key, entry))
        });
        fits.max_by_key(|(rank, ..)| *rank).map(|(_, key, entry)| (key, entry))
    }
}

/// A key of `auths`: `registry.example.com`, `https://registry.example.com/v1/`, `registry.example.com/org`, `*.example.com`.
/// As in Kubernetes ("Interpretation of config.json"), a `*` stands for one part of the host.
struct Pattern<'a> {
    host: String,
    path: &'a str,
}

impl<'a> Pattern<'a> {
    fn of(key: &'a str) -> Self {
        let after = |scheme: &str| {
            key.split_at_checked(scheme.len())
                .filter(|(start, _)| start.eq_ignore_ascii_case(scheme))
                .map(|(_, after)| after)
        };
        let key = after("https://").or_else(|| after("http://")).unwrap_or(key);
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        let path = path.trim_end_matches('/');
        // `docker login` writes this for a registry's whole API.
        Self { host: registry_key(host), path: if matches!(path, "v1" | "v2") { "" } else { path } }
    }

    fn covers(&self, registry: &str, repository: &str) -> bool {
        let is_within = self.path.is_empty()
            || repository.strip_prefix(self.path).is_some_and(|below| below.is_empty() || below.starts_with('/'));
        is_within && self.is_host(&registry_key(registry))
    }

    /// Whether it is for the registry with this key.
    fn is_host(&self, registry: &str) -> bool {
        let (own, wanted) = (self.host.split('.'), registry.split('.'));
        own.clone().count() == wanted.clone().count()
            && own.zip(wanted).all(|(own, wanted)| match own.split_once('*') {
                Some((start, end)) => {
                    wanted.len() >= start.len() + end.len() && wanted.starts_with(start) && wanted.ends_with(end)
                }
                None => own == wanted,
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
            "harbor.test": {"auth": BASE64.encode("robot$ci:p:w\0\0")},
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
    fn an_unreadable_entry_concerns_its_own_registry() {
        let config: DockerConfig = serde_json::from_value(json!({
            "auths": {
                "a.example": {"auth": "dTpw"},
                "b.example": {"auth": "!"},
                "c.example": 7,
                "d.example": {"username": ["u"]},
                "e.example/org": {"auth": "dQ=="},
                "e.example": {"auth": "dTpw"},
            },
            "credHelpers": {"f.example": 7},
        }))
        .unwrap();
        assert!(config.find("a.example", "x").unwrap().is_some());
        for (registry, repository, says) in [
            ("b.example", "x", "base64"),
            ("c.example", "x", "not an object"),
            ("d.example", "x", "its `username` is not text"),
            ("e.example", "org/x", "base64"),
            ("f.example", "x", "not text"),
        ] {
            let error = config.find(registry, repository).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(registry), "{error}");
            assert!(config.has_entry(registry));
        }
        assert!(config.find("e.example", "other").unwrap().is_some());
        let unreadable: Vec<&str> = config.unreadable().map(|(key, _)| key).collect();
        assert_eq!(unreadable, ["b.example", "c.example", "d.example", "e.example/org", "f.example"]);
    }

    #[test]
    fn entries_are_read_as_docker_and_the_kubelet_read_them() {
        for (entry, expected) in [
            (json!({"auth": "dXNlcjpwYXNz"}), Some("user")),
            (json!({"auth": "dXNlcjpwYXNzdw=="}), Some("user")),
            (json!({"auth": "dXNlcjpwYXNzdw"}), Some("user")),
            (json!({"auth": "dXNlcjpw\r\nYXNzdw\n"}), Some("user")),
            // The last bits do not matter to Go.
            (json!({"auth": "dXNlcjpwYXNzdx"}), Some("user")),
            (json!({"auth": "dXNlcjpw", "username": "old", "password": "older"}), Some("user")),
            (json!({"auth": "", "username": "own", "password": "p"}), Some("own")),
            (json!({"auth": null, "username": "own", "password": "p", "email": 7, "new": {}}), Some("own")),
            (json!({"Auth": "dXNlcjpw"}), Some("user")),
            (json!({"USERNAME": "own", "Password": "p"}), Some("own")),
            (json!({"password": "p"}), Some("")),
            (json!({"auth": "dXNlcjpw", "identitytoken": ""}), Some("user")),
            (json!({}), None),
            (json!(null), None),
            (json!({"username": "own"}), None),
        ] {
            let config = json!({"auths": {"https://R.example:443/v2/": entry}});
            assert_eq!(user(&config, "r.example", "x").as_deref(), expected, "{config}");
        }
        for config in ["{}", r#"{"auths":null,"credHelpers":null,"credsStore":null}"#, r#"{"auths":{}}"#, "null"] {
            let config = DockerConfig::parse(config.as_bytes()).unwrap();
            assert!(config.find("r.example", "x").unwrap().is_none() && config.helper("r.example").is_none());
        }
        for bad in ["", "[]", r#"{"auths":[]}"#, r#"{"auths":7}"#, r#"{"credsStore":{}}"#, r#"{"auths":{}"#] {
            let error = DockerConfig::parse(bad.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("not a Docker config.json"), "{bad}: {error}");
        }
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
        let wants = ["1.dkr.ecr.eu-west-1.amazonaws.com", "other.example"].map(|name| config.wants_credential(name));
        assert_eq!(wants, [true, false]);
    }
}
