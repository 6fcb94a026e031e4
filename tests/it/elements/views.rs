//! What a running gateway shows of elements: the header, the metric, and the views of operators.

use super::*;

/// A gateway with three elements that are present and one that is absent. Then one of them fails, and a new one does from the start.
async fn gateway() -> (TestApp, Source) {
    let source = Source::start(&[(1, Says::Present), (2, Says::Present), (3, Says::Present), (4, Says::Absent)]).await;
    let app = TestApp::start(&source.config()).await;
    (app, source)
}

async fn view(app: &TestApp, path: &str) -> Value {
    let reply = app.operate(&format!("/admin/{path}"), None).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

async fn metric(app: &TestApp) -> [u64; 4] {
    let mut counts = [0; 4];
    for (count, state) in counts.iter_mut().zip(["present", "absent", "last_known", "unknown"]) {
        *count = app.metric(&format!("appset_gateway_route_elements{{route=\"previews\",state=\"{state}\"}}")).await;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_how_many_elements_are_in_which_state() {
    let (app, source) = gateway().await;
    let text = app.admin("/metrics").await.text();
    assert!(text.contains("appset_gateway_route_elements{route=\"previews\",state=\"unknown\"} 0"), "{text}");
    let reply = app.ask("previews", json!({})).await;
    assert_eq!(numbers(&reply), ["1", "2", "3"]);
    let elements = |reply: &Reply| reply.header("x-appset-gateway-elements").map(str::to_owned);
    assert_eq!(elements(&reply).as_deref(), Some("present=3, absent=1, last-known=0, unknown=0"));
    assert_eq!(elements(&app.ask("previews", json!({})).await), elements(&reply), "a hit has it too");
    assert_eq!(metric(&app).await, [3, 1, 0, 0]);

    source.set(2, Says::Fails);
    source.set(5, Says::Fails);
    app.clock.advance(Duration::from_secs(12));
    let reply = app.ask("previews", json!({})).await;
    assert_eq!(numbers(&reply), ["1", "2", "3"], "the second as it was last, and nothing of the fifth");
    assert_eq!(elements(&reply).as_deref(), Some("present=2, absent=1, last-known=1, unknown=1"));
    assert_eq!(metric(&app).await, [2, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_routes_have_neither_header_nor_metric_of_elements() {
    let route = r#"{"name": "plain", "backend": {"fixed": {"parameters": [{"a": "b"}]}}}"#;
    let app = TestApp::start(&format!("{}routes: [{route}]\n", TestApp::auth())).await;
    let reply = app.ask("plain", json!({})).await;
    assert_eq!((reply.status, reply.header("x-appset-gateway-elements")), (200, None));
    assert!(!app.admin("/metrics").await.text().contains("appset_gateway_route_elements{"));
    assert_eq!(view(&app, "routes").await["routes"][0].get("elements"), None);
    assert_eq!(view(&app, "answers").await["answers"][0].get("elements"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_has_its_elements_with_state_and_reason() {
    let (app, source) = gateway().await;
    app.ask("previews", json!({})).await;
    let confirmed = view(&app, "answers").await["answers"][0]["storedAt"].clone();
    source.set(2, Says::Fails);
    source.set(5, Says::Fails);
    app.clock.advance(Duration::from_secs(12));
    app.ask("previews", json!({})).await;

    let answers = view(&app, "answers").await;
    assert_eq!(answers["total"], 1, "the parts of an answer are no answers: {answers:#}");
    let counts = json!({"present": 2, "absent": 1, "lastKnown": 1, "unknown": 1});
    assert_eq!(answers["answers"][0]["elements"], counts);
    let key = answers["answers"][0]["key"].as_str().unwrap().to_owned();
    let elements = view(&app, &format!("answers/{key}")).await["elements"].clone();
    let list = elements["list"].as_array().unwrap();
    let states: Vec<_> = list.iter().map(|each| (&each["key"], &each["state"], &each["parameterSets"])).collect();
    let expected = [
        (json!("5"), json!("unknown"), json!(0)),
        (json!("2"), json!("lastKnown"), json!(1)),
        (json!("1"), json!("present"), json!(1)),
        (json!("3"), json!("present"), json!(1)),
        (json!("4"), json!("absent"), json!(0)),
    ];
    assert_eq!(states, expected.iter().map(|(key, state, sets)| (key, state, sets)).collect::<Vec<_>>());
    assert_eq!((&elements["unknown"], &elements["leftOut"]), (&json!(1), &json!(0)));
    let [unknown, last_known, present, ..] = &list[..] else { panic!() };
    assert!(unknown["failing"]["message"].as_str().unwrap().contains("500"), "{unknown:#}");
    assert_eq!((unknown.get("confirmedAt"), &last_known["confirmedAt"]), (None, &confirmed));
    assert_eq!(unknown["unknownSince"], last_known["unknownSince"]);
    assert_ne!(last_known["unknownSince"], confirmed);
    assert_eq!((unknown["failing"]["kind"].as_str(), present.get("failing")), (Some("unavailable"), None));
    assert!(unknown["failing"]["retryInSeconds"].as_u64().unwrap() > 0, "{unknown:#}");
    assert!(present["freshForSeconds"].as_u64().unwrap() > 0, "{present:#}");
    let absent = &list[4];
    assert!(!absent["evidence"].as_array().unwrap().is_empty(), "an absence has a proof: {absent:#}");

    let few = view(&app, &format!("answers/{key}?elements=1")).await["elements"].clone();
    assert_eq!((few["list"].as_array().unwrap().len(), &few["leftOut"]), (1, &json!(4)));
    for query in ["elements=10001", "elements=-1", "element=1"] {
        assert_eq!(app.operate(&format!("/admin/answers/{key}?{query}"), None).await.status, 400, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_names_the_element_and_not_a_question() {
    let (app, source) = gateway().await;
    app.ask("previews", json!({})).await;
    source.set(2, Says::Fails);
    source.set(5, Says::Fails);
    app.clock.advance(Duration::from_secs(12));
    app.ask("previews", json!({})).await;
    let status = view(&app, "status").await;
    let alerts: Vec<_> = status["alerts"].as_array().unwrap().iter().collect();
    assert!(alerts.iter().all(|alert| alert["kind"] == "element" && alert["severity"] == "warning"), "{status:#}");
    let mut subjects: Vec<&str> = alerts.iter().map(|alert| alert["subject"].as_str().unwrap()).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ["2", "5"]);
    let of =
        |subject: &str| alerts.iter().find(|alert| alert["subject"] == subject).unwrap()["message"].as_str().unwrap();
    assert!(of("2").starts_with("element 2: the answer has what it had last, of 20"), "{}", of("2"));
    assert!(of("5").starts_with("element 5: no answer of it can be served: "), "{}", of("5"));
    let key = view(&app, "answers").await["answers"][0]["key"].clone();
    assert_eq!(alerts[0]["id"], key, "it leads to the whole answer");
    let counts = &status["counts"];
    assert_eq!([&counts["unknownElements"], &counts["failing"], &counts["fallback"]], [2, 0, 0]);
    assert_eq!(status["isHeldOrFailing"], true);
    let route = view(&app, "routes").await["routes"][0].clone();
    assert_eq!((&route["state"], &route["unknownElements"]), (&json!("stale"), &json!(2)));
    assert_eq!(route["elements"], json!({"present": 2, "absent": 1, "lastKnown": 1, "unknown": 1}));

    // What is not in the list any more is no trouble.
    source.elements.lock().unwrap().remove(&5);
    source.set(2, Says::Present);
    app.clock.advance(Duration::from_mins(2));
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1", "2", "3"]);
    assert_eq!(view(&app, "status").await["alerts"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_has_the_elements_as_they_are_now_and_stores_nothing() {
    let (app, source) = gateway().await;
    app.ask("previews", json!({})).await;
    source.set(2, Says::Fails);
    source.set(5, Says::Fails);
    let explain = async || {
        let question = json!({"route": "previews", "applicationSet": "test", "input": {}});
        let reply = app.operate("/admin/explain", Some(question)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let explained = explain().await;
    let counts = |explained: &Value| {
        ["present", "absent", "lastKnown", "unknown"].map(|state| explained["elements"][state].as_u64().unwrap())
    };
    assert_eq!((counts(&explained), &explained["outcome"]), ([2, 1, 1, 1], &json!("present")), "{explained:#}");
    assert_eq!(explained["because"], Value::Null);
    assert_eq!(explained["answer"]["body"]["output"]["parameters"].as_array().unwrap().len(), 3);
    let steps: Vec<&str> =
        explained["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert!(steps.contains(&"the list") && steps.contains(&"element 5"), "{steps:?}");
    assert_eq!(view(&app, "status").await["alerts"], json!([]), "its failures are not remembered");

    // More than half are unknown: there is no answer, and the last good one is served.
    for number in [1, 3] {
        source.set(number, Says::Fails);
    }
    let explained = explain().await;
    assert_eq!((counts(&explained), &explained["outcome"]), ([0, 1, 3, 1], &json!("unknown")), "{explained:#}");
    assert!(explained["because"]["message"].as_str().unwrap().contains("4 of 5 elements unknown"), "{explained:#}");
    assert_eq!(explained["answer"]["isFallback"], true);
}

/// What an element had before it left the list is over. When it comes back and fails, all views say that nothing of it is in the answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_element_that_comes_back_is_shown_without_its_old_sets() {
    let (app, source) = gateway().await;
    app.ask("previews", json!({})).await;
    let ask = async || {
        app.clock.advance(Duration::from_secs(12));
        numbers(&app.ask("previews", json!({})).await)
    };
    source.elements.lock().unwrap().remove(&2);
    for _ in 0..4 {
        app.clock.advance(Duration::from_mins(6));
        ask().await;
    }
    assert_eq!(ask().await, ["1", "3"], "its loss is accepted");
    source.set(2, Says::Fails);
    assert_eq!(ask().await, ["1", "3"]);

    let answer = view(&app, "answers").await["answers"][0].clone();
    assert_eq!(answer["elements"], json!({"present": 2, "absent": 1, "lastKnown": 0, "unknown": 1}));
    let shown = view(&app, &format!("answers/{}", answer["key"].as_str().unwrap())).await["elements"].clone();
    let element = &shown["list"][0];
    assert_eq!(
        (&element["key"], &element["state"], &element["parameterSets"]),
        (&json!("2"), &json!("unknown"), &json!(0))
    );
    assert_eq!(element.get("confirmedAt"), None, "{element:#}");
    let question = json!({"route": "previews", "applicationSet": "test", "input": {}});
    let explained = app.operate("/admin/explain", Some(question)).await.json();
    assert_eq!((&explained["elements"]["lastKnown"], &explained["elements"]["unknown"]), (&json!(0), &json!(1)));
    let alert = view(&app, "status").await["alerts"][0].clone();
    let message = alert["message"].as_str().unwrap();
    assert!(message.starts_with("element 2: no answer of it can be served: "), "{message}");

    source.set(2, Says::Present);
    app.clock.advance(Duration::from_mins(2));
    assert_eq!(ask().await, ["1", "2", "3"]);
}

/// Operators expect the number of answers to callers, however many parts these have.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalidation_counts_answers_and_not_their_parts() {
    let (app, source) = gateway().await;
    app.ask("previews", json!({})).await;
    let requests = source.upstream.requests().len();
    let reply = app.operate("/admin/answers/invalidate", Some(json!({"route": "previews"}))).await;
    assert_eq!(reply.json()["answers"], 1, "{}", reply.text());
    assert_eq!(numbers(&app.ask("previews", json!({})).await), ["1", "2", "3"]);
    assert_eq!(source.upstream.requests().len() - requests, 5, "the list and each of four elements are asked again");
}
