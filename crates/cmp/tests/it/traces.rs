//! Spans of calls and runs, at a collector of OTLP over gRPC.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use http::{HeaderMap, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use prost::Message;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::support::{Gateway, script};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector.
struct Collector {
    address: String,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    _runtime: Runtime,
}

impl Collector {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&requests);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let taken = Arc::clone(&taken);
                let service = service_fn(move |request| take(request, Arc::clone(&taken)));
                tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, requests, _runtime: runtime }
    }

    /// All spans, once there are `count`.
    fn spans(&self, count: usize) -> Vec<Span> {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            let resources: Vec<_> =
                self.requests.lock().unwrap().iter().flat_map(|request| request.resource_spans.clone()).collect();
            let spans: Vec<Span> =
                resources.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect();
            if spans.len() >= count {
                return spans;
            }
            assert!(Instant::now() < until, "{spans:#?}");
            sleep(Duration::from_millis(20));
        }
    }
}

type Reply = Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Infallible>>;

async fn take(
    request: Request<Incoming>,
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
) -> Result<Reply, Infallible> {
    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!((body[0], body[1..5].to_vec()), (0, u32::try_from(body.len() - 5).unwrap().to_be_bytes().to_vec()));
    taken.lock().unwrap().push(ExportTraceServiceRequest::decode(&body[5..]).unwrap());
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
    let body = Full::new(bytes::Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) }).boxed_unsync();
    Ok(Response::builder().header(CONTENT_TYPE, "application/grpc").body(body).unwrap())
}

fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

fn text(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_and_runs_are_spans_of_the_callers_trace() {
    let collector = Collector::start();
    let config = format!(
        "traces: {{ address: '{}', sample: 0, resource: {{ a: b }} }}\nplugins:\n- config: demo\n",
        collector.address
    );
    let run = "echo \"a: $TRACEPARENT\"; test ! -e fail";
    let mut gateway = Gateway::serve(&config, &[("demo", &script(run))]);
    gateway.file("x", "");
    let answer = gateway.ask("GenerateManifest", ".", &["-traceparent", PARENT]);
    let printed = answer.manifests()[0].trim().trim_start_matches("a: ").to_owned();
    // Of the call: `CheckPluginConfiguration`, `GenerateManifest` and its run.
    let spans = collector.spans(3);
    let named =
        |name: &str| spans.iter().find(|span| span.name.ends_with(name)).unwrap_or_else(|| panic!("{spans:#?}"));
    let (check, call, run) = (named("/CheckPluginConfiguration"), named("/GenerateManifest"), named("run sh"));
    for span in [check, call] {
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), "00f067aa0ba902b7".to_owned()));
        assert_eq!(span.kind, i32::from(SpanKind::Server));
    }
    assert_eq!((hex(&run.trace_id), &run.parent_span_id), (TRACE.to_owned(), &call.span_id));
    assert_eq!(printed, format!("00-{TRACE}-{}-01", hex(&run.span_id)));
    assert_eq!(text(call, "cmp_gateway.plugin").as_deref(), Some("demo-v1.0"));
    assert_eq!(text(call, "rpc.grpc.status_code").as_deref(), Some("0"));
    gateway.wait_for_log(&format!("\"trace_id\":\"{TRACE}\""));
    // A call that fails, and one that the caller does not trace.
    gateway.file("fail", "");
    let _ = gateway.ask("GenerateManifest", ".", &[]);
    let _ = gateway.ask("GenerateManifest", ".", &["-traceparent", PARENT]);
    let spans = collector.spans(6);
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "{spans:#?}");
    let failed: Vec<_> = spans.iter().filter_map(|span| text(span, "error.type")).collect();
    assert!(
        failed.len() == 2 && ["1", "Unknown"].iter().all(|end| failed.iter().any(|found| found == end)),
        "{failed:?}"
    );
    let resource = collector.requests.lock().unwrap()[0].resource_spans[0].resource.clone().unwrap();
    let keys: Vec<_> = resource.attributes.into_iter().map(|attribute| attribute.key).collect();
    assert_eq!(keys, ["a", "service.instance.id", "service.name", "service.version"]);
}

/// Spans in the queue are sent at the end, and an unreachable collector delays neither a call nor the end.
#[test]
fn the_last_spans_are_sent_and_nobody_waits() {
    let collector = Collector::start();
    let config =
        format!("admin: 127.0.0.1:0\ntraces: {{ address: '{}' }}\nplugins:\n- config: demo\n", collector.address);
    let mut gateway = Gateway::serve(&config, &[("demo", &script("echo 'a: b'"))]);
    gateway.file("x", "");
    for _ in 0..4 {
        assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
    }
    gateway.terminate();
    assert!(gateway.wait().success());
    assert_eq!(collector.spans(12).len(), 12);
    let away = "traces: { address: '127.0.0.1:1' }\nplugins:\n- config: demo\n";
    let mut gateway = Gateway::serve(away, &[("demo", &script("echo 'a: b'"))]);
    gateway.file("x", "");
    assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
    gateway.wait_for_log("spans do not reach the collector");
}
