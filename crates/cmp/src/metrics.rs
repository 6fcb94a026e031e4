//! Metrics, by plugin.

use std::time::Duration;

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::{
    grpc::status::Status,
    run::{RunEnd, RunError, RunOutput},
    traces::SpanCounters,
};

/// Bounds of times, in seconds.
const BUCKETS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 90.0];

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    calls: IntCounterVec,
    phases: HistogramVec,
    bytes: IntCounterVec,
    trees: IntCounterVec,
    outputs: IntCounterVec,
    doubts: IntCounterVec,
    held: IntCounterVec,
    runs: IntCounterVec,
    under_way: IntGaugeVec,
    /// Spans.
    pub(crate) spans: SpanCounters,
}

/// The metrics of one plugin.
#[derive(Debug, Clone)]
pub(crate) struct PluginMetrics {
    plugin: String,
    calls: IntCounterVec,
    phases: HistogramVec,
    bytes: IntCounter,
    trees: IntCounterVec,
    outputs: IntCounterVec,
    runs: IntCounterVec,
    /// Calls that have not ended.
    pub(crate) under_way: IntGauge,
    /// Failed discoveries.
    pub(crate) doubts: IntCounter,
    /// Manifests that the guard held.
    pub(crate) held: IntCounter,
}

impl Metrics {
    /// # Errors
    /// When a name is taken or invalid, which a test would find.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let calls = counters(
            "cmp_gateway_calls_total",
            "Calls by their method and the code of gRPC.",
            &["plugin", "method", "code"],
        )?;
        let bytes = counters("cmp_gateway_received_bytes_total", "Compressed bytes of archives.", &["plugin"])?;
        let trees = counters(
            "cmp_gateway_trees_total",
            "Trees that runs needed. The result is one of: hit (it was there), miss (it was extracted).",
            &["plugin", "result"],
        )?;
        let outputs = counters(
            "cmp_gateway_outputs_total",
            "Manifests of hermetic plugins. The result is one of: hit (they were kept), miss (the plugin ran).",
            &["plugin", "result"],
        )?;
        let doubts = counters(
            "cmp_gateway_discovery_failures_total",
            "Failed discoveries, which were answered with the last verdict or a claim.",
            &["plugin"],
        )?;
        let held = counters(
            "cmp_gateway_held_total",
            "Manifests that were held, since equal inputs gave more resources before.",
            &["plugin"],
        )?;
        let runs = counters(
            "cmp_gateway_runs_total",
            "Runs of commands. The end is an exit code, or one of: signal, left_behind, timeout, output, not_started, unknown.",
            &["plugin", "end"],
        )?;
        let spans = counters(
            "cmp_gateway_trace_spans_total",
            "Spans for the collector of traces. The outcome is one of: sent, dropped (the queue was full), failed (refused, or unreachable \
             for too long).",
            &["outcome"],
        )?;
        let [sent, dropped, failed] = ["sent", "dropped", "failed"].map(|outcome| spans.with_label_values(&[outcome]));
        let spans = SpanCounters { sent, dropped, failed };
        let options = HistogramOpts::new(
            "cmp_gateway_phase_seconds",
            "Time of a call's phases. The phase is one of: receive, extract (0 for a tree that was there), queue, run, answer (from the \
             output to manifests).",
        );
        let phases = HistogramVec::new(options.buckets(BUCKETS.to_vec()), &["plugin", "phase"])?;
        registry.register(Box::new(phases.clone()))?;
        let under_way =
            Opts::new("cmp_gateway_in_flight", "Calls that have not ended: those that run, wait, send or receive.");
        let under_way = IntGaugeVec::new(under_way, &["plugin"])?;
        registry.register(Box::new(under_way.clone()))?;
        Ok(Self { registry, calls, phases, bytes, trees, outputs, doubts, held, runs, under_way, spans })
    }

    /// Those of `plugin`, all at zero.
    pub(crate) fn plugin(&self, plugin: &str) -> PluginMetrics {
        self.runs.with_label_values(&[plugin, "0"]);
        for result in ["hit", "miss"] {
            self.trees.with_label_values(&[plugin, result]);
            self.outputs.with_label_values(&[plugin, result]);
        }
        PluginMetrics {
            plugin: plugin.to_owned(),
            calls: self.calls.clone(),
            phases: self.phases.clone(),
            bytes: self.bytes.with_label_values(&[plugin]),
            trees: self.trees.clone(),
            outputs: self.outputs.clone(),
            runs: self.runs.clone(),
            under_way: self.under_way.with_label_values(&[plugin]),
            doubts: self.doubts.with_label_values(&[plugin]),
            held: self.held.with_label_values(&[plugin]),
        }
    }

    /// Where others register theirs.
    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// As Prometheus reads them.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "the metrics cannot be written");
        }
        text
    }
}

impl PluginMetrics {
    /// A call of `method` has ended.
    pub(crate) fn called(&self, method: &str, status: Option<&Status>) {
        let code = status.map_or("OK".to_owned(), |status| format!("{:?}", status.code));
        self.calls.with_label_values(&[self.plugin.as_str(), method, code.as_str()]).inc();
    }

    /// An archive of `bytes` was received.
    pub(crate) fn received(&self, bytes: u64, took: Duration) {
        self.bytes.inc_by(bytes);
        self.phase("receive", took);
    }

    /// A tree was needed.
    pub(crate) fn tree(&self, is_known: bool, took: Duration) {
        let result = if is_known { "hit" } else { "miss" };
        self.trees.with_label_values(&[self.plugin.as_str(), result]).inc();
        self.phase("extract", took);
    }

    /// The manifests of a hermetic plugin were needed.
    pub(crate) fn output(&self, is_known: bool) {
        let result = if is_known { "hit" } else { "miss" };
        self.outputs.with_label_values(&[self.plugin.as_str(), result]).inc();
    }

    /// A run has ended.
    pub(crate) fn ran(&self, run: &Result<RunOutput, RunError>) {
        let end = run.as_ref().map_or_else(|error| error.end, |_| RunEnd::Code(0)).label();
        self.runs.with_label_values(&[self.plugin.as_str(), &*end]).inc();
        if let Ok(output) = run {
            self.phase("queue", output.queued);
            self.phase("run", output.took);
        }
    }

    /// A run's output has become manifests.
    pub(crate) fn answered(&self, took: Duration) {
        self.phase("answer", took);
    }

    fn phase(&self, phase: &str, took: Duration) {
        self.phases.with_label_values(&[self.plugin.as_str(), phase]).observe(took.as_secs_f64());
    }
}
