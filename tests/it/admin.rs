//! The admin interface: cached answers, invalidation and held answers.

mod commands;
mod requesters;
mod restarts;
mod roles;
mod views;

use std::{path::Path, time::Duration};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN, TestApp,
    binary::{Gateway, command},
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// Records its run, prints the file `answer`, records that, and waits while the file `gate` exists.
const SCRIPT: &str =
    "echo run >> runs; cat answer || exit 1; echo printed >> printed; while test -e gate; do sleep 0.01; done";

/// A gateway with the routes `s` (a script), `follows` (the same, with a lineage) and `fixed`.
async fn gateway() -> TestApp {
    let app = TestApp::start(&format!("{}{}", TestApp::auth(), routes())).await;
    print(app.folder.path(), &["a", "b"]);
    app
}

fn routes() -> String {
    let script = json!({"script": {"command": ["sh", "-c", SCRIPT], "allow": {"read": ["."], "write": ["."]}}});
    // The tests say which questions are asked.
    let cache = json!({"prefetch": false});
    let routes = json!([
        {"name": "s", "cache": cache, "backend": script},
        {"name": "follows", "cache": cache, "lineage": ["branch"], "backend": script},
        {"name": "fixed", "backend": {"fixed": {"parameters": [{"a": "b"}]}}},
    ]);
    format!("routes: {routes}\n")
}

fn print(folder: &Path, names: &[&str]) {
    let sets: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    std::fs::write(folder.join("answer"), json!(sets).to_string()).unwrap();
}

fn runs(folder: &Path) -> usize {
    lines(folder, "runs")
}

fn lines(folder: &Path, file: &str) -> usize {
    std::fs::read_to_string(folder.join(file)).map_or(0, |text| text.lines().count())
}

/// Waits until so many runs have printed their answer.
async fn printed(folder: &Path, count: usize) {
    while lines(folder, "printed") < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn answers(app: &TestApp, query: &str) -> Vec<Value> {
    let reply = app.operate(&format!("/admin/answers{query}"), None).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["answers"].as_array().unwrap().clone()
}

async fn invalidate(app: &TestApp, what: Value) -> Reply {
    app.operate("/admin/answers/invalidate", Some(what)).await
}

#[tokio::test]
async fn cached_answers_are_listed() {
    let app = gateway().await;
    app.ask("s", json!({"x": 1})).await;
    app.ask("fixed", json!({})).await;
    app.ask("follows", json!({"branch": "main", "sha": "c1"})).await;
    app.clock.advance(Duration::from_secs(30));
    let all = answers(&app, "").await;
    assert_eq!(all.len(), 3, "{all:?}");
    let [listed] = &answers(&app, "?route=s").await[..] else { panic!("{all:?}") };
    assert_eq!(
        [&listed["route"], &listed["applicationSet"], &listed["input"], &listed["state"]],
        [&json!("s"), &json!("test"), &json!({"x": 1}), &json!("fresh")]
    );
    assert_eq!([&listed["ageSeconds"], &listed["parameterSets"]], [30, 2]);
    assert!((24..=36).contains(&listed["freshForSeconds"].as_u64().unwrap()));
    assert!(listed["sizeBytes"].as_u64().unwrap() > 40 && listed["key"].as_str().unwrap().len() == 32);
    assert_eq!(
        answers(&app, "?applicationSet=other").await.len(),
        1,
        "what depends on no ApplicationSet is everyone's"
    );
    let limited = app.operate("/admin/answers?limit=1", None).await.json();
    assert_eq!((limited["answers"].as_array().unwrap().len(), &limited["total"]), (1, &json!(3)));

    // A question without an answer, a held answer, and evidence.
    print(app.folder.path(), &[]);
    app.ask("s", json!({"x": 2})).await;
    app.clock.advance(Duration::from_mins(10));
    app.ask("s", json!({"x": 1})).await;
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    app.ask("s", json!({"x": 3})).await;
    let of = |all: &[Value], x: u64| all.iter().find(|each| each["input"]["x"] == x).unwrap().clone();
    let all = answers(&app, "?route=s").await;
    assert_eq!(of(&all, 2)["evidence"][0]["verdict"], "absent");
    assert_eq!(of(&all, 1)["state"], "stale_if_error");
    assert_eq!(of(&all, 1)["held"]["reason"], "an empty list after one of 2");
    assert_eq!(of(&all, 1)["failing"]["kind"], "held");
    let failing = of(&all, 3);
    assert_eq!((&failing["state"], &failing["failing"]["kind"]), (&json!("failing"), &json!("unavailable")));
    assert!(failing["failing"]["message"].as_str().unwrap().contains("No such file"), "{failing}");
}

#[tokio::test]
async fn an_invalidated_answer_is_fetched_again_and_stays_the_last_good_answer() {
    let app = gateway().await;
    for x in [1, 2] {
        app.ask("s", json!({ "x": x })).await;
        app.ask("follows", json!({"branch": "main", "sha": x})).await;
    }
    let (folder, before) = (app.folder.path(), runs(app.folder.path()));
    for (what, expected) in [
        (json!({"route": "s", "input": {"x": 1}}), 1),
        (json!({"route": "fixed"}), 0),
        (json!({"input": {"branch": "main"}}), 2),
        (json!({"applicationSet": "other"}), 0),
        (json!({"applicationSet": "test", "route": "s"}), 2),
        (json!({"all": true}), 4),
    ] {
        let reply = invalidate(&app, what.clone()).await;
        assert_eq!(reply.json(), json!({"answers": expected, "runs": 0}), "{what}");
    }
    assert_eq!(runs(folder), before, "nobody asked");
    assert_eq!(answers(&app, "?route=s").await[0]["state"], "stale_if_error");
    print(folder, &["a", "b", "c"]);
    assert_eq!(app.ask("s", json!({"x": 1})).await.sets(), r#"[{"name":"a"},{"name":"b"},{"name":"c"}]"#);

    // The guard still compares with the last good answer, and a failing source is still covered by it.
    print(folder, &[]);
    let held = app.ask("s", json!({"x": 2})).await;
    assert!(held.header("cache-status").unwrap().ends_with("detail=held"));
    assert_eq!(held.sets(), r#"[{"name":"a"},{"name":"b"}]"#);

    for (bad, says) in [
        (json!({"route": 1}), "invalid type"),
        (json!({"routes": "s"}), "unknown field `routes`"),
        (json!({}), "this selects nothing"),
        (json!({"route": null, "input": {}}), "this selects nothing"),
        (json!({"all": true, "route": "s"}), "`all` selects all answers"),
        (json!({"route": "", "input": {"x": 1}}), "`route` is empty"),
        (json!({"applicationSet": ""}), "`applicationSet` is empty"),
        (json!([null, null]), "the body: expected an object, found a list"),
    ] {
        let reply = invalidate(&app, bad).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"));
        assert!(reply.message().contains(says), "{}", reply.message());
    }
    let unknown = invalidate(&app, json!({"route": "nowhere"})).await;
    assert_eq!((unknown.code(), unknown.message()), ("unknown_route".into(), "there is no route `nowhere`".into()));
    for query in ["rout=s", "limit=-1", "limit=1000001", "route=", "applicationSet="] {
        assert_eq!(app.operate(&format!("/admin/answers?{query}"), None).await.code(), "invalid_request", "{query}");
    }
}

/// A run that began before an invalidation may return outdated data.
#[tokio::test]
async fn an_invalidation_during_a_run_is_not_undone_by_it() {
    let app = std::sync::Arc::new(gateway().await);
    let folder = app.folder.path();
    std::fs::write(folder.join("gate"), "").unwrap();
    let ask = || {
        let app = std::sync::Arc::clone(&app);
        tokio::spawn(async move { app.ask("s", json!({})).await })
    };
    let first = ask();
    // Callers after the invalidation get a new run.
    printed(folder, 1).await;
    assert_eq!(invalidate(&app, json!({"route": "s"})).await.json(), json!({"answers": 0, "runs": 1}));
    // The same sets in another order: no set is lost, whichever run ends first.
    print(folder, &["b", "a"]);
    let second = ask();
    printed(folder, 2).await;
    std::fs::remove_file(folder.join("gate")).unwrap();
    assert_eq!(first.await.unwrap().sets(), r#"[{"name":"a"},{"name":"b"}]"#, "who came before");
    let new = r#"[{"name":"b"},{"name":"a"}]"#;
    assert_eq!(second.await.unwrap().sets(), new);
    let hit = app.ask("s", json!({})).await;
    assert!(hit.header("cache-status").unwrap().starts_with("appset-gateway; hit; ttl="));
    assert_eq!((hit.sets().as_str(), runs(folder)), (new, 2));
}

async fn held(app: &TestApp) -> Vec<Value> {
    app.operate("/admin/held", None).await.json()["held"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_operator_releases_or_rejects_a_held_answer() {
    let app = gateway().await;
    let decide = async |id: &str, what: &str| app.operate(&format!("/admin/held/{id}/{what}"), Some(json!({}))).await;
    app.ask("s", json!({})).await;
    print(app.folder.path(), &["a"]);
    let later = async || {
        app.clock.advance(Duration::from_mins(10));
        app.ask("s", json!({})).await.sets()
    };
    let good = r#"[{"name":"a"},{"name":"b"}]"#;
    assert_eq!(later().await, good);
    let [first] = &held(&app).await[..] else { panic!("nothing is held") };
    assert_eq!(
        [&first["route"], &first["reason"], &first["gone"], &first["agreed"], &first["wanted"]],
        [
            &json!("s"),
            &json!("1 of 2 parameter sets would be gone, more than `guard.maxShrink: 30%`"),
            &json!(["b"]),
            &json!(0),
            &json!(3)
        ]
    );
    let id = first["id"].as_str().unwrap();
    let conflict = decide(id, "release?fingerprint=0123456789abcdef").await;
    assert_eq!((conflict.status, conflict.code().as_str()), (409, "conflict"));
    let invalid = decide(id, "release?finger=0").await;
    assert_eq!((invalid.status, invalid.code().as_str()), (400, "invalid_request"));
    let seen = format!("reject?fingerprint={}", first["fingerprint"].as_str().unwrap());
    let rejected = decide(id, &seen).await.json();
    assert_eq!(rejected["isHeld"], true);
    for _ in 0..5 {
        assert_eq!(later().await, good, "rejected");
    }
    assert_eq!(held(&app).await[0]["decision"], "rejected");
    let released = decide(id, "release").await.json();
    assert_eq!((&released["isHeld"], held(&app).await.len()), (&json!(false), 0), "{released}");
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"name":"a"}]"#);

    // A release covers the held answer, not the source's next answer.
    print(app.folder.path(), &[]);
    assert_eq!(later().await, r#"[{"name":"a"}]"#);
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    let waiting = decide(id, "release").await.json();
    assert_eq!(waiting["isHeld"], true);
    assert!(waiting["message"].as_str().unwrap().contains("once the source says it again; now: "), "{waiting}");
    print(app.folder.path(), &[]);
    assert_eq!(later().await, "[]");

    for what in ["release", "reject"] {
        let unknown = decide("0123456789abcdef0123456789abcdef", what).await;
        assert_eq!((unknown.status, unknown.code().as_str()), (404, "not_found"));
        assert!(unknown.message().contains("nothing is held under this id"));
    }
}

/// A script's variable that was never set must not decide about the only held answer.
#[tokio::test]
async fn an_id_of_too_few_digits_decides_nothing() {
    let app = gateway().await;
    app.ask("s", json!({})).await;
    print(app.folder.path(), &["a"]);
    app.clock.advance(Duration::from_mins(10));
    app.ask("s", json!({})).await;
    let id = held(&app).await[0]["id"].as_str().unwrap().to_owned();
    for unfit in ["", "%ff", "%20", &id[..5], &format!("{id}0"), "zzzzzzzz", &format!("{}%00", &id[..6])] {
        for what in ["release", "reject"] {
            let reply = app.operate(&format!("/admin/held/{unfit}/{what}"), Some(json!({}))).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{unfit}: {}", reply.text());
            assert!(reply.message().contains("an id has 6 to 32 hexadecimal digits"), "{}", reply.message());
        }
    }
    assert_eq!(held(&app).await[0].get("decision"), None, "nothing was decided");
    let reply = app.operate(&format!("/admin/held/{}/reject", &id[..6]), Some(json!({}))).await;
    assert_eq!((reply.status, &reply.json()["id"]), (200, &json!(id)), "6 digits are enough");
}

#[tokio::test]
async fn each_token_is_accepted_only_by_its_own_listener() {
    let app = gateway().await;
    for (method, path) in [
        ("GET", "/admin/answers"),
        ("POST", "/admin/answers/invalidate"),
        ("GET", "/admin/held"),
        ("POST", "/admin/held/x/release"),
        ("POST", "/admin/held/x/reject"),
    ] {
        let request = operator_request(method, path, "{}");
        for request in [request.replace(ADMIN_TOKEN, TOKEN), request.replace("Authorization", "X-Other")] {
            let reply = exchange_admin(app.admin, request.as_bytes()).await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{path}");
        }
        let other = if method == "GET" { "POST" } else { "GET" };
        let reply = exchange_admin(app.admin, operator_request(other, path, "{}").as_bytes()).await;
        assert_eq!(reply.status, 405, "{path}");
    }
    let request = argo_request("/s/api/v1/getparams.execute", ADMIN_TOKEN, b"{}");
    let reply = app.send(&request).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"));
    assert!(reply.message().contains("has the role `admin` and may not call routes"), "{}", reply.message());
}

/// The configuration of a gateway process in `folder`, with an admin token in a file.
fn configure(folder: &Path, cache: &str) -> std::path::PathBuf {
    std::fs::write(folder.join("admin-token"), ADMIN_TOKEN).unwrap();
    let hash = auth::hash_token(TOKEN);
    let script = json!(["sh", "-c", SCRIPT]);
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }}\n\
         auth: {{ tokens: [ {{ name: t, sha256: \"{hash}\" }}, {{ name: o, role: admin, file: admin-token }} ] }}\n\
         cache: {{ path: answers.redb }}\n\
         routes: [ {{ name: s, {cache} backend: {{ script: {{ command: {script}, allow: {{ read: [.], write: [.] }} }} }} }} ]\n"
    );
    let file = folder.join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    file
}

async fn ask(gateway: &Gateway) -> Reply {
    exchange(gateway.address, &argo_request("/s/api/v1/getparams.execute", TOKEN, b"{}")).await
}

/// A failed run keeps the end of the program's stderr, however the run failed.
#[tokio::test]
async fn a_failed_run_keeps_the_end_of_its_stderr() {
    // Only the second one needs its timeout. Even on a busy machine, it writes to stderr within that time.
    for (line, timeout, says) in [
        ("exit 3", "20s", "exit status: 3"),
        ("sleep 60", "4s", "not done in time, stopped by its `timeout` of 4s"),
        ("echo no list", "20s", "its output: not one JSON document"),
        ("yes", "20s", "wrote more than 1024 bytes"),
    ] {
        let line = format!("seq 1 2000 >&2; echo \"the disk $TOKEN is full\" >&2; {line}");
        let script = json!({"command": ["sh", "-c", line], "timeout": timeout, "maxOutput": "1KiB",
            "env": {"TOKEN": {"file": "token"}}});
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hunter2").unwrap();
        let routes = json!([{"name": "s", "backend": {"script": script}}]);
        let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
        app.ask("s", json!({})).await;
        let failing = answers(&app, "").await[0]["failing"].clone();
        let message = failing["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
        assert!(message.contains(" 1999 2000 the disk [redacted] is full"), "{message}");
        assert!(message.contains("; stderr: ") && message.len() < 1000, "{message}");
    }
}
