//! The ApplicationSets that requested a shared answer, and the command `appset-gateway answers`.

use std::sync::{Arc, Mutex};

use super::*;
use crate::support::upstream::{Step, Upstream, json_response};

/// An upstream that answers a list of these names, and a handle to change the list.
async fn inventory(names: &[&str]) -> (Upstream, Arc<Mutex<String>>) {
    let body = Arc::new(Mutex::new(sets(names)));
    let own = Arc::clone(&body);
    let play = move |_: &_| vec![Step::Send(json_response(own.lock().unwrap().clone()))];
    // On its own thread: the tests of the command block their thread while they wait.
    (Upstream::start_apart(play).await, body)
}

fn sets(names: &[&str]) -> String {
    json!(names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>()).to_string()
}

/// A route `h` that asks `upstream`. Its answers do not depend on the ApplicationSet.
fn routes(upstream: &Upstream) -> String {
    let http = json!({"url": format!("http://{}/list", upstream.address), "parameters": "body"});
    format!("routes: {}\n", json!([{"name": "h", "backend": {"http": http}}]))
}

async fn ask_as(app: &TestApp, name: &str) {
    let reply = app.call("/h/api/v1/getparams.execute", &json!({"applicationSetName": name, "input": {}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[tokio::test]
async fn the_application_sets_of_requests_are_listed() {
    let (upstream, body) = inventory(&["a", "b"]).await;
    let app = TestApp::start(&format!("{}{}", TestApp::auth(), routes(&upstream))).await;
    ask_as(&app, "first").await;
    for name in ["second", "second", "", "first"] {
        ask_as(&app, name).await;
    }
    assert_eq!(upstream.requests().len(), 1, "all but the first are hits");
    let [answer] = &answers(&app, "").await[..] else { panic!("one answer for all") };
    assert_eq!((&answer["requesters"], &answer["applicationSet"]), (&json!(["second", "first"]), &Value::Null));

    *body.lock().unwrap() = sets(&[]);
    app.clock.advance(Duration::from_mins(10));
    ask_as(&app, "third").await;
    assert_eq!(held(&app).await[0]["requesters"], json!(["third", "second", "first"]));
    assert_eq!(answers(&app, "").await[0]["held"]["requesters"], json!(["third", "second", "first"]));
}

#[tokio::test]
async fn an_answer_that_depends_on_its_application_set_lists_only_that_one() {
    let app = gateway().await;
    app.ask("s", json!({})).await;
    assert_eq!(answers(&app, "?route=s").await[0]["requesters"], json!(["test"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_list_and_invalidate_answers_and_name_the_callers() {
    let (upstream, body) = inventory(&["a", "b"]).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin-token"), ADMIN_TOKEN).unwrap();
    let hash = auth::hash_token(TOKEN);
    let config = folder.path().join("gateway.yaml");
    let head = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }}\n\
         auth: {{ tokens: [ {{ name: t, sha256: \"{hash}\" }}, {{ name: o, role: admin, file: admin-token }} ] }}\n"
    );
    std::fs::write(&config, head + &routes(&upstream)).unwrap();
    let gateway = Gateway::serve(&config);
    let admin = gateway.admin.to_string();
    let run = |arguments: &[&str]| {
        let output = command().args(arguments).arg("-c").arg(&config).args(["--admin", &admin]).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let ask = async |name: &str| {
        let body = json!({"applicationSetName": name, "input": {"parameters": {"x": "1"}}}).to_string();
        exchange(gateway.address, &argo_request("/h/api/v1/getparams.execute", TOKEN, body.as_bytes())).await
    };
    assert_eq!(run(&["answers", "list"]), (Some(0), "nothing is remembered\n".into()));
    ask("fleet-a").await;
    ask("fleet-b").await;
    let (code, listed) = run(&["answers", "list", "--route", "h"]);
    assert_eq!(code, Some(0), "{listed}");
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let [head, row] = &lines[..] else { panic!("{listed}") };
    assert_eq!(head[..5], ["KEY", "ROUTE", "STATE", "SETS", "AGE"]);
    assert_eq!((row[0].len(), &row[1..4]), (32, &["h", "fresh", "2"][..]), "{listed}");
    assert!(listed.contains(r#"  fleet-b, fleet-a  {"x":"1"}"#), "{listed}");
    let (_, printed) = run(&["answers", "list", "-o", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&printed).unwrap()["answers"][0]["requesters"],
        json!(["fleet-b", "fleet-a"])
    );
    assert_eq!(run(&["answers", "list", "--limit", "0"]), (Some(0), "0 of 1; --limit prints more\n".into()));

    *body.lock().unwrap() = sets(&[]);
    let (code, printed) = run(&["answers", "invalidate"]);
    assert!(code == Some(1) && printed.contains("or give --all"), "{printed}");
    for (arguments, answers) in
        [(&["--route", "h", "-p", "x=2"][..], 0), (&["-p", "x=1"], 1), (&["--json", r#"{"x":1}"#], 0), (&["--all"], 1)]
    {
        let printed = run(&[&["answers", "invalidate"], arguments].concat());
        let expected = format!("answers to ask for again: {answers}; runs cut off: 0\n");
        assert_eq!(printed, (Some(0), expected), "{arguments:?}");
    }
    let (code, printed) = run(&["answers", "invalidate", "--route", "nowhere", "-o", "json"]);
    assert!(code == Some(1) && printed.contains("there is no route `nowhere`"), "{printed}");

    ask("fleet-a").await;
    let (_, listed) = run(&["held", "list"]);
    assert!(
        listed.contains(", requested by fleet-b, fleet-a, fingerprint ") && listed.contains("\n    held: "),
        "{listed}"
    );
    let (_, listed) = run(&["answers", "list"]);
    assert!(listed.contains("\n    held: an empty list after one of 2"), "{listed}");
}
