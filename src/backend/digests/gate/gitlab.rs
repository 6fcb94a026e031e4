//! GitLab: the pipelines of a commit, of which the newest decides.

use std::path::PathBuf;

use async_trait::async_trait;
use http::{HeaderName, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Asked, Gate, Ruling, State,
    api::document,
    forge::{Credential, Field, Forge, Form, Page, follow, next_link, unknown_word},
};
use crate::{
    backend::{Surroundings, digests::commit::Commit},
    error::BackendError,
    generator::Evidence,
    outbound::Reply,
    problem::{Path, Problems},
    secret::{SecretRef, Secrets},
};

/// Which pipelines are asked for.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "GitlabGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The API's URL.
    #[serde(default = "default_api")]
    pub api: String,
    /// The project: its path, such as `group/app`, or its number; a template over `params` and `applicationSet`.
    pub project: String,
    /// The full commit that must have passed; a template.
    pub sha: String,
    /// Only pipelines of this branch or tag count; a template. Merge request pipelines have refs of their own, such as
    /// `refs/merge-requests/7/head`.
    #[serde(default, rename = "ref")]
    pub reference: Option<String>,
    /// Only pipelines that began so count: `push`, `merge_request_event`, `schedule`, … Without it a commit's newest
    /// pipeline decides, however it began. GitLab shows child pipelines only to who asks for `parent_pipeline` alone.
    #[serde(default)]
    pub sources: Option<Vec<String>>,
    /// The number of a merge request, whose pipelines are asked for in place of the project's; a template. Pipelines in a
    /// fork are found only so. Merged results pipelines build a merge commit, so they never count.
    #[serde(default)]
    pub merge_request: Option<String>,
    /// What counts as passed besides `success`.
    #[serde(default)]
    pub accept: Vec<Accept>,
    /// A token that may read the project's pipelines (`read_api`). Without it GitLab is asked anonymously.
    #[serde(default)]
    pub token: Option<SecretRef>,
    /// How the token is sent.
    #[serde(default)]
    pub token_kind: TokenKind,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// An end of a pipeline that is no success by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "GitlabAccept")]
#[serde(rename_all = "camelCase")]
pub enum Accept {
    /// Nothing was run, as for `[skip ci]`.
    Skipped,
}

/// How GitLab is told the token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "GitlabTokenKind")]
#[serde(rename_all = "camelCase")]
pub enum TokenKind {
    /// `PRIVATE-TOKEN`: personal, project and group access tokens.
    #[default]
    Private,
    /// `Authorization: Bearer`: OAuth tokens too.
    Bearer,
}

fn default_api() -> String {
    "https://gitlab.com/api/v4".to_owned()
}

/// The gate, parsed.
#[derive(Debug)]
pub struct Gitlab {
    forge: Forge,
    project: Field,
    sha: Field,
    reference: Option<Field>,
    merge_request: Option<Field>,
    sources: Vec<String>,
    accept: Vec<Accept>,
}

/// One pipeline, as both lists show it.
#[derive(Debug, Deserialize)]
struct Pipeline {
    id: u64,
    sha: String,
    #[serde(rename = "ref")]
    reference: Option<String>,
    status: String,
    source: Option<String>,
    web_url: Option<String>,
    updated_at: Option<String>,
}

impl Gitlab {
    /// Parses the templates and checks the rest.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let mut field = |source: &str, key| Field::build(source, key, path, problems);
        let (project, sha) = (field(&config.project, "project"), field(&config.sha, "sha"));
        let reference = config.reference.as_ref().map(|source| field(source, "ref"));
        let merge_request = config.merge_request.as_ref().map(|source| field(source, "mergeRequest"));
        let sources = config.sources.clone().unwrap_or_default();
        if config.sources.as_ref().is_some_and(Vec::is_empty) {
            problems.error_with_help(&path.key("sources"), "an empty list lets no pipeline count", "leave the key out");
        }
        for (index, source) in sources.iter().enumerate() {
            if source.is_empty() || !source.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                problems.error_with_help(
                    &path.key("sources").index(index),
                    format!("`{source}` is none of GitLab's words"),
                    "they are `push`, `web`, `schedule`, `api`, `trigger`, `merge_request_event`, …",
                );
            }
        }
        let (header, form) = match config.token_kind {
            TokenKind::Private => (HeaderName::from_static("private-token"), Form::Plain),
            TokenKind::Bearer => (header::AUTHORIZATION, Form::Scheme("Bearer")),
        };
        let credential = config
            .token
            .as_ref()
            .map(|token| Credential::build(header, form, token, around, &path.key("token"), problems));
        let forge = Forge::build("gitlab", &config.api, config.ca.as_ref(), credential, around, path, problems);
        let (reference, merge_request) = (all_or_none(reference)?, all_or_none(merge_request)?);
        let accept = config.accept.clone();
        Some(Self { forge: forge?, project: project?, sha: sha?, reference, merge_request, sources, accept })
    }

    /// Why none of `pipelines` counts.
    fn none_of(&self, pipelines: &[Pipeline], commit: &Commit, secrets: &Secrets) -> String {
        let Some(other) = pipelines.iter().filter(|pipeline| pipeline.is_of(commit)).max_by_key(|pipeline| pipeline.id)
        else {
            let is_merged = |pipeline: &&Pipeline| pipeline.reference.as_deref().is_some_and(is_of_merge);
            return match pipelines.iter().filter(is_merged).max_by_key(|pipeline| pipeline.id) {
                Some(merged) => format!(
                    "no pipeline for it yet, but pipeline {} for a merge commit: merged results pipelines and merge trains \
                     never build the head commit itself, so the gate needs a branch pipeline or a merge request pipeline \
                     without merged results",
                    merged.id
                ),
                None => "no pipeline for it yet".to_owned(),
            };
        };
        let shown = |text: Option<&str>| secrets.excerpt(text.unwrap_or("?").as_bytes(), 80);
        format!(
            "no pipeline for it yet that counts; pipeline {} is of `{}`, from `{}`",
            other.id,
            shown(other.reference.as_deref()),
            shown(other.source.as_deref())
        )
    }

    fn rule(
        &self,
        pipelines: &[Pipeline],
        wanted: &Wanted<'_>,
        asked: &str,
        secrets: &Secrets,
    ) -> Result<Ruling, BackendError> {
        let mut newest: Option<&Pipeline> = None;
        for pipeline in pipelines {
            if wanted.fits(pipeline)? && newest.is_none_or(|newest| newest.id < pipeline.id) {
                newest = Some(pipeline);
            }
        }
        let commit = Some(wanted.commit.clone());
        let Some(newest) = newest else {
            let evidence = vec![Evidence::absent(asked, self.none_of(pipelines, wanted.commit, secrets))];
            let state = State::Pending;
            return Ok(Ruling { state, commit, is_earlier: false, evidence, run_url: None, built_at: None });
        };
        let state =
            state(&newest.status, &self.accept).ok_or_else(|| unknown_word("a pipeline", &newest.status, secrets))?;
        let run_url = newest.web_url.as_deref().and_then(|url| self.forge.link(url)).map(|url| secrets.redact(&url));
        let page = run_url.as_deref().map(|url| format!(", {url}")).unwrap_or_default();
        let said = format!("pipeline {}: {}{page}", newest.id, newest.status);
        let evidence = match state {
            State::Passed => Evidence::present(asked, said),
            State::Pending | State::Failed => Evidence::absent(asked, said),
        };
        let built_at = newest.updated_at.clone().filter(|_| state != State::Pending);
        Ok(Ruling { state, commit, is_earlier: false, evidence: vec![evidence], run_url, built_at })
    }
}

#[async_trait]
impl Gate for Gitlab {
    async fn ask(&self, asked: Asked<'_>) -> Result<Ruling, BackendError> {
        let within = |error: BackendError| error.within("gitlab");
        let commit = &self.sha.commit(asked.context).map_err(within)?;
        let project = self.project.names(asked.context).map_err(within)?.join("/");
        let reference = self.reference.as_ref().map(|field| field.text(asked.context)).transpose().map_err(within)?;
        let number = self.merge_request.as_ref().map(|field| field.text(asked.context)).transpose().map_err(within)?;
        let first = if let Some(number) = &number {
            if number.parse::<u64>().is_err() || number.starts_with(['0', '+']) {
                let shown: String = number.chars().take(40).collect();
                let why = format!("mergeRequest: `{shown}` is not the number of a merge request");
                return Err(within(BackendError::invalid_input(why)));
            }
            let segments = ["projects", &project, "merge_requests", number, "pipelines"];
            self.forge.url(&segments, &[("per_page", "100")])
        } else {
            let mut query = vec![("sha", commit.as_str())];
            query.extend(reference.as_deref().map(|reference| ("ref", reference)));
            if let [source] = &self.sources[..] {
                query.push(("source", source));
            }
            query.extend([("order_by", "id"), ("sort", "desc"), ("per_page", "100")]);
            self.forge.url(&["projects", &project, "pipelines"], &query)
        };
        let told = format!("the pipelines of commit {}, GET {}", commit.short(), first.path());
        let path = first.path().to_owned();
        let (pipelines, secrets) = self
            .forge
            .list(first, asked.deadline, |reply, from| {
                Ok(Page { items: document::<Vec<Pipeline>>(reply)?, next: next_page(reply, from)? })
            })
            .await?;
        let wanted = Wanted { commit, reference: reference.as_deref(), sources: &self.sources };
        self.rule(&pipelines, &wanted, &told, &secrets)
            .map_err(|error| error.within(format_args!("gitlab: GET {path}")))
    }

    fn reads_application_set(&self) -> bool {
        let optional = self.reference.iter().chain(&self.merge_request);
        [&self.project, &self.sha].into_iter().chain(optional).any(Field::reads_application_set)
    }
}

/// Which pipelines count.
struct Wanted<'a> {
    commit: &'a Commit,
    reference: Option<&'a str>,
    sources: &'a [String],
}

impl Wanted<'_> {
    /// Whether `pipeline` counts. Compared here too, since a filter that a server does not know is ignored there.
    fn fits(&self, pipeline: &Pipeline) -> Result<bool, BackendError> {
        if !pipeline.is_of(self.commit)
            || self.reference.is_some_and(|wanted| pipeline.reference.as_deref() != Some(wanted))
        {
            return Ok(false);
        }
        match &pipeline.source {
            _ if self.sources.is_empty() => Ok(true),
            Some(source) => Ok(self.sources.contains(source)),
            None => Err(BackendError::invalid_output(format!(
                "pipeline {} does not say how it began, which `sources` asks for",
                pipeline.id
            ))),
        }
    }
}

impl Pipeline {
    fn is_of(&self, commit: &Commit) -> bool {
        self.sha.eq_ignore_ascii_case(commit.as_str())
    }
}

/// What GitLab's word means. A pipeline that is being cancelled is as good as cancelled.
fn state(word: &str, accept: &[Accept]) -> Option<State> {
    match word {
        "success" => Some(State::Passed),
        "skipped" if accept.contains(&Accept::Skipped) => Some(State::Passed),
        "failed" | "canceled" | "canceling" | "skipped" => Some(State::Failed),
        "created"
        | "waiting_for_resource"
        | "preparing"
        | "waiting_for_callback"
        | "pending"
        | "running"
        | "scheduled"
        | "manual" => Some(State::Pending),
        _ => None,
    }
}

/// Whether a ref is that of a commit that GitLab makes for itself.
fn is_of_merge(reference: &str) -> bool {
    let kind = reference.strip_prefix("refs/merge-requests/").and_then(|rest| rest.split_once('/'));
    matches!(kind, Some((_, "merge" | "train")))
}

/// Where the list goes on. A proxy that drops `Link` would leave a part for the whole, hence the second look.
fn next_page(reply: &Reply, from: &reqwest::Url) -> Result<Option<reqwest::Url>, BackendError> {
    if let Some(link) = next_link(&reply.headers) {
        return follow(from, &link).map(Some);
    }
    if reply.headers.get("x-next-page").is_some_and(|page| !page.as_bytes().trim_ascii().is_empty()) {
        return Err(BackendError::invalid_output(
            "it has a next page, but no `Link` to it; does a proxy drop that header?",
        ));
    }
    Ok(None)
}

/// What is configured, or `None` when it is and is wrong.
#[expect(clippy::option_option, reason = "whether it is there, and whether it is right")]
fn all_or_none(field: Option<Option<Field>>) -> Option<Option<Field>> {
    match field {
        Some(field) => field.map(Some),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_a_meaning() {
        let meaning = |word| state(word, &[]);
        assert_eq!(meaning("success"), Some(State::Passed));
        for word in ["failed", "canceled", "canceling", "skipped"] {
            assert_eq!(meaning(word), Some(State::Failed), "{word}");
        }
        for word in ["created", "waiting_for_resource", "preparing", "waiting_for_callback", "pending", "running"] {
            assert_eq!(meaning(word), Some(State::Pending), "{word}");
        }
        for word in ["scheduled", "manual"] {
            assert_eq!(meaning(word), Some(State::Pending), "{word}");
        }
        for word in ["", "Success", "succeeded"] {
            assert_eq!(meaning(word), None, "{word}");
        }
        assert_eq!(state("skipped", &[Accept::Skipped]), Some(State::Passed));
        assert_eq!(state("canceled", &[Accept::Skipped]), Some(State::Failed));
    }

    #[test]
    fn refs_of_merge_commits_are_known() {
        for (reference, is_merge) in [
            ("refs/merge-requests/7/merge", true),
            ("refs/merge-requests/7/train", true),
            ("refs/merge-requests/7/head", false),
            ("feature/merge", false),
        ] {
            assert_eq!(is_of_merge(reference), is_merge, "{reference}");
        }
    }
}
