//! `Cache-Control` and validators: how long an upstream's answer is fresh, and when a 304 suffices.

use super::*;

/// RFC 9111, as far as the route allows it.
#[tokio::test]
async fn cache_control_is_honoured_where_the_route_says_so() {
    for (honor, headers, seconds) in [
        (true, "Cache-Control: private, max-age=600, s-maxage=1", Some(540..=600)),
        (true, "Cache-Control: max-age=600\r\nAge: 500", Some(90..=100)),
        (true, "Cache-Control: max-age=600\r\nAge: 700", None),
        (true, "Cache-Control: no-cache, max-age=600", None),
        (true, "Cache-Control: no-store", None),
        (true, "Cache-Control: max-age=99999999", Some(77_760..=86_400)),
        (true, "Cache-Control: public", Some(27..=33)),
        (true, "Cache-Control: max-age=soon", Some(27..=33)),
        (true, "", Some(27..=33)),
        (false, "Cache-Control: max-age=600", Some(27..=33)),
    ] {
        let answer = response(200, format!("Content-Type: application/json\r\n{headers}").trim_end(), SETS);
        let upstream = Upstream::start(move |_| vec![Step::Send(answer.clone())]).await;
        let config = config(&upstream, "/", json!({"honorCacheControl": honor})).replace("\"0s\"", "\"30s\"");
        let app = TestApp::start(&config).await;
        app.ask("h", json!({})).await;
        let again = app.ask("h", json!({})).await;
        let left = again.header("cache-status").unwrap().strip_prefix("appset-gateway; hit; ttl=");
        let left: Option<u64> = left.map(|left| left.parse().unwrap());
        match seconds {
            Some(range) => assert!(range.contains(&left.unwrap()), "{headers}: {left:?}"),
            None => assert_eq!(left, None, "{headers}"),
        }
    }
}

/// An unchanged answer costs a 304, with each kind of validator.
#[tokio::test]
async fn an_unchanged_answer_costs_a_304() {
    const OLD: &str = "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nDate: Sat, 21 Nov 2026 10:00:02 GMT";
    const NEW: &str = "Last-Modified: Sat, 21 Nov 2026 10:00:01 GMT\r\nDate: Sat, 21 Nov 2026 10:00:02 GMT";
    for (headers, condition, value) in [
        ("ETag: \"v1\"", "if-none-match", Some("\"v1\"")),
        ("ETag: W/\"v1\"", "if-none-match", Some("W/\"v1\"")),
        (OLD, "if-modified-since", Some("Sat, 21 Nov 2026 10:00:00 GMT")),
        (NEW, "if-modified-since", None),
        ("Last-Modified: yesterday", "if-modified-since", None),
        ("ETag: \"v1\"\r\nCache-Control: no-store", "if-none-match", None),
        ("X-None: 1", "if-none-match", None),
    ] {
        let (whole, unchanged) =
            (response(200, &format!("Content-Type: application/json\r\n{headers}"), SETS), response(304, headers, ""));
        let upstream = Upstream::start(move |request| {
            let is_asked = ["if-none-match", "if-modified-since"].iter().any(|name| request.header(name).is_some());
            vec![Step::Send(if is_asked { unchanged.clone() } else { whole.clone() })]
        })
        .await;
        let app = serve(&upstream, "/", json!({})).await;
        for _ in 0..3 {
            assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS, "{headers}");
        }
        let conditions: Vec<_> =
            upstream.requests().iter().map(|request| request.header(condition).map(str::to_owned)).collect();
        let value = value.map(str::to_owned);
        assert_eq!(conditions, [None, value.clone(), value], "{headers}");
    }
}
