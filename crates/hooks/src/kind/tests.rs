//! Bodies as the senders document them, cut down to what is read and its surroundings.

mod places;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderMap;
use serde_json::{Value, json};

use super::{super::subject::Subject, Kind, Naming, OneOrMore};

const SHA: &str = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d";

fn subjects(kind: Kind, body: &Value) -> Vec<String> {
    of(kind, &HeaderMap::new(), body, None)
}

/// A naming with this registry only.
const fn named(registry: Option<&str>) -> Naming<'_> {
    static NONE: std::collections::BTreeMap<String, OneOrMore> = std::collections::BTreeMap::new();
    Naming { registry, repositories: &NONE }
}

fn of(kind: Kind, headers: &HeaderMap, body: &Value, host: Option<&str>) -> Vec<String> {
    by(kind, headers, body, named(host))
}

fn by(kind: Kind, headers: &HeaderMap, body: &Value, naming: Naming<'_>) -> Vec<String> {
    let named = |subject: Subject| match subject {
        Subject::Image { repository, tag, digest } => {
            let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
            let digest = digest.map(|digest| format!("@{}", &digest.hex()[..4])).unwrap_or_default();
            format!("{repository}{tag}{digest}")
        }
        Subject::Commit(sha) => sha,
        Subject::Url(_) | Subject::Questions(_) => unreachable!("only a mapping gives these"),
    };
    kind.subjects(headers, body, naming).unwrap().into_iter().map(named).collect()
}

#[test]
fn github_tells_of_commits_that_ci_has_finished() {
    for (body, expected) in [
        (
            json!({"action": "completed", "workflow_run": {"head_sha": SHA, "conclusion": "success", "path": ".github/workflows/ci.yml"}}),
            vec![SHA],
        ),
        (json!({"action": "completed", "check_suite": {"head_sha": SHA, "conclusion": "failure"}}), vec![SHA]),
        (json!({"action": "completed", "check_run": {"head_sha": SHA, "status": "completed"}}), vec![SHA]),
        (json!({"action": "in_progress", "workflow_run": {"head_sha": SHA}}), vec![]),
        (json!({"action": "created", "check_run": {"head_sha": SHA}}), vec![]),
        (json!({"action": "created", "check_run": {"head_sha": SHA, "status": "queued", "conclusion": null}}), vec![]),
        (
            json!({"action": "created", "check_run": {"head_sha": SHA, "status": "completed", "conclusion": "success"}}),
            vec![SHA],
        ),
        (
            json!({"action": "requested", "check_suite": {"head_sha": SHA, "status": "completed", "conclusion": "neutral"}}),
            vec![SHA],
        ),
        (json!({"action": "in_progress", "workflow_job": {"head_sha": SHA, "status": "in_progress"}}), vec![]),
        (
            json!({"action": "completed", "workflow_job": {"head_sha": SHA, "status": "completed", "conclusion": "failure"}}),
            vec![SHA],
        ),
        (
            json!({"action": "created", "deployment_status": {"state": "success"}, "deployment": {"sha": SHA}}),
            vec![SHA],
        ),
        (
            json!({"action": "created", "deployment_status": {"state": "in_progress"}, "deployment": {"sha": SHA}}),
            vec![],
        ),
        (json!({"sha": SHA, "state": "success", "context": "ci/build"}), vec![SHA]),
        (json!({"sha": SHA, "state": "pending"}), vec![]),
        (
            json!({"action": "synchronize", "number": 7, "pull_request": {"head": {"sha": SHA, "ref": "feature"}}}),
            vec![SHA],
        ),
        (json!({"ref": "refs/heads/main", "before": "0".repeat(40), "after": SHA}), vec![SHA]),
        (json!({"ref": "refs/heads/gone", "before": SHA, "after": "0".repeat(40), "deleted": true}), vec![SHA]),
        (json!({"zen": "Keep it logically awesome.", "hook_id": 1}), vec![]),
    ] {
        assert_eq!(subjects(Kind::Github, &body), expected, "{body}");
    }
}

#[test]
fn github_tells_of_packages() {
    let package = json!({
        "name": "App", "namespace": "Org", "ecosystem": "CONTAINER", "package_type": "CONTAINER", "owner": {"login": "Org"},
        "package_version": {"name": "sha256:11", "container_metadata": {"tag": {"name": "main", "digest": "sha256:11"}}},
    });
    for key in ["package", "registry_package"] {
        assert_eq!(subjects(Kind::Github, &json!({"action": "published", key: package})), ["ghcr.io/org/app:main"]);
    }
}

#[test]
fn gitea_and_forgejo_tell_of_commits_and_packages() {
    let body = json!({
        "action": "created",
        "package": {"type": "container", "name": "app", "version": "main", "owner": {"login": "org"}, "html_url": "https://git.example.com/org/-/packages/container/app/main"},
    });
    for kind in [Kind::Gitea, Kind::Forgejo] {
        assert_eq!(subjects(kind, &body), ["git.example.com/org/app:main"]);
        assert_eq!(of(kind, &HeaderMap::new(), &body, Some("images.example.com")), ["images.example.com/org/app:main"]);
        assert_eq!(subjects(kind, &json!({"sha": SHA, "state": "success", "context": "ci"})), [SHA]);
        assert!(
            subjects(kind, &json!({"action": "created", "package": {"type": "npm", "name": "a", "version": "1"}}))
                .is_empty()
        );
    }
}

#[test]
fn gitlab_tells_of_pipelines_and_jobs_that_are_over() {
    for (body, expected) in [
        (
            json!({"object_kind": "pipeline", "object_attributes": {"sha": SHA, "ref": "main", "status": "success"}}),
            vec![SHA],
        ),
        (json!({"object_kind": "pipeline", "object_attributes": {"sha": SHA, "status": "running"}}), vec![]),
        (json!({"object_kind": "build", "sha": SHA, "build_status": "failed", "commit": {"id": 2293}}), vec![SHA]),
        (json!({"object_kind": "build", "sha": SHA, "build_status": "created"}), vec![]),
        (json!({"object_kind": "push", "checkout_sha": SHA, "after": SHA}), vec![SHA]),
        (json!({"object_kind": "merge_request", "object_attributes": {"last_commit": {"id": SHA}}}), vec![SHA]),
    ] {
        assert_eq!(subjects(Kind::Gitlab, &body), expected, "{body}");
    }
}

#[test]
fn bitbucket_tells_of_build_statuses_and_pushes() {
    let event = |name: &str| HeaderMap::from_iter([("x-event-key".parse().unwrap(), name.parse().unwrap())]);
    let link = format!("https://api.bitbucket.org/2.0/repositories/org/app/commit/{SHA}");
    let status =
        |state: &str| json!({"commit_status": {"state": state, "key": "ci", "links": {"commit": {"href": link}}}});
    let updated = event("repo:commit_status_updated");
    assert_eq!(of(Kind::Bitbucket, &updated, &status("SUCCESSFUL"), None), [SHA]);
    assert!(of(Kind::Bitbucket, &updated, &status("INPROGRESS"), None).is_empty());
    let push = json!({"push": {"changes": [{"new": {"target": {"hash": SHA}}}, {"new": null}]}});
    assert_eq!(of(Kind::Bitbucket, &event("repo:push"), &push, None), [SHA]);
}

#[test]
fn registries_tell_of_what_was_pushed_or_deleted() {
    let event = |action: &str| {
        json!({"id": "1", "action": action, "request": {"host": "registry.example.com:5000"},
            "target": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "repository": "org/app", "tag": "main", "digest": "sha256:11"}})
    };
    let image = "registry.example.com:5000/org/app:main";
    let events = json!({"events": [event("push"), event("pull"), event("delete")]});
    assert_eq!(subjects(Kind::Distribution, &events), [image, image]);
    assert_eq!(
        of(Kind::Distribution, &HeaderMap::new(), &events, Some("registry.example.com"))[0],
        "registry.example.com/org/app:main"
    );
    // Docker Distribution sends an event for each layer, and of the parts of an index. No tag has changed then.
    for (action, expected) in [("push", &[][..]), ("mount", &[]), ("delete", &["registry.example.com:5000/org/app"])] {
        let mut event = event(action);
        event["target"].as_object_mut().unwrap().remove("tag");
        assert_eq!(subjects(Kind::Distribution, &json!({"events": [event]})), expected, "{action}");
    }
    assert_eq!(subjects(Kind::Acr, &event("push")), [image]);
    assert!(subjects(Kind::Acr, &event("ping")).is_empty());
    assert!(Kind::Distribution.subjects(&HeaderMap::new(), &json!({}), named(None)).is_err());

    let harbor = |kind: &str| {
        let resource = json!({"digest": "sha256:11", "tag": "main", "resource_url": "harbor.example.com/org/app:main"});
        json!({"type": kind, "occur_at": 1, "event_data": {"resources": [resource], "repository": {"repo_full_name": "org/app"}}})
    };
    assert_eq!(subjects(Kind::Harbor, &harbor("PUSH_ARTIFACT")), ["harbor.example.com/org/app:main"]);
    assert_eq!(subjects(Kind::Harbor, &harbor("pushImage")), ["harbor.example.com/org/app:main"]);
    assert_eq!(
        of(Kind::Harbor, &HeaderMap::new(), &harbor("deleteImage"), Some("r.example.com")),
        ["r.example.com/org/app:main"]
    );
    for other in [
        "PULL_ARTIFACT",
        "SCANNING_COMPLETED",
        "SCANNING_FAILED",
        "SCANNING_STOPPED",
        "QUOTA_EXCEED",
        "QUOTA_WARNING",
        "REPLICATION",
        "TAG_RETENTION",
        "UPLOAD_CHART",
        "pullImage",
        "scanningCompleted",
        "scanningFailed",
        "downloadChart",
        "harbor.artifact.pulled",
        "harbor.scan.completed",
        "harbor.quota.exceeded",
    ] {
        assert!(subjects(Kind::Harbor, &harbor(other)).is_empty(), "{other}");
    }
    let untagged = |kind: &str| {
        let resource = json!({"digest": "sha256:11", "resource_url": "harbor.example.com/org/app@sha256:11"});
        json!({"type": kind, "event_data": {"resources": [resource]}})
    };
    assert!(subjects(Kind::Harbor, &untagged("PUSH_ARTIFACT")).is_empty());
    assert_eq!(subjects(Kind::Harbor, &untagged("DELETE_ARTIFACT")), ["harbor.example.com/org/app"]);

    for tags in [json!(["main", "1.0"]), json!({"1.0": "x", "main": "y"})] {
        let mut found = subjects(Kind::Quay, &json!({"docker_url": "quay.io/org/app", "updated_tags": tags}));
        found.sort();
        assert_eq!(found, ["quay.io/org/app:1.0", "quay.io/org/app:main"]);
    }
    let hub = json!({"callback_url": "https://registry.hub.docker.com/x", "push_data": {"tag": "main"}, "repository": {"repo_name": "org/app"}});
    assert_eq!(subjects(Kind::DockerHub, &hub), ["docker.io/org/app:main"]);
}

#[test]
fn clouds_tell_of_what_was_pushed() {
    // {"action":"INSERT","digest":"us-docker.pkg.dev/p/r/app@sha256:11","tag":"us-docker.pkg.dev/p/r/app:main"}
    let data = "eyJhY3Rpb24iOiJJTlNFUlQiLCJkaWdlc3QiOiJ1cy1kb2NrZXIucGtnLmRldi9wL3IvYXBwQHNoYTI1NjoxMSIsInRhZyI6InVzLWRvY2tlci5wa2cuZGV2L3Avci9hcHA6bWFpbiJ9";
    let message = json!({"message": {"data": data, "messageId": "9"}, "subscription": "s"});
    assert_eq!(subjects(Kind::ArtifactRegistry, &message), ["us-docker.pkg.dev/p/r/app:main"]);
    assert_eq!(Kind::ArtifactRegistry.delivery(&HeaderMap::new(), &message), Some("9".to_owned()));
    for wrong in [json!({}), json!({"message": {"data": "%"}}), json!({"message": {"data": "bm8="}})] {
        assert!(Kind::ArtifactRegistry.subjects(&HeaderMap::new(), &wrong, named(None)).is_err());
    }
    // Without Pub/Sub's wrapper, and with its metadata in headers.
    let bare = json!({"action": "INSERT", "digest": "us-docker.pkg.dev/p/r/app@sha256:11", "tag": "us-docker.pkg.dev/p/r/app:main"});
    assert_eq!(subjects(Kind::ArtifactRegistry, &bare), ["us-docker.pkg.dev/p/r/app:main"]);
    let metadata = HeaderMap::from_iter([("x-goog-pubsub-message-id".parse().unwrap(), "7".parse().unwrap())]);
    assert_eq!(Kind::ArtifactRegistry.delivery(&metadata, &bare), Some("7".to_owned()));
    let why = Kind::ArtifactRegistry.subjects(&HeaderMap::new(), &json!({"name": "x"}), named(None)).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("push subscription") && why.contains("`kind: generic`"), "{why}");
    let ecr = json!({
        "id": "13cde686", "detail-type": "ECR Image Action", "account": "123456789012", "region": "us-west-2",
        "detail": {"result": "SUCCESS", "repository-name": "org/app", "image-digest": "sha256:11", "action-type": "PUSH", "image-tag": "main"},
    });
    assert_eq!(subjects(Kind::Ecr, &ecr)[0], "123456789012.dkr.ecr.us-west-2.amazonaws.com/org/app:main");
}

#[test]
fn managers_of_repositories_need_the_registrys_host() {
    let host = Some("registry.example.com");
    let jfrog = json!({"domain": "docker", "event_type": "pushed", "data": {"repo_key": "docker-local", "image_name": "org/app", "tag": "main"}});
    assert_eq!(of(Kind::Jfrog, &HeaderMap::new(), &jfrog, host), ["registry.example.com/docker-local/org/app:main"]);
    let component = json!({"action": "CREATED", "repositoryName": "docker", "component": {"format": "docker", "name": "org/app", "version": "main"}});
    let asset = json!({"action": "UPDATED", "repositoryName": "docker", "asset": {"format": "docker", "name": "/v2/org/app/manifests/main"}});
    for body in [component, asset] {
        assert_eq!(of(Kind::Nexus, &HeaderMap::new(), &body, host), ["registry.example.com/org/app:main"]);
    }
}

#[test]
fn a_repeated_delivery_has_the_same_id() {
    let none = HeaderMap::new();
    let events = |ids: &[&str]| json!({"events": ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()});
    let id = |body: &Value| Kind::Distribution.delivery(&none, body);
    assert_eq!(id(&events(&["a", "b"])), id(&events(&["a", "b"])));
    let different = [&["a", "b"][..], &["a"], &["b"], &["ab"], &["b", "a"], &["a,b"]].map(|ids| id(&events(ids)));
    assert_eq!(different.iter().flatten().collect::<std::collections::HashSet<_>>().len(), different.len());
    let many: Vec<String> = (0..1000).map(|id| id.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(id(&events(&many)).is_some_and(|id| id.len() < 100));
    for without in
        [json!({}), json!({"events": []}), json!({"events": [{"id": "a"}, {}]}), json!({"events": [{"id": 7}]})]
    {
        assert_eq!(id(&without), None, "{without}");
    }
    let nexus: HeaderMap =
        [(http::HeaderName::from_static("x-nexus-webhook-delivery"), http::HeaderValue::from_static("f5"))]
            .into_iter()
            .collect();
    assert_eq!(Kind::Nexus.delivery(&nexus, &json!({})), Some("f5".to_owned()));
}

#[test]
fn bodies_of_another_form_tell_nothing() {
    let kinds = [
        Kind::Github,
        Kind::Gitlab,
        Kind::Gitea,
        Kind::Bitbucket,
        Kind::Acr,
        Kind::Harbor,
        Kind::Quay,
        Kind::DockerHub,
        Kind::Ecr,
    ];
    for kind in kinds {
        for body in [json!({}), json!({"sha": 1, "events": 2, "target": "x", "repository": [], "message": null})] {
            assert!(subjects(kind, &body).is_empty(), "{kind:?} {body}");
        }
        assert!(kind.subjects(&HeaderMap::new(), &json!([]), named(None)).is_err());
    }
}

#[test]
fn pushes_have_the_digest_that_the_sender_names() {
    let digest = format!("sha256:{}", "ab".repeat(32));
    let target = |action: &str| json!({"action": action, "target": {"repository": "app", "tag": "1", "digest": digest}, "request": {"host": "r.example.com"}});
    let harbor = |kind: &str| json!({"type": kind, "event_data": {"resources": [{"digest": digest, "tag": "1", "resource_url": "r.example.com/app:1"}]}});
    let google = |action: &str| {
        let data =
            json!({"action": action, "digest": format!("r.example.com/app@{digest}"), "tag": "r.example.com/app:1"});
        json!({"message": {"data": BASE64_STANDARD.encode(data.to_string())}})
    };
    let detail = |action: &str| json!({"account": "1", "region": "eu-1", "detail": {"action-type": action, "repository-name": "app", "image-tag": "1", "image-digest": digest}});
    let tagged = json!({"name": "1", "digest": digest});
    let package = json!({"package": {"name": "app", "namespace": "org", "package_version": {"container_metadata": {"tag": tagged}}}});
    for (kind, body, expected) in [
        (Kind::Distribution, json!({"events": [target("push")]}), "r.example.com/app:1@abab"),
        (Kind::Distribution, json!({"events": [target("delete")]}), "r.example.com/app:1"),
        (Kind::Acr, target("push"), "r.example.com/app:1@abab"),
        (Kind::Harbor, harbor("PUSH_ARTIFACT"), "r.example.com/app:1@abab"),
        (Kind::Harbor, harbor("DELETE_ARTIFACT"), "r.example.com/app:1"),
        (Kind::ArtifactRegistry, google("INSERT"), "r.example.com/app:1@abab"),
        (Kind::ArtifactRegistry, google("DELETE"), "r.example.com/app:1"),
        (Kind::Ecr, detail("PUSH"), "1.dkr.ecr.eu-1.amazonaws.com/app:1@abab"),
        (Kind::Ecr, detail("DELETE"), "1.dkr.ecr.eu-1.amazonaws.com/app:1"),
        (Kind::Github, package, "ghcr.io/org/app:1@abab"),
    ] {
        assert_eq!(subjects(kind, &body)[0], expected, "{body}");
    }
}
