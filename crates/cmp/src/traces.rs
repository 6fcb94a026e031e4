//! Sends spans to a collector by OTLP over gRPC, without TLS, as `argocd-cmp-server` does by default. No call waits for that.

use std::{collections::BTreeMap, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use prometheus::IntCounter;
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::grpc::{client::exchange, status::Status};
use telemetry::{
    otlp,
    trace::{Record, Tracer},
};

/// How many spans may wait. A span takes about 1 KiB.
const ROOM: usize = 4096;
/// The most spans in a batch.
const BATCH: usize = 512;
/// The time between two batches, in which spans gather.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a batch is sent at most.
const ATTEMPTS: u32 = 3;
/// The time between two log lines about lost spans.
const WARN_EVERY: Duration = Duration::from_mins(1);
/// How long the end of the process waits for the last spans.
const LAST: Duration = Duration::from_secs(5);
/// The method of a collector.
const METHOD: &str = "opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The name of this program in spans.
const PROGRAM: &str = "cmp-gateway";

/// Where spans go.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TracesConfig {
    /// The collector, such as `otel-collector:4317`: OTLP over gRPC, without TLS.
    pub(crate) address: String,
    /// The share of calls to trace, from 0 to 1, when the caller has not decided it (`traceparent`).
    #[serde(default = "all")]
    pub(crate) sample: f64,
    /// Attributes of all spans. `service.name` is `cmp-gateway` unless it is set here.
    #[serde(default)]
    pub(crate) resource: BTreeMap<String, String>,
    /// Metadata for the collector.
    #[serde(skip)]
    pub(crate) metadata: Vec<(String, String)>,
}

const fn all() -> f64 {
    1.0
}

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TracesError {
    /// The share.
    #[error("traces.sample: {0} is not from 0 to 1")]
    Sample(f64),
    /// The address.
    #[error("traces.address: `{0}` is not `host:port`, without `http://`")]
    Address(String),
    /// A field of the metadata.
    #[error("the metadata `{0}` for the collector has an invalid name or value")]
    Metadata(String),
}

/// How many spans were sent, and were not.
#[derive(Debug, Clone)]
pub(crate) struct SpanCounters {
    /// The collector has them.
    pub(crate) sent: IntCounter,
    /// The queue was full.
    pub(crate) dropped: IntCounter,
    /// The collector refused them, or was away for too long.
    pub(crate) failed: IntCounter,
}

/// Sends spans until the end.
#[derive(Debug)]
struct Exporter {
    address: String,
    fields: HeaderMap,
    resource: BTreeMap<String, String>,
    spans: mpsc::Receiver<Record>,
    counters: SpanCounters,
    warned: Option<Instant>,
}

/// The task that sends spans.
#[derive(Debug)]
pub(crate) struct Exporting {
    task: JoinHandle<()>,
    is_over: watch::Sender<bool>,
}

impl TracesConfig {
    /// As `argocd-cmp-server` reads its flags: `name=value` for metadata, and `name:value` for attributes, separated by commas.
    pub(crate) fn of_flags(address: String, metadata: &[String], attributes: &[String]) -> Self {
        let pairs = |texts: &[String], between: char| -> Vec<(String, String)> {
            let parts = texts.iter().flat_map(|text| text.split(','));
            let pairs = parts.filter_map(|part| part.split_once(between));
            pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
        };
        let resource = pairs(attributes, ':').into_iter().collect();
        Self { address, sample: all(), resource, metadata: pairs(metadata, '=') }
    }

    /// Begins to send spans, and makes what begins them.
    ///
    /// # Errors
    /// When a value is invalid.
    pub(crate) fn start(self, counters: SpanCounters) -> Result<(Tracer, Exporting), TracesError> {
        let Self { address, sample, resource, metadata } = self;
        if !(0.0..=1.0).contains(&sample) {
            return Err(TracesError::Sample(sample));
        }
        let is_address = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !host.contains("//") && port.parse::<u16>().is_ok());
        if !is_address {
            return Err(TracesError::Address(address));
        }
        let mut fields = HeaderMap::new();
        for (name, value) in metadata {
            let (Ok(key), Ok(mut value)) = (HeaderName::try_from(&name), HeaderValue::try_from(value)) else {
                return Err(TracesError::Metadata(name));
            };
            value.set_sensitive(true);
            fields.insert(key, value);
        }
        let mut all = BTreeMap::from([
            ("service.name".to_owned(), PROGRAM.to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            // Distinguishes pods, and a process before a restart and after it.
            ("service.instance.id".to_owned(), format!("{:032x}", fastrand::u128(..))),
        ]);
        all.extend(resource);
        let (queue, spans) = mpsc::channel(ROOM);
        let tracer = Tracer::new(queue, counters.dropped.clone(), sample);
        let exporter = Exporter { address, fields, resource: all, spans, counters, warned: None };
        let (is_over, over) = watch::channel(false);
        Ok((tracer, Exporting { task: tokio::spawn(exporter.run(over)), is_over }))
    }
}

impl Exporting {
    /// Sends the finished spans, as far as possible in a short time.
    pub(crate) async fn finish(self) {
        self.is_over.send_replace(true);
        if timeout(LAST, self.task).await.is_err() {
            tracing::warn!("the last spans did not reach the collector in time");
        }
    }
}

impl Exporter {
    /// Sends spans until it is `over`, and then those that are left.
    async fn run(mut self, mut over: watch::Receiver<bool>) {
        loop {
            let mut batch = Vec::new();
            let is_last = if *over.borrow() {
                while batch.len() < BATCH
                    && let Ok(span) = self.spans.try_recv()
                {
                    batch.push(span);
                }
                batch.is_empty()
            } else {
                tokio::select! {
                    count = self.spans.recv_many(&mut batch, BATCH) => count == 0,
                    // An error means that the server does not wait for the last spans.
                    is_over = over.wait_for(|over| *over) => is_over.is_err(),
                }
            };
            if is_last {
                return;
            }
            if batch.is_empty() {
                continue;
            }
            self.deliver(batch, &over).await;
            tokio::select! {
                () = sleep(GATHER) => {}
                _ = over.wait_for(|over| *over) => {}
            }
        }
    }

    /// Sends `batch`, again if that may help.
    async fn deliver(&mut self, batch: Vec<Record>, over: &watch::Receiver<bool>) {
        let count = batch.len() as u64;
        let body = framed(&otlp::encode(PROGRAM, &self.resource, batch));
        for attempt in 1..=ATTEMPTS {
            let why = match self.send(body.clone()).await {
                Ok(answer) => {
                    let refused = otlp::refused(&answer).min(count);
                    self.counters.sent.inc_by(count - refused);
                    self.counters.failed.inc_by(refused);
                    return;
                }
                Err(status) => status.message,
            };
            if self.warned.is_none_or(|at| at.elapsed() > WARN_EVERY) {
                tracing::warn!(why, "spans do not reach the collector; calls do not wait for them");
                self.warned = Some(Instant::now());
            }
            if attempt < ATTEMPTS && !*over.borrow() {
                sleep(GATHER * attempt).await;
            }
        }
        self.counters.failed.inc_by(count);
    }

    /// Sends a batch once. A connection for each: there is one batch in a second at most.
    async fn send(&self, body: Bytes) -> Result<Bytes, Status> {
        let sending = async {
            let stream = TcpStream::connect(&self.address).await;
            let stream = stream.map_err(|error| Status::unknown(format!("{}: {error}", self.address)))?;
            exchange(stream, &format!("http://{}/{METHOD}", self.address), self.fields.clone(), body).await
        };
        let sent = timeout(PATIENCE, sending).await;
        sent.unwrap_or_else(|_| Err(Status::unknown(format!("{}: no answer in time", self.address))))
    }
}

/// A message with its head.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(message);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_argocd_cmp_server_reads_them() {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let config =
            TracesConfig::of_flags("h:1".to_owned(), &texts(&["a=b=c,d=e"]), &texts(&["x:y", "wrong", "z: v"]));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(config.metadata, [pair("a", "b=c"), pair("d", "e")]);
        assert_eq!(config.resource, [pair("x", "y"), pair("z", "v")].into());
    }

    #[tokio::test]
    async fn wrong_values_are_named() {
        let counter = || IntCounter::new("n", "n").unwrap();
        let start = |address: &str, sample: f64, metadata: &[(&str, &str)]| {
            let metadata = metadata.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let config = TracesConfig { address: address.to_owned(), sample, resource: BTreeMap::new(), metadata };
            let counters = SpanCounters { sent: counter(), dropped: counter(), failed: counter() };
            config.start(counters).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(start("[::1]:4317", 0.5, &[("authorization", "x")]), Ok(()));
        for (address, sample, metadata, expected) in [
            ("h:4317", 1.5, &[][..], "traces.sample"),
            ("h", 1.0, &[], "traces.address"),
            ("http://h:4317", 1.0, &[], "without `http://`"),
            ("h:x", 1.0, &[], "traces.address"),
            ("h:4317", 1.0, &[("a b", "c")], "metadata `a b`"),
            ("h:4317", 1.0, &[("a", "b\nc")], "metadata `a`"),
        ] {
            let error = start(address, sample, metadata).unwrap_err();
            assert!(error.contains(expected), "{error}: {expected}");
        }
    }
}
