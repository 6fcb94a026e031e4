//! One route's questions take nothing from another, and a caller's questions have a limit.

use std::time::Duration;

use auth::hash_token;
use serde_json::json;

use crate::support::{Reply, TOKEN, TestApp, wire::argo_request};

fn is_hit(reply: &Reply) -> bool {
    reply.header("cache-status").is_some_and(|status| status.contains("; hit"))
}

/// Two routes: the script of `quiet` prints the file `answer`, and `loud` returns what it is asked.
fn two_routes(cache: &str) -> String {
    let script = json!({"command": ["cat", "answer"], "allow": {"read": ["."]}});
    format!(
        "{}cache: {{ {cache} }}\nroutes:\n  - {{ name: quiet, backend: {{ script: {script} }} }}\n  \
         - {{ name: loud, backend: {{ fixed: {{ parameters: [{{ a: \"{}\" }}] }} }}, echo: [n] }}\n",
        TestApp::auth(),
        "x".repeat(1000)
    )
}

fn print(app: &TestApp, answer: &str) {
    std::fs::write(app.folder.path().join("answer"), answer).unwrap();
}

const FIVE: &str = r#"[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}]"#;

#[tokio::test]
async fn many_questions_of_one_route_take_no_answer_from_another_and_make_none_of_its_questions_held() {
    let app = TestApp::start(&two_routes("memory: 128KiB")).await;
    print(&app, FIVE);
    for n in 0..20 {
        app.ask("quiet", json!({ "n": n })).await;
    }
    for n in 0..600 {
        assert_eq!(app.ask("loud", json!({ "n": n })).await.status, 200);
    }
    for n in 0..20 {
        assert!(is_hit(&app.ask("quiet", json!({ "n": n })).await), "{n}");
    }
    for n in 20..40 {
        let reply = app.ask("quiet", json!({ "n": n })).await;
        assert_eq!((reply.status, reply.header("cache-status").unwrap().contains("held")), (200, false), "{n}");
    }
    let of = async |metric: &str, route: &str, limit: &str| {
        app.metric(&format!("appset_gateway_limit_{metric}{{limit=\"{limit}\",route=\"{route}\"}}")).await
    };
    assert_eq!((of("used_records", "quiet", "memory").await, of("evicted_total", "quiet", "memory").await), (40, 0));
    assert!(of("evicted_total", "loud", "memory").await > 400);
    let (bytes, share) = (of("used_bytes", "loud", "memory").await, of("share_bytes", "loud", "memory").await);
    assert!(bytes > 0 && bytes <= share && share < 128 * 1024, "{bytes} of {share}");
}

#[tokio::test]
async fn the_number_of_answers_in_memory_is_that_of_now() {
    let app = TestApp::start(&two_routes("memory: 1MiB")).await;
    for n in 1..4 {
        app.ask("loud", json!({ "n": n })).await;
        assert_eq!(app.metric("appset_gateway_cache_entries").await, n);
        let status = app.operate("/admin/status", None).await.json();
        assert_eq!(status["counts"]["answers"], n, "{status}");
    }
}

/// After a restart, an answer is held, and the one before it is served from the file.
#[tokio::test]
async fn what_is_served_is_counted_after_a_restart_while_an_answer_is_held() {
    let app = TestApp::start(&two_routes("path: answers.redb")).await;
    app.app.open_disk();
    print(&app, FIVE);
    app.ask("quiet", json!({})).await;
    let served_at = app.metric("appset_gateway_route_last_success_timestamp_seconds{route=\"quiet\"}").await;
    print(&app, "[]");
    app.clock.advance(Duration::from_mins(10));
    assert!(app.ask("quiet", json!({})).await.header("cache-status").unwrap().contains("held"));
    let app = app.restart(async |_| {}).await;
    app.app.open_disk();
    let counted = async |app: &TestApp| {
        let metric = async |name: &str| app.metric(&format!("appset_gateway_{name}{{route=\"quiet\"}}")).await;
        [
            metric("held_answers").await,
            metric("route_parameter_sets").await,
            metric("route_last_success_timestamp_seconds").await,
        ]
    };
    let before_any_call = loop {
        // The file is read in the background.
        let counted = counted(&app).await;
        if counted[1] > 0 {
            break counted;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let reply = app.ask("quiet", json!({})).await;
    assert_eq!((reply.sets().as_str(), reply.header("cache-status").unwrap().contains("held")), (FIVE, true));
    assert_eq!([before_any_call, counted(&app).await], [[1, 5, served_at]; 2]);
    let status = app.operate("/admin/status", None).await.json();
    assert_eq!((&status["counts"]["parameterSets"], &status["counts"]["held"]), (&json!(5), &json!(1)), "{status}");
}

#[tokio::test]
async fn a_caller_asks_so_many_different_questions_in_a_day() {
    let (limited, free) = (hash_token(TOKEN), hash_token("free"));
    let config = format!(
        "auth: {{ tokens: [ {{ name: limited, sha256: \"{limited}\", maxQuestions: 3 }}, {{ name: free, sha256: \"{free}\" }} ] }}\n\
         routes: [ {{ name: r, backend: {{ fixed: {{ parameters: [ {{ a: b }} ] }} }} }} ]\n"
    );
    let app = TestApp::start(&config).await;
    let ask = async |token: &str, n: u32| {
        let body = json!({"applicationSetName": "test", "input": {"parameters": {"n": n}}}).to_string();
        app.send(&argo_request("/r/api/v1/getparams.execute", token, body.as_bytes())).await
    };
    for n in [0, 1, 2, 2, 1, 0] {
        assert_eq!(ask(TOKEN, n).await.status, 200, "{n}");
    }
    for n in 3..100 {
        let refused = ask(TOKEN, n).await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "throttled"));
        assert_eq!(
            refused.message(),
            "the caller `limited` exceeds its `maxQuestions` in `auth`: it may ask 3 different questions within a day; those that it sent \
             before are answered"
        );
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((86_400..=90_000).contains(&after), "{after}");
        assert_eq!(ask("free", n).await.status, 200, "another caller");
    }
    assert_eq!(ask(TOKEN, 2).await.status, 200, "it was asked before");
    assert_eq!(app.metric("appset_gateway_limit_used_records{limit=\"memory\",route=\"r\"}").await, 100);
    app.clock.advance(Duration::from_hours(26));
    assert_eq!(ask(TOKEN, 50).await.status, 200);
}
