//! Backends of several parts below `each`, and keys of all forms.

use super::*;

/// The answer's sets for `items`, with `each`.
async fn sets(items: Value, each: Value, output: Value) -> Reply {
    let route = json!({"name": "previews",
        "backend": {"pipeline": [{"fixed": {"parameters": items}}, {"each": each}]}, "output": output});
    let app = TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    let reply = app.ask("previews", json!({})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

/// Each element's pipeline and merge see its own item in all of their steps.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_and_a_merge_may_stand_below_each() {
    let items = json!([{"number": 1, "size": "s"}, {"number": 2, "size": "l"}]);
    let upstream = Upstream::start(|request| {
        let (_, of) = request.target.rsplit_once('/').unwrap();
        vec![Step::Send(json_response(json!([{"name": "app", "tag": format!("tag-{of}")}]).to_string()))]
    })
    .await;
    let http =
        |path: &str| json!({"http": {"url": format!("http://{}/{path}/{{{{ item.number }}}}", upstream.address)}});
    let output = json!({"number": "{{ item.number }}", "tag": "{{ tag }}", "size": "{{ item.size }}"});
    let expected = json!([{"number": "1", "tag": "tag-1", "size": "s"}, {"number": "2", "tag": "tag-2", "size": "l"}]);
    let pipeline = json!({"key": ["number"], "pipeline": [{"fixed": {"parameters": [{"name": "app"}]}}, http("step")]});
    let merge = json!({"key": ["number"], "merge": {"mergeKeys": ["name"], "backends": [
        {"fixed": {"parameters": [{"name": "app", "replicas": 2}]}}, http("part")]}});
    for each in [pipeline, merge] {
        let reply = sets(items.clone(), each, output.clone()).await;
        assert_eq!(reply.json()["output"]["parameters"], expected);
    }
}

/// A key may lead into an object, and be a number, a text or a boolean.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_be_of_several_fields_of_several_types() {
    let items = json!([
        {"repo": {"name": "a"}, "number": 1, "fork": false},
        {"repo": {"name": "b"}, "number": 1, "fork": false},
        {"repo": {"name": "a"}, "number": 1, "fork": true},
    ]);
    let each = json!({"key": ["repo.name", "number", "fork"], "fixed": {"parameters": [{"x": "y"}]}});
    let output = json!({"id": "{{ item.repo.name }}-{{ item.number }}-{{ item.fork }}"});
    let reply = sets(items, each, output).await;
    assert_eq!(
        reply.json()["output"]["parameters"],
        json!([{"id": "a-1-false"}, {"id": "b-1-false"}, {"id": "a-1-true"}])
    );
}
