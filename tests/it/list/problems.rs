//! Problems that `appset-gateway check` finds in a list.

use serde_json::{Value, json};

use crate::support::check::errors as check;

fn list(more: &Value) -> Value {
    let mut list = json!({"repositories": ["r.example/x"]});
    list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"list": list})
}

#[test]
fn each_bad_key_is_reported_with_its_path() {
    assert_eq!(check(&list(&json!({}))), []);
    for (more, path, says) in [
        (json!({"repositories": []}), "list.repositories", "there are no repositories"),
        (json!({"repositories": ["r.example/x", "front"]}), "list.repositories[1]", "registry's host"),
        (json!({"repositories": ["{{ params.host }}/x"]}), "list.repositories[0]", "registry's host"),
        (json!({"repositories": ["r.example/x:1"]}), "list.repositories[0]", "`tags`"),
        (json!({"repositories": ["r.example/[ab]*"]}), "list.repositories[0]", "is not a repository"),
        (json!({"repositories": ["r.example/{{ branch }}"]}), "list.repositories[0]", "unknown name `branch`"),
        (json!({"repositores": []}), "list.repositores", "unknown key"),
        (json!({"tags": {"glob": "feat/*"}}), "list.tags.glob", "fits no tag"),
        (json!({"tags": {"glob": "sha256-*.sig"}}), "list.tags.glob", "never selected"),
        (json!({"tags": {"glob": "{{ branch }}"}}), "list.tags.glob", "unknown name `branch`"),
        (json!({"tags": {"regex": "("}}), "list.tags.regex", "unclosed group"),
        (json!({"tags": {"glob": "a*", "regex": "a.*"}}), "list.tags.regex", "`glob` and `regex` exclude"),
        (json!({"tags": {"semver": "newest"}}), "list.tags.semver", "version"),
        (json!({"tags": {"ignore": ["latest", "{a,b}"]}}), "list.tags.ignore[1]", "fits no tag"),
        (json!({"tags": {"ranges": []}}), "list.tags.ranges", "unknown key"),
        (json!({"sort": "newest"}), "list.sort", "newest"),
        (json!({"limit": 0}), "list.limit", "no tag is selected"),
        (json!({"limit": -1}), "list.limit", ""),
        (json!({"artifactType": "helm"}), "list.artifactType", "not a media type"),
        (json!({"annotations": {"a": 1.5}}), "list.annotations.a", ""),
        (json!({"missingRepository": "omit"}), "list.missingRepository", "omit"),
    ] {
        let found = check(&list(&more));
        assert_eq!(found.len(), 1, "{more}: {found:?}");
        assert!(found[0].0 == path && found[0].1.contains(says), "{more}: {found:?}");
    }
}

#[test]
fn a_list_excludes_the_keys_of_the_other_forms() {
    let mut both = list(&json!({}));
    both["images"] = json!({"app": {"image": "r.example/x:1"}});
    both["revision"] = json!({"expect": "{{ params.head_sha }}"});
    both["onMissing"] = json!("error");
    let paths: Vec<String> = check(&both).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["images", "revision", "onMissing"]);
}

/// All problems of a list are reported together.
#[test]
fn all_problems_of_a_list_are_reported_together() {
    let bad = json!({"repositories": ["front", "r.example/X"], "tags": {"glob": "a/b", "semver": "new", "ignore": ["["]},
        "limit": 0, "artifactType": "x"});
    assert_eq!(check(&list(&bad)).len(), 7, "{:?}", check(&list(&bad)));
}
