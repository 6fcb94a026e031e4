//! The views of a running gateway: status, routes, sources, a single answer, and explanations.

use appset_gateway::config::Loaded;
use domain::{file::base_dir::BaseDir, lifecycle::Phase};

use super::*;
use crate::support::upstream::{Step, Upstream, json_response, response};

/// A view, read by an operator.
async fn view(app: &TestApp, name: &str) -> Value {
    let reply = app.operate(&format!("/admin/{name}"), None).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn kinds(status: &Value) -> Vec<&str> {
    status["alerts"].as_array().unwrap().iter().map(|alert| alert["kind"].as_str().unwrap()).collect()
}

fn route<'v>(routes: &'v Value, name: &str) -> &'v Value {
    routes["routes"].as_array().unwrap().iter().find(|route| route["name"] == name).unwrap()
}

#[tokio::test]
async fn the_status_says_what_is_wrong_the_most_dangerous_first() {
    let app = gateway().await;
    let status = view(&app, "status").await;
    assert_eq!(
        (&status["alerts"], &status["isHeldOrFailing"], &status["phase"]),
        (&json!([]), &json!(false), &json!("serving"))
    );
    assert_eq!(
        (&status["generation"], &status["uptimeSeconds"], &status["counts"]["routes"]),
        (&json!(1), &json!(0), &json!(3))
    );

    for x in [1, 2] {
        app.ask("s", json!({ "x": x })).await;
    }
    assert_eq!(view(&app, "status").await["counts"]["parameterSets"], 4);
    // One answer is held, one stands in, and one question has no answer.
    app.clock.advance(Duration::from_mins(10));
    print(app.folder.path(), &[]);
    app.ask("s", json!({"x": 1})).await;
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    app.ask("s", json!({"x": 2})).await;
    app.ask("s", json!({"x": 3})).await;
    app.app.lifecycle.enter(Phase::Draining);
    let status = view(&app, "status").await;
    assert_eq!(kinds(&status), ["held", "failing", "fallback", "draining"], "{status:#}");
    let [held, failing, fallback, _] = &status["alerts"].as_array().unwrap()[..] else { panic!() };
    assert_eq!(
        (&held["severity"], &held["route"], &held["requesters"]),
        (&json!("critical"), &json!("s"), &json!(["test"]))
    );
    assert!(failing["message"].as_str().unwrap().starts_with("callers get an error: "), "{failing}");
    assert!(fallback["message"].as_str().unwrap().starts_with("callers get the last good answer, of 20"), "{fallback}");
    let counts = &status["counts"];
    assert_eq!([&counts["held"], &counts["failing"], &counts["fallback"]], [1, 1, 1]);
    assert_eq!((&status["isHeldOrFailing"], &status["uptimeSeconds"]), (&json!(true), &json!(600)));
    let id = held["id"].as_str().unwrap();
    assert_eq!(view(&app, "held").await["held"][0]["id"], id);

    // An hour later, nobody has asked: the failures say nothing about now. What is held stays held.
    app.clock.advance(Duration::from_mins(61));
    assert_eq!(kinds(&view(&app, "status").await), ["held", "draining"]);
}

#[tokio::test]
async fn a_configuration_that_was_refused_is_an_alert() {
    let app = gateway().await;
    let loaded = Loaded::parse("test.yaml", "routes: []\n".to_owned(), BaseDir::new(app.folder.path()));
    assert!(app.app.reload(loaded).is_err());
    let status = view(&app, "status").await;
    assert_eq!(kinds(&status), ["reloadRefused"]);
    assert_eq!(status["isHeldOrFailing"], false);
    assert_eq!(view(&app, "config").await["lastReload"]["isGood"], false);
}

#[tokio::test]
async fn a_view_is_bounded_and_says_what_it_leaves_out() {
    let app = gateway().await;
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    for x in 0..103 {
        app.ask("s", json!({ "x": x })).await;
    }
    let status = view(&app, "status").await;
    assert_eq!((status["alerts"].as_array().unwrap().len(), &status["alertsLeftOut"]), (100, &json!(3)));
    assert_eq!(status["counts"]["failing"], 103);
}

#[tokio::test]
async fn routes_show_their_state_counters_and_a_day_of_samples() {
    let app = gateway().await;
    let routes = view(&app, "routes").await;
    for name in ["s", "follows", "fixed"] {
        assert_eq!(route(&routes, name)["state"], "neverAsked");
    }
    app.app.sample();
    app.ask("s", json!({})).await;
    app.ask("s", json!({})).await;
    app.ask("fixed", json!({})).await;
    for _ in 0..60 {
        app.clock.advance(Duration::from_mins(30));
        app.app.sample();
        app.app.sample();
    }
    let routes = view(&app, "routes").await;
    let s = route(&routes, "s");
    let history = s["history"].as_array().unwrap();
    assert_eq!((history.len(), &history[47]["parameterSets"]), (48, &json!(0)), "too old by now: {s:#}");
    // A day is less than the answer's life.
    let served = history.iter().filter(|sample| sample["parameterSets"] == 2).count();
    assert!((35..=40).contains(&served), "{served}");
    assert_eq!(
        (&s["lookups"]["hits"], &s["lookups"]["misses"], &s["backend"]),
        (&json!(1), &json!(1), &json!("script"))
    );

    app.ask("s", json!({})).await;
    let now = view(&app, "routes").await;
    let s = route(&now, "s");
    assert_eq!(
        (&s["state"], &s["newestAgeSeconds"], &s["parameterSets"]),
        (&json!("good"), &json!(0), &json!(2)),
        "{s:#}"
    );
    assert_eq!((&s["applicationSets"], &s["applicationSetsTotal"]), (&json!(["test"]), &json!(1)));

    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    app.clock.advance(Duration::from_mins(10));
    app.ask("s", json!({})).await;
    let now = view(&app, "routes").await;
    let s = route(&now, "s");
    assert_eq!(
        (&s["state"], &s["fallback"], &s["lastFailure"]["kind"]),
        (&json!("stale"), &json!(1), &json!("unavailable")),
        "{s:#}"
    );
    assert_eq!(s["failures"], json!({"unavailable": 1}));
    assert_eq!(app.metric("appset_gateway_route_fallback_age_seconds{route=\"s\"}").await, 600);
    assert_eq!(app.metric("appset_gateway_route_fallback_age_seconds{route=\"fixed\"}").await, 0);
    assert_eq!(app.metric("appset_gateway_route_ttl_seconds{route=\"s\"}").await, 60);
    app.ask("s", json!({"x": 1})).await;
    assert_eq!(route(&view(&app, "routes").await, "s")["state"], "failing");
}

/// A gateway whose route `h` asks `upstream` with a token, for the path `path`.
async fn asking(upstream: &Upstream) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "Bearer a-token-of-the-source").unwrap();
    let http = json!({
        "url": format!("http://{}/{{{{ params.path }}}}?key=1", upstream.address), "parameters": "body",
        "headers": {"Authorization": {"file": "token"}},
    });
    let routes = json!([{"name": "h", "input": [{"name": "path"}], "backend": {"http": http}, "cache": {"ttl": "0s"}}]);
    TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await
}

#[tokio::test]
async fn sources_show_breakers_budgets_and_the_last_request_and_no_secret() {
    let limits = "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 7";
    let upstream = Upstream::start(move |request| {
        if request.target.starts_with("/bad") {
            return vec![Step::Send(response(503, "", "no"))];
        }
        vec![Step::Send(response(200, &format!("Content-Type: application/json\r\n{limits}"), "[{\"name\":\"a\"}]"))]
    })
    .await;
    let app = asking(&upstream).await;
    assert_eq!(view(&app, "sources").await, json!({"sources": [], "total": 0}));
    app.ask("h", json!({"path": "good"})).await;
    let sources = view(&app, "sources").await;
    let [source] = &sources["sources"].as_array().unwrap()[..] else { panic!("{sources:#}") };
    assert_eq!(source["origin"], format!("http://{}", upstream.address));
    assert_eq!(
        [&source["breaker"], &source["last"]["outcome"], &source["last"]["status"]],
        [&json!("closed"), &json!("ok"), &json!(200)]
    );
    assert!(source["meanMilliseconds"].as_f64().unwrap() > 0.0);
    let account = &source["accounts"][0];
    assert_eq!(
        [&account["account"], &account["limit"], &account["remaining"]],
        [&json!("credential 1"), &json!(100), &json!(7)]
    );

    // Five failures in a row open the breaker; the first call is sent three times at most.
    while view(&app, "sources").await["sources"][0]["breaker"] == "closed" {
        app.ask("h", json!({"path": format!("bad/{}", upstream.requests().len())})).await;
    }
    let sources = view(&app, "sources").await;
    let source = &sources["sources"][0];
    assert_eq!(
        (&source["breaker"], &source["reason"]),
        (&json!("open"), &json!("it answered 503 Service Unavailable"))
    );
    assert!(source["restsForSeconds"].as_u64().unwrap() >= 1 && source["failures"].as_u64().unwrap() >= 5);
    let text = sources.to_string();
    for secret in ["a-token-of-the-source", "sha256:", "bad", "key=1"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let status = view(&app, "status").await;
    assert_eq!((kinds(&status)[0], kinds(&status).last()), ("failing", Some(&"breakerOpen")), "{status:#}");
    app.clock.advance(Duration::from_mins(20));
    assert_eq!(view(&app, "sources").await["sources"][0]["breaker"], "probing");
}

#[tokio::test]
async fn one_answer_is_shown_by_the_beginning_of_its_key() {
    let app = gateway().await;
    for x in 0..40 {
        app.ask("s", json!({ "x": x })).await;
    }
    let all = answers(&app, "?route=s").await;
    let key = all[3]["key"].as_str().unwrap();
    for id in [key, &key[..12]] {
        let shown = view(&app, &format!("answers/{id}")).await;
        assert_eq!((&shown["key"], &shown["input"]), (&json!(key), &all[3]["input"]));
        assert_eq!(shown["answer"], json!({"output": {"parameters": [{"name": "a"}, {"name": "b"}]}}));
    }
    for id in ["zz", "%20", "%ff", &key[..5]] {
        let unfit = app.operate(&format!("/admin/answers/{id}"), None).await;
        assert_eq!((unfit.status, unfit.code().as_str()), (400, "invalid_request"), "{id}");
    }
    let unknown = app.operate(&format!("/admin/answers/{}", "0".repeat(32)), None).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "not_found"));
}

async fn explain(app: &TestApp, question: Value) -> Reply {
    app.operate("/admin/explain", Some(question)).await
}

#[tokio::test]
async fn an_explanation_shows_each_step_and_changes_nothing() {
    let app = gateway().await;
    let of = |x: u64| json!({"route": "s", "applicationSet": "argocd/test", "input": {"x": x}});
    let unseen = explain(&app, of(1)).await.json();
    assert_eq!(
        (&unseen["outcome"], &unseen["because"], &unseen["remembered"]["state"]),
        (&json!("present"), &Value::Null, &json!("none"))
    );
    assert_eq!(unseen["answer"]["body"], json!({"output": {"parameters": [{"name": "a"}, {"name": "b"}]}}));
    assert_eq!((&unseen["answer"]["status"], &unseen["answer"]["isFallback"]), (&json!(200), &json!(false)));
    let [step] = &unseen["steps"].as_array().unwrap()[..] else { panic!("{unseen:#}") };
    assert_eq!((&step["kind"], &step["output"]), (&json!("script"), &json!([{"name": "a"}, {"name": "b"}])));
    assert!(answers(&app, "").await.is_empty(), "nothing was stored");

    app.ask("s", json!({"x": 1})).await;
    let before = answers(&app, "").await;
    // The source loses everything. The guard would hold it, and nothing counts towards its confirmation.
    print(app.folder.path(), &[]);
    for _ in 0..4 {
        let held = explain(&app, of(1)).await.json();
        assert_eq!(
            (&held["outcome"], &held["because"]["code"], &held["because"]["status"]),
            (&json!("absent"), &json!("held"), &json!(503)),
            "{held:#}"
        );
        let because = held["because"]["message"].as_str().unwrap();
        assert!(!because.contains("no last good answer"), "one stands in: {because}");
        assert_eq!((&held["answer"]["isFallback"], &held["answer"]["status"]), (&json!(true), &json!(200)));
        assert_eq!(held["answer"]["body"]["output"]["parameters"], json!([{"name": "a"}, {"name": "b"}]));
        assert_eq!(held["evidence"][0]["verdict"], "absent");
        assert_eq!((&held["remembered"]["state"], &held["remembered"]["held"]), (&json!("fresh"), &Value::Null));
        app.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(view(&app, "held").await, json!({"held": []}));

    // A source that fails: no failure is remembered, so that the next call asks it.
    std::fs::remove_file(app.folder.path().join("answer")).unwrap();
    let unknown = explain(&app, of(2)).await.json();
    assert_eq!(
        (&unknown["outcome"], &unknown["answer"]["error"]["code"]),
        (&json!("unknown"), &json!("backend_failed")),
        "{unknown:#}"
    );
    assert!(unknown["answer"]["error"]["message"].as_str().unwrap().contains("there is no last good answer"));
    assert!(unknown["steps"][0]["stderr"].as_str().unwrap().contains("No such file"), "{unknown:#}");
    let after = answers(&app, "").await;
    assert_eq!(after.len(), 1);
    for key in ["key", "storedAt", "parameterSets", "state", "requesters"] {
        assert_eq!(before[0][key], after[0][key], "{key}");
    }
    assert_eq!(view(&app, "status").await["alerts"], json!([]));
    let lookups = &route(&view(&app, "routes").await, "s")["lookups"].clone();
    assert_eq!((&lookups["misses"], &lookups["hits"]), (&json!(1), &json!(0)), "an explanation is no lookup");
}

#[tokio::test]
async fn an_explanation_shows_what_is_held_and_does_not_count_as_a_run() {
    let app = gateway().await;
    app.ask("s", json!({})).await;
    print(app.folder.path(), &[]);
    app.clock.advance(Duration::from_mins(10));
    app.ask("s", json!({})).await;
    let question = json!({"route": "s", "applicationSet": "test"});
    let explained = explain(&app, question).await.json();
    let held = &explained["remembered"]["held"];
    assert_eq!((&explained["because"]["code"], &held["agreed"]), (&json!("held"), &json!(0)), "{explained:#}");
    assert_eq!(view(&app, "held").await["held"][0], *held);
}

#[tokio::test]
async fn explanations_take_few_turns() {
    let app = std::sync::Arc::new(gateway().await);
    std::fs::write(app.folder.path().join("gate"), "").unwrap();
    let first = tokio::spawn({
        let app = std::sync::Arc::clone(&app);
        async move { explain(&app, json!({"route": "s"})).await }
    });
    while runs(app.folder.path()) < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = explain(&app, json!({"route": "s", "input": {"x": 2}})).await;
    assert_eq!((second.status, second.code().as_str(), second.header("retry-after")), (429, "throttled", Some("5")));
    assert_eq!(explain(&app, json!({"route": "fixed"})).await.status, 200, "another route");
    // Callers are not refused, and their run is their own.
    let caller = tokio::spawn({
        let app = std::sync::Arc::clone(&app);
        async move { app.ask("s", json!({"x": 3})).await }
    });
    while runs(app.folder.path()) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::fs::remove_file(app.folder.path().join("gate")).unwrap();
    assert_eq!((first.await.unwrap().status, caller.await.unwrap().status), (200, 200));
    assert_eq!(explain(&app, json!({"route": "s"})).await.status, 200, "the turn is free again");
}

#[tokio::test]
async fn bad_requests_for_views_say_what_is_wrong() {
    let routes = json!([{"name": "typed", "input": [{"name": "n", "required": true}], "backend": {"fixed": {"parameters": []}}}]);
    let app = TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await;
    for (body, status, code, says) in [
        (json!({"route": "typd"}), 404, "unknown_route", "there is no route `typd`; did you mean `typed`?"),
        (json!({"route": "typed\u{1b}[2J"}), 404, "unknown_route", "there is no route `typed\\u{1b}[2J`"),
        (json!({"route": "typed"}), 422, "invalid_input", "parameter `n`"),
        (json!({"route": "typed", "parameters": {}}), 400, "invalid_request", "unknown field `parameters`"),
        (json!({"input": {}}), 400, "invalid_request", "missing field `route`"),
        (json!([]), 400, "invalid_request", "expected an object, found a list"),
    ] {
        let reply = explain(&app, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{body}: {}", reply.text());
        assert!(reply.message().contains(says), "{body}: {}", reply.message());
    }
    for path in ["status", "routes", "sources", "events", "held", "config"] {
        let reply = app.operate(&format!("/admin/{path}?limit=1"), None).await;
        assert_eq!((reply.status, reply.message().as_str()), (400, "this path takes no query"), "{path}");
        let reply = app.operate(&format!("/admin/{path}"), Some(json!({}))).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{path}");
        let stranger = operator_request("GET", &format!("/admin/{path}"), "").replace(ADMIN_TOKEN, TOKEN);
        assert_eq!(exchange_admin(app.admin, stranger.as_bytes()).await.status, 403, "{path}");
    }
    let stranger = operator_request("POST", "/admin/explain", "{}").replace(ADMIN_TOKEN, TOKEN);
    assert_eq!(exchange_admin(app.admin, stranger.as_bytes()).await.status, 403);
}

#[tokio::test]
async fn the_answers_path_and_the_views_agree_on_secrets() {
    let upstream = Upstream::start(|_| vec![Step::Send(json_response(r#"[{"name":"a-token-of-the-source"}]"#))]).await;
    let app = asking(&upstream).await;
    let explained = explain(&app, json!({"route": "h", "input": {"path": "x"}})).await.json();
    // What Argo CD gets is shown as it is. A step's own output is without the backend's secrets.
    assert_eq!(explained["answer"]["body"]["output"]["parameters"], json!([{"name": "a-token-of-the-source"}]));
    assert!(!explained["steps"].to_string().contains("a-token-of-the-source"), "{explained:#}");
}
