use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::sync::mpsc;
use tracing_subscriber::{fmt, layer::SubscriberExt};

use super::*;
use crate::{
    log::{self, Format, LogConfig, LogLevel},
    sink::{LogStream, Sink},
    trace::{TraceContext, Tracer},
};

fn sink() -> Arc<Sink> {
    Arc::new(Sink::new(LogStream::Stdout))
}

/// The text that `log` writes into a log.
fn logged(config: LogConfig, log: impl FnOnce()) -> String {
    let sink = sink();
    tracing::subscriber::with_default(log::subscriber(config, &sink), log);
    sink.take()
}

const JSON: LogConfig = LogConfig { format: Format::Json, level: LogLevel::Info };

fn plain() -> Answered<'static> {
    Answered {
        request_id: "id",
        peer: Some("127.0.0.1"),
        method: None,
        path: None,
        route: Some("route"),
        application_set: Some("set"),
        namespace: None,
        caller: Some("argocd"),
        key: Some("00ff"),
        cache: "hit",
        status: 200,
        duration_us: 17,
        sets: Some(2),
        elements: None,
    }
}

#[test]
fn only_our_log_of_json_takes_the_line_directly() {
    let takes = |config| {
        let mut is_told = false;
        let written = logged(config, || is_told = plain().log_directly(SystemTime::now()));
        assert_eq!(is_told, !written.is_empty());
        is_told
    };
    for (level, is_taken) in
        [(LogLevel::Debug, true), (LogLevel::Info, true), (LogLevel::Warn, false), (LogLevel::Error, false)]
    {
        assert_eq!(takes(LogConfig { format: Format::Json, level }), is_taken, "{level:?}");
        assert!(!takes(LogConfig { format: Format::Text, level }), "{level:?}");
    }
    assert!(!plain().log_directly(SystemTime::now()), "there is no log at all");
    let other = tracing_subscriber::registry().with(fmt::layer().event_format(JsonLine::new(None)));
    tracing::subscriber::with_default(other, || assert!(!plain().log_directly(SystemTime::now())));
}

#[test]
fn every_log_has_the_line_once_or_leaves_it_out() {
    for (format, level, lines) in [
        (Format::Json, LogLevel::Debug, 1),
        (Format::Json, LogLevel::Info, 1),
        (Format::Json, LogLevel::Warn, 0),
        (Format::Text, LogLevel::Info, 1),
        (Format::Text, LogLevel::Error, 0),
    ] {
        let written = logged(LogConfig { format, level }, || plain().log());
        assert_eq!(written.lines().count(), lines, "{format:?} {level:?}: {written}");
    }
}

#[test]
fn a_line_for_people_shows_the_key_as_it_is() {
    let written = logged(LogConfig { format: Format::Text, level: LogLevel::Info }, || plain().log());
    assert!(
        written.contains(" INFO request: answered request_id=\"id\" peer=\"127.0.0.1\" route=\"route\""),
        "{written}"
    );
    assert!(written.contains(" key=00ff cache=\"hit\" status=200 duration_us=17 sets=2\n"), "{written}");
}

/// Some usual texts, and some with what must be escaped.
const SAMPLES: [&str; 8] = [
    "",
    "127.0.0.1",
    "feature-branch-1/x_y",
    "\"",
    "\\\n\r\t\0\u{1b}[31m",
    "a\u{7f}\u{80}\u{9f}\u{a0}¿é",
    "\u{2028} 🚀",
    "0123456789abcdef\u{1}0123456789abcdef\"",
];

/// Any text, with much that must be escaped and that only looks so.
fn nasty() -> impl Strategy<Value = String> {
    let special = prop::sample::select("\"\\/\n\u{1f} \u{7f}\u{80}\u{9f}\u{a0}¿éz".chars().collect::<Vec<_>>());
    prop::collection::vec(prop_oneof![special, any::<char>()], 0..24).prop_map(|all| all.into_iter().collect())
}

/// Nothing, a sample, or the text of a case.
fn choices() -> impl Strategy<Value = [Option<usize>; 10]> {
    prop::array::uniform10(prop::option::of(0..=SAMPLES.len()))
}

fn figure() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..2_000_u64, Just(u64::MAX), (0..20_u32).prop_map(|power| 10_u64.pow(power))]
}

/// No trace, ids that are passed on, and spans of ours.
fn places() -> impl Strategy<Value = Option<SpanContext>> {
    let places = (0..32).map(|number| if number % 4 == 0 { None } else { Some(place(number % 2 == 0)) });
    prop::sample::select(places.collect::<Vec<_>>())
}

fn place(is_recorded: bool) -> SpanContext {
    let headers = [(trace::HEADER, TraceContext::new(true).to_header().unwrap())].into_iter().collect();
    let (queue, _) = mpsc::channel(1);
    let losses = prometheus::IntCounter::new("losses", "Losses.").unwrap();
    let tracer = if is_recorded { Tracer::new(queue, losses, 1.0) } else { Tracer::default() };
    tracer.request(&headers, || "name".to_owned()).place().unwrap()
}

/// The line without its time, which must have the usual place and length.
fn without_time(line: &str) -> (&str, &str) {
    let (head, rest) = line.split_at("{\"timestamp\":\"".len());
    assert_eq!((head, rest.as_bytes()[26]), ("{\"timestamp\":\"", b'Z'), "{line}");
    rest.split_at(27)
}

#[test]
fn both_ways_write_the_same_bytes() {
    let sink = sink();
    let caches = prop::sample::select(vec!["hit", "miss", "joined", "stale", "stale_if_error", "none", "\"\n\u{80}"]);
    let figures = (any::<u16>(), figure(), prop::option::of(figure()));
    let time = (0..253_402_300_800_u64, 0..1_000_000_000_u32);
    let cases = (nasty(), choices(), caches, figures, places(), time);
    let mut runner = TestRunner::new(ProptestConfig { cases: 5_000, ..ProptestConfig::default() });
    tracing::subscriber::with_default(log::subscriber(JSON, &sink), || {
        let tried =
            runner.run(&cases, |(own, choices, cache, (status, duration_us, sets), place, (seconds, nanos))| {
                let text = |number: usize| SAMPLES.get(number).copied().unwrap_or(&own);
                let [request_id, texts @ ..] = choices.map(|choice| choice.map(text));
                let [peer, method, path, route, application_set, namespace, caller, key, elements] = texts;
                let request_id = request_id.unwrap_or("4f1c02d7a9e85b36");
                let answered = Answered {
                    request_id,
                    peer,
                    method,
                    path,
                    route,
                    application_set,
                    namespace,
                    caller,
                    key,
                    cache,
                    status,
                    duration_us,
                    sets,
                    elements,
                };
                let now = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
                within(place.as_ref(), || assert!(answered.log_directly(now)));
                let direct = sink.take();
                within(place.as_ref(), || answered.log_by_event());
                let by_event = sink.take();
                let ((time, direct), (_, by_event)) = (without_time(&direct), without_time(&by_event));
                prop_assert_eq!(direct, by_event);
                prop_assert_eq!(time.as_bytes(), stamp(now).unwrap());
                prop_assert_eq!(direct.contains("trace_id"), place.is_some());
                Ok(())
            });
        tried.unwrap();
    });
}

/// Runs `log` within a trace, if there is one.
fn within(place: Option<&SpanContext>, log: impl FnOnce()) {
    match place {
        Some(place) => trace::at(Some(place.clone()), async { log() }).now_or_never().unwrap(),
        None => log(),
    }
}
