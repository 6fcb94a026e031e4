//! The configuration of hooks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Hook, Hooks, Mapping,
    kind::{Kind, OneOrMore},
    proof::Proof,
    subject::Subject,
};
use domain::{
    file::base_dir::BaseDir,
    glob::NameGlob,
    problem::{Path, Problems},
    secret::SecretRef,
};
use lang::{evaluator::Evaluator, expression::Expression, scope::NameScope};

/// A webhook: `POST /hooks/<name>` on `server.hooks`. It needs exactly one of `secret`, `token`, `caller` and `pathToken`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookConfig {
    /// Its name, the last part of its path: letters, digits, `-` and `_`.
    pub name: String,
    /// The sender. It decides which header has the proof, and how a body is read.
    #[serde(default)]
    pub kind: Kind,
    /// The secret with which the sender signs each body (HMAC). A list of two during a rotation.
    pub secret: Option<OneOrTwo>,
    /// The token that the sender puts into a header. A list of two during a rotation.
    pub token: Option<OneOrTwo>,
    /// The sender is a caller of `auth` with the role `sender`: a glob over its name. For senders that show a JWT, such as Google Pub/Sub.
    pub caller: Option<String>,
    /// The token at the end of the path, `POST /hooks/<name>/<token>`, for senders that cannot sign or send headers. A list of two during a
    /// rotation.
    pub path_token: Option<OneOrTwo>,
    /// The header with the signature or the token, if it is not the sender's usual one.
    pub header: Option<String>,
    /// The host of the registry, as image references write it, in place of the host in the sender's events. Needed if these name none
    /// (`jfrog`, `nexus`).
    pub registry: Option<String>,
    /// Where else the images of a repository are, by the repository's name in the sender's events (`jfrog`, `nexus`): the path of a
    /// virtual repository in `registry`, or another host. A text, or a list of texts.
    #[serde(default)]
    pub repositories: BTreeMap<String, OneOrMore>,
    /// The subjects of an event: CEL over `headers` (names in lower case) and `body`, with a list as its result. Each item has `image` (a
    /// reference), `commit` (a full SHA), or `route` and `parameters`. Needed for `generic` and `cloudEvents`.
    pub subjects: Option<String>,
}

/// A secret, or two that are valid at once.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is not a reference to a secret: write `{ file: … }` or `{ env: … }`, or a list of two references"
)]
pub enum OneOrTwo {
    /// The only one.
    One(SecretRef),
    /// The old one and the new one.
    Two(Vec<SecretRef>),
}

impl OneOrTwo {
    fn into_vec(self) -> Vec<SecretRef> {
        match self {
            Self::One(secret) => vec![secret],
            Self::Two(secrets) => secrets,
        }
    }
}

impl Hooks {
    /// Checks all of `configs`, the list at `path`.
    pub fn build(
        configs: &[HookConfig],
        base: &BaseDir,
        evaluator: &Evaluator,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let mut hooks: Vec<Hook> = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            let at = path.index(index);
            if configs[..index].iter().any(|before| before.name == config.name) {
                problems.error(&at.key("name"), format!("another hook is called `{}`", config.name));
            }
            hooks.extend(config.build(base, evaluator, &at, problems));
        }
        Self(hooks)
    }
}

impl HookConfig {
    fn build(&self, base: &BaseDir, evaluator: &Evaluator, path: &Path, problems: &mut Problems) -> Option<Hook> {
        let is_name = |name: &str| {
            (1..=63).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if !is_name(&self.name) {
            problems.error(&path.key("name"), "a hook's name has 1 to 63 letters, digits, `-` and `_`");
        }
        let mapping = self.subjects.as_ref().and_then(|source| {
            let scope = NameScope::of(&["body", "headers"]);
            let (expression, _) = Expression::build(source, &scope, &path.key("subjects"), problems)?;
            Some(Mapping { expression, evaluator: evaluator.clone() })
        });
        if self.subjects.is_none() && self.kind.needs_mapping() {
            let help = r#"for example: subjects: "[{'image': body.image, 'commit': body.sha}]""#;
            problems.error_with_help(path, "this kind of hook needs `subjects`", help);
        }
        if self.registry.is_none() && self.subjects.is_none() && self.kind.needs_registry() {
            problems.error(path, "this kind of sender does not name the registry: set `registry` to its host");
        }
        let never = |key: &str, problems: &mut Problems| {
            let why = if self.subjects.is_some() {
                "`subjects` names the images"
            } else {
                "this kind of sender names no images"
            };
            problems.warning(&path.key(key), format!("never used: {why}"), "leave it out");
        };
        if self.registry.is_some() && (self.subjects.is_some() || !self.kind.uses_registry()) {
            never("registry", problems);
        }
        if !self.repositories.is_empty() && (self.subjects.is_some() || !self.kind.uses_repositories()) {
            never("repositories", problems);
        }
        self.check_places(path, problems);
        let proof = self.proof(base, path, problems);
        let (kind, registry, repositories) = (self.kind, self.registry.clone(), self.repositories.clone());
        Some(Hook { name: self.name.as_str().into(), kind, proof: proof?, registry, repositories, mapping })
    }

    /// Notes a host that cannot be the beginning of an image reference.
    fn check_places(&self, path: &Path, problems: &mut Problems) {
        let mut check = |path: &Path, place: &str| {
            if Subject::image(&format!("{place}/x:x")).is_none() || place.contains('@') {
                let message = format!("`{}` cannot begin an image reference", place.escape_debug());
                problems.error_with_help(
                    path,
                    message,
                    "write a host such as `registry.example.com`, or a path below it",
                );
            }
        };
        if let Some(registry) = &self.registry {
            check(&path.key("registry"), registry);
        }
        for (name, places) in &self.repositories {
            places.as_slice().iter().for_each(|place| check(&path.key("repositories").key(name), place));
        }
    }

    fn proof(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Proof> {
        let set = [(&self.secret, "secret"), (&self.token, "token"), (&self.path_token, "pathToken")];
        let set: Vec<_> = set.iter().filter_map(|(secrets, key)| Some((secrets.as_ref()?, *key))).collect();
        let (secrets, key) = match (&set[..], &self.caller) {
            ([], Some(caller)) => {
                if self.header.is_some() {
                    problems.error(&path.key("header"), "a caller's token is in `Authorization`");
                }
                let names = NameGlob::parse(caller).map_err(|error| format!("it is not a glob: {error}"));
                return Some(Proof::Caller(problems.note(&path.key("caller"), names)?));
            }
            ([(secrets, key)], None) => ((*secrets).clone().into_vec(), *key),
            _ => {
                problems.error(path, "a hook needs exactly one of `secret`, `token`, `caller` and `pathToken`");
                return None;
            }
        };
        if !(1..=2).contains(&secrets.len()) {
            problems.error(&path.key(key), "one secret, or a list of two during a rotation");
        }
        for secret in &secrets {
            secret.check(base, &path.key(key), problems);
        }
        if key == "pathToken" && self.header.is_some() {
            problems.error(&path.key("header"), "a `pathToken` is in the path, not in a header");
        }
        let header = match &self.header {
            Some(name) => Some(problems.note(
                &path.key("header"),
                name.parse().map_err(|_| format!("`{name}` is not the name of a header")),
            )?),
            None => None,
        };
        Some(match key {
            "secret" => Proof::signed(secrets, base.clone(), self.kind.signature(), header),
            "token" => Proof::token(secrets, base.clone(), header.unwrap_or_else(|| self.kind.token_header())),
            _ => Proof::path(secrets, base.clone()),
        })
    }
}
