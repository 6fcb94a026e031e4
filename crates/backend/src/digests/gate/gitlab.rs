//! GitLab: the newest pipeline of a commit decides.

mod pipelines;

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use http::{HeaderName, header};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::pipelines::{GitlabPipeline, PipelineFilter};
use super::{
    CiVerdict, Gate, GateQuery, SystemConfig,
    address::follow_header,
    api::document,
    forge::{Field, Forge, ForgeCredential, Form},
    memory::{RequestKey, System},
    paging::ListPage,
    remembered,
};
use crate::{Building, digests::commit::Commit, total};
use domain::{error::BackendError, secret::SecretRef};
use lang::evaluator::Context;
use outbound::Reply;

/// The header with the number of all pipelines. GitLab leaves it out for very long lists.
const TOTAL: &str = "x-total";
/// The source of child pipelines.
const CHILD: &str = "parent_pipeline";

/// The pipelines that count.
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
    /// Only pipelines from these sources count: `push`, `merge_request_event`, `schedule`, … Without it the commit's newest
    /// pipeline of any source decides. GitLab lists child pipelines only if `parent_pipeline` is the only source in the request,
    /// so that source is used by itself and without `mergeRequest`.
    #[serde(default)]
    pub sources: Option<Vec<String>>,
    /// The number of a merge request, a template. Its pipelines are read in place of the project's; only so are pipelines in a
    /// fork found. Merged results pipelines build a merge commit, so they never count.
    #[serde(default)]
    pub merge_request: Option<String>,
    /// Statuses that count as passed besides `success`.
    #[serde(default)]
    pub accept: Vec<GitlabAccept>,
    /// A token that may read the project's pipelines (`read_api`). Without it GitLab is called anonymously.
    #[serde(default)]
    pub token: Option<SecretRef>,
    /// How the token is sent.
    #[serde(default)]
    pub(crate) token_kind: TokenKind,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// An end of a pipeline that is not a success by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "GitlabAccept")]
#[serde(rename_all = "camelCase")]
pub enum GitlabAccept {
    /// Nothing was run, as for `[skip ci]`.
    Skipped,
}

/// How the token is sent to GitLab.
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

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["token", "tokenKind", "ca"];

    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>> {
        Some(remembered(Gitlab::build(self, building)?, building.context.clock))
    }
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
    accept: Vec<GitlabAccept>,
}

impl Gitlab {
    /// Parses the templates and checks the rest.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let mut field = |source: &str, key| Field::build(source, key, building);
        let (project, sha) = (field(&config.project, "project"), field(&config.sha, "sha"));
        // `Err` for a field that is set and wrong.
        let mut optional =
            |source: &Option<String>, key| source.as_ref().map(|source| field(source, key).ok_or(())).transpose();
        let reference = optional(&config.reference, "ref");
        let merge_request = optional(&config.merge_request, "mergeRequest");
        let sources = config.sources.clone().unwrap_or_default();
        if config.sources.as_ref().is_some_and(Vec::is_empty) {
            building.key("sources").error_with_help("with an empty list no pipeline counts", "leave the key out");
        }
        let child = sources.iter().position(|source| source == CHILD);
        if let Some(index) = child.filter(|_| sources.len() > 1 || config.merge_request.is_some()) {
            building.key("sources").index(index).error_with_help(
                "GitLab lists child pipelines only if the request names no other source, so none would ever be seen here",
                "give them a gate of their own: `all: [ { gitlab: { sources: [parent_pipeline], … } }, { gitlab: … } ]`",
            );
        }
        for (index, source) in sources.iter().enumerate() {
            if source.is_empty() || !source.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                building.key("sources").index(index).error_with_help(
                    format!("`{source}` is not a source of GitLab"),
                    "they are `push`, `web`, `schedule`, `api`, `trigger`, `merge_request_event`, …",
                );
            }
        }
        let (header, form) = match config.token_kind {
            TokenKind::Private => (HeaderName::from_static("private-token"), Form::Plain),
            TokenKind::Bearer => (header::AUTHORIZATION, Form::Scheme("Bearer")),
        };
        let credential =
            config.token.as_ref().map(|token| ForgeCredential::build(header, form, token, &mut building.key("token")));
        let forge = Forge::build("gitlab", &config.api, config.ca.as_ref(), credential, building);
        let (reference, merge_request) = (reference.ok()?, merge_request.ok()?);
        let accept = config.accept.clone();
        Some(Self { forge: forge?, project: project?, sha: sha?, reference, merge_request, sources, accept })
    }
}

/// One request for pipelines.
#[derive(Debug)]
pub struct GitlabRequest {
    commit: Commit,
    reference: Option<String>,
    first: Url,
}

/// The text of a field that may be left out.
async fn optional(field: Option<&Field>, context: &Context) -> Result<Option<String>, BackendError> {
    match field {
        Some(field) => field.text(context).await.map(Some),
        None => Ok(None),
    }
}

#[async_trait]
impl System for Gitlab {
    type Request = GitlabRequest;

    async fn request(&self, query: GateQuery<'_>) -> Result<GitlabRequest, BackendError> {
        let within = |error: BackendError| error.within("gitlab");
        let commit = self.sha.commit(query.context).await.map_err(within)?;
        let project = self.project.names(query.context).await.map_err(within)?.join("/");
        let reference = optional(self.reference.as_ref(), query.context).await.map_err(within)?;
        // GitLab names branches and tags without it.
        let short = |name: &str| {
            let short = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/tags/"));
            short.unwrap_or(name).to_owned()
        };
        let reference = reference.as_deref().map(short);
        let number = optional(self.merge_request.as_ref(), query.context).await.map_err(within)?;
        let first = if let Some(number) = &number {
            if number.parse::<u64>().is_err() || number.starts_with(['0', '+']) {
                let shown: String = number.chars().take(40).collect();
                let why = format!("mergeRequest: `{shown}` is not the number of a merge request");
                return Err(within(BackendError::invalid_input(why)));
            }
            let segments = ["projects", &project, "merge_requests", number, "pipelines"];
            self.forge.url(&segments, &[("per_page", "100")])
        } else {
            let mut pairs = vec![("sha", commit.as_str())];
            pairs.extend(reference.as_deref().map(|reference| ("ref", reference)));
            if let [source] = &self.sources[..] {
                pairs.push(("source", source));
            }
            pairs.extend([("order_by", "id"), ("sort", "desc"), ("per_page", "100")]);
            self.forge.url(&["projects", &project, "pipelines"], &pairs)
        };
        Ok(GitlabRequest { commit, reference, first })
    }

    fn write_key(GitlabRequest { commit, reference, first }: &GitlabRequest, key: &mut RequestKey) {
        key.add(commit.as_str());
        key.add_optional(reference.as_deref());
        key.add(first.as_str());
    }

    async fn check(&self, request: &GitlabRequest, deadline: Instant) -> Result<CiVerdict, BackendError> {
        let GitlabRequest { commit, reference, first } = request;
        let path = first.path();
        let request = format!("the pipelines of commit {}, GET {path}", commit.short());
        let mut totals = Vec::new();
        let read = |reply: &Reply, from: &Url| {
            totals.extend(total::in_header(&reply.headers, TOTAL)?);
            Ok(ListPage { items: document::<Vec<GitlabPipeline>>(reply)?, next: next_page(reply, from)? })
        };
        let (pipelines, secrets) = self.forge.list(first.clone(), deadline, read).await?;
        let distinct: HashSet<u64> = pipelines.iter().map(GitlabPipeline::id).collect();
        total::check(&totals, distinct.len()).map_err(|error| self.forge.at_list(path, error))?;
        let filter =
            PipelineFilter { commit, reference: reference.as_deref(), sources: &self.sources, accept: &self.accept };
        filter.check(&pipelines, &request, &self.forge, &secrets).map_err(|error| self.forge.at_list(path, error))
    }

    fn is_low(&self, _: &GitlabRequest) -> bool {
        self.forge.is_low()
    }
}

/// The next page. `X-Next-Page` is compared, since a proxy that drops `Link` would make a part look like the whole list.
fn next_page(reply: &Reply, from: &Url) -> Result<Option<Url>, BackendError> {
    let next = follow_header(&reply.headers, from, |_| false)?;
    if next.is_some() {
        return Ok(next);
    }
    if reply.headers.get("x-next-page").is_some_and(|page| !page.as_bytes().trim_ascii().is_empty()) {
        return Err(BackendError::invalid_output(
            "it has a next page, but no `Link` to it; does a proxy drop that header?",
        ));
    }
    Ok(None)
}
