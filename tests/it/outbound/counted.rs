//! Metrics: each attempt counts by its outcome, and each request that was not sent by its reason. Only destinations of the
//! configuration have names.

use appset_gateway::telemetry::metrics::Metrics;
use serde_json::json;

use super::*;
use crate::support::{TestApp, authority::Ca};

/// An HTTP client with the options `terms` and metrics.
fn counted(terms: ClientOptions) -> (Arc<HttpClient>, Metrics) {
    let (metrics, clock) = (Metrics::new().unwrap(), TestClock::standing());
    let line = Outbound::new(clock).counted(metrics.outbound.clone()).client(terms).unwrap();
    (line, metrics)
}

/// The counted outcomes in alphabetical order, and the number of timed requests.
fn told(metrics: &Metrics) -> (Vec<String>, String) {
    let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
    let counts: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("appset_gateway_outbound_requests_total{destination=\"other\",outcome=\""))
        .collect();
    assert_eq!(counts.len(), 13, "all are there from the start, and no other: {counts:?}");
    let timed = "appset_gateway_outbound_request_duration_seconds_count{destination=\"other\"} ";
    let timed = text.lines().find_map(|line| line.strip_prefix(timed));
    let counts = counts.into_iter().filter(|count| !count.ends_with(" 0")).map(|count| count.replace("\"}", ""));
    (counts.collect(), timed.unwrap().to_owned())
}

#[track_caller]
fn tells(metrics: &Metrics, outcomes: &[&str], timed: u32) {
    assert_eq!(told(metrics), (outcomes.iter().map(|&one| one.to_owned()).collect(), timed.to_string()));
}

#[tokio::test]
async fn each_answer_by_its_kind() {
    let long = vec![Step::Send(json_response(" ".repeat(5000)))];
    for (steps, outcomes, timed) in [
        (well(), &["ok 2"][..], 2),
        (says(304, ""), &["ok 2"], 2),
        (says(404, ""), &["refused 2"], 2),
        (says(401, "Retry-After: 30"), &["refused 2"], 2),
        (says(403, "Retry-After: 30"), &["limited 1", "throttled 1"], 1),
        (says(429, ""), &["limited 1", "throttled 1"], 1),
        // Three attempts each. The fifth failure in a row belongs to another request.
        (says(503, ""), &["failed 6"], 6),
        (vec![Step::Hang], &["timeout 2"], 2),
        (vec![Step::Reset], &["broken 2"], 2),
        (long, &["too_large 2"], 2),
    ] {
        let (line, metrics) = counted(ClientOptions::default());
        tells(&metrics, &[], 0);
        let seconds = if matches!(steps[..], [Step::Hang]) { 0.1 } else { 5.0 };
        let upstream = Upstream::start(move |_| steps.clone()).await;
        for _ in 0..2 {
            _ = line.fetch(get(&upstream, "/", seconds)).await;
        }
        tells(&metrics, outcomes, timed);
    }
}

#[tokio::test]
async fn nobody_there_nobody_trusted_and_no_turn() {
    let (line, metrics) = counted(ClientOptions::default());
    let mut refusing = Upstream::start_apart(|_| well()).await;
    refusing.refuse().await;
    for _ in 0..6 {
        let call = Call { may_repeat: false, ..get(&refusing, "/", 5.0) };
        fails(line.fetch(call).await, ErrorKind::Unavailable, "");
    }
    tells(&metrics, &["connect 5", "resting 1"], 5);

    let (line, metrics) = counted(ClientOptions::default());
    let address = tls::serve(&Ca::new("ours"), &["127.0.0.1"]).await;
    let url = Url::parse(&format!("https://{address}/")).unwrap();
    let call = Call::get(url, 4096, Instant::now() + Duration::from_secs(10));
    fails(line.fetch(call).await, ErrorKind::Unavailable, "not trusted");
    tells(&metrics, &["untrusted 1"], 1);

    let (line, metrics) = counted(ClientOptions { concurrency: 1, ..ClientOptions::default() });
    let hanging = Upstream::start(|_| vec![Step::Hang]).await;
    let (first, second) = (get(&hanging, "/", 0.5), get(&hanging, "/", 0.1));
    let (first, second) = tokio::join!(line.fetch(first), line.fetch(second));
    fails(first, ErrorKind::Timeout, "no whole answer");
    fails(second, ErrorKind::Timeout, "no turn");
    tells(&metrics, &["no_turn 1", "timeout 1"], 1);
}

#[tokio::test]
async fn a_gateways_metrics_tell_the_destinations_of_its_configuration() {
    let [fixed, templated] = [Upstream::start(|_| well()).await, Upstream::start(|_| well()).await];
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
