//! A route with another name keeps what is remembered of it, if it says how it was called. Else the gateway warns.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use appset_gateway::config::Loaded;
use domain::file::base_dir::BaseDir;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::list;
use crate::support::{
    ADMIN_TOKEN, TOKEN, TestApp,
    binary::{Gateway, command},
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// The parts of a configuration with one route, whose script prints the file `answer`. `names` are its `name` and `formerly`.
fn route(names: &str) -> String {
    let script = json!({"command": ["cat", "answer"], "allow": {"read": ["."]}});
    format!(
        "routes:\n  - {{ {names}, match: {{ applicationSet: \"fleet*\" }}, guard: {{ confirmFor: 1h }}, backend: {{ script: {script} }} }}\n"
    )
}

fn print(folder: &Path, count: usize) {
    let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    std::fs::write(folder.join("answer"), list(&names)).unwrap();
}

fn count(sets: &str) -> usize {
    sets.matches("name").count()
}

/// There and back again: by `formerly`, by the earlier configuration, and by a chain of names in any order.
#[tokio::test]
async fn a_renamed_route_keeps_its_guard_and_the_decisions() {
    let folder = tempfile::tempdir().unwrap();
    print(folder.path(), 6);
    let app = TestApp::start_in(folder, &format!("{}{}", TestApp::auth(), route("name: a"))).await;
    let rename = |names: &str| {
        let config = format!("{}{}", TestApp::auth(), route(names));
        let loaded = Loaded::parse("new.yaml", config, BaseDir::new(app.folder.path()));
        app.app.reload(loaded).map_err(|report| report.lines().join(" ")).unwrap();
    };
    let ask = async |name: &str| {
        app.clock.advance(Duration::from_mins(10));
        count(&app.ask(name, json!({})).await.sets())
    };
    assert_eq!(ask("a").await, 6);
    print(app.folder.path(), 8);
    rename("name: b, formerly: a");
    assert_eq!(ask("b").await, 8, "what grows passes");
    print(app.folder.path(), 2);
    assert_eq!(ask("b").await, 8, "the guard compares with what the route gave under its former name");
    let held = async || app.operate("/admin/held", None).await.json()["held"].clone();
    let first = held().await[0].clone();
    assert_eq!(first["route"], "b");
    let reject = format!("/admin/held/{}/reject", first["id"].as_str().unwrap());
    assert_eq!(app.operate(&reject, Some(json!({}))).await.status, 200);
    for names in [
        "name: a",
        "name: b, formerly: [a]",
        "name: c, formerly: [b, a]",
        "name: a",
        "name: a, formerly: b",
        "name: d, formerly: [a, c, b]",
        "name: d, formerly: [b, c, a]",
    ] {
        rename(names);
        let name = &names[6..7];
        for _ in 0..4 {
            assert_eq!(ask(name).await, 8, "{names}");
        }
        let held = held().await;
        assert_eq!((&held[0]["route"], &held[0]["decision"]), (&json!(name), &json!("rejected")), "{names}: {held:#}");
        let listed = app.operate(&format!("/admin/answers?route={name}"), None).await.json();
        assert_eq!(listed["total"], 1, "{names}: {listed:#}");
    }
    let invalidated = app.operate("/admin/answers/invalidate", Some(json!({"route": "d"}))).await;
    assert_eq!(invalidated.status, 200, "{}", invalidated.text());
    let release = reject.replace("reject", "release");
    assert_eq!(app.operate(&release, Some(json!({}))).await.status, 200);
    assert_eq!(ask("d").await, 2);
}

/// A template that begins to read the ApplicationSet's name makes other keys, and no other guard.
#[tokio::test]
async fn a_template_that_reads_the_application_set_keeps_the_guard() {
    let folder = tempfile::tempdir().unwrap();
    print(folder.path(), 6);
    let app = TestApp::start_in(folder, &format!("{}{}", TestApp::auth(), route("name: a"))).await;
    let ask = async || {
        app.clock.advance(Duration::from_mins(10));
        app.ask("a", json!({})).await
    };
    assert_eq!(count(&ask().await.sets()), 6);
    let output = "name: a, output: { name: \"{{ name }}\", set: \"{{ applicationSet }}\" }";
    let config = format!("{}{}", TestApp::auth(), route(output));
    let loaded = Loaded::parse("new.yaml", config, BaseDir::new(app.folder.path()));
    app.app.reload(loaded).map_err(|report| report.lines().join(" ")).unwrap();
    print(app.folder.path(), 2);
    let reply = ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "held"), "{}", reply.text());
}

#[test]
fn former_names_that_contradict_each_other_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let fixed = "backend: { fixed: { parameters: [] } }";
    for (first, second, says) in [
        ("formerly: b", "formerly: x", "there is still a route `b`"),
        ("formerly: [x, y]", "formerly: y", "the route `a` was formerly `y` too"),
        ("formerly: [x, x]", "formerly: y", "`x` is there twice"),
        ("formerly: a", "formerly: x", "this is the name that the route has now"),
        ("formerly: \"\"", "formerly: x", "it is empty"),
        ("formerly: { a: b }", "formerly: x", "a name, or a list of names"),
    ] {
        let routes = format!("routes:\n  - {{ name: a, {first}, {fixed} }}\n  - {{ name: b, {second}, {fixed} }}\n");
        std::fs::write(&file, format!("{}{routes}", TestApp::auth())).unwrap();
        let output = command().arg("check").arg("-c").arg(&file).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success() && said.contains(says), "{first}, {second}: {said}");
    }
}

/// Without `formerly`, a rename is a warning at a reload, at a start, and in `diff`. With it, a restart keeps the guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_vanishes_while_another_takes_its_calls_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("admin-token"), ADMIN_TOKEN).unwrap();
    print(at, 6);
    let config = |file: &str, names: &str| {
        let hash = auth::hash_token(TOKEN);
        let text = format!(
            "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }}\n\
             auth: {{ tokens: [ {{ name: t, sha256: \"{hash}\" }}, {{ name: o, role: admin, file: admin-token }} ] }}\n\
             cache: {{ path: answers.redb }}\n{}",
            route(names)
        );
        std::fs::write(at.join(file), text).unwrap();
        at.join(file)
    };
    let ask = async |gateway: &Gateway| {
        let body = json!({"applicationSetName": "fleet", "input": {"parameters": {}}}).to_string();
        exchange(gateway.address, &argo_request("/api/v1/getparams.execute", TOKEN, body.as_bytes())).await
    };
    let file = config("gateway.yaml", "name: a");
    let mut gateway = Gateway::serve(&file);
    assert_eq!(count(&ask(&gateway).await.sets()), 6);
    let diff = |names: &str| {
        let next = config("next.yaml", names);
        let against = format!("http://{}", gateway.admin);
        let output = command().args(["diff", "--against", &against, "-c"]).arg(&next).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = diff("name: b");
    let finding = "route a → b: the guard has no baseline for 1 question; if the route was renamed, write `formerly: a` on the route `b`";
    assert!(code == Some(3) && said.contains(finding), "{code:?}: {said}");
    let (code, said) = diff("name: b, formerly: a");
    assert!(code == Some(0) && !said.contains("no baseline"), "{code:?}: {said}");

    config("gateway.yaml", "name: b");
    gateway.signal(Signal::SIGHUP);
    let log = gateway.logged("a route is gone, and another one takes its calls");
    let line = log.lines().find(|line| line.contains("takes its calls")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["level"], &line["gone"], &line["route"]), (&json!("WARN"), &json!("a"), &json!("b")));
    assert!(line["help"].as_str().unwrap().contains("write `formerly: a` on the route `b`"), "{line}");

    // A restart under a third name: nothing was asked of `b`, but the file knows `a`.
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(20));
    config("gateway.yaml", "name: c");
    let mut gateway = Gateway::serve(&file);
    gateway.logged("a route is gone, and another one takes its calls");
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(20));

    config("gateway.yaml", "name: c, formerly: [b, a]");
    print(at, 2);
    let mut gateway = Gateway::serve(&file);
    assert_eq!(count(&ask(&gateway).await.sets()), 6, "the file has what the route gave as `a`");
    let until = Instant::now() + Duration::from_secs(20);
    let held = loop {
        let request = operator_request("GET", "/admin/held", "");
        let held = exchange_admin(gateway.admin, request.as_bytes()).await.json()["held"].clone();
        if held != json!([]) || Instant::now() > until {
            break held;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(held[0]["route"], "c", "{held:#}");
    gateway.signal(Signal::SIGTERM);
    let log = gateway.wait(Duration::from_secs(20)).1;
    assert!(!log.contains("no baseline"), "{log}");
}
