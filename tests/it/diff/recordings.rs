//! Which questions are recorded, and what a recording holds.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn at_most_200_questions_are_sent_and_the_rest_is_counted() {
    let scene = Scene::start(|url| json!([http("r", url, "old")])).await;
    for n in 0..205 {
        assert_eq!(scene.ask("/r", "one", json!({"n": n.to_string()})).await.status, 200);
    }
    scene.next(|url| json!([http("r", url, "old")]));
    scene.diff(&[]).says(3, &["200 the same", "5 older questions were not sent"]);
    let done = scene.diff(&["--limit", "205"]);
    done.says(0, &["205 the same"]);
    assert!(!done.out.contains("not asked"), "{}", done.out);
    for limit in ["0", "1001", "x"] {
        scene.diff(&["--limit", limit]).says(2, &["it is a number from 1 to 1000"]);
    }
    let listed = scene.admin("/admin/questions?limit=3").await.json();
    assert_eq!((listed["questions"].as_array().unwrap().len(), &listed["total"]), (3, &json!(205)));
    assert_eq!(scene.admin("/admin/questions?limit=1001").await.status, 400);
    // The ApplicationSets of one question are asked for in turn, and then also make more runs.
    let asked_by: Vec<String> = (0..201).map(|n| format!("set-{n}")).collect();
    let sets = [json!({"name": "a"})];
    scene.write(
        "questions.json",
        &json!({"questions": [{"route": "r", "requesters": asked_by, "sets": sets}]}).to_string(),
    );
    scene.write(
        "next.yaml",
        &config(&json!([{"name": "r", "backend": {"script": {"command": ["echo", "[{\"name\":\"a\"}]"]}}}]), ""),
    );
    scene.diff_against("questions.json", &[]).says(3, &["200 the same", "1 older questions were not sent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_recorded_and_compared_later() {
    let scene = Scene::start(|url| json!([http("r", url, "old")])).await;
    scene.ask("/r", "one", json!({})).await;
    scene.next(|url| json!([http("r", url, "old")]));
    scene.diff(&["--save", "saved.json"]).says(0, &["1 the same"]);
    let saved = std::fs::read_to_string(scene.folder.path().join("saved.json")).unwrap();
    let curled = scene.admin("/admin/questions").await.json();
    assert_eq!(serde_json::from_str::<Value>(&saved).unwrap(), curled, "curl saves the same");
    scene.next(|url| json!([http("r", url, "new")]));
    scene.diff_against("saved.json", &[]).says(1, &["ApplicationSet one", "- removed  d"]);
    // Two configurations.
    scene.write("current.yaml", &config(&json!([http("r", "http://127.0.0.1:1", "few")]), ""));
    // The source of the current configuration does not answer, so what callers are given is not known.
    scene
        .diff_against("current.yaml", &["--questions", "saved.json"])
        .says(3, &["before     no answer is known: route r (http): ", "+ added    e"]);
    scene.write("current.yaml", &config(&json!([http("r", &scene.url(), "few")]), ""));
    let both = scene.diff_against("current.yaml", &["--questions", "saved.json"]);
    both.says(0, &["~ changed  a", "+ added    e", "3 parameter sets added, 0 removed, 1 changed"]);
    // Questions that somebody wrote.
    scene.write("mine.yaml", "questions:\n- { route: r, requesters: [fleet], input: { x: y } }\n");
    scene
        .diff_against("current.yaml", &["--questions", "mine.yaml"])
        .says(0, &["ApplicationSet fleet", "+ added    b"]);
}

/// A secret that the source gives back is in no recording.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_recorded() {
    let route = |url: &str| json!([{"name": "r", "backend": {"http": {"url": format!("{url}/canary-secret"), "headers": {"X-Key": {"file": "key"}}}}}]);
    let scene = Scene::with(route, "", &[("key", "canary-secret")]).await;
    assert!(scene.ask("/r", "one", json!({})).await.text().contains("canary-secret"));
    scene.next(route);
    scene.diff(&["--save", "saved.json"]).says(0, &["1 the same"]);
    let saved = std::fs::read_to_string(scene.folder.path().join("saved.json")).unwrap();
    assert!(saved.contains("[redacted]") && !saved.contains("canary-secret"), "{saved}");
    // A caller sends it. Then the question cannot be asked again.
    scene.ask("/r", "two", json!({"list": ["canary-secret"]})).await;
    scene.diff(&["--save", "saved.json"]).says(
        3,
        &["1 the same", "ApplicationSet two", "an input parameter is a secret of the backend. It was not recorded"],
    );
    let saved = std::fs::read_to_string(scene.folder.path().join("saved.json")).unwrap();
    assert!(!saved.contains("canary-secret"), "{saved}");
}

/// The namespace of an ApplicationSet is known only from its calls.
#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_of_a_call_is_recorded() {
    let routes = json!([{"name": "r", "backend": {"script": {"command": ["echo", "[{\"name\":\"a\"}]"]}}}]);
    let app = TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await;
    for namespace in ["teams", "argocd"] {
        let body =
            json!({"applicationSetName": "one", "applicationSetNamespace": namespace, "input": {"parameters": {}}});
        assert_eq!(app.call("/r/api/v1/getparams.execute", &body).await.status, 200);
    }
    let list = app.operate("/admin/questions", None).await.json();
    let mut names: Vec<&str> =
        list["questions"][0]["requesters"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    names.sort_unstable();
    assert_eq!((list["questions"].as_array().unwrap().len(), names), (1, vec!["argocd/one", "teams/one"]), "{list}");
}

/// The admin listener lists failed, held and unanswered questions too, as `openapi.yaml` says.
#[tokio::test]
async fn the_list_of_questions_follows_the_contract() {
    let script = json!({"script": {"command": ["sh", "-c", "cat answer"], "allow": {"read": ["."]}}});
    let routes = json!([{"name": "s", "backend": script}, {"name": "n", "match": {}, "backend": script}]);
    let app = TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await;
    let listed = async |query: &str| {
        let reply = app.operate(&format!("/admin/questions{query}"), None).await;
        (reply.status, reply.json())
    };
    assert_eq!(listed("").await.1["questions"], json!([]));
    assert_eq!(app.ask("s", json!({})).await.status, 502);
    std::fs::write(app.folder.path().join("answer"), r#"[{"name":"a"}]"#).unwrap();
    app.clock.advance(std::time::Duration::from_mins(10));
    app.ask("n", json!({"x": [1, null]})).await;
    let (_, list) = listed("").await;
    let [answered, failed] = &list["questions"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&answered["sets"], &answered["requesters"]), (&json!([{"name": "a"}]), &json!(["test"])));
    assert_eq!((failed.get("sets"), failed["failing"].is_string()), (None, true));
    // What is held is not what callers were given.
    std::fs::write(app.folder.path().join("answer"), "[]").unwrap();
    app.clock.advance(std::time::Duration::from_mins(10));
    app.ask("n", json!({"x": [1, null]})).await;
    app.settle().await;
    let (_, list) = listed("?limit=1").await;
    assert_eq!((&list["questions"][0]["sets"], &list["total"]), (&json!([{"name": "a"}]), &json!(2)));
    assert!(list["questions"][0]["failing"].as_str().unwrap().starts_with("held: "), "{list}");
    assert_eq!(listed("?limit=x").await.0, 400);
    assert_eq!(listed("?other=1").await.0, 400);
}
