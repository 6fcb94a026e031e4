//! Expressions below `each` see the list's item, as templates there do.

use super::*;
use crate::support::images;

/// A gateway with three elements, whose route has `below` as the backend of each. The source has CI's answer at `/ci`.
async fn ask(below: impl Fn(&str) -> Value, files: impl Fn(&std::path::Path)) -> Vec<String> {
    let upstream = Upstream::start(|request| {
        vec![Step::Send(if request.target == "/ci" {
            json_response(json!({"built": "sha-2"}).to_string())
        } else {
            let items = [1, 2, 3].map(|number| json!({"number": number, "sha": format!("sha-{number}")}));
            json_response(json!(items).to_string())
        })]
    })
    .await;
    let url = format!("http://{}", upstream.address);
    let mut each = below(&url);
    each["key"] = json!(["number"]);
    let route = json!({"name": "previews",
        "backend": {"pipeline": [{"http": {"url": format!("{url}/list")}}, {"each": each}]},
        "output": {"number": "{{ item.number }}"}});
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let app = TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    numbers(&app.ask("previews", json!({})).await)
}

/// The request to CI is the same for all elements. Its remembered verdict is that of one element all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_below_each_sees_the_item() {
    let digests = |url: &str| {
        json!({"digests": {
            "images": {"app": {"image": "oci:images:app:pr-{{ item.number }}"}},
            "gate": {"http": {"url": format!("{url}/ci"), "verdict": "body.built == item.sha ? 'passed' : 'pending'"}},
            "onMissing": "omit",
        }})
    };
    let passed = ask(digests, |folder| {
        let layout = folder.join("images");
        images::create(&layout);
        for number in 1..=3 {
            let image =
                images::image(&layout, &json!({"os": "linux", "architecture": "amd64"}), &json!({}), &json!({}));
            images::name(&layout, &format!("app:pr-{number}"), image);
        }
    });
    assert_eq!(passed.await, ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parameters_of_a_script_below_each_see_the_item() {
    let script = |_: &str| json!({"script": {"command": ["echo", "[{}]"], "parameters": "items.filter(i, item.sha != 'sha-2').map(i, {'of': item.sha})"}});
    assert_eq!(ask(script, |_| ()).await, ["1", "3"]);
}
