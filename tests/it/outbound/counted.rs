//! Metrics: each attempt counts by its outcome, and each unsent request by its reason. Only configured destinations have names.

use serde_json::json;
use telemetry::metrics::Metrics;

use super::*;
use crate::support::{TestApp, authority::Ca};

/// An HTTP client with `options` and metrics.
fn counted(options: ClientOptions) -> (Arc<HttpClient>, Metrics) {
    let (metrics, clock) = (Metrics::new().unwrap(), TestClock::standing());
    let client = Outbound::new(clock).counted(metrics.outbound.clone()).client(options).unwrap();
    (client, metrics)
}

/// The counted outcomes in alphabetical order, and the number of timed requests.
fn outcomes_and_timings(metrics: &Metrics) -> (Vec<String>, String) {
    let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
    let counts: Vec<&str> = text
        .lines()
        .filter_map(|client| {
            client.strip_prefix("appset_gateway_outbound_requests_total{destination=\"other\",outcome=\"")
        })
        .collect();
    assert_eq!(counts.len(), 13, "all are there from the start, and no other: {counts:?}");
    let timed = "appset_gateway_outbound_request_duration_seconds_count{destination=\"other\"} ";
    let timed = text.lines().find_map(|client| client.strip_prefix(timed));
    let counts = counts.into_iter().filter(|count| !count.ends_with(" 0")).map(|count| count.replace("\"}", ""));
    (counts.collect(), timed.unwrap().to_owned())
}

#[track_caller]
fn assert_counts(metrics: &Metrics, outcomes: &[&str], timed: u32) {
    assert_eq!(
        outcomes_and_timings(metrics),
        (outcomes.iter().map(|&one| one.to_owned()).collect(), timed.to_string())
    );
}

#[tokio::test]
async fn each_attempt_is_counted_by_its_outcome() {
    let long = vec![Step::Send(json_response(" ".repeat(5000)))];
    for (steps, outcomes, timed) in [
        (ok_response(), &["ok 2"][..], 2),
        (response_with(304, ""), &["ok 2"], 2),
        (response_with(404, ""), &["refused 2"], 2),
        (response_with(401, "Retry-After: 30"), &["refused 2"], 2),
        (response_with(403, "Retry-After: 30"), &["limited 1", "throttled 1"], 1),
        (response_with(429, ""), &["limited 1", "throttled 1"], 1),
        // Three attempts each. The fifth failure in a row belongs to another request.
        (response_with(503, ""), &["failed 6"], 6),
        (vec![Step::Hang], &["timeout 2"], 2),
        (vec![Step::Reset], &["broken 2"], 2),
        (long, &["too_large 2"], 2),
    ] {
        let (client, metrics) = counted(ClientOptions::default());
        assert_counts(&metrics, &[], 0);
        let seconds = if matches!(steps[..], [Step::Hang]) { 0.1 } else { 5.0 };
        let upstream = Upstream::start(move |_| steps.clone()).await;
        for _ in 0..2 {
            _ = client.fetch(get(&upstream, "/", seconds)).await;
        }
        assert_counts(&metrics, outcomes, timed);
    }
}

#[tokio::test]
async fn refused_connections_untrusted_certificates_and_missed_slots_are_counted() {
    let (client, metrics) = counted(ClientOptions::default());
    let mut refusing = Upstream::start_apart(|_| ok_response()).await;
    refusing.refuse().await;
    for _ in 0..6 {
        let call = Call { may_repeat: false, ..get(&refusing, "/", 5.0) };
        fails(client.fetch(call).await, ErrorKind::Unavailable, "");
    }
    assert_counts(&metrics, &["backoff 1", "connect 5"], 5);

    let (client, metrics) = counted(ClientOptions::default());
    let address = tls::serve(&Ca::new("ours"), &["127.0.0.1"]).await;
    let url = Url::parse(&format!("https://{address}/")).unwrap();
    let call = Call::get(url, 4096, Instant::now() + Duration::from_secs(10));
    fails(client.fetch(call).await, ErrorKind::Unavailable, "not trusted");
    assert_counts(&metrics, &["untrusted 1"], 1);

    let (client, metrics) = counted(ClientOptions { concurrency: 1, ..ClientOptions::default() });
    let hanging = Upstream::start(|_| vec![Step::Hang]).await;
    let (first, second) = (get(&hanging, "/", 0.5), get(&hanging, "/", 0.1));
    let (first, second) = tokio::join!(client.fetch(first), client.fetch(second));
    fails(first, ErrorKind::Timeout, "no whole answer");
    fails(second, ErrorKind::Timeout, "no free slot");
    assert_counts(&metrics, &["no_permit 1", "timeout 1"], 1);
}

#[tokio::test]
async fn metrics_name_only_configured_destinations() {
    let [fixed, templated] = [Upstream::start(|_| ok_response()).await, Upstream::start(|_| ok_response()).await];
    let (address, port) = (fixed.address, templated.address.port());
    let url = format!("http://{address}/{{{{ params.name }}}}");
    let elsewhere =
        json!({"url": format!("http://{{{{ params.h }}}}:{port}/"), "allowedHosts": [format!("127.0.0.1:{port}")]});
    let routes = json!([
        {"name": "h", "backend": {"http": {"url": url}}, "guard": {"onEmpty": "allow"}},
        {"name": "elsewhere", "backend": {"http": elsewhere}},
    ]);
    let app = TestApp::start(&format!("{}routes: {routes}\n", TestApp::auth())).await;
    let count = async |destination: &str| {
        let requests = "appset_gateway_outbound_requests_total";
        let seconds = "appset_gateway_outbound_request_duration_seconds_count";
        [
            app.metric(&format!("{requests}{{destination=\"{destination}\",outcome=\"ok\"}}")).await,
            app.metric(&format!("{seconds}{{destination=\"{destination}\"}}")).await,
        ]
    };
    assert_eq!(app.ask("h", json!({"name": "canary"})).await.sets(), "[]");
    assert_eq!((count(&address.to_string()).await, count("other").await), ([1, 1], [0, 0]));
    assert_eq!(app.ask("elsewhere", json!({"h": "127.0.0.1"})).await.sets(), "[]");
    assert_eq!((count(&address.to_string()).await, count("other").await), ([1, 1], [1, 1]));
    let text = app.admin("/metrics").await.text();
    assert!(!text.contains(&port.to_string()) && !text.contains("canary"), "{text}");
}
