//! Lists and items that no answer can be made of, and those that change while elements are queried.

use super::*;

/// A gateway whose list is the body of `list`, and whose elements are queried by their `sha`.
async fn gateway(list: &Arc<Mutex<String>>) -> (TestApp, Upstream) {
    let served = Arc::clone(list);
    let upstream = Upstream::start(move |request| {
        if request.target == "/list" {
            return vec![Step::Send(json_response(served.lock().unwrap().clone()))];
        }
        // The list shrinks meanwhile.
        if request.target == "/element/shrink" {
            *served.lock().unwrap() = json!([{"number": 1, "sha": "a"}]).to_string();
        }
        vec![Step::Send(json_response(json!([{"digest": request.target}]).to_string()))]
    })
    .await;
    let url = format!("http://{}", upstream.address);
    let each = json!({"key": ["number"], "http": {"url": format!("{url}/element/{{{{ item.sha }}}}")}});
    let route = json!({
        "name": "previews",
        "cache": {"ttl": "10s", "staleWhileRevalidate": "0s", "staleIfError": "24h", "prefetch": false},
        "backend": {"pipeline": [{"http": {"url": format!("{url}/list")}}, {"each": each}]},
        "output": {"number": "{{ item.number }}", "digest": "{{ digest }}"},
    });
    (TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await, upstream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_items_cannot_be_told_apart_is_unknown() {
    let list = Arc::new(Mutex::new(String::new()));
    let (app, _upstream) = gateway(&list).await;
    let many: Vec<Value> = (0..10_001).map(|number| json!({"number": number, "sha": "a"})).collect();
    for (items, why) in [
        (
            json!([{"number": 1, "sha": "a"}, {"number": 2, "sha": "b"}, {"number": 1, "sha": "c"}]),
            "the items 0 and 2 both have the key 1; name more fields in `each.key`",
        ),
        (json!([{"number": 1, "sha": "a"}, {"sha": "b"}]), "item 1: it has no `number`, which `each.key` names"),
        (json!([{"number": "", "sha": "a"}]), "item 0: its `number` is empty, and `each.key` names it"),
        (
            json!([{"number": null, "sha": "a"}]),
            "item 0: its `number` is null, and `each.key` needs a text or a number",
        ),
        (
            json!([{"number": [1], "sha": "a"}]),
            "item 0: its `number` is a list, and `each.key` needs a text or a number",
        ),
        (
            json!(many),
            "the list has 10001 items, and an answer may have 10000 elements; select fewer, or make several routes",
        ),
    ] {
        *list.lock().unwrap() = items.to_string();
        let reply = app.ask("previews", json!({})).await;
        assert_eq!(reply.status, 502, "{}", reply.text());
        assert!(reply.text().contains(why), "{why}: {}", reply.text());
        app.clock.advance(Duration::from_mins(2));
    }
    // Items that are told apart by their type are not the same.
    *list.lock().unwrap() = json!([{"number": 1, "sha": "a"}, {"number": "1", "sha": "b"}]).to_string();
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_makes_its_template_fail_is_unknown_alone() {
    let list = Arc::new(Mutex::new(json!([1, 2, 3].map(|number| json!({"number": number, "sha": "a"}))).to_string()));
    let (app, _upstream) = gateway(&list).await;
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1", "2", "3"]);
    // The second and a new one have no commit.
    let items = json!([{"number": 1, "sha": "b"}, {"number": 2}, {"number": 3, "sha": "b"}, {"number": 4}, {"number": 5, "sha": "b"}]);
    *list.lock().unwrap() = items.to_string();
    app.clock.advance(Duration::from_secs(12));
    let reply = app.ask("previews", json!({})).await;
    assert_eq!(numbers(&reply), ["1", "2", "3", "5"]);
    let digest = |index: usize| reply.json()["output"]["parameters"][index]["digest"].clone();
    assert_eq!([0, 1, 3].map(digest), [json!("/element/b"), json!("/element/a"), json!("/element/b")]);
    let expected = "present=3, absent=0, last-known=1, unknown=1";
    assert_eq!(reply.header("x-appset-gateway-elements"), Some(expected));
    let answers = app.operate("/admin/answers", None).await.json();
    let path = format!("/admin/answers/{}", answers["answers"][0]["key"].as_str().unwrap());
    let elements = app.operate(&path, None).await.json()["elements"].clone();
    for index in [0, 1] {
        let why = elements["list"][index]["failing"]["message"].as_str().unwrap();
        assert!(why.contains("sha") && why.contains("url"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_shrinks_while_its_elements_are_queried_counts_as_it_was_read() {
    let list = Arc::new(Mutex::new(
        json!([{"number": 1, "sha": "a"}, {"number": 2, "sha": "shrink"}, {"number": 3, "sha": "a"}]).to_string(),
    ));
    let (app, _upstream) = gateway(&list).await;
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1", "2", "3"]);
    app.clock.advance(Duration::from_secs(12));
    // Two of three are gone, which the guard holds until it is confirmed.
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1", "2", "3"]);
}
