//! Events of image registries.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::{items, text};
use crate::hooks::subject::Subject;

/// <https://distribution.github.io/distribution/about/notifications/>. Pulls are ignored.
pub(super) fn distribution(body: &Value, host: Option<&str>) -> Result<Vec<Subject>, String> {
    let Some(events) = body.get("events").and_then(Value::as_array) else {
        return Err("the body has no list `events`".to_owned());
    };
    Ok(events.iter().filter_map(|event| changed(event, host)).collect())
}

/// <https://learn.microsoft.com/en-us/azure/container-registry/container-registry-webhook-reference>
pub(super) fn acr(body: &Value) -> Vec<Subject> {
    changed(body, None).into_iter().collect()
}

/// The image of an event with `action`, `target` and `request`.
fn changed(event: &Value, host: Option<&str>) -> Option<Subject> {
    if !matches!(text(event, "/action")?, "push" | "delete" | "mount") {
        return None;
    }
    let host = host.or_else(|| text(event, "/request/host"))?;
    image(&format!("{host}/{}", text(event, "/target/repository")?), text(event, "/target/tag"))
}

fn image(name: &str, tag: Option<&str>) -> Option<Subject> {
    Subject::image(&tag.map_or_else(|| name.to_owned(), |tag| format!("{name}:{tag}")))
}

/// <https://goharbor.io/docs/latest/working-with-projects/project-configuration/configure-webhooks/>
pub(super) fn harbor(body: &Value) -> Vec<Subject> {
    if text(body, "/type").is_some_and(|kind| kind.starts_with("PULL_")) {
        return Vec::new();
    }
    let resources = items(body, "/event_data/resources").iter();
    resources.filter_map(|resource| Subject::image(text(resource, "/resource_url")?)).collect()
}

/// <https://docs.quay.io/guides/notifications.html>: `updated_tags` is a list of tags, or a map from tags to images.
pub(super) fn quay(body: &Value) -> Vec<Subject> {
    let Some(name) = text(body, "/docker_url") else { return Vec::new() };
    match body.get("updated_tags") {
        Some(Value::Array(tags)) => tags.iter().filter_map(|tag| image(name, Some(tag.as_str()?))).collect(),
        Some(Value::Object(tags)) => tags.keys().filter_map(|tag| image(name, Some(tag))).collect(),
        _ => Vec::new(),
    }
}

/// <https://docs.docker.com/docker-hub/repos/manage/webhooks/>. `callback_url` is never called.
pub(super) fn docker_hub(body: &Value) -> Vec<Subject> {
    let name = text(body, "/repository/repo_name").map(|name| format!("docker.io/{name}"));
    name.and_then(|name| image(&name, text(body, "/push_data/tag"))).into_iter().collect()
}

/// <https://cloud.google.com/artifact-registry/docs/configure-notifications>: base64 in a message of Pub/Sub.
pub(super) fn artifact_registry(body: &Value) -> Result<Vec<Subject>, String> {
    let data = text(body, "/message/data").ok_or("the body has no `message.data`")?;
    let data = BASE64_STANDARD.decode(data).map_err(|_| "`message.data` is not base64")?;
    let data: Value = serde_json::from_slice(&data).map_err(|_| "`message.data` holds no JSON")?;
    let named = text(&data, "/tag").or_else(|| text(&data, "/digest"));
    Ok(named.and_then(Subject::image).into_iter().collect())
}

/// <https://docs.aws.amazon.com/AmazonECR/latest/userguide/ecr-eventbridge.html>
pub(super) fn ecr(body: &Value) -> Vec<Subject> {
    let found = || {
        let (account, region) = (text(body, "/account")?, text(body, "/region")?);
        let name = text(body, "/detail/repository-name")?;
        image(&format!("{account}.dkr.ecr.{region}.amazonaws.com/{name}"), text(body, "/detail/image-tag"))
    };
    found().into_iter().collect()
}

/// <https://jfrog.com/help/r/jfrog-platform-administration-documentation/docker-tag-domain>: the repository key is a part of the path.
pub(super) fn jfrog(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let found = || {
        let (key, name) = (text(body, "/data/repo_key")?, text(body, "/data/image_name")?);
        image(&format!("{}/{key}/{name}", host?), text(body, "/data/tag"))
    };
    found().into_iter().collect()
}

/// <https://help.sonatype.com/en/webhooks.html>: a component, or the path of an asset.
pub(super) fn nexus(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let found = || {
        let host = host?;
        if let Some(name) = text(body, "/component/name") {
            return image(&format!("{host}/{name}"), text(body, "/component/version"));
        }
        let path = text(body, "/asset/name")?.trim_start_matches('/').strip_prefix("v2/")?;
        let (name, tag) = path.rsplit_once("/manifests/")?;
        image(&format!("{host}/{name}"), Some(tag).filter(|tag| !tag.contains(':')))
    };
    found().into_iter().collect()
}
