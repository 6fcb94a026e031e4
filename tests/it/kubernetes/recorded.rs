//! `record`, `test`, `call` and `check --connect` with clusters.

use std::path::Path;

use super::*;
use crate::support::binary::command;

/// Runs `appset-gateway` beside `gateway.yaml` in `folder`. Returns the exit code, standard output and standard error.
fn cli(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command().current_dir(folder).args(arguments).args(["-c", "gateway.yaml"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_fleet_is_replayed_without_clusters_and_without_logins() {
    let (own, mut other) = (Cluster::start(&["home"]).await, Cluster::start(&["a", "b", "c"]).await);
    other.accept("token-of-other");
    let login = json!({"bearerToken": "token-of-other"});
    own.set("/api/v1/namespaces/argocd/secrets", vec![cluster_secret("other", &other.url(), &login)]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "own-token").unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), config(&own.url(), json!({"clusters": "argocd"}))).unwrap();
    std::fs::create_dir(folder.path().join("tests")).unwrap();

    let (code, printed, error) = cli(folder.path(), &["check", "--connect"]);
    assert_eq!(code, Some(0), "{printed}{error}");
    let said = format!("{printed}{error}");
    assert!(said.contains("2 clusters") && said.contains("cluster other"), "{said}");
    assert!(said.contains("serves Namespace (namespaces)"), "{said}");

    let (code, printed, error) = cli(folder.path(), &["call", "apps"]);
    assert_eq!(code, Some(0), "{error}");
    let sets = serde_json::from_str::<Value>(&printed).unwrap()["output"]["parameters"].clone();
    assert_eq!(sets.as_array().unwrap().len(), 4);
    assert!(error.contains("element   other: present, 3 parameter sets"), "{error}");

    let (code, printed, error) = cli(folder.path(), &["record", "apps", "--name", "all", "--to", "tests/apps.yaml"]);
    assert_eq!(code, Some(0), "{printed}{error}");
    let case = std::fs::read_to_string(folder.path().join("tests/apps.yaml")).unwrap();
    for secret in ["token-of-other", "own-token", &STANDARD.encode(login.to_string())] {
        assert!(!case.contains(secret), "{case}");
    }
    other.upstream.refuse().await;
    std::fs::remove_file(folder.path().join("token")).unwrap();
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}{error}\n{case}");
}
