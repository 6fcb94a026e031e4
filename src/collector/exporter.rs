//! Sends spans. They are gathered for a second and sent in batches. A batch is tried again for a while, then dropped.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use domain::{
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    secret::TextOrSecret,
};
use outbound::{Call, HttpClient};
use telemetry::{metrics::SpanMetrics, trace::Record};

/// The most spans in a batch.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a batch is sent at most.
const ATTEMPTS: u32 = 5;
/// The wait before the second attempt. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// A batch is dropped if the collector asks for a longer pause than this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The largest answer of a collector, in bytes.
const LARGEST: usize = 64 * 1024;
/// The time between two log lines about lost spans.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// Encodes spans for a collector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoder {
    /// The content type of the encoded spans.
    pub(crate) content_type: &'static str,
    /// The request for a batch of spans, with the attributes that all of them share.
    pub(crate) encode: fn(&BTreeMap<String, String>, Vec<Record>) -> Vec<u8>,
    /// How many spans a collector refused, by its answer with a 200.
    pub(crate) refused: fn(&[u8]) -> u64,
}

/// The destination of spans.
#[derive(Debug)]
pub(crate) struct CollectorTarget {
    /// The HTTP client.
    pub(crate) client: Arc<HttpClient>,
    /// The endpoint.
    pub(crate) url: Url,
    /// Further headers for the collector.
    pub(crate) headers: Vec<(HeaderName, TextOrSecret)>,
    /// The folder to which the paths of secrets are relative.
    pub(crate) base: BaseDir,
}

/// Sends spans until the end.
#[derive(Debug)]
pub(crate) struct Exporter {
    encoder: Encoder,
    resource: BTreeMap<String, String>,
    target: CollectorTarget,
    spans: mpsc::Receiver<Record>,
    metrics: SpanMetrics,
    last_warning: LastWarning,
}

/// The last log line about lost spans.
#[derive(Debug, Default)]
struct LastWarning {
    at: Option<StdInstant>,
    lost: u64,
}

impl Exporter {
    /// An exporter that has sent nothing yet.
    pub(crate) fn new(
        encoder: Encoder,
        resource: BTreeMap<String, String>,
        target: CollectorTarget,
        spans: mpsc::Receiver<Record>,
        metrics: SpanMetrics,
    ) -> Self {
        Self { encoder, resource, target, spans, metrics, last_warning: LastWarning::default() }
    }

    /// Sends spans until `over`, and then those that are left.
    pub(crate) async fn run(mut self, mut over: watch::Receiver<bool>) {
        loop {
            let batch = self.gather(&mut over).await;
            if batch.is_empty() {
                return;
            }
            self.deliver(batch, &mut over).await;
        }
    }

    /// The next batch. Empty when it is over and nothing is left.
    async fn gather(&mut self, over: &mut watch::Receiver<bool>) -> Vec<Record> {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < BATCH && !*over.borrow() {
            let room = BATCH - batch.len();
            tokio::select! {
                received = self.spans.recv_many(&mut batch, room) => if received == 0 { break },
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
                // An error means that the sender is gone, so it is over, too.
                _ = over.wait_for(|over| *over) => break,
            }
            until.get_or_insert_with(|| Instant::now() + GATHER);
        }
        while batch.len() < BATCH
            && let Ok(span) = self.spans.try_recv()
        {
            batch.push(span);
        }
        batch
    }

    /// Sends `batch`, again if that may help.
    async fn deliver(&mut self, batch: Vec<Record>, over: &mut watch::Receiver<bool>) {
        let count = batch.len() as u64;
        let body = Bytes::from((self.encoder.encode)(&self.resource, batch));
        let mut wait = FIRST_WAIT;
        for attempt in 1..=ATTEMPTS {
            let error = match self.send(body.clone()).await {
                Ok(0) => return self.count(count, 0),
                Ok(refused) => {
                    self.count(count.saturating_sub(refused), refused.min(count));
                    return self.report("the collector refused spans and took those beside them");
                }
                Err(error) => error,
            };
            let pause = match error.kind {
                ErrorKind::Throttled { retry_after } => wait.max(retry_after.unwrap_or_default()),
                _ => wait,
            };
            if !error.kind.is_retryable() || attempt == ATTEMPTS || pause > LONGEST_WAIT || *over.borrow() {
                self.count(0, count);
                return self.report(&error.message);
            }
            self.report(&error.message);
            tokio::select! {
                () = sleep(pause) => {}
                _ = over.wait_for(|over| *over) => {}
            }
            wait *= 2;
        }
    }

    /// Sends `body` once. Returns how many of its spans the collector refused.
    async fn send(&self, body: Bytes) -> Result<u64, BackendError> {
        let CollectorTarget { client, url, .. } = &self.target;
        let (method, headers, deadline) = (Method::POST, self.headers()?, Instant::now() + PATIENCE);
        let call =
            Call { method, headers, body: Some(body), may_repeat: false, ..Call::get(url.clone(), LARGEST, deadline) };
        let reply = client.fetch(call).await?;
        if reply.status.is_success() {
            return Ok((self.encoder.refused)(&reply.body));
        }
        let error = reply.refusal().within(url);
        // OTLP lists the failures that are worth another attempt. This one is not among them.
        let is_final = reply.status == StatusCode::INTERNAL_SERVER_ERROR;
        Err(BackendError { kind: if is_final { ErrorKind::InvalidOutput } else { error.kind }, ..error })
    }

    fn headers(&self) -> Result<HeaderMap, BackendError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.encoder.content_type));
        for (name, value) in &self.target.headers {
            let secret = match value {
                TextOrSecret::Text(_) => None,
                TextOrSecret::Secret(secret) => {
                    Some(secret.read(&self.target.base).map_err(BackendError::unavailable)?)
                }
            };
            let text = match (value, &secret) {
                (TextOrSecret::Text(text), _) => text.as_str(),
                (_, secret) => secret.as_ref().map_or("", |secret| secret.expose()),
            };
            let mut value = HeaderValue::try_from(text).map_err(|_| {
                BackendError::unavailable(format!("the header {name} for the collector is not one line"))
            })?;
            value.set_sensitive(secret.is_some());
            headers.insert(name.clone(), value);
        }
        Ok(headers)
    }

    fn count(&self, sent: u64, failed: u64) {
        self.metrics.sent.inc_by(sent);
        self.metrics.failed.inc_by(failed);
    }

    /// Logs `why` spans are lost, unless that was logged just before.
    fn report(&mut self, why: &str) {
        if self.last_warning.at.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        let lost = self.metrics.failed.get() + self.metrics.dropped.get();
        tracing::warn!(
            why,
            lost = lost - self.last_warning.lost,
            "spans do not reach the collector; answers do not wait for them"
        );
        self.last_warning = LastWarning { at: Some(StdInstant::now()), lost };
    }
}
