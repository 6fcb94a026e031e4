//! A server that answers as GitHub's REST API does (version 2022-11-28), with the fields of its reference.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use reqwest::Url;
use serde_json::{Value, json};

use super::HEAD;
use crate::support::upstream::{Request, Step, Upstream};

/// A test's own answer to a request, instead of the documented one.
pub(super) type AnswerOverride = dyn Fn(&Request) -> Option<Vec<Step>> + Send + Sync;

/// The contents of the forge, and how they are listed.
pub(super) struct CiState {
    /// Workflow runs.
    pub runs: Vec<Value>,
    /// Check runs.
    pub checks: Vec<Value>,
    /// Commit statuses.
    pub statuses: Vec<Value>,
    /// Commits, newest first.
    pub commits: Vec<Value>,
    /// The largest page size.
    pub page: usize,
    /// The only accepted `Authorization`.
    pub authorization: Option<String>,
    /// Whether the list of runs ignores filters, as behind proxies that drop unknown query parameters.
    pub is_unfiltered: bool,
    /// The test's own answer, tried first.
    pub first_answer: Arc<AnswerOverride>,
}

/// The running server.
pub(super) struct Forge {
    upstream: Upstream,
    state: Arc<Mutex<CiState>>,
    seen: Mutex<usize>,
}

impl Forge {
    /// Starts an empty forge.
    pub(super) async fn start() -> Self {
        let state = CiState {
            runs: Vec::new(),
            checks: Vec::new(),
            statuses: Vec::new(),
            commits: Vec::new(),
            page: 100,
            authorization: None,
            is_unfiltered: false,
            first_answer: Arc::new(|_| None),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let upstream = Upstream::start(move |request| {
            let first_answer = Arc::clone(&shared.lock().unwrap().first_answer);
            first_answer(request).unwrap_or_else(|| answer(&shared.lock().unwrap(), request))
        })
        .await;
        Self { upstream, state, seen: Mutex::new(0) }
    }

    /// The base URL of its API.
    pub(super) fn api(&self) -> String {
        format!("http://{}", self.upstream.address)
    }

    /// Changes the contents.
    pub(super) fn change(&self, change: impl FnOnce(&mut CiState)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Does `first_answer` first from now on.
    pub(super) fn answer_first_with(
        &self,
        first_answer: impl Fn(&Request) -> Option<Vec<Step>> + Send + Sync + 'static,
    ) {
        self.change(|state| state.first_answer = Arc::new(first_answer));
    }

    /// The requests since the last call of this function.
    pub(super) fn requests(&self) -> Vec<Request> {
        let requests = self.upstream.requests();
        let mut seen = self.seen.lock().unwrap();
        let new = requests[*seen..].to_vec();
        *seen = requests.len();
        new
    }

    /// The same as method and target, in alphabetical order.
    pub(super) fn asked(&self) -> Vec<String> {
        let mut asked: Vec<String> =
            self.requests().iter().map(|request| format!("{} {}", request.method, request.target)).collect();
        asked.sort();
        asked
    }
}

/// A workflow run as GitHub documents it; `words` is its status and its conclusion, if it has one.
pub(super) fn run(id: u64, file: &str, sha: &str, words: &str) -> Value {
    let (status, conclusion) = words.split_once(' ').map_or((words, None), |(status, word)| (status, Some(word)));
    json!({
        "id": id, "name": format!("{file} workflow"), "node_id": "MDEyOldvcmtmbG93IFJ1bjI2OTI4OQ==",
        "check_suite_id": 42, "check_suite_node_id": "MDEwOkNoZWNrU3VpdGU0Mg==", "head_branch": "feat/1", "head_sha": sha,
        "path": format!(".github/workflows/{file}.yml"), "run_number": id, "event": "push", "display_title": "Update README.md",
        "status": status, "conclusion": conclusion, "workflow_id": 159_038, "run_attempt": 1, "pull_requests": [],
        "url": format!("https://api.github.com/repos/org/repo/actions/runs/{id}"),
        "html_url": format!("https://github.com/org/repo/actions/runs/{id}"),
        "created_at": "2026-01-22T19:33:08Z", "run_started_at": "2026-01-22T19:33:08Z",
        "updated_at": format!("2026-01-22T20:{:02}:08Z", id % 60),
        "actor": {"login": "octocat", "id": 1, "type": "User"}, "triggering_actor": {"login": "octocat", "id": 1, "type": "User"},
        "head_commit": {"id": sha, "tree_id": "d23f6eedb1e1b9610bbc754ddb5197bfe7271223", "message": "Create linter.yaml",
            "timestamp": "2026-01-22T19:33:05Z", "author": {"name": "Octo Cat", "email": "octocat@github.com"}},
        "repository": {"id": 1_296_269, "name": "repo", "full_name": "org/repo", "private": false},
        "head_repository": {"id": 1_296_269, "name": "repo", "full_name": "org/repo", "private": false},
    })
}

/// A check run as GitHub documents it.
pub(super) fn check(id: u64, name: &str, words: &str) -> Value {
    let (status, conclusion) = words.split_once(' ').map_or((words, None), |(status, word)| (status, Some(word)));
    json!({
        "id": id, "head_sha": HEAD, "node_id": "MDg6Q2hlY2tSdW40", "external_id": "",
        "url": format!("https://api.github.com/repos/org/repo/check-runs/{id}"),
        "html_url": format!("https://github.com/org/repo/runs/{id}"), "details_url": "https://example.com",
        "status": status, "conclusion": conclusion, "started_at": "2026-05-04T01:14:52Z",
        "completed_at": conclusion.map(|_| format!("2026-05-04T01:{:02}:52Z", id % 60)),
        "output": {"title": "Report", "summary": "It's all good.", "text": null, "annotations_count": 0,
            "annotations_url": "https://api.github.com/repos/org/repo/check-runs/4/annotations"},
        "name": name, "check_suite": {"id": 5},
        "app": {"id": 1, "slug": "github-actions", "name": "GitHub Actions", "owner": {"login": "github", "id": 1}},
        "pull_requests": [],
    })
}

/// A commit status as GitHub documents it.
pub(super) fn status(id: u64, context: &str, state: &str) -> Value {
    json!({
        "url": format!("https://api.github.com/repos/org/repo/statuses/{HEAD}"), "id": id, "node_id": "MDY6U3RhdHVzMQ==",
        "state": state, "description": "Build has completed", "target_url": format!("https://ci.example.com/{id}"),
        "context": context, "avatar_url": "https://github.com/images/error/hubot_happy.gif",
        "created_at": "2026-07-20T01:19:13Z", "updated_at": format!("2026-07-20T01:{:02}:13Z", id % 60),
    })
}

/// A commit as GitHub lists it.
pub(super) fn commit(sha: &str, parents: &[&str]) -> Value {
    let parents: Vec<Value> = parents
        .iter()
        .map(|sha| json!({"sha": sha, "url": format!("https://api.github.com/repos/org/repo/commits/{sha}")}))
        .collect();
    json!({
        "sha": sha, "node_id": "MDY6Q29tbWl0", "html_url": format!("https://github.com/org/repo/commit/{sha}"),
        "commit": {"message": "Fix all the bugs", "comment_count": 0, "tree": {"sha": sha},
            "author": {"name": "Monalisa Octocat", "email": "m@example.com", "date": "2026-04-14T16:00:49Z"},
            "verification": {"verified": false, "reason": "unsigned", "signature": null, "payload": null}},
        "author": {"login": "octocat", "id": 1}, "committer": {"login": "octocat", "id": 1}, "parents": parents,
    })
}

/// A body with GitHub's content type.
pub(super) fn json_answer(request: &Request, status: u16, headers: &str, body: &Value) -> Vec<Step> {
    let headers = format!("Content-Type: application/json; charset=utf-8\r\nX-GitHub-Media-Type: github.v3{headers}");
    request.answer(status, &headers, body.to_string())
}

/// An error in GitHub's form.
pub(super) fn error(request: &Request, status: u16, message: &str) -> Vec<Step> {
    let body =
        json!({"message": message, "documentation_url": "https://docs.github.com/rest", "status": status.to_string()});
    json_answer(request, status, "", &body)
}

/// One page of `items` as `list` shows it, and a `Link` to the next, by the repository's number as GitHub writes it.
fn page(state: &CiState, request: &Request, url: &Url, items: &[Value], list: impl Fn(&[Value]) -> Value) -> Vec<Step> {
    let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).and_then(|(_, value)| value.parse().ok());
    let (number, size) = (value("page").unwrap_or(1), value("per_page").unwrap_or(30).min(state.page));
    let start = items.len().min((number - 1) * size);
    let end = items.len().min(start + size);
    let mut next = url.clone();
    let query: Vec<(String, String)> = url.query_pairs().into_owned().filter(|(name, _)| name != "page").collect();
    next.query_pairs_mut().clear().extend_pairs(query).append_pair("page", &(number + 1).to_string());
    next.set_path(&url.path().replace("/repos/org/repo/", "/repositories/1296269/"));
    let link = format!("\r\nLink: <{next}>; rel=\"next\", <{next}>; rel=\"last\"");
    let body = list(&items[start..end]);
    let mut hasher = DefaultHasher::new();
    body.to_string().hash(&mut hasher);
    let tag = format!("W/\"{:x}\"", hasher.finish());
    if request.header("if-none-match") == Some(&tag) {
        return request.answer(304, &format!("ETag: {tag}"), "");
    }
    json_answer(
        request,
        200,
        &format!("\r\nETag: {tag}{}", if end < items.len() { link } else { String::new() }),
        &body,
    )
}

fn answer(state: &CiState, request: &Request) -> Vec<Step> {
    if request.header("accept") != Some("application/vnd.github+json")
        || request.header("x-github-api-version") != Some("2022-11-28")
        || request.header("user-agent").is_none()
    {
        return error(request, 415, "Unsupported Media Type");
    }
    if state.authorization.is_some() && request.header("authorization") != state.authorization.as_deref() {
        return error(request, 401, "Bad credentials");
    }
    let url = Url::parse(&format!("http://{}{}", request.header("host").unwrap(), request.target)).unwrap();
    let path = url.path().replace("/repositories/1296269/", "/repos/org/repo/");
    let Some(path) = path.strip_prefix("/repos/org/repo/") else { return error(request, 404, "Not Found") };
    let query = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["actions", "runs"] => {
            // An empty commit id filters nothing, an abbreviated one matches nothing.
            let sha = query("head_sha").filter(|sha| !sha.is_empty() && !state.is_unfiltered);
            let fits = |run: &&Value| sha.as_ref().is_none_or(|sha| run["head_sha"] == **sha);
            let runs: Vec<Value> = state.runs.iter().filter(fits).cloned().collect();
            page(state, request, &url, &runs, |shown| json!({"total_count": runs.len(), "workflow_runs": shown}))
        }
        ["commits", _, "check-runs"] => {
            let list = |shown: &[Value]| json!({"total_count": state.checks.len(), "check_runs": shown});
            page(state, request, &url, &state.checks, list)
        }
        ["commits", sha, "status"] => page(state, request, &url, &state.statuses, |shown| {
            let all = |word: &str| state.statuses.iter().all(|status| status["state"] == word);
            let combined = if !state.statuses.is_empty() && all("success") { "success" } else { "pending" };
            json!({"state": combined, "sha": sha, "total_count": state.statuses.len(), "statuses": shown,
                "repository": {"id": 1_296_269, "name": "repo", "full_name": "org/repo", "private": false},
                "commit_url": format!("https://api.github.com/repos/org/repo/commits/{sha}")})
        }),
        ["commits"] => {
            let sha = query("sha").unwrap();
            let Some(start) = state.commits.iter().position(|commit| commit["sha"] == *sha) else {
                return error(request, 404, "Not Found");
            };
            page(state, request, &url, &state.commits[start..], |shown| json!(shown))
        }
        _ => error(request, 404, "Not Found"),
    }
}
