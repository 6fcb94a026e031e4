//! The guard's memory: accepted sets, kept for an hour even if the answer is evicted; and its messages.

use std::time::Duration;

use serde_json::json;

use super::{ask_later, detail, fleet, list};
use crate::support::TestApp;

/// Without configuration, the guard finds the key that identifies the sets.
#[tokio::test]
async fn replaced_names_are_noticed() {
    let (app, print) = fleet("cache: { ttl: 1s, staleWhileRevalidate: 0s },").await;
    let names = |from: usize| (from..from + 23).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let show = |names: &[String]| print(&names.iter().map(String::as_str).collect::<Vec<_>>());
    show(&names(0));
    let good = app.ask("s", json!({})).await.sets();
    show(&names(100));
    let reply = ask_later(&app).await;
    assert_eq!((reply.sets(), detail(&reply)), (good, "held"));
    let held = app.operate("/admin/held", None).await.json()["held"][0].clone();
    assert_eq!(held["identity"], json!(["name"]));
    assert!(held["message"].as_str().unwrap().contains("(sets are identified by `name`)"), "{held}");
    // Replacing the sets one by one does not pass, either.
    let mut replaced = 0;
    loop {
        show(&names(replaced + 1));
        app.clock.advance(Duration::from_mins(1));
        if detail(&app.ask("s", json!({})).await) == "held" {
            break;
        }
        replaced += 1;
    }
    assert_eq!(replaced, 6);
}

/// The next answer is still compared with an evicted one.
#[tokio::test]
async fn a_loss_is_noticed_after_the_answer_was_evicted() {
    let script = json!({"command": ["cat", "answer"], "allow": {"read": ["."]}});
    let config = format!(
        "{}cache: {{ memory: 64KiB }}\nroutes: [ {{ name: s, backend: {{ script: {script} }} }} ]\n",
        TestApp::auth()
    );
    let app = TestApp::start(&config).await;
    let file = app.folder.path().join("answer");
    let long = |n: usize| format!("{n}{}", "x".repeat(1000));
    let six: Vec<String> = (0..6).map(long).collect();
    std::fs::write(&file, list(&six.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    for n in 0..100 {
        app.ask("s", json!({ "n": n })).await;
    }
    std::fs::write(&file, list(&[long(0).as_str()])).unwrap();
    app.clock.advance(Duration::from_mins(10));
    for n in 0..100 {
        let reply = app.ask("s", json!({ "n": n })).await;
        assert!(reply.status == 503 || detail(&reply) == "held", "{n}: {}", reply.text());
        if reply.status == 503 {
            assert!(reply.message().contains("5 of 6 parameter sets would be gone"), "{}", reply.message());
        }
    }
}

/// Argo CD rewrites its condition each time the message changes.
#[tokio::test]
async fn a_lasting_loss_keeps_its_message() {
    let (app, print) = fleet("cache: { staleIfError: 0s },").await;
    print(&["a", "b", "c", "d"]);
    app.ask("s", json!({})).await;
    print(&["a"]);
    let mut held = Vec::new();
    for _ in 0..3 {
        app.clock.advance(Duration::from_mins(7));
        let reply = app.ask("s", json!({})).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "held"));
        held.push(reply.message());
        let resting = app.ask("s", json!({})).await;
        assert!(resting.header("retry-after").is_some());
        held.push(resting.message());
    }
    let message = held[0].clone();
    assert!(
        message.contains("; the last good answer, of 2") && message.contains("`cache.staleIfError` allows"),
        "{message}"
    );
    held.dedup();
    assert_eq!(held.len(), 1, "{held:?}");
}

/// `check` and `call` show which key identifies the parameter sets.
#[test]
fn check_and_call_name_the_identity_of_the_sets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let sets = "[ { app: a, id: 1 }, { app: b, id: 2 } ]";
    let config = format!(
        "{}routes:\n  - {{ name: found, backend: {{ fixed: {{ parameters: {sets} }} }} }}\n  \
         - {{ name: named, guard: {{ identity: [app] }}, backend: {{ fixed: {{ parameters: {sets} }} }} }}\n  \
         - {{ name: counted, guard: {{ identity: [] }}, backend: {{ fixed: {{ parameters: {sets} }} }} }}\n  \
         - {{ name: shaped, output: {{ x: \"{{{{ app }}}}\", number: \"{{{{ id }}}}\" }}, \
         backend: {{ fixed: {{ parameters: {sets} }} }} }}\n",
        TestApp::auth()
    );
    std::fs::write(&file, config).unwrap();
    let run = |arguments: &[&str]| {
        let output = crate::support::binary::command().args(arguments).arg("-c").arg(&file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let printed = run(&["check"]);
    for line in [
        "  found: a usual key of its answers\n",
        "  named: `app`\n",
        "  counted: counted\n",
        "  shaped: `number`, if it differs in all sets\n",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    for (route, says) in [
        ("found", "identity  `id` identifies the parameter sets"),
        ("named", "identity  `app` identifies"),
        ("counted", "identity  none: the guard counts the parameter sets"),
        ("shaped", "identity  `number` identifies"),
    ] {
        let printed = run(&["call", route]);
        assert!(printed.contains(says), "{printed}");
    }
}
