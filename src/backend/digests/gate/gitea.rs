//! Gitea and Forgejo: the statuses that CI reported of a commit, the latest of each context.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use http::header;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Gate, GateQuery, Ruling, RulingState, SystemConfig,
    api::document,
    forge::{Credential, Field, Forge, Form, Required, Status, time, unknown_word},
    memory::{RequestKey, System},
    paging::ListPage,
    remembered,
};
use crate::{
    backend::{BuildContext, digests::commit::Commit},
    clients::outbound::Reply,
    domain::{
        error::BackendError,
        problem::{Path, Problems},
        secret::SecretRef,
    },
};

/// The true length of the list. `total_count` in the document is that of one page.
const TOTAL: &str = "x-total-count";

/// Which statuses are asked for.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "GiteaGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The API's URL, such as `https://git.example.com/api/v1`.
    pub(crate) api: String,
    /// The repository, `owner/name`; a template over `params` and `applicationSet`.
    pub(crate) repository: String,
    /// The full commit that must have passed; a template.
    pub(crate) sha: String,
    /// The contexts that must be there and pass: names, or `/regular expressions/`, which match anywhere in a name. Without
    /// it all that are there must pass, and a context that is not reported yet is not missed.
    #[serde(default)]
    pub(crate) contexts: Option<Vec<String>>,
    /// What counts as passed besides `success`.
    #[serde(default)]
    pub(crate) accept: Vec<Accept>,
    /// A token that may read the repository (`read:repository`). Without it the forge is asked anonymously.
    #[serde(default)]
    pub(crate) token: Option<SecretRef>,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
}

/// A status that is no success by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "GiteaAccept")]
#[serde(rename_all = "camelCase")]
pub(crate) enum Accept {
    /// It was not run, as a job whose condition did not hold.
    Skipped,
    /// It succeeded, but not quite.
    Warning,
}

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["token", "ca"];

    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Gate>> {
        Some(remembered(Gitea::build(self, context, path, problems)?, context))
    }
}

/// The gate, parsed.
#[derive(Debug)]
pub struct Gitea {
    forge: Forge,
    repository: Field,
    sha: Field,
    required: Required,
    accept: Vec<Accept>,
}

/// A page of a commit's statuses. Its own `state` is of that page only.
#[derive(Debug, Deserialize)]
struct Combined {
    sha: String,
    total_count: usize,
    statuses: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: i64,
    /// The word. Only in the combined document it is called `state`.
    status: String,
    context: String,
    target_url: Option<String>,
    updated_at: Option<String>,
}

/// What was read of a list so far.
#[derive(Debug, Default)]
struct Progress {
    pages: usize,
    ids: HashSet<i64>,
    /// What the forge says the length is, if it does.
    total: Option<usize>,
    /// The least that it must be.
    least: usize,
}

impl Gitea {
    /// Parses the templates and checks the rest.
    pub fn build(config: &Config, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let repository = Field::build(&config.repository, "repository", path, problems);
        let sha = Field::build(&config.sha, "sha", path, problems);
        let required = Required::build(config.contexts.as_deref(), &path.key("contexts"), problems);
        let credential = config.token.as_ref().map(|token| {
            let form = Form::Scheme("token");
            Credential::build(header::AUTHORIZATION, form, token, context, &path.key("token"), problems)
        });
        let forge = Forge::build("gitea", &config.api, config.ca.as_ref(), credential, context, path, problems);
        let accept = config.accept.clone();
        Some(Self { forge: forge?, repository: repository?, sha: sha?, required: required?, accept })
    }

    fn status(&self, entry: Entry, reply: &Reply) -> Result<Status, BackendError> {
        let state = state(&entry.status, &self.accept)
            .ok_or_else(|| unknown_word("a status", &entry.status, &reply.secrets))?;
        let url = entry.target_url.as_deref().and_then(|url| self.forge.link(url));
        Ok(Status {
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
        so_far: &mut Progress,
    ) -> Result<ListPage<Status>, BackendError> {
        let combined: Combined = document(reply)?;
        let entries = combined.statuses.unwrap_or_default();
        if !entries.is_empty() && !combined.sha.eq_ignore_ascii_case(commit.as_str()) {
            let shown = reply.secrets.excerpt(combined.sha.as_bytes(), 64);
            return Err(BackendError::invalid_output(format!("it answers for commit `{shown}`, not for {commit}")));
        }
        let is_empty = entries.is_empty();
        so_far.note(&entries, combined.total_count, reply)?;
        let next = if so_far.is_done(is_empty)? { None } else { Some(so_far.next(from)) };
        let items = entries.into_iter().map(|entry| self.status(entry, reply)).collect::<Result<_, _>>()?;
        Ok(ListPage { items, next })
    }
}

impl Progress {
    fn note(&mut self, entries: &[Entry], count: usize, reply: &Reply) -> Result<(), BackendError> {
        self.pages += 1;
        for entry in entries {
            if !self.ids.insert(entry.id) {
                return Err(BackendError::invalid_output("a status stands in it twice, so another may be missing"));
            }
        }
        self.least = self.least.max(count);
        let Some(total) = reply.headers.get(TOTAL) else { return Ok(()) };
        let total = total.to_str().ok().and_then(|text| text.trim().parse().ok());
        let total: usize = total.ok_or_else(|| BackendError::invalid_output("its `X-Total-Count` is no number"))?;
        if self.total.replace(total).is_some_and(|before| before != total) {
            return Err(BackendError::invalid_output("the list changed while it was read"));
        }
        Ok(())
    }

    /// Whether all is read. Without a total only an empty page ends the list: how many a page holds is the forge's choice.
    fn is_done(&self, is_empty: bool) -> Result<bool, BackendError> {
        let read = self.ids.len();
        if !is_empty && self.total.is_none_or(|total| read < total) {
            return Ok(false);
        }
        if read < self.least || self.total.is_some_and(|total| read != total) {
            let total = self.total.unwrap_or(self.least);
            return Err(BackendError::invalid_output(format!(
                "{read} statuses of {total} stand in it, so it is not whole"
            )));
        }
        Ok(true)
    }

    fn next(&self, from: &Url) -> Url {
        let mut url = from.clone();
        url.query_pairs_mut().clear().extend_pairs(query(self.pages + 1));
        url
    }
}

fn query(page: usize) -> [(&'static str, String); 2] {
    [("page", page.to_string()), ("limit", "50".to_owned())]
}

/// What Gitea's word means. Its own summary takes `warning` and `skipped` for success; here that is the operator's word.
fn state(word: &str, accept: &[Accept]) -> Option<RulingState> {
    match word {
        "success" => Some(RulingState::Passed),
        "warning" if accept.contains(&Accept::Warning) => Some(RulingState::Passed),
        "skipped" if accept.contains(&Accept::Skipped) => Some(RulingState::Passed),
        "pending" => Some(RulingState::Pending),
        "error" | "failure" | "warning" | "skipped" => Some(RulingState::Failed),
        _ => None,
    }
}

#[async_trait]
impl System for Gitea {
    /// The commit, and the first page of its statuses.
    type Request = (Commit, Url);

    async fn question(&self, asked: GateQuery<'_>) -> Result<Self::Request, BackendError> {
        let within = |error: BackendError| error.within("gitea");
        let commit = self.sha.commit(asked.context).await.map_err(within)?;
        let [owner, name] = self.repository.owner_and_name(asked.context).await.map_err(within)?;
        let mut first = self.forge.url(&["repos", &owner, &name, "commits", commit.as_str(), "status"], &[]);
        first.query_pairs_mut().extend_pairs(query(1));
        Ok((commit, first))
    }

    fn write_key((_, first): &Self::Request, key: &mut RequestKey) {
        key.add(first.as_str());
    }

    async fn rule(&self, (commit, first): &Self::Request, deadline: Instant) -> Result<Ruling, BackendError> {
        let told = format!("the statuses of commit {}, GET {}", commit.short(), first.path());
        let mut so_far = Progress::default();
        let read = |reply: &Reply, from: &Url| self.page(commit, reply, from, &mut so_far);
        let (statuses, secrets) = self.forge.list(first.clone(), deadline, read).await?;
        Ok(self.required.rule(&statuses, commit, &told, &secrets))
    }

    fn is_low(&self, _: &Self::Request) -> bool {
        self.forge.is_low()
    }

    fn reads_application_set(&self) -> bool {
        self.repository.reads_application_set() || self.sha.reads_application_set()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_a_meaning() {
        use RulingState::{Failed, Passed, Pending};
        let all = &[Accept::Skipped, Accept::Warning];
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
