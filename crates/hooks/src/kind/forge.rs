//! Events of code forges and their CI.

use http::HeaderMap;
use serde_json::Value;

use super::{items, text};
use crate::subject::Subject;

/// Where GitHub and Gitea put commits.
const COMMITS: [&str; 9] = [
    "/workflow_run/head_sha",
    "/workflow_job/head_sha",
    "/check_suite/head_sha",
    "/check_run/head_sha",
    "/deployment/sha",
    "/pull_request/head/sha",
    "/sha",
    "/after",
    // Questions may still name the commit that a push replaces.
    "/before",
];

/// Where GitHub and Gitea put what runs.
const RUNS: [&str; 5] = ["workflow_run", "workflow_job", "check_suite", "check_run", "deployment_status"];
/// Actions of events about runs that are not over. Nothing can have changed for a caller.
const UNFINISHED: [&str; 7] =
    ["requested", "requested_action", "in_progress", "queued", "created", "rerequested", "waiting"];
/// States that are not the last one.
const UNDER_WAY: [&str; 5] = ["pending", "in_progress", "queued", "requested", "waiting"];

/// <https://docs.github.com/en/webhooks/webhook-events-and-payloads>
pub(super) fn github(headers: &HeaderMap, body: &Value, host: Option<&str>) -> Vec<Subject> {
    let mut subjects = commits(body);
    for package in ["package", "registry_package"].iter().filter_map(|key| body.get(*key)) {
        let owner = text(package, "/owner/login").or_else(|| text(package, "/namespace"));
        let tags = items(package, "/package_version/container_metadata/tags").iter().filter_map(Value::as_str);
        let tag = text(package, "/package_version/container_metadata/tag/name");
        let digest = text(package, "/package_version/container_metadata/tag/digest");
        let (Some(owner), Some(name)) = (owner, text(package, "/name")) else { continue };
        let host = &host.map_or_else(|| github_registry(headers, package), str::to_owned);
        subjects.extend(tags.filter_map(|tag| Subject::image(&format!("{host}/{owner}/{name}:{tag}"))));
        let tagged = tag.and_then(|tag| Subject::image(&format!("{host}/{owner}/{name}:{tag}")));
        subjects.extend(tagged.map(|tagged| tagged.with_digest(digest)));
    }
    subjects
}

/// The registry of `package`: as the event names it, else that of the GitHub that sends it. GitHub Enterprise has one of its own
/// (<https://docs.github.com/en/enterprise-server/packages/working-with-a-github-packages-registry/working-with-the-container-registry>).
fn github_registry(headers: &HeaderMap, package: &Value) -> String {
    let named =
        ["/package_version/package_url", "/registry/url"].iter().find_map(|pointer| host_of(text(package, pointer)?));
    let enterprise = headers.get("x-github-enterprise-host").and_then(|host| host.to_str().ok());
    let enterprise = enterprise.filter(|host| *host != "github.com").map(|host| format!("containers.{host}"));
    named.map(str::to_owned).or(enterprise).unwrap_or_else(|| "ghcr.io".to_owned())
}

/// The host of an image reference or a URL, if it names one.
fn host_of(reference: &str) -> Option<&str> {
    let reference = reference.split_once("://").map_or(reference, |(_, rest)| rest);
    let (host, _) = reference.split_once('/')?;
    Some(host).filter(|host| host.contains(['.', ':']))
}

/// <https://docs.gitea.com/usage/webhooks>; the bodies are those of GitHub. A package is in the registry of the forge itself, unless `host`
/// says otherwise.
pub(super) fn gitea(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let mut subjects = commits(body);
    let Some(package) = body.get("package") else { return subjects };
    if text(package, "/type") != Some("container") {
        return subjects;
    }
    let page = text(package, "/html_url").or_else(|| text(body, "/repository/html_url"));
    let own = page.and_then(|page| page.split_once("://")?.1.split('/').next());
    let owner = text(package, "/owner/login").or_else(|| text(package, "/owner/username"));
    if let (Some(host), Some(owner), Some(name), Some(tag)) =
        (host.or(own), owner, text(package, "/name"), text(package, "/version"))
    {
        subjects.extend(Subject::image(&format!("{host}/{owner}/{name}:{tag}")));
    }
    subjects
}

fn commits(body: &Value) -> Vec<Subject> {
    if text(body, "/state") == Some("pending") || RUNS.iter().any(|run| is_under_way(body, run)) {
        return Vec::new();
    }
    COMMITS.iter().filter_map(|pointer| text(body, pointer).and_then(Subject::commit)).collect()
}

/// Whether `body` is about something of the kind `run` that is not over. What is completed when it is created is over.
fn is_under_way(body: &Value, run: &str) -> bool {
    let Some(run) = body.get(run) else { return false };
    if text(run, "/conclusion").is_some() || text(run, "/status") == Some("completed") {
        return false;
    }
    match text(run, "/state") {
        Some(state) => UNDER_WAY.contains(&state),
        None => text(body, "/action").is_some_and(|action| UNFINISHED.contains(&action)),
    }
}

/// <https://docs.gitlab.com/user/project/integrations/webhook_events/>
pub(super) fn gitlab(body: &Value) -> Vec<Subject> {
    let status = text(body, "/object_attributes/status").or_else(|| text(body, "/build_status"));
    if status
        .is_some_and(|status| ["created", "pending", "running", "preparing", "waiting_for_resource"].contains(&status))
    {
        return Vec::new();
    }
    let pointers = [
        "/object_attributes/sha",
        "/object_attributes/last_commit/id",
        "/sha",
        "/checkout_sha",
        "/commit/id",
        "/before",
    ];
    let mut subjects: Vec<Subject> =
        pointers.iter().filter_map(|pointer| text(body, pointer).and_then(Subject::commit)).collect();
    subjects.dedup();
    subjects
}

/// <https://support.atlassian.com/bitbucket-cloud/docs/event-payloads/>
pub(super) fn bitbucket(headers: &HeaderMap, body: &Value) -> Vec<Subject> {
    let event = headers.get("x-event-key").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if event.starts_with("repo:commit_status") && text(body, "/commit_status/state") == Some("INPROGRESS") {
        return Vec::new();
    }
    let link = text(body, "/commit_status/links/commit/href").and_then(|link| link.rsplit('/').next());
    let ends = ["/new/target/hash", "/old/target/hash"];
    let changes = items(body, "/push/changes").iter();
    let pushed = changes.flat_map(|change| ends.iter().filter_map(|end| text(change, end)));
    // Older bodies have the link only.
    let status = text(body, "/commit_status/commit/hash").or(link);
    [status, text(body, "/pullrequest/source/commit/hash")]
        .into_iter()
        .flatten()
        .chain(pushed)
        .filter_map(Subject::commit)
        .collect()
}
