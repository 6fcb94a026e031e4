//! Each kind of backend works in a route, in a pipeline and in a merge.

use std::sync::Arc;

use backend::KINDS;
use domain::clock::SystemClock;
use serde_json::{Value, json};

use crate::support::app::build;

/// A small configuration for each kind.
fn examples() -> Value {
    let fixed = json!({"parameters": [{"name": "a"}]});
    json!({
        "fixed": fixed,
        "script": {"command": ["cat"]},
        "http": {"url": "http://127.0.0.1:1/list", "allowedHosts": ["127.0.0.1"], "parameters": "body"},
        "sql": {"url": "postgres://127.0.0.1/shop", "user": "u", "password": {"file": "token"}, "tls": "disabled", "query": "select 1 as name"},
        "kubernetes": {"apiVersion": "v1", "kind": "Namespace", "api": "http://127.0.0.1:1", "token": {"file": "token"}},
        "digests": {"images": {"front": {"image": "registry.example.com/front:main"}}},
        "pipeline": [{"fixed": fixed}, {"select": "items"}],
        "merge": {"mergeKeys": ["name"], "backends": [{"fixed": fixed}, {"fixed": fixed}]},
    })
}

/// The problems of a configuration with a route of `backend`.
fn problems(backend: &Value) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "strong-password").unwrap();
    let config = json!({
        "auth": {"tokens": [{"name": "argocd", "file": "token"}]},
        "routes": [{"name": "r", "backend": backend}],
    });
    build(folder.path(), &config.to_string(), Arc::new(SystemClock)).err().map(|report| report.to_string())
}

#[tokio::test]
async fn each_kind_can_be_a_route_and_a_step() {
    let examples = examples();
    for kind in KINDS {
        let config = examples.get(kind).unwrap_or_else(|| panic!("`examples` in {} has no `{kind}`", file!()));
        let step = json!({*kind: config});
        let first = json!({"fixed": {"parameters": [{"name": "a"}]}});
        for backend in [
            step.clone(),
            json!({"pipeline": [step]}),
            json!({"pipeline": [first, step]}),
            json!({"merge": {"mergeKeys": ["name"], "backends": [first, step]}}),
        ] {
            let found = problems(&backend);
            assert!(found.is_none(), "the kind `{kind}` does not work in {backend}:\n{}", found.unwrap_or_default());
        }
    }
}
