//! The cache: lifetimes of answers, and one backend run for many callers.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::support::{
    TestApp,
    upstream::{Upstream, response},
};

/// A script that counts its runs in the file `runs` and takes a while.
fn counting(options: &str, seconds: &str) -> String {
    format!(
        "  - {{ name: counted, {options} backend: {{ script: {{ command: [sh, -c, \"echo run >> runs; sleep {seconds}; wc -l < runs | sed 's/.*/[{{\\\"runs\\\":&}}]/'\"], timeout: 10m, allow: {{ read: [.], write: [.] }} }} }} }}\n"
    )
}

fn runs(app: &TestApp) -> usize {
    std::fs::read_to_string(app.folder.path().join("runs")).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn an_answer_is_fresh_for_its_ttl() {
    let app = TestApp::with_routes(&counting("cache: { ttl: 30s, staleWhileRevalidate: 0s },", "0")).await;
    let first = app.ask("counted", json!({"b": 1, "a": {"y": 1, "x": 2}})).await;
    assert_eq!(first.header("cache-status"), Some("appset-gateway; fwd=miss; stored"));
    assert_eq!(first.header("age"), Some("0"));
    assert!(first.header("server-timing").unwrap().contains("backend;dur="));

    app.clock.advance(Duration::from_millis(12_500));
    // Lifetimes vary by a tenth: 27 to 33 s.
    let hit = app.ask("counted", json!({"a": {"x": 2, "y": 1}, "b": 1})).await;
    assert_eq!(hit.body, first.body, "the order of keys does not matter");
    let left: u64 =
        hit.header("cache-status").unwrap().strip_prefix("appset-gateway; hit; ttl=").unwrap().parse().unwrap();
    assert!((14..=20).contains(&left), "{left}");
    assert_eq!(hit.header("age"), Some("12"));
    assert!(!hit.header("server-timing").unwrap().contains("backend"));
    assert_eq!(runs(&app), 1);

    app.clock.advance(Duration::from_secs(21));
    assert_eq!(app.ask("counted", json!({"b": 1, "a": {"x": 2, "y": 1}})).await.sets(), r#"[{"runs":"2"}]"#);
    assert_eq!(app.ask("counted", json!({"b": "1", "a": {"x": 2, "y": 1}})).await.sets(), r#"[{"runs":"3"}]"#);
    assert_eq!(app.metric("appset_gateway_cache_lookups_total{route=\"counted\",state=\"hit\"}").await, 1);
    assert_eq!(app.metric("appset_gateway_cache_lookups_total{route=\"counted\",state=\"miss\"}").await, 3);
}

#[tokio::test]
async fn a_ttl_of_zero_runs_the_backend_each_time() {
    let app = TestApp::with_routes(&counting("cache: { ttl: 0s },", "0")).await;
    app.ask("counted", json!({})).await;
    app.ask("counted", json!({})).await;
    assert_eq!(runs(&app), 2);
}

/// The source knows best how long its answer is valid.
#[tokio::test]
async fn a_script_sets_the_ttl_of_its_answer() {
    let (app, _) = printer("ttl: 60s, staleWhileRevalidate: 5m, staleIfError: 1h").await;
    let print = |ttl: &str, value: &str| {
        let answer = json!({"output": {"parameters": [{"a": value}]}, "cache": {"ttl": ttl}});
        std::fs::write(app.folder.path().join("answer"), answer.to_string()).unwrap();
    };
    print("1h", "long");
    app.ask("s", json!({})).await;
    print("0s", "never fresh");
    app.clock.advance(Duration::from_mins(50));
    let reply = app.ask("s", json!({})).await;
    assert_eq!((reply.sets().as_str(), runs(&app)), (r#"[{"a":"long"}]"#, 1));
    assert!(reply.header("cache-status").unwrap().starts_with("appset-gateway; hit; ttl="));
    app.clock.advance(Duration::from_mins(20));
    while runs(&app) == 1 {
        app.ask("s", json!({})).await;
    }
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"a":"never fresh"}]"#);
    let before = runs(&app);
    app.ask("s", json!({})).await;
    assert_eq!(runs(&app), before + 1, "asked each time, by the source's own word");
    std::fs::write(app.folder.path().join("answer"), r#"{"output":{"parameters":[]},"cache":{"ttl":5}}"#).unwrap();
    let reply = app.ask("s", json!({})).await;
    assert_eq!(reply.sets(), r#"[{"a":"never fresh"}]"#);
    assert!(reply.header("cache-status").unwrap().ends_with("detail=backend_output_invalid"));
}

#[tokio::test]
async fn the_applicationset_is_part_of_the_key_if_the_backend_sees_it() {
    let routes =
        format!("{}  - {{ name: fixed, backend: {{ fixed: {{ parameters: [{{a: b}}] }} }} }}\n", counting("", "0"));
    let app = TestApp::with_routes(&routes).await;
    let status = async |route: &str, application_set: &str| {
        let body = json!({"applicationSetName": application_set, "input": {}});
        let reply = app.call(&format!("/{route}/api/v1/getparams.execute"), &body).await;
        reply.header("cache-status").unwrap().contains("hit")
    };
    assert!(!status("counted", "a").await);
    assert!(!status("counted", "b").await, "a script sees the name");
    assert!(!status("fixed", "a").await);
    assert!(status("fixed", "b").await, "a fixed list does not");
}

/// A route `s` whose script prints the file `answer` and fails without it, and a function that writes the file.
async fn printer(cache: &str) -> (TestApp, impl Fn(&str)) {
    let script = "backend: { script: { command: [sh, -c, \"echo run >> runs; cat answer\"], allow: { read: [.], write: [.] } } }";
    let app = TestApp::with_routes(&format!("  - {{ name: s, cache: {{ {cache} }}, {script} }}")).await;
    let file = app.folder.path().join("answer");
    (app, move |answer: &str| match answer {
        "" => std::fs::remove_file(&file).unwrap(),
        answer => std::fs::write(&file, format!("[{{\"a\":\"{answer}\"}}]")).unwrap(),
    })
}

#[tokio::test]
async fn a_stale_answer_is_served_at_once_and_renewed_once() {
    let (app, print) = printer("ttl: 60s, staleWhileRevalidate: 5m, staleIfError: 1h").await;
    print("old");
    app.ask("s", json!({})).await;
    print("new");
    app.clock.advance(Duration::from_secs(90));
    let replies = futures_util::future::join_all((0..20).map(|_| app.ask("s", json!({})))).await;
    for reply in &replies {
        assert!(matches!(&*reply.sets(), r#"[{"a":"old"}]"# | r#"[{"a":"new"}]"#));
    }
    let status = replies[0].header("cache-status").unwrap();
    let over: i64 = status.strip_prefix("appset-gateway; hit; ttl=-").unwrap().parse().unwrap();
    assert!((24..=36).contains(&over), "{status}");
    assert_eq!((replies[0].header("age"), replies[0].sets().as_str()), (Some("90"), r#"[{"a":"old"}]"#));
    while app.ask("s", json!({})).await.sets() != r#"[{"a":"new"}]"# {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(runs(&app), 2);
    assert!(app.metric("appset_gateway_cache_lookups_total{route=\"s\",state=\"stale\"}").await > 0);
}

#[tokio::test]
async fn a_failed_renewal_keeps_the_answer_and_pauses() {
    let (app, print) = printer("ttl: 60s, staleWhileRevalidate: 5m, staleIfError: 1h").await;
    print("old");
    app.ask("s", json!({})).await;
    print("");
    app.clock.advance(Duration::from_secs(90));
    for _ in 0..20 {
        assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"a":"old"}]"#);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(runs(&app), 2, "one renewal, then a rest");
    app.clock.advance(Duration::from_secs(2));
    print("new");
    while app.ask("s", json!({})).await.sets() != r#"[{"a":"new"}]"# {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_last_good_answer_is_served_while_the_backend_fails() {
    let (app, print) = printer("ttl: 60s, staleWhileRevalidate: 5m, staleIfError: 1h").await;
    print("old");
    app.ask("s", json!({})).await;
    print("");
    app.clock.advance(Duration::from_mins(10));
    for _ in 0..3 {
        let reply = app.ask("s", json!({})).await;
        assert_eq!((reply.sets().as_str(), reply.header("age")), (r#"[{"a":"old"}]"#, Some("600")));
        let status = reply.header("cache-status").unwrap();
        assert!(
            status.starts_with("appset-gateway; hit; ttl=-5") && status.ends_with("; detail=backend_failed"),
            "{status}"
        );
    }
    assert_eq!(runs(&app), 2, "the second failure is remembered");
    assert_eq!(app.metric("appset_gateway_cache_lookups_total{route=\"s\",state=\"stale_if_error\"}").await, 3);
    assert_eq!(app.metric("appset_gateway_cache_lookups_total{route=\"s\",state=\"failing\"}").await, 2);

    // After `staleIfError` the answer is not served any more.
    app.clock.advance(Duration::from_hours(1));
    let reply = app.ask("s", json!({})).await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (502, "backend_failed", None));
    let again = app.ask("s", json!({})).await;
    assert_eq!((again.status, again.code().as_str()), (502, "backend_failed"));
    assert!(
        again.header("retry-after").is_some() && again.message() == reply.message(),
        "{} / {}",
        reply.message(),
        again.message()
    );
    assert!(
        again.message().contains("; the last good answer, of 2") && again.message().contains("`cache.staleIfError`")
    );
    assert_eq!(runs(&app), 3);

    // A good answer ends the failure at once.
    print("new");
    app.clock.advance(Duration::from_secs(5));
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"a":"new"}]"#);
    assert_eq!(app.ask("s", json!({})).await.header("age"), Some("0"));
}

/// Argo CD rewrites a condition when its text changes. So waits and attempts are only in `Retry-After`.
#[tokio::test]
async fn a_lasting_failure_keeps_its_message() {
    let upstream = Upstream::always(response(500, "Content-Type: application/json", "{}")).await;
    let routes = json!([
        {"name": "script", "backend": {"script": {"command": ["sh", "-c", "echo no database >&2; exit 1"]}}},
        {"name": "http", "backend": {"http": {"url": format!("http://{}/", upstream.address), "parameters": "body"}}},
    ]);
    let app = TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await;
    for route in ["script", "http"] {
        let mut messages = Vec::new();
        let mut waits = Vec::new();
        for round in 0..3 {
            let failed = app.ask(route, json!({})).await;
            let resting = app.ask(route, json!({})).await;
            assert_eq!(
                (failed.code().as_str(), failed.header("retry-after")),
                ("backend_failed", None),
                "{route} {round}"
            );
            waits.push(resting.header("retry-after").unwrap().parse::<u32>().unwrap());
            messages.extend([failed.message(), resting.message()]);
            app.clock.advance(Duration::from_mins(2));
        }
        assert!(waits.is_sorted() && waits[0] < waits[2], "the rest doubles: {waits:?}");
        messages.dedup();
        assert_eq!(messages.len(), 1, "{messages:#?}");
    }
}

/// Invariant I5: 1000 callers of whom 990 hang up make one run, and the rest get its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_callers_of_whom_most_hang_up_make_one_run() {
    // The run lasts until all callers have arrived, however slow the machine is.
    let gate = "0; until test -e open; do sleep 0.05; done";
    let app = Arc::new(TestApp::with_routes(&counting("deadline: 10m,", gate)).await);
    let callers: Vec<_> = (0..1000)
        .map(|_| {
            let app = Arc::clone(&app);
            tokio::spawn(async move { app.ask("counted", json!({})).await })
        })
        .collect();
    while app.metric("appset_gateway_requests_in_flight").await < 1000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for caller in &callers[..990] {
        caller.abort();
    }
    // Waits until the gateway has noticed that the callers are gone.
    let cancelled = "appset_gateway_requests_total{code=\"cancelled\",route=\"counted\"}";
    while app.metric(cancelled).await < 990 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(app.folder.path().join("open"), "").unwrap();
    for caller in callers.into_iter().skip(990) {
        assert_eq!(caller.await.unwrap().sets(), r#"[{"runs":"1"}]"#);
    }
    assert_eq!(runs(&app), 1);
    assert_eq!(app.metric("appset_gateway_requests_in_flight").await, 0);
}

/// A run does not depend on its caller: if the only caller leaves, the next caller gets the answer.
#[tokio::test]
async fn a_run_continues_after_its_only_caller_leaves() {
    let app = Arc::new(TestApp::with_routes(&counting("", "0.5")).await);
    let caller = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.ask("counted", json!({})).await }
    });
    while runs(&app) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    caller.abort();
    assert_eq!(app.ask("counted", json!({})).await.sets(), r#"[{"runs":"1"}]"#);
}

#[tokio::test]
async fn the_memory_of_answers_is_bounded() {
    let config = format!(
        "{}cache: {{ memory: 1MiB }}\nroutes:\n  - {{ name: big, backend: {{ fixed: {{ parameters: [{{a: \"{}\"}}] }} }}, echo: [n] }}\n",
        TestApp::auth(),
        "x".repeat(10_000)
    );
    let app = TestApp::start(&config).await;
    for n in 0..300 {
        app.ask("big", json!({"n": n})).await;
    }
    let mut size = app.metric("appset_gateway_cache_size_bytes").await;
    for _ in 0..100 {
        if (1..=1_048_576).contains(&size) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        app.ask("big", json!({"n": 0})).await;
        size = app.metric("appset_gateway_cache_size_bytes").await;
    }
    panic!("{size} bytes");
}
