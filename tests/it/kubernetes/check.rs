//! What `check` says of the backend's keys.

use super::*;
use crate::support::check::of_route;

/// The severities, places and messages about a backend with these keys.
fn findings(more: Value) -> Vec<(String, String, String)> {
    let backend = extended(
        json!({"apiVersion": "v1", "kind": "Namespace", "api": "http://127.0.0.1:1", "token": {"env": "PATH"}}),
        more,
    );
    of_route(&json!({"name": "apps", "backend": {"kubernetes": backend}}), "")
}

#[tokio::test]
async fn mistakes_are_found_before_any_request() {
    for (more, key, says) in [
        (json!({"apiVersion": "a/b/c"}), "apiVersion", "is not a group and a version"),
        (json!({"apiVersion": ".."}), "apiVersion", "is not a group and a version"),
        (json!({"kind": "a/b"}), "kind", "is not a kind"),
        (json!({"kind": "Secret"}), "kind", "a Secret's content would become a part of Applications"),
        (json!({"resource": "a/b"}), "resource", "is not the plural name"),
        (json!({"namespaces": ["A"]}), "namespaces[0]", "`A` is not the name of a namespace"),
        (json!({"labelSelector": "{{ parms.x }}"}), "labelSelector", "unknown name `parms`"),
        (json!({"parameters": "object.metadata.name +"}), "parameters", "a value or a name is expected"),
        (json!({"parameters": "'a'"}), "parameters", "its result is a text"),
        (json!({"parameters": "{'a': clusters.name}"}), "parameters", "unknown name `clusters`"),
        (json!({"parameters": "{'a': cluster.nam}"}), "parameters", "`cluster` has no field `nam`"),
        (json!({"parameters": "objects"}), "parameters", "unknown name `objects`"),
        (json!({"maxObjects": 0}), "maxObjects", "every list has too many"),
        (json!({"timeout": "0s"}), "timeout", ""),
        (json!({"api": "http://kubernetes.example.com"}), "api", "it is not https"),
        (json!({"token": {"file": "none"}}), "token", "cannot read the secret file"),
        (json!({"clusters": {"namespace": "a/b"}}), "clusters.namespace", "not the name of a namespace"),
        (json!({"clusters": {"labelSelector": " "}}), "clusters.labelSelector", "it is empty"),
        (json!({"clusters": {"identities": ["x"]}}), "clusters.identities[0]", "there is no identity called `x`"),
        (json!({"clusters": {"allowInsecure": true}}), "clusters.allowInsecure", "can read the login"),
        (
            json!({"clusters": "argocd", "parameters": "{'a': object.metadata.name}"}),
            "parameters",
            "equal objects of two clusters",
        ),
    ] {
        let found = findings(more.clone());
        let place = format!("routes[0].backend.kubernetes.{key}");
        let is_it = |(_, at, message): &(String, String, String)| *at == place && message.contains(says);
        assert!(found.iter().any(is_it), "{more}: {found:?}");
    }
    let good = findings(json!({"clusters": {"labelSelector": "env=prod", "maxUnknown": "10%"}}));
    assert!(good.is_empty(), "{good:?}");
}

#[tokio::test]
async fn clusters_of_argo_cd_are_no_part_of_an_element() {
    let kubernetes = json!({"apiVersion": "v1", "kind": "Namespace", "clusters": "argocd", "api": "http://127.0.0.1:1", "token": {"env": "PATH"}});
    let fixed = json!({"fixed": {"parameters": [{"name": "a"}]}});
    let pipeline = json!([fixed, {"each": {"key": ["name"], "kubernetes": kubernetes}}]);
    let found = of_route(&json!({"name": "apps", "backend": {"pipeline": pipeline}}), "");
    assert!(found.iter().any(|(.., message)| message.contains("are not possible below `each`")), "{found:?}");
    let pipeline = json!([{"kubernetes": kubernetes}, {"each": {"key": ["cluster", "name"], "fixed": {"parameters": [{"a": "b"}]}}}]);
    let found = of_route(&json!({"name": "apps", "backend": {"pipeline": pipeline}}), "");
    assert!(found.is_empty(), "they can make the list: {found:?}");
}
