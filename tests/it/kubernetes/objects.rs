//! The objects of one cluster that answers well.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_read_to_its_end() {
    let cluster = Cluster::start(&["a", "b", "c", "d", "e"]).await;
    cluster.accept("own-token");
    let app = cluster.gateway(json!({})).await;
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(values(&reply, "name"), ["a", "b", "c", "d", "e"]);
    let first: Value = serde_json::from_str(&reply.sets()).unwrap();
    assert_eq!(first[0], json!({"name": "a", "namespace": "", "labels": {"team": "a"}}), "without `parameters`");
    let list = "/api/v1/namespaces?limit=250";
    let expected = ["/api/v1", list, &format!("{list}&continue=8-2"), &format!("{list}&continue=8-4")];
    assert_eq!(cluster.requests(), expected);
    assert_eq!(values(&app.ask_afresh("apps", json!({})).await, "name").len(), 5);
    assert_eq!(cluster.requests().len(), 7, "the name in URLs is known already");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_is_a_proof() {
    let cluster = Cluster::start(&["a"]).await;
    let app = cluster.gateway(json!({"labelSelector": "team={{ params.team }}"})).await;
    assert_eq!(values(&app.ask("apps", json!({"team": "a"})).await, "name"), ["a"]);
    assert_eq!(app.ask("apps", json!({"team": "b"})).await.sets(), "[]");
    let requests = cluster.requests();
    assert!(requests.last().unwrap().ends_with("/namespaces?labelSelector=team%3Db&limit=250"), "{requests:?}");
    let unset = app.ask("apps", json!({})).await;
    refused(&unset, 422, "invalid_input", "params.team");
    let answers = app.operate("/admin/answers", None).await.json();
    let empty = answers["answers"].as_array().unwrap().iter().find(|answer| answer["parameterSets"] == 0).unwrap();
    let path = format!("/admin/answers/{}", empty["key"].as_str().unwrap());
    let evidence = app.operate(&path, None).await.json()["evidence"][0].clone();
    assert_eq!((&evidence["verdict"], &evidence["answer"]), (&json!("absent"), &json!("200, an explicit empty list")));
    let query = format!("GET {}/api/v1/namespaces, labels team=b", cluster.url());
    assert_eq!(evidence["query"], query);
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_lists_of_their_own() {
    let cluster = Cluster::start(&[]).await;
    let all = [("a", "x"), ("b", "y"), ("a", "z"), ("c", "w")];
    cluster.set("/api/v1/configmaps", all.iter().map(|(namespace, name)| object_in(namespace, name)).collect());
    let more = json!({
        "kind": "ConfigMap",
        "namespaces": ["a", "{{ params.other }}", "a"],
        "parameters": "{'name': object.metadata.name, 'of': object.kind + ' ' + object.apiVersion, 'data': object.data}",
    });
    let app = cluster.gateway(more).await;
    let reply = app.ask("apps", json!({"other": "c"})).await;
    assert_eq!(values(&reply, "name"), ["x", "z", "w"]);
    assert_eq!(values(&reply, "of"), ["ConfigMap v1"; 3]);
    let before = cluster.requests().len();
    for name in ["", "..", "a/b", "a?x=y", "A"] {
        refused(&app.ask("apps", json!({"other": name})).await, 422, "invalid_input", "is not the name of a namespace");
    }
    assert_eq!(cluster.requests().len(), before, "no such name becomes a request");
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_need_their_plural_only_where_the_cluster_does_not_say_it() {
    let cluster = Cluster::start(&[]).await;
    let mut team = object_in("a", "one");
    team["apiVersion"] = json!("example.com/v1");
    team["kind"] = json!("Team");
    cluster.set("/apis/example.com/v1/teams", vec![team]);
    for more in [json!({}), json!({"resource": "teams"})] {
        let keys = extended(json!({"apiVersion": "example.com/v1", "kind": "Team"}), more);
        let app = cluster.gateway(keys).await;
        assert_eq!(values(&app.ask("apps", json!({})).await, "namespace"), ["a"]);
    }
    let requests = cluster.requests();
    let list = "/apis/example.com/v1/teams?limit=250";
    assert_eq!(requests, ["/apis/example.com/v1", list, list], "with `resource` nobody asks for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_makes_any_number_of_sets_of_an_object() {
    let cluster = Cluster::start(&["a", "b"]).await;
    let parameters = "object.metadata.name == 'a' ? [] : ['x', 'y'].map(n, {'name': object.metadata.name + n, 'at': cluster.name}) // b";
    let app = cluster.gateway(json!({"parameters": parameters})).await;
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(values(&reply, "name"), ["bx", "by"]);
    assert_eq!(values(&reply, "at"), ["in-cluster", "in-cluster"]);

    let app = cluster.gateway(json!({"parameters": "{'owner': object.metadata.labels.owner}"})).await;
    let message = refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", "parameters: object a: ");
    assert!(message.contains("owner"), "{message}");
    let app = cluster.gateway(json!({"parameters": "[object.metadata.name]"})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_output_invalid", "object a: its result has a string");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_step_can_use_it_and_it_can_use_items() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    cluster.set("/api/v1/configmaps", vec![object_in("a", "x"), object_in("c", "z")]);
    let own = json!({"apiVersion": "v1", "api": cluster.url(), "token": {"file": "token"}});
    let with = |more: Value| extended(own.clone(), more);
    let each = json!({
        "key": ["name"],
        "kubernetes": with(json!({"kind": "ConfigMap", "namespaces": ["{{ item.name }}"], "parameters": "{'map': object.metadata.name}"})),
    });
    let route = json!({
        "name": "apps",
        "backend": {"pipeline": [{"kubernetes": with(json!({"kind": "Namespace"}))}, {"each": each}]},
        "output": {"name": "{{ item.name }}", "map": "{{ map }}"},
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "own-token").unwrap();
    let app = TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(
        (values(&reply, "name"), values(&reply, "map")),
        (vec!["a".to_owned(), "c".into()], vec!["x".to_owned(), "z".into()])
    );
    let elements = reply.header("x-appset-gateway-elements");
    assert_eq!(elements, Some("present=2, absent=1, last-known=0, unknown=0"));
}
