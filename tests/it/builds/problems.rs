//! Problems that `appset-gateway check` reports for images, registries and gates.

use serde_json::{Value, json};

use super::fake::sha;
use crate::support::check::{findings, of_route};

const TAG: &str = "r.example/x:{{ params.branch }}";
const COMMIT: &str = "r.example/x:{{ commit }}";

fn digests(image: &str, more: &Value) -> Value {
    let mut digests = json!({"images": {"app": {"image": image}}});
    digests.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    digests
}

#[test]
fn each_bad_key_is_reported_with_its_position() {
    let github = |more: Value| {
        let mut github = json!({"repository": "o/r", "workflows": ["b"], "token": {"env": "HOME"}});
        github.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"github": github})
    };
    let plain = || github(json!({}));
    let back = || github(json!({"walkBack": 3}));
    let http = json!({"http": {"url": "https://ci.example/x", "verdict": "'passed'"}});
    let revision = |policy: &str| json!({"expect": "{{ params.head_sha }}", "policy": policy});
    let (error, warning) = ("error", "warning");
    let cases = [
        // Options that name the commit of an image.
        (TAG, json!({"gate": back()}), error, "gate", "an earlier commit"),
        ("r.example/x:{{ params.head_sha }}", json!({"gate": back()}), error, "gate", "an earlier commit"),
        (TAG, json!({"gate": back(), "revision": revision("prefer")}), error, "gate", "an earlier commit"),
        (TAG, json!({"gate": {"all": [plain(), {"any": [back()]}]}}), error, "gate", "an earlier commit"),
        (TAG, json!({"gate": plain()}), warning, "gate", "nothing ties the images to that commit"),
        ("r.example/shared:1", json!({"gate": plain()}), warning, "gate", "nothing ties"),
        (TAG, json!({"gate": plain(), "revision": revision("ignore")}), warning, "gate", "nothing ties"),
        (COMMIT, json!({"gate": http}), error, "gate", "does not know its commit"),
        (COMMIT, json!({}), error, "images.app.image", "unknown name `commit`"),
        // Single options.
        (TAG, json!({"revision": {"expect": "main"}}), error, "revision.expect", "not a commit"),
        (TAG, json!({"revision": {"expect": "{{ head_sha }}"}}), error, "revision.expect", "unknown name"),
        (TAG, json!({"revision": {"expect": "", "policy": "always"}}), error, "revision.policy", "always"),
        (TAG, json!({"onMissing": "placeholder"}), error, "images.app", "has no `placeholder`"),
        (TAG, json!({"gate": {"all": []}}), error, "gate.all", ""),
        (TAG, json!({"gate": {"jenkins": {}}}), error, "gate", "jenkins"),
        (
            "oci:x:{{ params.branch }}",
            json!({"revision": revision("require")}),
            error,
            "images.app.image",
            "not opened",
        ),
    ];
    for (image, more, severity, path, says) in cases {
        let found = findings(&digests(image, &more), "");
        let is_meant = |(of, at, message): &(String, String, String)| {
            of == severity && at.starts_with(path) && message.contains(says)
        };
        assert!(found.iter().any(is_meant), "{more}: {found:?}");
    }
    let none: [(String, String, String); 0] = [];
    for (image, more) in [
        (TAG, json!({"revision": {"expect": sha('a')}})),
        (TAG, json!({"gate": back(), "revision": revision("require")})),
        (COMMIT, json!({"gate": back()})),
        ("r.example/x:{{ params.head_sha }}", json!({"gate": plain()})),
    ] {
        let found: Vec<_> =
            findings(&digests(image, &more), "").into_iter().filter(|(_, path, _)| !path.contains("lineage")).collect();
        assert_eq!(found, none, "{more}");
    }
    for (bad, says) in [
        (json!({"image": TAG, "platform": "linux"}), "not a platform"),
        (json!({"image": TAG, "requirePlatforms": ["linux/amd64", ""]}), "not a platform"),
        (json!({"image": TAG, "placeholder": "r.example/x:1"}), "no digest"),
    ] {
        let found = findings(&json!({"images": {"app": bad}}), "");
        assert!(found.iter().any(|(severity, _, message)| severity == "error" && message.contains(says)), "{found:?}");
    }
    let found = findings(&json!({"images": {"stale": {"image": TAG}}}), "");
    assert!(found.iter().any(|(_, path, _)| path == "images.stale"), "{found:?}");
}

#[test]
fn registry_options_are_checked() {
    for (registries, path, says) in [
        (json!({"a.example": {"endpoint": "https://x"}}), "registries.a.example.endpoint", "not a host"),
        (json!({"a.example": {"concurrency": 0}}), "registries.a.example.concurrency", "no request would ever be sent"),
        (json!({"a.example": {"mirrorOf": "a.example"}}), "registries.a.example.mirrorOf", "not another"),
        (json!({"a.example": {"ca": "none.crt"}}), "registries.a.example.ca", "none.crt"),
        (json!({"a.example": {"plainHttp": true, "ca": "none.crt"}}), "registries.a.example.ca", "no effect"),
        (json!({"a.example": {"credentialHelpers": ["x"]}}), "registries.a.example.credentialHelpers", "never used"),
        (
            json!({"a.example": {"mirrorOf": "b.example"}, "b.example": {"mirrorOf": "c.example"}}),
            "registries.a.example.mirrorOf",
            "a mirror itself",
        ),
        (json!({"docker.io": {}, "index.docker.io": {}}), "registries.index.docker.io", "two entries"),
    ] {
        let digests = json!({"images": {"app": {"image": TAG}}});
        let found = findings(&digests, &format!("registries: {registries}\n"));
        assert!(found.iter().any(|(_, at, message)| at == path && message.contains(says)), "{registries}: {found:?}");
    }
}

#[test]
fn check_warns_of_a_lineage_that_a_restart_forgets() {
    let images = json!({"digests": digests(TAG, &json!({}))});
    let list = json!({"digests": {"list": {"repositories": ["r.example/x"]}}});
    let pipeline = |first: &Value| json!({"pipeline": [first, {"select": "items"}]});
    let merge = |other: &Value| json!({"merge": {"mergeKeys": ["revision"], "backends": [{"fixed": {"parameters": []}}, other]}});
    let (lineage, kept) = (json!(["branch"]), "cache: { path: ./answers.redb }\n");
    let forgotten = "cache: {}\n";
    for (backend, lineage, more, is_told) in [
        (&images, &lineage, forgotten, true),
        (&images, &lineage, kept, false),
        (&images, &Value::Null, forgotten, false),
        (&list, &lineage, forgotten, false),
        (&pipeline(&images), &lineage, forgotten, true),
        (&merge(&images), &lineage, forgotten, true),
        (&pipeline(&merge(&images)), &lineage, forgotten, true),
        (&pipeline(&merge(&images)), &lineage, kept, false),
        (&pipeline(&merge(&list)), &lineage, forgotten, false),
        (&json!({"http": {"url": "https://ci.example/{{ params.branch }}"}}), &lineage, forgotten, false),
    ] {
        let found = of_route(&json!({"name": "l", "lineage": lineage, "backend": backend}), more);
        let is_found = found.iter().any(|(severity, path, message)| {
            severity == "warning"
                && path == "routes[0].lineage"
                && message.starts_with("without `cache.path` a restart")
        });
        let others = found.iter().filter(|(_, path, _)| path != "cache" && path != "routes[0].lineage").count();
        assert_eq!((is_found, others), (is_told, 0), "{backend} {lineage} {more}: {found:?}");
    }
}

/// A commit without a lineage is worth a word only where something uses it.
#[test]
fn check_wants_a_lineage_for_a_commit_that_is_used() {
    let http = |url: &str| json!({"http": {"url": format!("https://ci.example/{url}")}});
    let input = json!([{"name": "branch"}, {"name": "head_sha"}]);
    let script = json!({"script": {"command": ["cat"]}});
    for (backend, more, is_told) in [
        (http("{{ params.head_sha }}"), json!({}), true),
        (http("{{ params['head_sha'] }}"), json!({}), true),
        (http("{{ params.branch }}"), json!({}), false),
        (http("{{ params.branch }}"), json!({"echo": ["head_sha"]}), true),
        (http("{{ params.branch }}"), json!({"match": {"parameters": {"head_sha": "*"}}}), false),
        (json!({"digests": {"images": {"app": {"image": TAG}}}}), json!({}), false),
        (
            json!({"digests": {"images": {"app": {"image": TAG}}, "revision": {"expect": "{{ params.head_sha }}"}}}),
            json!({}),
            true,
        ),
        (script, json!({}), true),
    ] {
        let mut route = json!({"name": "l", "input": input, "backend": backend});
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let found = of_route(&route, "");
        let is_found =
            found.iter().any(|(_, path, message)| path == "routes[0].lineage" && message.contains("names no lineage"));
        assert_eq!(is_found, is_told, "{route}: {found:?}");
    }
    // `sha` is not `sha256`.
    let route = json!({"name": "l", "backend": http("{{ params.sha256 }}")});
    assert!(of_route(&route, "").iter().all(|(_, path, _)| path != "routes[0].lineage"));
}
