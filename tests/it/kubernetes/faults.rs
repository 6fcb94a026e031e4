//! Each way in which an API server fails, before the first answer and after it, as Argo CD reads the gateway's answer.

use std::time::Duration;

use super::*;

/// A page of the list of namespaces with these keys.
fn page(more: Value) -> Vec<Step> {
    let page = extended(
        json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {"resourceVersion": "8"}, "items": []}),
        more,
    );
    ok(&page)
}

fn half(steps: Vec<Step>) -> Vec<Step> {
    let Some(Step::Send(bytes)) = steps.into_iter().next() else { panic!() };
    vec![Step::Send(bytes[..bytes.len() - 20].to_vec())]
}

/// What a server answers in place of a list, and the code and text of the gateway's error.
fn faults() -> Vec<(Vec<Step>, u16, &'static str, &'static str)> {
    let html = vec![Step::Send(response(200, "Content-Type: text/html", "<html>Sign in</html>"))];
    let text = vec![Step::Send(response(404, "Content-Type: text/plain", "404 page not found"))];
    let invalid = "backend_output_invalid";
    vec![
        (
            status(403, "namespaces is forbidden"),
            502,
            "backend_failed",
            "needs the right to `list` namespaces in all namespaces",
        ),
        (status(401, "Unauthorized"), 502, "backend_failed", "access denied (401"),
        (status(404, "not found"), 502, invalid, "a missing CustomResourceDefinition is not a proof"),
        (text, 502, invalid, "404"),
        (status(410, "too old"), 502, invalid, "410"),
        (status(400, "field label not supported"), 502, invalid, "field label not supported"),
        (status(500, "etcd is away"), 502, "backend_failed", "etcd is away"),
        (status(503, "starting"), 502, "backend_failed", "503"),
        (
            vec![Step::Send(response(429, "Content-Type: application/json\r\nRetry-After: 30", "{}"))],
            429,
            "throttled",
            "429",
        ),
        (html, 502, invalid, "`text/html`, not JSON"),
        (half(page(json!({}))), 502, "backend_failed", "broke off"),
        (vec![Step::Reset], 502, "backend_failed", "GET http"),
        (
            vec![Step::Send(json_response(r#"{"apiVersion": "v1", "kind": "NamespaceList", "items": ["#))],
            502,
            invalid,
            "not one JSON document",
        ),
        (vec![Step::Send(json_response("[]"))], 502, invalid, "`NamespaceList` of `v1` is expected"),
        (
            ok(&json!({"apiVersion": "v1", "kind": "Status", "status": "Success"})),
            502,
            invalid,
            "it is `Status` of `v1`",
        ),
        (page(json!({"kind": "PodList"})), 502, invalid, "it is `PodList` of `v1`"),
        (page(json!({"items": null})), 502, invalid, "its `items` is null"),
        (ok(&json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {}})), 502, invalid, "it has no `items`"),
        (page(json!({"items": [1]})), 502, invalid, "an item is not an object"),
        (page(json!({"metadata": {"remainingItemCount": 3}})), 502, invalid, "3 more objects remain"),
        (page(json!({"metadata": {"continue": "x"}})), 502, invalid, "its pages do not end"),
        (
            vec![Step::Send(response(206, "Content-Type: application/json\r\nContent-Range: bytes 0-1/2", "{}"))],
            502,
            invalid,
            "206",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_becomes_an_empty_list() {
    for (steps, code, name, says) in faults() {
        let cluster = Cluster::start(&["a", "b"]).await;
        cluster.fail("/namespaces?", steps);
        let app = cluster.gateway(json!({})).await;
        refused(&app.ask("apps", json!({})).await, code, name, says);
        cluster.heal();
        let reply = app.ask_afresh("apps", json!({})).await;
        assert_eq!(values(&reply, "name"), ["a", "b"], "{says}: it heals");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_after_an_answer_leaves_that_answer() {
    for (steps, .., says) in faults() {
        let cluster = Cluster::start(&["a", "b", "c"]).await;
        let app = cluster.gateway(json!({})).await;
        assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["a", "b", "c"]);
        // Also in the middle of a list.
        for text in ["/namespaces?", "continue="] {
            cluster.fail(text, steps.clone());
            app.clock.advance(Duration::from_mins(10));
            let reply = app.ask("apps", json!({})).await;
            assert_eq!(values(&reply, "name"), ["a", "b", "c"], "{says}, {text}");
            assert!(
                reply.header("cache-status").is_some_and(|status| status.contains("; detail=")),
                "{says}, {text}: {reply:?}"
            );
            cluster.heal();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_not_there_is_unknown() {
    let cluster = Cluster::start(&[]).await;
    let teams = json!({"apiVersion": "example.com/v1", "kind": "Team"});
    let app = cluster.gateway(teams.clone()).await;
    assert_eq!(app.ask("apps", json!({})).await.sets(), "[]", "the resource is there, and has no objects");
    cluster.state().has_teams = false;
    let reply = app.ask_afresh("apps", json!({})).await;
    refused(&reply, 502, "backend_output_invalid", "a missing CustomResourceDefinition is not a proof");
    for (more, says) in [
        (json!({}), "a missing CustomResourceDefinition is not a proof"),
        (json!({"resource": "teams"}), "a missing CustomResourceDefinition is not a proof"),
        (json!({"apiVersion": "v1"}), "serves no kind `Team` of `v1`"),
    ] {
        let keys = extended(teams.clone(), more);
        let app = cluster.gateway(keys).await;
        refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", says);
    }
    let cluster = Cluster::start(&["a"]).await;
    let app = cluster.gateway(json!({"namespaces": ["a"]})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", "`Namespace` are in no namespace");
    cluster.fail("/api/v1", ok(&json!({"kind": "APIResourceList", "groupVersion": "v2", "resources": []})));
    let app = cluster.gateway(json!({})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", "it is about `v2`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_expires_begins_again_and_not_for_ever() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    cluster.fail_once("continue=", status(410, "too old"));
    let app = cluster.gateway(json!({})).await;
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["a", "b", "c"]);
    assert_eq!(cluster.requests().len(), 5, "the names, a page, 410, and two pages");
    cluster.fail("continue=", status(410, "too old"));
    let app = cluster.gateway(json!({})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_failed", "3 times the continuation expired (410)");
    assert_eq!(cluster.requests().len(), 5 + 7);
    cluster.heal();
    // Two pages of two versions may lack an object that moved between them.
    let other = json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {"resourceVersion": "9"}, "items": []});
    cluster.fail("continue=", ok(&other));
    let app = cluster.gateway(json!({})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_failed", "3 times its pages were of different versions");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_objects_are_an_error() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    let app = cluster.gateway(json!({"maxObjects": 2})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", "more than 2 objects (`maxObjects`)");
    let maps = vec![object_in("a", "x"), object_in("a", "y"), object_in("b", "z")];
    cluster.set("/api/v1/configmaps", maps);
    let app = cluster.gateway(json!({"maxObjects": 2, "kind": "ConfigMap", "namespaces": ["a", "b"]})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", "in all namespaces");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ended_is_read_again() {
    let cluster = Cluster::start(&["a"]).await;
    cluster.accept("next-token");
    let app = cluster.gateway(json!({})).await;
    let message = refused(&app.ask("apps", json!({})).await, 502, "backend_failed", "401");
    assert!(!message.contains("own-token"), "{message}");
    std::fs::write(app.folder.path().join("token"), "next-token").unwrap();
    assert_eq!(values(&app.ask_afresh("apps", json!({})).await, "name"), ["a"]);
    std::fs::remove_file(app.folder.path().join("token")).unwrap();
    app.clock.advance(Duration::from_mins(1));
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["a"], "as it was last");
}
