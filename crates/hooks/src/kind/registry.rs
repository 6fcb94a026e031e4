//! Events of image registries.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{Naming, items, text};
use crate::{error::EventError, subject::Subject};
use oci::Digest;

/// <https://distribution.github.io/distribution/about/notifications/>. Pulls are ignored.
pub(super) fn distribution(body: &Value, host: Option<&str>) -> Result<Vec<Subject>, EventError> {
    let Some(events) = body.get("events").and_then(Value::as_array) else {
        return Err(EventError::Body("the body has no list `events`"));
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
pub(super) fn acr(body: &Value, host: Option<&str>) -> Vec<Subject> {
    changed(body, host).into_iter().collect()
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

/// The change of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Something was written. Without a tag it is a layer or a part of an index, and no tag has changed.
    Push,
    /// Something was deleted. Without a tag it may have had any tag.
    Delete,
}

impl Change {
    /// The change by the sender's word for it, one of `pushes` or of `deletes`. Any other word changes no image.
    fn of(name: Option<&str>, pushes: &[&str], deletes: &[&str]) -> Option<Self> {
        let is_one_of =
            |names: &[&str]| names.iter().any(|known| name.is_some_and(|name| name.eq_ignore_ascii_case(known)));
        match (is_one_of(pushes), is_one_of(deletes)) {
            (true, _) => Some(Self::Push),
            (false, true) => Some(Self::Delete),
            (false, false) => None,
        }
    }
}

/// `reference` with `host` in place of its own.
fn at(host: Option<&str>, reference: &str) -> String {
    match (host, reference.split_once('/')) {
        (Some(host), Some((_, path))) => format!("{host}/{path}"),
        _ => reference.to_owned(),
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
/// Harbor 1 has other names for the same events. Pulls, scans, quotas, replications and charts are ignored.
pub(super) fn harbor(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let pushes = ["PUSH_ARTIFACT", "pushImage", "harbor.artifact.pushed"];
    let deletes = ["DELETE_ARTIFACT", "deleteImage", "harbor.artifact.deleted"];
    let Some(change) = Change::of(text(body, "/type"), &pushes, &deletes) else { return Vec::new() };
    let resources = items(body, "/event_data/resources").iter().chain(items(body, "/data/resources"));
    let named = |resource| {
        let url = at(host, text(resource, "/resource_url")?);
        let digest = text(resource, "/digest").filter(|_| change == Change::Push);
        let subject = Subject::image(&url).filter(|subject| subject.has_tag() || change == Change::Delete);
        subject.map(|subject| subject.with_digest(digest))
    };
    resources.filter_map(named).collect()
}

/// <https://docs.quay.io/guides/notifications.html>: `updated_tags` is a list of tags, or a map from tags to images. Events of builds and of
/// vulnerabilities have none.
pub(super) fn quay(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let Some(name) = text(body, "/docker_url").map(|url| at(host, url)) else { return Vec::new() };
    match body.get("updated_tags") {
        Some(Value::Array(tags)) => {
            tags.iter().filter_map(|tag| image(&name, Some(tag.as_str()?), None, Change::Push)).collect()
        }
        Some(Value::Object(tags)) => {
            tags.keys().filter_map(|tag| image(&name, Some(tag), None, Change::Push)).collect()
        }
        _ => Vec::new(),
    }
}

/// <https://docs.docker.com/docker-hub/repos/manage/webhooks/>. `callback_url` is never called.
pub(super) fn docker_hub(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let name = text(body, "/repository/repo_name").map(|name| format!("{}/{name}", host.unwrap_or("docker.io")));
    name.and_then(|name| image(&name, text(body, "/push_data/tag"), None, Change::Push)).into_iter().collect()
}

/// <https://cloud.google.com/artifact-registry/docs/configure-notifications>: base64 in a message of Pub/Sub, or without that wrapper
/// (<https://cloud.google.com/pubsub/docs/payload-unwrapping>).
pub(super) fn artifact_registry(body: &Value, host: Option<&str>) -> Result<Vec<Subject>, EventError> {
    let wrapped;
    let event = if text(body, "/action").is_some() && body.get("message").is_none() {
        body
    } else {
        let data = text(body, "/message/data").ok_or(EventError::Body(
            "the body is neither a message of Pub/Sub (`message.data`) nor an event of Artifact Registry (`action`): let a push subscription \
             of the topic `gcr` send it, or set `kind: generic` with `subjects`",
        ))?;
        let data = BASE64_STANDARD.decode(data).map_err(|_| EventError::Body("`message.data` is not base64"))?;
        wrapped =
            serde_json::from_slice::<Value>(&data).map_err(|_| EventError::Body("`message.data` holds no JSON"))?;
        &wrapped
    };
    let Some(change) = Change::of(text(event, "/action"), &["INSERT"], &["DELETE"]) else { return Ok(Vec::new()) };
    let (tag, image) = (text(event, "/tag"), text(event, "/digest"));
    let named = tag.or_else(|| image.filter(|_| change == Change::Delete)).map(|reference| at(host, reference));
    let pushed = image.and_then(|image| Some(image.split_once('@')?.1)).filter(|_| change == Change::Push);
    let subject = named.and_then(|named| Subject::image(&named));
    Ok(subject.map(|subject| subject.with_digest(pushed)).into_iter().collect())
}

/// <https://docs.aws.amazon.com/AmazonECR/latest/userguide/ecr-eventbridge.html>: pushes, deletions, replications, and what a pull through
/// cache has fetched. Scans are ignored, and so is what failed. The event does not say by which of its names the registry is used.
pub(super) fn ecr(body: &Value, host: Option<&str>) -> Vec<Subject> {
    let detail = |key: &str| text(body, &format!("/detail/{key}"));
    let is_done = ["result", "sync-status"].iter().all(|key| detail(key).is_none_or(|result| result == "SUCCESS"));
    let action = detail("action-type").or_else(|| detail("sync-status").map(|_| "PUSH"));
    let change = Change::of(action, &["PUSH", "REPLICATE"], &["DELETE"]).filter(|_| is_done);
    let (Some(change), Some(name)) = (change, detail("repository-name")) else { return Vec::new() };
    let hosts = match (host, text(body, "/account"), text(body, "/region")) {
        (Some(host), ..) => vec![host.to_owned()],
        (None, Some(account), Some(region)) => ecr_hosts(account, region),
        (None, ..) => Vec::new(),
    };
    let named = |host: String| image(&format!("{host}/{name}"), detail("image-tag"), detail("image-digest"), change);
    hosts.into_iter().filter_map(named).collect()
}

/// The names of the registry of `account` in `region`: the usual one, that with FIPS endpoints, and both with IPv6
/// (<https://docs.aws.amazon.com/general/latest/gr/ecr.html>). Each partition has domains of its own.
fn ecr_hosts(account: &str, region: &str) -> Vec<String> {
    let partitions = [
        ("cn-", "amazonaws.com.cn", Some("on.amazonwebservices.com.cn")),
        ("eusc-", "amazonaws.eu", Some("on.amazonwebservices.eu")),
        ("us-iso-", "c2s.ic.gov", None),
        ("us-isob-", "sc2s.sgov.gov", None),
        ("us-isof-", "csp.hci.ic.gov", None),
        ("eu-isoe-", "cloud.adc-e.uk", None),
    ];
    let own = partitions.into_iter().find(|(prefix, ..)| region.starts_with(prefix));
    let (_, domain, dual) = own.unwrap_or(("", "amazonaws.com", Some("on.aws")));
    let services = ["ecr", "ecr-fips"].into_iter();
    let usual = services.clone().map(|service| format!("{account}.dkr.{service}.{region}.{domain}"));
    let new = services.filter_map(|service| dual.map(|dual| format!("{account}.dkr-{service}.{region}.{dual}")));
    usual.chain(new).collect()
}

/// <https://jfrog.com/help/r/jfrog-platform-administration-documentation/docker-tag-domain>: the repository key is a part of the path. It is
/// that of the local repository, however the image is reached.
pub(super) fn jfrog(body: &Value, naming: Naming<'_>) -> Vec<Subject> {
    let change = Change::of(text(body, "/event_type"), &["pushed", "promoted"], &["deleted"]);
    let (Some(change), Some(key), Some(name)) = (change, text(body, "/data/repo_key"), text(body, "/data/image_name"))
    else {
        return Vec::new();
    };
    let local = naming.registry.map(|host| format!("{host}/{key}"));
    let places = local.into_iter().chain(naming.places(key));
    places.filter_map(|place| image(&format!("{place}/{name}"), text(body, "/data/tag"), None, change)).collect()
}

/// <https://help.sonatype.com/en/webhooks.html>: a component, or the path of an asset.
pub(super) fn nexus(body: &Value, naming: Naming<'_>) -> Vec<Subject> {
    let found = || {
        let change = Change::of(text(body, "/action"), &["CREATED", "UPDATED"], &["DELETED", "PURGED"])?;
        let is_image = |of: &str| text(body, &format!("/{of}/format")).is_none_or(|format| format == "docker");
        if let Some(name) = text(body, "/component/name").filter(|_| is_image("component")) {
            return Some((name, text(body, "/component/version"), change));
        }
        let path =
            text(body, "/asset/name").filter(|_| is_image("asset"))?.trim_start_matches('/').strip_prefix("v2/")?;
        let (name, tag) = path.rsplit_once("/manifests/")?;
        Some((name, Some(tag).filter(|tag| !tag.contains(':')), change))
    };
    let Some((name, tag, change)) = found() else { return Vec::new() };
    let others = text(body, "/repositoryName").map(|repository| naming.places(repository)).unwrap_or_default();
    let places = naming.registry.map(str::to_owned).into_iter().chain(others);
    places.filter_map(|place| image(&format!("{place}/{name}"), tag, None, change)).collect()
}
