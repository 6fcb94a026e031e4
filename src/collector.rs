//! Sends spans to an OpenTelemetry collector, by OTLP over HTTP. Spans wait in a queue of limited length and are sent in the
//! background. No answer waits for them, and spans for a collector that stays away are dropped. Nothing is read from `OTEL_…`
//! variables.

mod exporter;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use http::{HeaderName, header};
use parking_lot::Mutex;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use self::exporter::{CollectorTarget, Encoder, Exporter};
use domain::{
    secret::{TextOrSecret, literal},
    section::Section,
};
use outbound::{ClientCertificate, Outbound, TlsKeys, UrlError, fixed_url, warn_of_cleartext};
use telemetry::{metrics::SpanMetrics, trace::Tracer};

/// How many spans may wait. A span takes about 1 KiB.
const ROOM: usize = 4096;
/// The path of OTLP's endpoint for traces.
const PATH: &str = "v1/traces";

/// Encodes spans for a collector. `None` in a build without the feature `otlp`.
#[cfg(feature = "otlp")]
const ENCODER: Option<Encoder> = Some(Encoder {
    content_type: "application/x-protobuf",
    encode: |resource, spans| telemetry::otlp::encode(env!("CARGO_PKG_NAME"), resource, spans),
    refused: telemetry::otlp::refused,
});
#[cfg(not(feature = "otlp"))]
const ENCODER: Option<Encoder> = None;

/// Traces of the gateway's work, for an OpenTelemetry collector.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TracesConfig {
    /// The base URL of a collector for OTLP over HTTP: `http://otel-collector:4318`. The gateway adds `/v1/traces`.
    pub(crate) endpoint: String,
    /// The share of requests to trace, from 0 to 1, when the caller has not decided it (`traceparent`).
    #[serde(default = "all")]
    #[schemars(range(min = 0, max = 1))]
    pub(crate) sample: f64,
    /// Headers for the collector, values or secrets.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, TextOrSecret>,
    /// Attributes of all spans, such as `deployment.environment.name`. `service.name` is `appset-gateway` unless it is set
    /// here.
    #[serde(default)]
    pub(crate) resource: BTreeMap<String, String>,
    /// A PEM file with certificates of private CAs, relative to the configuration file. They are trusted besides those of the
    /// system. Read again every 30 s.
    pub(crate) ca: Option<PathBuf>,
    /// A client certificate. Its files are read again every 30 s.
    pub(crate) client_certificate: Option<ClientCertificate>,
}

const fn all() -> f64 {
    1.0
}

/// Traces that are ready to begin and to be sent.
#[derive(Debug, Default)]
pub struct Traces {
    /// Begins the spans.
    pub(crate) tracer: Tracer,
    /// Sends the spans, once it is started.
    exporter: Mutex<Option<Exporter>>,
}

impl Traces {
    /// Builds the parts of `config`, which is `section`.
    pub(crate) fn build(
        config: &TracesConfig,
        outbound: &Outbound,
        metrics: &SpanMetrics,
        mut section: Section<'_>,
    ) -> Option<Self> {
        let encoder = needed(ENCODER, &mut section);
        if !(0.0..=1.0).contains(&config.sample) {
            section.key("sample").error("it is a share and must be from 0 (none) to 1 (all)");
        }
        let url = section.key("endpoint").note(address(&config.endpoint));
        let headers = build_headers(config, &mut section.key("headers"));
        let is_plain = url.as_ref().is_some_and(|url| url.scheme() == "http");
        let (ca, client_certificate) = (config.ca.as_ref(), config.client_certificate.as_ref());
        let keys = TlsKeys { ca, client_certificate, insecure_skip_verify: false };
        let client = keys.client(is_plain, outbound, &mut section)?;
        outbound.name_destination(url.as_ref());
        let has_secret = headers.iter().any(|(_, value)| matches!(value, TextOrSecret::Secret(_)));
        if let Some(url) = url.as_ref().filter(|_| has_secret) {
            warn_of_cleartext(url, &section.path.key("endpoint"), section.problems);
        }
        let (queue, spans) = mpsc::channel(ROOM);
        let tracer = Tracer::new(queue, metrics.dropped.clone(), config.sample);
        let target = CollectorTarget { client, url: url?, headers, base: section.base.clone() };
        let exporter = Exporter::new(encoder?, resource(config), target, spans, metrics.clone());
        Some(Self { tracer, exporter: Mutex::new(Some(exporter)) })
    }

    /// Sends spans in a task of its own from now on, until it is found to finish.
    pub fn start(&self) -> Exporting {
        let (is_over, over) = watch::channel(false);
        let exporter = self.exporter.lock().take();
        Exporting { task: exporter.map(|exporter| tokio::spawn(exporter.run(over))), is_over }
    }
}

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporting {
    task: Option<JoinHandle<()>>,
    is_over: watch::Sender<bool>,
}

impl Exporting {
    /// Sends the finished spans, as far as possible `within` this time.
    pub async fn finish(self, within: Duration) {
        self.is_over.send_replace(true);
        if let Some(task) = self.task
            && timeout(within, task).await.is_err()
        {
            tracing::warn!("the last spans did not reach the collector in time (traces.endpoint)");
        }
    }
}

/// The `encoder`. Without one nothing can be sent, which is noted at `section`.
fn needed(encoder: Option<Encoder>, section: &mut Section<'_>) -> Option<Encoder> {
    if encoder.is_none() {
        let help = "use a build with `--features otlp`, or remove `traces`; ids of requests are passed on anyway";
        section.error_with_help("this build of the gateway sends no traces", help);
    }
    encoder
}

/// Why a URL is not the base of a collector.
#[derive(Debug, thiserror::Error)]
enum EndpointError {
    /// Nothing can be sent to it.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// With the path it is not a URL.
    #[error(transparent)]
    Joined(#[from] url::ParseError),
    /// It has a query or a fragment.
    #[error("it has a `?` or `#`; name the collector's base URL only")]
    Parts,
    /// It has the path that is added.
    #[error("leave `/{PATH}` out: it is added")]
    WithPath,
}

/// The endpoint for traces below `base`.
fn address(base: &str) -> Result<Url, EndpointError> {
    let url = fixed_url(base)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(EndpointError::Parts);
    }
    let base = base.trim_end_matches('/');
    if base.ends_with(PATH) {
        return Err(EndpointError::WithPath);
    }
    Ok(Url::parse(&format!("{base}/{PATH}"))?)
}

fn build_headers(config: &TracesConfig, section: &mut Section<'_>) -> Vec<(HeaderName, TextOrSecret)> {
    let mut headers = Vec::new();
    for (name, value) in &config.headers {
        let mut section = section.key(name);
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is not the name of a header"));
        let Some(name) = section.note(parsed) else { continue };
        if matches!(name, header::HOST | header::CONTENT_LENGTH | header::CONTENT_TYPE | header::TRANSFER_ENCODING) {
            section.error(format!("the header {name} is set by the gateway"));
        }
        match value {
            TextOrSecret::Text(text) if text.contains(|c: char| c.is_control()) => {
                section.error("a header's value is one line");
            }
            TextOrSecret::Text(text) => literal::check(name.as_str(), text, &section.path, section.problems),
            TextOrSecret::Secret(secret) => secret.check(section.base, &section.path, section.problems),
        }
        headers.push((name, value.clone()));
    }
    headers
}

/// The attributes of all spans.
fn resource(config: &TracesConfig) -> BTreeMap<String, String> {
    let mut resource = BTreeMap::from([
        ("service.name".to_owned(), env!("CARGO_PKG_NAME").to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        // Distinguishes replicas, and a gateway before a restart and after it.
        ("service.instance.id".to_owned(), format!("{:032x}", fastrand::u128(..))),
    ]);
    resource.extend(config.resource.clone());
    resource
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{
        file::base_dir::BaseDir,
        problem::{Path, Problems},
    };

    #[test]
    fn a_build_without_traces_says_so() {
        let mut problems = Problems::default();
        let base = BaseDir::default();
        let mut section = Section::new(&base, Path::root().key("traces"), &mut problems);
        assert!(needed(None, &mut section).is_none());
        let problems = problems.into_vec();
        let found: Vec<_> = problems.iter().map(|problem| (problem.path.to_string(), &*problem.message)).collect();
        assert_eq!(found, [("traces".to_owned(), "this build of the gateway sends no traces")]);
        assert!(problems[0].help.as_ref().is_some_and(|help| help.contains("--features otlp")));
    }

    #[test]
    fn the_path_is_added_to_the_base() {
        for (base, url) in [
            ("http://otel-collector:4318", "http://otel-collector:4318/v1/traces"),
            ("http://otel-collector:4318/", "http://otel-collector:4318/v1/traces"),
            ("https://otlp.example.com/tenant/a", "https://otlp.example.com/tenant/a/v1/traces"),
        ] {
            assert_eq!(address(base).unwrap().as_str(), url);
        }
        for (base, says) in [
            ("otel-collector:4318", "http://"),
            ("grpc://h:4317", "http://"),
            ("https://u:p@h/", "password"),
            ("https://h/?a=1", "`?`"),
            ("https://h/v1/traces", "leave `/v1/traces` out"),
        ] {
            let error = address(base).unwrap_err().to_string();
            assert!(error.contains(says), "{base}: {error}");
        }
    }
}
