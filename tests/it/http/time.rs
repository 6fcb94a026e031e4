//! `now` in templates and expressions: the gateway's clock, and how long an answer is fresh that used it.

use std::sync::{Arc, OnceLock};

use domain::clock::{Clock as _, Timestamp};

use super::*;

/// How many pulls were updated in the last two hours.
const YOUNG: &str = "[{'n': size(body.filter(p, now - timestamp(p.at) < duration('2h')))}]";

fn ago(now: Timestamp, minutes: u64) -> String {
    Timestamp(now.0 - minutes * 60_000).to_date()
}

#[tokio::test]
async fn items_come_and_go_by_their_age() {
    let pulls = Arc::new(OnceLock::new());
    let body = Arc::clone(&pulls);
    let upstream = Upstream::start(move |_| json(body.get().map_or("[]", String::as_str))).await;
    let url = "/?since={{ (now - duration('1d')) | date }}";
    let app = serve(&upstream, url, json!({"parameters": YOUNG})).await;
    let now = app.clock.now();
    pulls.set(json!([{"at": ago(now, 10)}, {"at": ago(now, 90)}, {"at": ago(now, 300)}]).to_string()).unwrap();
    for (wait, count) in [(0, 2), (29, 2), (2, 1), (120, 0)] {
        app.clock.advance(Duration::from_mins(wait));
        let sets = app.ask("h", json!({})).await.sets();
        assert_eq!(sets, format!(r#"[{{"n":"{count}"}}]"#), "after {wait} minutes more");
        let day_ago = ago(app.clock.now(), 24 * 60).replace(':', "%3A");
        assert_eq!(upstream.requests().pop().unwrap().target, format!("/?since={day_ago}"));
    }
}

#[tokio::test]
async fn an_answer_that_used_the_time_is_fresh_for_a_minute() {
    for (more, is_limited) in [
        (json!({"parameters": YOUNG}), true),
        (json!({"parameters": YOUNG, "honorCacheControl": true}), true),
        (json!({"parameters": "[{'n': size(body)}]", "headers": {"X-Now": "{{ now }}"}}), true),
        (json!({"parameters": "[{'n': size(body)}]", "forEach": "[date(now)]"}), true),
        (json!({"parameters": "[{'n': size(body)}]", "absent": "status == 404 && body == now"}), true),
        (json!({"parameters": "[{'unknown': size(body)}]"}), false),
    ] {
        let reply = response(200, "Content-Type: application/json\r\nCache-Control: max-age=3600", "[]");
        let upstream = Upstream::start(move |_| vec![Step::Send(reply.clone())]).await;
        let config = config(&upstream, "/", more.clone()).replace("\"0s\"", "\"2h\"");
        let app = TestApp::start(&config).await;
        app.ask("h", json!({})).await;
        let again = app.ask("h", json!({})).await;
        let left = again.header("cache-status").unwrap().strip_prefix("appset-gateway; hit; ttl=");
        let left: u64 = left.unwrap().parse().unwrap();
        let range = if is_limited { 54..=60 } else { 6480..=7920 };
        assert!(range.contains(&left), "{more}: {left}");
    }
}

#[tokio::test]
async fn what_is_no_time_is_named() {
    let parameters = json!({"parameters": "body.filter(p, timestamp(p.at) < now)"});
    let reply = ask(json(r#"[{"at":"yesterday"}]"#), parameters).await;
    refused(&reply, 502, "backend_output_invalid", "`yesterday` is not a time of RFC 3339");
}
