//! Runs with which the gateway confirms a held answer by itself.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ask_later, detail, fleet, list};
use crate::support::{
    TOKEN, TestApp,
    binary::Gateway,
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// The gateway asks again at the guard's times, so a lasting loss is accepted without a call.
#[tokio::test]
async fn a_loss_is_confirmed_without_a_caller() {
    let (app, print) = fleet("cache: { ttl: 1s, staleWhileRevalidate: 0s },").await;
    print(&["a", "b", "c", "d"]);
    app.ask("s", json!({})).await;
    print(&["a"]);
    app.clock.advance(Duration::from_secs(10));
    assert_eq!(detail(&app.ask("s", json!({})).await), "held");
    let held = async || app.operate("/admin/held", None).await.json()["held"].clone();
    let confirm = async |after: u64| {
        app.clock.advance(Duration::from_secs(after));
        app.app.engine.confirm_due(&app.app.setup().routes);
        app.settle().await;
        held().await[0]["agreed"].as_u64()
    };
    // Not before the guard's time, and once each time.
    for (after, agreed) in [(299, Some(0)), (1, Some(1)), (0, Some(1)), (299, Some(1)), (1, Some(2)), (300, None)] {
        assert_eq!(confirm(after).await, agreed, "{after}");
    }
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"name":"a"}]"#);
}

/// A loss that does not last is not accepted. A question without a call for a day is not asked again.
#[tokio::test]
async fn confirmations_end_with_the_loss_or_a_day_after_the_last_call() {
    let (app, print) = fleet("").await;
    let all = ["a", "b", "c", "d"];
    print(&all);
    app.ask("s", json!({})).await;
    print(&all[..1]);
    ask_later(&app).await;
    let confirm = async |after: Duration| {
        app.clock.advance(after);
        app.app.engine.confirm_due(&app.app.setup().routes);
        app.settle().await;
        app.operate("/admin/held", None).await.json()["held"][0]["agreed"].as_u64()
    };
    assert_eq!(confirm(Duration::from_mins(5)).await, Some(1));
    print(&all);
    assert_eq!(confirm(Duration::from_mins(5)).await, None, "the source has them again");

    print(&all[..1]);
    ask_later(&app).await;
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    assert_eq!(confirm(Duration::from_mins(5)).await, Some(0), "it does not know");
    print(&all[..1]);
    assert_eq!(confirm(Duration::from_hours(25)).await, None, "nobody asked for a day");
    assert_eq!(app.ask("s", json!({})).await.status, 503);
}

/// A source that loses two things in turn: only runs that agree one after the other confirm an answer. A run that fails says nothing.
#[tokio::test]
async fn only_runs_that_agree_one_after_the_other_confirm() {
    let (app, print) = fleet("guard: { identity: [name], confirmAfter: 2, confirmFor: 60s },").await;
    let names: Vec<String> = (0..20).map(|n| format!("n{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print(&names);
    let good = app.ask("s", json!({})).await.sets();
    let agreed = async || app.operate("/admin/held", None).await.json()["held"][0]["agreed"].as_u64();
    // Another loss, the last good answer, a smaller loss, and an answer that the guard refuses.
    let twice = ["n00", "n01", "n00"];
    for other in [&names[4..7], &names[..], &names[..16], &twice[..]] {
        print(&names);
        ask_later(&app).await;
        for round in 0..4 {
            print(&names[..4]);
            let reply = ask_later(&app).await;
            assert_eq!(detail(&reply), "held", "{} in round {round}", other.len());
            assert_eq!(agreed().await, Some(0), "{} in round {round}", other.len());
            print(other);
            ask_later(&app).await;
        }
    }
    // A source that fails in between neither confirms the loss nor ends that.
    print(&names);
    ask_later(&app).await;
    for confirmed in 0..2 {
        print(&names[..4]);
        assert_eq!(ask_later(&app).await.sets(), good);
        assert_eq!(agreed().await, Some(confirmed));
        std::fs::remove_file(app.folder.path().join("answer")).unwrap();
        assert_eq!(detail(&ask_later(&app).await), "backend_failed");
        assert_eq!(agreed().await, Some(confirmed));
    }
    print(&names[..4]);
    assert_eq!(ask_later(&app).await.sets().matches("name").count(), 4);
}

/// Released or rejected answers, and answers that wait for an operator, cause no runs.
#[tokio::test]
async fn answers_that_wait_for_an_operator_are_not_confirmed() {
    let (app, print) = fleet("guard: { onShrink: keep },").await;
    print(&["a", "b", "c", "d"]);
    app.ask("s", json!({})).await;
    print(&["a"]);
    let reply = ask_later(&app).await;
    assert_eq!((reply.sets().matches("name").count(), detail(&reply)), (4, "held"));
    for _ in 0..10 {
        app.clock.advance(Duration::from_mins(10));
        app.app.engine.confirm_due(&app.app.setup().routes);
        app.settle().await;
    }
    assert_eq!(detail(&ask_later(&app).await), "held");
    let held = app.operate("/admin/held", None).await.json()["held"][0].clone();
    assert!(held["message"].as_str().unwrap().contains("it is not accepted without an operator"), "{held}");
    let id = held["id"].as_str().unwrap();
    app.operate(&format!("/admin/held/{id}/release"), Some(json!({}))).await;
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"name":"a"}]"#);
}

/// `appset-gateway serve` asks again by itself: without a call after the held answer, the loss is still accepted.
#[tokio::test(flavor = "multi_thread")]
async fn the_serve_command_confirms_a_loss_without_a_caller() {
    let folder = tempfile::tempdir().unwrap();
    let (config, answer) = (folder.path().join("gateway.yaml"), folder.path().join("answer"));
    let text = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }}\n{}routes:\n  \
         - name: s\n    cache: {{ ttl: 0s }}\n    guard: {{ confirmAfter: 2, confirmFor: 1s }}\n    \
         backend: {{ script: {{ command: [cat, answer], allow: {{ read: [.] }} }} }}\n",
        TestApp::auth()
    );
    std::fs::write(&config, text).unwrap();
    std::fs::write(&answer, list(&["a", "b", "c", "d"])).unwrap();
    let gateway = Gateway::serve(&config);
    let call = argo_request("/s/api/v1/getparams.execute", TOKEN, b"{}");
    assert_eq!(exchange(gateway.address, &call).await.sets().matches("name").count(), 4);
    std::fs::write(&answer, list(&["a"])).unwrap();
    let reply = exchange(gateway.address, &call).await;
    assert_eq!((reply.sets().matches("name").count(), detail(&reply)), (4, "held"));

    let held = operator_request("GET", "/admin/held", "");
    let until = Instant::now() + Duration::from_secs(30);
    while exchange_admin(gateway.admin, held.as_bytes()).await.json()["held"] != json!([]) {
        assert!(Instant::now() < until, "nobody asked again about the held answer");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let accepted = gateway.logged("what was held is accepted without an operator");
    let accepted = accepted.lines().find(|line| line.contains("without an operator")).unwrap();
    assert!(accepted.contains("\"level\":\"WARN\"") && accepted.contains("\"deleted\":\"3: b, c, d\""), "{accepted}");
    // The source fails now, so the gateway accepted this answer before the call.
    std::fs::remove_file(&answer).unwrap();
    assert_eq!(exchange(gateway.address, &call).await.sets(), r#"[{"name":"a"}]"#);
}
