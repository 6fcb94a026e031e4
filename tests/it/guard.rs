//! Invariant I4: an answer that would delete Applications is not accepted at once, whatever the source says.

mod confirmations;
mod forgotten;
mod memory;
mod renamed;

use std::{fmt::Write as _, time::Duration};

use serde_json::json;

use crate::support::{Reply, TestApp};

/// A route `s` with the YAML `rules`, whose script prints the file `answer-<sha>` or else `answer`; and a function that
/// writes `answer`.
async fn fleet(rules: &str) -> (TestApp, impl Fn(&[&str])) {
    let script = "input=$(cat); sha=$(printf %s \"$input\" | sed -n 's/.*\"sha\":\"\\([a-z0-9]*\\)\".*/\\1/p'); \
                  cat answer-$sha 2>/dev/null || cat answer";
    let route = json!({"command": ["sh", "-c", script], "allow": {"read": ["."], "write": ["."]}});
    let app = TestApp::with_routes(&format!("  - {{ name: s, {rules} backend: {{ script: {route} }} }}")).await;
    let file = app.folder.path().join("answer");
    (app, move |names: &[&str]| std::fs::write(&file, list(names)).unwrap())
}

fn list(names: &[&str]) -> String {
    let sets: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    json!(sets).to_string()
}

/// Asks again once the answer is stale and no pause lasts.
async fn ask_later(app: &TestApp) -> Reply {
    app.clock.advance(Duration::from_mins(10));
    app.ask("s", json!({})).await
}

fn detail(reply: &Reply) -> &str {
    reply.header("cache-status").unwrap().rsplit_once("detail=").map_or("", |(_, detail)| detail)
}

#[tokio::test]
async fn an_empty_answer_is_held_until_three_more_agree() {
    let (app, print) = fleet("").await;
    print(&["a", "b"]);
    let good = app.ask("s", json!({})).await.sets();
    print(&[]);
    for _ in 0..3 {
        let reply = ask_later(&app).await;
        assert_eq!((reply.sets(), detail(&reply)), (good.clone(), "held"));
        assert_eq!(app.metric("appset_gateway_held_answers{route=\"s\"}").await, 1);
    }
    let reply = ask_later(&app).await;
    assert_eq!((reply.sets().as_str(), detail(&reply)), ("[]", ""));
    assert_eq!(app.metric("appset_gateway_held_answers{route=\"s\"}").await, 0);
}

#[tokio::test]
async fn an_oscillating_source_never_confirms_a_loss() {
    let (app, print) = fleet("guard: { identity: [name] },").await;
    let names: Vec<String> = (0..12).map(|n| format!("n{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print(&names);
    let good = app.ask("s", json!({})).await.sets();
    for round in 0..20 {
        print(if round % 3 == 2 { &names } else { &names[round % 6..round % 6 + 6] });
        assert_eq!(ask_later(&app).await.sets(), good, "round {round}");
    }
}

/// Many small losses add up to a large one.
#[tokio::test]
async fn many_small_losses_are_held_as_a_large_one() {
    let (app, print) = fleet("").await;
    let names: Vec<String> = (0..12).map(|n| format!("n{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    print(&names);
    app.ask("s", json!({})).await;
    print(&names[..9]);
    assert_eq!(ask_later(&app).await.sets().matches("name").count(), 9);
    print(&names[..7]);
    let reply = ask_later(&app).await;
    assert_eq!((reply.sets().matches("name").count(), detail(&reply)), (9, "held"));
    let reason = app.operate("/admin/held", None).await.json()["held"][0]["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, "5 of the 12 parameter sets of the last hour would be gone, more than `guard.maxShrink: 30%`");
    // An hour later the twelve sets no longer count, and the held answer still waits for runs that agree.
    app.clock.advance(Duration::from_hours(1));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(ask_later(&app).await.sets().matches("name").count());
    }
    assert_eq!(seen, [9, 9, 7, 7]);
}

#[tokio::test]
async fn a_held_answer_without_a_last_good_answer_is_an_error() {
    let (app, print) = fleet("guard: { minItems: 3, confirmAfter: 2, confirmFor: 60s },").await;
    print(&["a"]);
    let reply = app.ask("s", json!({})).await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "held", Some("60")));
    assert!(reply.message().contains("held: 1 parameter set, fewer than `guard.minItems: 3`"), "{}", reply.message());
    assert_eq!(ask_later(&app).await.code(), "held");
    assert_eq!(ask_later(&app).await.sets(), r#"[{"name":"a"}]"#, "confirmed");
}

#[tokio::test]
async fn the_rules_of_a_route_are_followed() {
    for (rules, expected) in [
        ("guard: { onEmpty: allow },", ["[]", ""]),
        ("guard: { onEmpty: keep, confirmAfter: 0 },", [r#"[{"name":"a"}]"#, "held"]),
        ("guard: { onEmpty: error },", [r#"[{"name":"a"}]"#, "backend_output_invalid"]),
        ("guard: { confirmAfter: 0 },", ["[]", ""]),
    ] {
        let (app, print) = fleet(rules).await;
        print(&["a"]);
        app.ask("s", json!({})).await;
        print(&[]);
        let reply = ask_later(&app).await;
        assert_eq!([reply.sets().as_str(), detail(&reply)], expected, "{rules}");
    }
    let (app, print) = fleet("").await;
    print(&["a", "b", "a"]);
    let reply = app.ask("s", json!({})).await;
    assert_eq!(reply.code(), "backend_output_invalid");
    assert!(reply.message().contains("the parameter sets 0 and 2 are both"), "{}", reply.message());
}

/// The next commit of a pull request is another question; what CI has not built yet must not delete the preview.
#[tokio::test]
async fn a_new_commit_is_served_the_answer_of_the_commit_before() {
    let (app, print) = fleet("lineage: [branch],").await;
    let ask = async |branch: &str, sha: &str| app.ask("s", json!({"branch": branch, "sha": sha})).await;
    print(&[]);
    let built = |sha: &str| std::fs::write(app.folder.path().join(format!("answer-{sha}")), list(&[sha])).unwrap();
    built("c1");
    assert_eq!(ask("x", "c1").await.sets(), r#"[{"name":"c1"}]"#);

    let waiting = ask("x", "c2").await;
    assert_eq!((waiting.sets().as_str(), detail(&waiting)), (r#"[{"name":"c1"}]"#, "held"));
    assert_eq!(ask("y", "c2").await.sets(), "[]", "another branch has nothing to lose");
    assert_eq!(ask("x", "c1").await.header("cache-status").map(|status| status.contains("detail")), Some(false));
    built("c2");
    app.clock.advance(Duration::from_secs(5));
    assert_eq!(ask("x", "c2").await.sets(), r#"[{"name":"c2"}]"#);

    // The source is down, and the commit was never asked about.
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    let down = ask("x", "c3").await;
    assert_eq!((down.sets().as_str(), detail(&down)), (r#"[{"name":"c2"}]"#, "backend_failed"));
    let unknown = ask("z", "c3").await;
    assert_eq!(unknown.status, 502);
    let said = "there is no last good answer (branch=z, key ";
    assert!(unknown.message().contains(said) && unknown.message().ends_with("so the ApplicationSet is left as it is"));
}

/// This holds for any number of unbuilt commits, and for any number of calls.
#[tokio::test]
async fn empty_answers_for_different_commits_do_not_confirm_each_other() {
    let (app, print) = fleet("lineage: [branch],").await;
    let ask = async |sha: &str| {
        app.clock.advance(Duration::from_mins(10));
        app.ask("s", json!({"branch": "x", "sha": sha})).await
    };
    let built = |sha: &str, names: &[&str]| {
        std::fs::write(app.folder.path().join(format!("answer-{sha}")), list(names)).unwrap();
    };
    print(&[]);
    built("c1", &["c1"]);
    ask("c1").await;
    for round in 0..12 {
        let reply = ask(["c2", "c3", "c4"][round % 3]).await;
        assert_eq!((reply.sets().as_str(), detail(&reply)), (r#"[{"name":"c1"}]"#, "held"), "{round}");
    }
    let held = app.operate("/admin/held", None).await.json()["held"][0]["message"].as_str().unwrap().to_owned();
    assert!(
        held.contains(
            "it is not accepted without an operator; if it is right, accept it now with `appset-gateway held release "
        ),
        "{held}"
    );

    // Sets that disappear for the same commit are a real loss.
    built("c1", &[]);
    for _ in 0..3 {
        assert_eq!(ask("c1").await.sets(), r#"[{"name":"c1"}]"#);
    }
    assert_eq!(ask("c1").await.sets(), "[]");
}

/// The preview stays on the last built commit, even if an earlier commit is asked about again.
#[tokio::test]
async fn asking_about_an_earlier_commit_does_not_move_its_branch_back() {
    let (app, print) = fleet("lineage: [branch],").await;
    print(&[]);
    let ask = async |sha: &str| {
        app.clock.advance(Duration::from_mins(10));
        app.ask("s", json!({"branch": "x", "sha": sha})).await.sets()
    };
    for sha in ["c1", "c2"] {
        std::fs::write(app.folder.path().join(format!("answer-{sha}")), list(&[sha])).unwrap();
        ask(sha).await;
    }
    assert_eq!(ask("c1").await, r#"[{"name":"c1"}]"#);
    assert_eq!(ask("c3").await, r#"[{"name":"c2"}]"#);
}

/// A question with a missing parameter belongs to no lineage, not to a common one.
#[tokio::test]
async fn a_question_without_its_lineage_parameters_has_no_lineage() {
    let (app, print) = fleet("lineage: [branch],").await;
    print(&["a"]);
    for parameters in [json!({"sha": "c1"}), json!({"sha": "c1", "branch": ""}), json!({"sha": "c1", "branch": null})] {
        app.ask("s", parameters).await;
    }
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    for parameters in [json!({"sha": "c2"}), json!({"sha": "c2", "branch": ""}), json!({"sha": "c2", "branch": null})] {
        assert_eq!(app.ask("s", parameters).await.status, 502);
    }
}

#[tokio::test]
async fn a_held_answer_is_shown_during_background_renewals() {
    let (app, print) = fleet("").await;
    print(&["a", "b"]);
    app.ask("s", json!({})).await;
    print(&[]);
    app.clock.advance(Duration::from_secs(90));
    while detail(&app.ask("s", json!({})).await) != "held" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let failures = "appset_gateway_backend_failures_total{kind=\"held\",route=\"s\"}";
    assert_eq!(app.metric(failures).await, 1);
}

/// Memory is bounded, and the guard cannot compare with an evicted answer.
#[tokio::test]
async fn an_empty_answer_is_held_if_the_last_answer_was_evicted() {
    let script = json!({"command": ["cat", "answer"], "allow": {"read": ["."]}});
    let config = format!(
        "{}cache: {{ memory: 64KiB }}\nroutes: [ {{ name: s, backend: {{ script: {script} }} }} ]\n",
        TestApp::auth()
    );
    let app = TestApp::start(&config).await;
    let file = app.folder.path().join("answer");
    std::fs::write(&file, list(&["x".repeat(4000).as_str()])).unwrap();
    for n in 0..100 {
        app.ask("s", json!({ "n": n })).await;
    }
    std::fs::write(&file, "[]").unwrap();
    app.clock.advance(Duration::from_mins(10));
    for n in 0..100 {
        let reply = app.ask("s", json!({ "n": n })).await;
        assert!(reply.status == 503 || detail(&reply) == "held", "{n}: {}", reply.text());
    }
    assert_eq!(app.ask("s", json!({"n": "new"})).await.sets(), "[]");
}

/// A matrix asks once for each pull request, and its first error ends the run of the whole ApplicationSet.
#[tokio::test]
async fn a_failing_pull_request_does_not_affect_others() {
    let (app, print) = fleet("lineage: [branch],").await;
    print(&["good"]);
    let ask = async |n: usize| app.ask("s", json!({"branch": format!("b{n}"), "sha": format!("c{n}")})).await;
    for n in 0..20 {
        ask(n).await;
    }
    // The source answers nonsense for one commit. The other answers are unchanged.
    std::fs::write(app.folder.path().join("answer-c7"), "<html>").unwrap();
    app.clock.advance(Duration::from_mins(10));
    for n in 0..20 {
        let reply = ask(n).await;
        assert_eq!(reply.sets(), r#"[{"name":"good"}]"#, "{n}");
        assert_eq!(detail(&reply), if n == 7 { "backend_output_invalid" } else { "" }, "{n}");
    }
}

#[test]
fn check_warns_of_a_commit_without_a_lineage() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let check = |lineage: &str| {
        let mut config = TestApp::auth();
        let url = "http://127.0.0.1:1/{{ params.head_sha }}";
        writeln!(config, "routes: [{{ name: s, {lineage} backend: {{ http: {{ url: \"{url}\" }} }} }}]").unwrap();
        std::fs::write(&file, config).unwrap();
        let output = crate::support::binary::command().arg("check").arg("-c").arg(&file).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let printed = check("");
    assert!(printed.contains("uses the commit `head_sha` and names no lineage"), "{printed}");
    assert!(!check("lineage: [branch],").contains("names no lineage"));
    assert!(check("lineage: [],").contains("the lineage is empty"));
}
