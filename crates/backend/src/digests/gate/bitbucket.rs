//! Bitbucket Cloud: the build statuses of a commit, the latest of each key.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use http::header;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    CiState, CiVerdict, Gate, GateQuery, SystemConfig,
    address::follow,
    api::document,
    forge::{Field, Forge, ForgeCredential, Form, ReportedStatus, Required, time, unknown_word},
    memory::{RequestKey, System},
    paging::ListPage,
    remembered,
};
use crate::{Building, digests::commit::Commit};
use domain::{error::BackendError, secret::SecretRef};
use outbound::Reply;

/// The build statuses that must pass.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "BitbucketGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The API's URL.
    #[serde(default = "default_api")]
    pub api: String,
    /// The repository, `workspace/name`; a template over `params` and `applicationSet`.
    pub repository: String,
    /// The full commit that must have passed; a template.
    pub sha: String,
    /// The keys of statuses that must exist and pass: names, or `/regular expressions/`, which match anywhere in a key.
    /// Without it all existing statuses must pass, and a status that is not reported yet is not missed.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// An access token of the repository, project or workspace (`repository` scope), sent as a bearer.
    #[serde(default)]
    pub token: Option<SecretRef>,
    /// In place of `token`: the user of `password`. For an API token, an e-mail address.
    #[serde(default)]
    pub username: Option<String>,
    /// An API token or an app password of `username`.
    #[serde(default)]
    pub password: Option<SecretRef>,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

fn default_api() -> String {
    "https://api.bitbucket.org/2.0".to_owned()
}

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["token", "username", "password", "ca"];

    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>> {
        Some(remembered(Bitbucket::build(self, building)?, building.context.clock))
    }
}

/// The gate, parsed.
#[derive(Debug)]
pub struct Bitbucket {
    forge: Forge,
    repository: Field,
    sha: Field,
    required: Required,
}

#[derive(Debug, Deserialize)]
struct Listed {
    values: Vec<Entry>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    key: String,
    state: String,
    url: Option<String>,
    updated_on: Option<String>,
    commit: Option<Hash>,
    #[serde(default)]
    links: Links,
}

#[derive(Debug, Deserialize)]
struct Hash {
    hash: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Links {
    commit: Option<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    href: Option<String>,
}

impl Bitbucket {
    /// Parses the templates and checks the rest.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let repository = Field::build(&config.repository, "repository", building);
        let sha = Field::build(&config.sha, "sha", building);
        let required = Required::build(config.keys.as_deref(), &building.path.key("keys"), building.problems);
        let credential = config.credential(building);
        let forge = Forge::build("bitbucket", &config.api, config.ca.as_ref(), credential, building);
        Some(Self { forge: forge?, repository: repository?, sha: sha?, required: required? })
    }

    fn page(&self, commit: &Commit, reply: &Reply, from: &Url) -> Result<ListPage<ReportedStatus>, BackendError> {
        let listed: Listed = document(reply)?;
        let next = listed.next.as_deref().map(|link| follow(from, link, |_| false)).transpose()?;
        let own = listed.values.into_iter().filter(|entry| entry.is_of(commit));
        let items = own.map(|entry| self.status(entry, reply)).collect::<Result<_, _>>()?;
        Ok(ListPage { items, next })
    }

    fn status(&self, entry: Entry, reply: &Reply) -> Result<ReportedStatus, BackendError> {
        let state = state(&entry.state).ok_or_else(|| unknown_word("a status", &entry.state, &reply.secrets))?;
        let url = entry.url.as_deref().and_then(|url| self.forge.link(url));
        Ok(ReportedStatus {
            name: entry.key,
            word: entry.state,
            state,
            url,
            at: entry.updated_on.as_deref().and_then(time),
        })
    }
}

impl Config {
    fn credential(&self, building: &mut Building<'_>) -> Option<ForgeCredential> {
        let (form, secret, key) = match (&self.token, &self.username, &self.password) {
            (None, None, None) => return None,
            (Some(token), None, None) => (Form::Scheme("Bearer"), token, "token"),
            (None, Some(user), Some(password)) if !user.trim().is_empty() && !user.contains(':') => {
                (Form::Basic(user.clone()), password, "password")
            }
            (None, Some(_), Some(_)) => {
                building.key("username").error("a user's name is not empty and has no colon");
                return None;
            }
            _ => {
                building.error_with_help(
                    "the credential is not clear",
                    "give either `token`, or both `username` and `password`",
                );
                return None;
            }
        };
        Some(ForgeCredential::build(header::AUTHORIZATION, form, secret, &mut building.key(key)))
    }
}

impl Entry {
    /// Whether the status is about `commit`, by its own hash or by the documented link to its commit. A status that names no
    /// commit counts.
    fn is_of(&self, commit: &Commit) -> bool {
        let hash = self.commit.as_ref().and_then(|commit| commit.hash.as_deref());
        let href = self.links.commit.as_ref().and_then(|target| target.href.as_deref());
        let linked = href.and_then(|href| href.trim_end_matches('/').rsplit('/').next());
        let named = hash.or(linked.filter(|name| Commit::parse(name).is_ok()));
        named.is_none_or(|named| named.eq_ignore_ascii_case(commit.as_str()))
    }
}

/// The meaning of Bitbucket's word.
fn state(word: &str) -> Option<CiState> {
    match word {
        "SUCCESSFUL" => Some(CiState::Passed),
        "INPROGRESS" => Some(CiState::Pending),
        "FAILED" | "STOPPED" => Some(CiState::Failed),
        _ => None,
    }
}

/// The latest of each key.
fn latest(statuses: Vec<ReportedStatus>) -> Result<Vec<ReportedStatus>, BackendError> {
    let mut latest: Vec<ReportedStatus> = Vec::new();
    for status in statuses {
        let Some(known) = latest.iter_mut().find(|known| known.name == status.name) else {
            latest.push(status);
            continue;
        };
        // Of two with the same time, the worse counts.
        if (instant(&status)?, status.state) > (instant(known)?, known.state) {
            *known = status;
        }
    }
    Ok(latest)
}

fn instant(status: &ReportedStatus) -> Result<std::time::SystemTime, BackendError> {
    let text = status.at.as_deref().unwrap_or_default();
    let zulu = text.strip_suffix("+00:00").map_or_else(|| text.to_owned(), |text| format!("{text}Z"));
    humantime::parse_rfc3339(&zulu).map_err(|_| {
        BackendError::invalid_output("it lists a key twice, without a time in UTC that says which status is later")
    })
}

#[async_trait]
impl System for Bitbucket {
    /// The commit, and the first page of its statuses.
    type Request = (Commit, Url);

    async fn request(&self, query: GateQuery<'_>) -> Result<Self::Request, BackendError> {
        let within = |error: BackendError| error.within("bitbucket");
        let commit = self.sha.commit(query.context).await.map_err(within)?;
        let [workspace, name] = self.repository.owner_and_name(query.context).await.map_err(within)?;
        let segments = ["repositories", &workspace, &name, "commit", commit.as_str(), "statuses"];
        let first = self.forge.url(&segments, &[("pagelen", "100")]);
        Ok((commit, first))
    }

    fn write_key((_, first): &Self::Request, key: &mut RequestKey) {
        key.add(first.as_str());
    }

    async fn check(&self, (commit, first): &Self::Request, deadline: Instant) -> Result<CiVerdict, BackendError> {
        let path = first.path();
        let request = format!("the statuses of commit {}, GET {path}", commit.short());
        let read = |reply: &Reply, from: &Url| self.page(commit, reply, from);
        let (statuses, secrets) = self.forge.list(first.clone(), deadline, read).await?;
        let statuses = latest(statuses).map_err(|error| self.forge.at_list(path, error))?;
        self.required.check(&statuses, commit, &request, &secrets)
    }

    fn is_low(&self, _: &Self::Request) -> bool {
        self.forge.is_low()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str, state: CiState, at: &str) -> ReportedStatus {
        ReportedStatus { name: name.to_owned(), word: String::new(), state, url: None, at: Some(at.to_owned()) }
    }

    #[test]
    fn each_word_has_a_meaning() {
        assert_eq!(state("SUCCESSFUL"), Some(CiState::Passed));
        assert_eq!(state("INPROGRESS"), Some(CiState::Pending));
        assert_eq!(["FAILED", "STOPPED"].map(state), [Some(CiState::Failed); 2]);
        assert_eq!(["", "successful", "SKIPPED"].map(state), [None; 3]);
    }

    #[test]
    fn the_latest_of_a_key_wins() {
        use CiState::{Failed, Passed, Pending};
        let (early, late) = ("2026-02-01T09:00:00.5+00:00", "2026-02-01T10:00:00+00:00");
        for (first, second, state) in [
            ((Failed, early), (Passed, late), Passed),
            ((Passed, late), (Failed, early), Passed),
            ((Passed, late), (Pending, "2026-02-01T10:00:00.1Z"), Pending),
            ((Passed, late), (Failed, late), Failed),
        ] {
            let statuses = vec![status("a", first.0, first.1), status("a", second.0, second.1)];
            let latest = latest(statuses).unwrap();
            assert_eq!((latest.len(), latest[0].state), (1, state));
        }
        assert!(latest(vec![status("a", Passed, late), status("b", Failed, "")]).is_ok());
        assert!(latest(vec![status("a", Passed, late), status("a", Failed, "yesterday")]).is_err());
    }
}
