//! Events of image registries.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{items, text};
use crate::{clients::oci::Digest, hooks::subject::Subject};

/// <https://distribution.github.io/distribution/about/notifications/>. Pulls are ignored.
pub(super) fn distribution(body: &Value, host: Option<&str>) -> Result<Vec<Subject>, String> {
    let Some(events) = body.get("events").and_then(Value::as_array) else {
        return Err("the body has no list `events`".to_owned());
    };
    Ok(events.iter().filter_map(|event| changed(event, host)).collect())
}

/// The id of a delivery with several events, each of which has an id. A repeated delivery has the same events.
pub(super) fn distribution_id(body: &Value) -> Option<String> {
    let ids: Option<Vec<&str>> = items(body, "/events").iter().map(|event| text(event, "/id")).collect();
    match &*ids? {
        [] => None,
        // There may be many.
        ids => Some(Digest::of(json!(ids).to_string().as_bytes()).as_str().to_owned()),
    }
}

/// <https://learn.microsoft.com/en-us/azure/container-registry/container-registry-webhook-reference>
pub(super) fn acr(body: &Value) -> Vec<Subject> {
    changed(body, None).into_iter().collect()
}

/// The image of an event with `action`, `target` and `request`.
fn changed(event: &Value, host: Option<&str>) -> Option<Subject> {
    let change = match text(event, "/action")? {
        "push" | "mount" => Change::Push,
        "delete" => Change::Delete,
        _ => return None,
    };
    let host = host.or_else(|| text(event, "/request/host"))?;
    let digest = text(event, "/target/digest");
    image(&format!("{host}/{}", text(event, "/target/repository")?), text(event, "/target/tag"), digest, change)
}

/// What happened to an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Something was written. Without a tag it is a layer or a part of an index, and no tag has changed.
    Push,
    /// Something was deleted. Without a tag it may have had any tag.
    Delete,
}

impl Change {
    /// The change that a sender calls `name`.
    fn of(name: Option<&str>) -> Self {
        if name.is_some_and(|name| name.to_ascii_uppercase().contains("DELETE")) { Self::Delete } else { Self::Push }
    }
}

/// The image `name` with `tag`, to which `digest` was pushed, or all tags of `name` after the deletion of something without a tag.
fn image(name: &str, tag: Option<&str>, digest: Option<&str>, change: Change) -> Option<Subject> {
    match (tag.filter(|tag| !tag.is_empty()), change) {
        (Some(tag), Change::Push) => Some(Subject::image(&format!("{name}:{tag}"))?.with_digest(digest)),
        (Some(tag), Change::Delete) => Subject::image(&format!("{name}:{tag}")),
        (None, Change::Delete) => Subject::image(name),
        (None, Change::Push) => None,
    }
}

/// <https://goharbor.io/docs/latest/working-with-projects/project-configuration/configure-webhooks/>: Harbor's own form, or that of `CloudEvents`.
pub(super) fn harbor(body: &Value) -> Vec<Subject> {
    if text(body, "/type").is_some_and(|kind| kind.starts_with("PULL_") || kind.ends_with(".pulled")) {
        return Vec::new();
    }
    let change = Change::of(text(body, "/type"));
    let resources = items(body, "/event_data/resources").iter().chain(items(body, "/data/resources"));
    let named = |resource| {
        let url = text(resource, "/resource_url")?;
        let digest = text(resource, "/digest").filter(|_| change == Change::Push);
        let subject = Subject::image(url).filter(|subject| subject.has_tag() || change == Change::Delete);
        subject.map(|subject| subject.with_digest(digest))
    };
    resources.filter_map(named).collect()
}

/// <https://docs.quay.io/guides/notifications.html>: `updated_tags` is a list of tags, or a map from tags to images.
pub(super) fn quay(body: &Value) -> Vec<Subject> {
    let Some(name) = text(body, "/docker_url") else { return Vec::new() };
    match body.get("updated_tags") {
        Some(Value::Array(tags)) => {
            tags.iter().filter_map(|tag| image(name, Some(tag.as_str()?), None, Change::Push)).collect()
        }
        Some(Value::Object(tags)) => tags.keys().filter_map(|tag| image(name, Some(tag), None, Change::Push)).collect(),
        _ => Vec::new(),
    }
}

/// <https://docs.docker.com/docker-hub/repos/manage/webhooks/>. `callback_url` is never called.
pub(super) fn docker_hub(body: &Value) -> Vec<Subject> {
    let name = text(body, "/repository/repo_name").map(|name| format!("docker.io/{name}"));
    name.and_then(|name| image(&name, text(body, "/push_data/tag"), None, Change::Push)).into_iter().collect()
}

/// <https://cloud.google.com/artifact-registry/docs/configure-notifications>: base64 in a message of Pub/Sub.
pub(super) fn artifact_registry(body: &Value) -> Result<Vec<Subject>, String> {
    let data = text(body, "/message/data").ok_or("the body has no `message.data`")?;
    let data = BASE64_STANDARD.decode(data).map_err(|_| "`message.data` is not base64")?;
    let data: Value = serde_json::from_slice(&data).map_err(|_| "`message.data` holds no JSON")?;
    let is_deleted = Change::of(text(&data, "/action")) == Change::Delete;
    let (tag, image) = (text(&data, "/tag"), text(&data, "/digest"));
    let named = tag.or_else(|| image.filter(|_| is_deleted)).and_then(Subject::image);
    let pushed = image.and_then(|image| Some(image.split_once('@')?.1)).filter(|_| !is_deleted);
    Ok(named.map(|named| named.with_digest(pushed)).into_iter().collect())
}

/// <https://docs.aws.amazon.com/AmazonECR/latest/userguide/ecr-eventbridge.html>
pub(super) fn ecr(body: &Value) -> Vec<Subject> {
    let found = || {
        let (account, region) = (text(body, "/account")?, text(body, "/region")?);
        let name = text(body, "/detail/repository-name")?;
        let change = Change::of(text(body, "/detail/action-type"));
        let (tag, digest) = (text(body, "/detail/image-tag"), text(body, "/detail/image-digest"));
        image(&format!("{account}.dkr.ecr.{region}.amazonaws.com/{name}"), tag, digest, change)
    };
    found().into_iter().collect()
}

/// <https://jfrog.com/help/r/jfrog-platform-administration-documentation/docker-tag-domain>: the repository key is a part of the path.
pub(super) fn jfrog(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let found = || {
        let (key, name) = (text(body, "/data/repo_key")?, text(body, "/data/image_name")?);
        let (tag, change) = (text(body, "/data/tag"), Change::of(text(body, "/event_type")));
        image(&format!("{}/{key}/{name}", host?), tag, None, change)
    };
    found().into_iter().collect()
}

/// <https://help.sonatype.com/en/webhooks.html>: a component, or the path of an asset.
pub(super) fn nexus(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let found = || {
        let (host, change) = (host?, Change::of(text(body, "/action")));
        if let Some(name) = text(body, "/component/name") {
            return image(&format!("{host}/{name}"), text(body, "/component/version"), None, change);
        }
        let path = text(body, "/asset/name")?.trim_start_matches('/').strip_prefix("v2/")?;
        let (name, tag) = path.rsplit_once("/manifests/")?;
        image(&format!("{host}/{name}"), Some(tag).filter(|tag| !tag.contains(':')), None, change)
    };
    found().into_iter().collect()
}
