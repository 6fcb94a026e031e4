//! Gitea and Forgejo: the statuses that CI reported for a commit, the latest of each context.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use http::header;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    CiState, CiVerdict, Gate, GateQuery, SystemConfig,
    api::document,
    forge::{Field, Forge, ForgeCredential, Form, ReportedStatus, Required, time, unknown_word},
    memory::{RequestKey, System},
    paging::ListPage,
    remembered,
};
use crate::{Building, digests::commit::Commit};
use domain::{error::BackendError, secret::SecretRef};
use outbound::Reply;

/// The header with the length of the whole list. `total_count` in the document counts one page.
const TOTAL: &str = "x-total-count";

/// The commit statuses that must pass.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "GiteaGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The API's URL, such as `https://git.example.com/api/v1`.
    pub api: String,
    /// The repository, `owner/name`; a template over `params` and `applicationSet`.
    pub repository: String,
    /// The full commit that must have passed; a template.
    pub sha: String,
    /// The contexts that must exist and pass: names, or `/regular expressions/`, which match anywhere in a name. Without it
    /// all existing contexts must pass, and a context that is not reported yet is not missed.
    #[serde(default)]
    pub contexts: Option<Vec<String>>,
    /// Statuses that count as passed besides `success`.
    #[serde(default)]
    pub accept: Vec<GiteaAccept>,
    /// A token that may read the repository (`read:repository`). Without it the forge is called anonymously.
    #[serde(default)]
    pub token: Option<SecretRef>,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// A status that is not a success by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "GiteaAccept")]
#[serde(rename_all = "camelCase")]
pub enum GiteaAccept {
    /// A job that did not run, since its condition was false.
    Skipped,
    /// A success with a warning.
    Warning,
}

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["token", "ca"];

    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>> {
        Some(remembered(Gitea::build(self, building)?, building.context.clock))
    }
}

/// The gate, parsed.
#[derive(Debug)]
pub struct Gitea {
    forge: Forge,
    repository: Field,
    sha: Field,
    required: Required,
    accept: Vec<GiteaAccept>,
}

/// A page of a commit's statuses. Its own `state` covers that page only.
#[derive(Debug, Deserialize)]
struct Combined {
    sha: String,
    total_count: usize,
    statuses: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: i64,
    /// The word. Only the combined document calls it `state`.
    status: String,
    context: String,
    target_url: Option<String>,
    updated_at: Option<String>,
}

/// The part of a list that was read so far.
#[derive(Debug, Default)]
struct Progress {
    pages: usize,
    ids: HashSet<i64>,
    /// The length of the list by its header, if there is one.
    total: Option<usize>,
    /// The least possible length.
    least: usize,
}

impl Gitea {
    /// Parses the templates and checks the rest.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let repository = Field::build(&config.repository, "repository", building);
        let sha = Field::build(&config.sha, "sha", building);
        let required = Required::build(config.contexts.as_deref(), &building.path.key("contexts"), building.problems);
        let credential = config.token.as_ref().map(|token| {
            let form = Form::Scheme("token");
            ForgeCredential::build(header::AUTHORIZATION, form, token, &mut building.key("token"))
        });
        let forge = Forge::build("gitea", &config.api, config.ca.as_ref(), credential, building);
        let accept = config.accept.clone();
        Some(Self { forge: forge?, repository: repository?, sha: sha?, required: required?, accept })
    }

    fn status(&self, entry: Entry, reply: &Reply) -> Result<ReportedStatus, BackendError> {
        let state = state(&entry.status, &self.accept)
            .ok_or_else(|| unknown_word("a status", &entry.status, &reply.secrets))?;
        let url = entry.target_url.as_deref().and_then(|url| self.forge.link(url));
        Ok(ReportedStatus {
            name: entry.context,
            word: entry.status,
            state,
            url,
            at: entry.updated_at.as_deref().and_then(time),
        })
    }

    fn page(
        &self,
        commit: &Commit,
        reply: &Reply,
        from: &Url,
        progress: &mut Progress,
    ) -> Result<ListPage<ReportedStatus>, BackendError> {
        let combined: Combined = document(reply)?;
        let entries = combined.statuses.unwrap_or_default();
        if !entries.is_empty() && !combined.sha.eq_ignore_ascii_case(commit.as_str()) {
            let shown = reply.secrets.excerpt(combined.sha.as_bytes(), 64);
            return Err(BackendError::invalid_output(format!("it answers for commit `{shown}`, not for {commit}")));
        }
        let is_empty = entries.is_empty();
        progress.note(&entries, combined.total_count, reply)?;
        let next = if progress.is_done(is_empty)? { None } else { Some(progress.next(from)) };
        let items = entries.into_iter().map(|entry| self.status(entry, reply)).collect::<Result<_, _>>()?;
        Ok(ListPage { items, next })
    }
}

impl Progress {
    fn note(&mut self, entries: &[Entry], count: usize, reply: &Reply) -> Result<(), BackendError> {
        self.pages += 1;
        for entry in entries {
            if !self.ids.insert(entry.id) {
                return Err(BackendError::invalid_output("it lists a status twice, so another status may be missing"));
            }
        }
        self.least = self.least.max(count);
        let Some(total) = reply.headers.get(TOTAL) else { return Ok(()) };
        let total = total.to_str().ok().and_then(|text| text.trim().parse().ok());
        let total: usize = total.ok_or_else(|| BackendError::invalid_output("its `X-Total-Count` is not a number"))?;
        if self.total.replace(total).is_some_and(|before| before != total) {
            return Err(BackendError::invalid_output("the list changed while it was read"));
        }
        Ok(())
    }

    /// Whether all is read. Without a total only an empty page ends the list, since the forge chooses the size of a page.
    fn is_done(&self, is_empty: bool) -> Result<bool, BackendError> {
        let read = self.ids.len();
        if !is_empty && self.total.is_none_or(|total| read < total) {
            return Ok(false);
        }
        if read < self.least || self.total.is_some_and(|total| read != total) {
            let total = self.total.unwrap_or(self.least);
            return Err(BackendError::invalid_output(format!(
                "it lists {read} statuses of {total}, so it is not whole"
            )));
        }
        Ok(true)
    }

    fn next(&self, from: &Url) -> Url {
        let mut url = from.clone();
        url.query_pairs_mut().clear().extend_pairs(page_query(self.pages + 1));
        url
    }
}

fn page_query(page: usize) -> [(&'static str, String); 2] {
    [("page", page.to_string()), ("limit", "50".to_owned())]
}

/// The meaning of Gitea's word. Gitea's own summary counts `warning` and `skipped` as success; here `accept` decides.
fn state(word: &str, accept: &[GiteaAccept]) -> Option<CiState> {
    match word {
        "success" => Some(CiState::Passed),
        "warning" if accept.contains(&GiteaAccept::Warning) => Some(CiState::Passed),
        "skipped" if accept.contains(&GiteaAccept::Skipped) => Some(CiState::Passed),
        "pending" => Some(CiState::Pending),
        "error" | "failure" | "warning" | "skipped" => Some(CiState::Failed),
        _ => None,
    }
}

#[async_trait]
impl System for Gitea {
    /// The commit, and the first page of its statuses.
    type Request = (Commit, Url);

    async fn request(&self, query: GateQuery<'_>) -> Result<Self::Request, BackendError> {
        let within = |error: BackendError| error.within("gitea");
        let commit = self.sha.commit(query.context).await.map_err(within)?;
        let [owner, name] = self.repository.owner_and_name(query.context).await.map_err(within)?;
        let mut first = self.forge.url(&["repos", &owner, &name, "commits", commit.as_str(), "status"], &[]);
        first.query_pairs_mut().extend_pairs(page_query(1));
        Ok((commit, first))
    }

    fn write_key((_, first): &Self::Request, key: &mut RequestKey) {
        key.add(first.as_str());
    }

    async fn check(&self, (commit, first): &Self::Request, deadline: Instant) -> Result<CiVerdict, BackendError> {
        let request = format!("the statuses of commit {}, GET {}", commit.short(), first.path());
        let mut progress = Progress::default();
        let read = |reply: &Reply, from: &Url| self.page(commit, reply, from, &mut progress);
        let (statuses, secrets) = self.forge.list(first.clone(), deadline, read).await?;
        self.required.check(&statuses, commit, &request, &secrets)
    }

    fn is_low(&self, _: &Self::Request) -> bool {
        self.forge.is_low()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_a_meaning() {
        use CiState::{Failed, Passed, Pending};
        let all = &[GiteaAccept::Skipped, GiteaAccept::Warning];
        for (word, strict, lenient) in [
            ("success", Some(Passed), Some(Passed)),
            ("pending", Some(Pending), Some(Pending)),
            ("error", Some(Failed), Some(Failed)),
            ("failure", Some(Failed), Some(Failed)),
            ("warning", Some(Failed), Some(Passed)),
            ("skipped", Some(Failed), Some(Passed)),
            ("", None, None),
            ("SUCCESS", None, None),
        ] {
            assert_eq!((state(word, &[]), state(word, all)), (strict, lenient), "{word}");
        }
    }

    #[test]
    fn a_list_ends_when_all_is_read() {
        let progress = |read: i64, total, least| Progress { pages: 1, ids: (0..read).collect(), total, least };
        for (read, total, least, is_empty, is_done) in [
            (0, None, 0, true, Some(true)),
            (0, Some(0), 0, true, Some(true)),
            (30, Some(31), 30, false, Some(false)),
            (31, Some(31), 30, false, Some(true)),
            (30, Some(31), 30, true, None),
            (32, Some(31), 30, false, None),
            (30, None, 30, false, Some(false)),
            (30, None, 30, true, Some(true)),
            (30, None, 31, true, None),
            (0, Some(0), 1, true, None),
        ] {
            let done = progress(read, total, least).is_done(is_empty).ok();
            assert_eq!(done, is_done, "{read} of {total:?}, {least}, {is_empty}");
        }
    }
}
