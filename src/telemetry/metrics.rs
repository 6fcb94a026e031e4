//! Metrics in Prometheus' text format: `appset_gateway_<noun>_<unit>[_total]`, with labels only from
//! closed sets (routes, kinds, codes, states), never from a request.

mod callers;
mod connections;
mod evaluations;
mod outbound;
mod process;
mod programs;
mod reloads;
mod routes;
mod traces;

use std::time::Duration;

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

pub(crate) use self::{
    callers::{CallerMetrics, KeySetMetrics, ReviewMetrics},
    connections::ConnectionMetrics,
    evaluations::EvaluationMetrics,
    outbound::OutboundMetrics,
    process::ProcessMetrics,
    programs::ProgramMetrics,
    reloads::ReloadMetrics,
    routes::{RouteGauges, RouteNow},
    traces::SpanMetrics,
};
use crate::domain::generator::Verdict;

/// Bounds for answers that range from a cache hit to a deadline, in seconds.
const BUCKETS: [f64; 12] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 25.0];

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    backend_seconds: HistogramVec,
    lookups: IntCounterVec,
    failures: IntCounterVec,
    /// Requests that are being answered.
    pub(crate) in_flight: IntGauge,
    /// Backend runs under way.
    pub flights: IntGauge,
    /// What each route answers with just now.
    pub(crate) routes: RouteGauges,
    /// What the process itself uses.
    pub(crate) process: ProcessMetrics,
    /// What is counted of the disk.
    pub disk: DiskMetrics,
    /// What is counted of the way out.
    pub outbound: OutboundMetrics,
    /// What is counted of scripts.
    pub(crate) programs: ProgramMetrics,
    /// What is counted of evaluations in processes of their own.
    pub evaluations: EvaluationMetrics,
    /// What is counted of connections to the gateway.
    pub(crate) connections: ConnectionMetrics,
    /// What is counted of configurations.
    pub(crate) reloads: ReloadMetrics,
    /// What is counted of whoever vouches for callers.
    pub(crate) callers: CallerMetrics,
    /// What is counted of spans.
    pub(crate) spans: SpanMetrics,
    /// Answers in memory.
    pub(crate) cache_entries: IntGauge,
    /// Their size.
    pub(crate) cache_bytes: IntGauge,
}

/// What is counted of the file of last good answers.
#[derive(Debug, Clone)]
pub struct DiskMetrics {
    /// Answers that are safe on disk.
    pub(crate) writes: IntCounter,
    /// Reads and writes that failed.
    pub errors: IntCounter,
    /// Records that were lost one by one.
    pub(crate) lost: IntCounter,
}

/// One route's metrics, looked up once.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    /// Requests answered with parameter sets.
    pub(crate) answered: IntCounter,
    /// How long requests took.
    pub(crate) seconds: Histogram,
    /// Fresh answers from the cache.
    pub(crate) hits: IntCounter,
    /// Answers from the cache that were renewed in the background.
    pub(crate) stale: IntCounter,
    /// Answers from the cache that stood in for a backend that did not know.
    pub(crate) stale_if_error: IntCounter,
    /// Questions that the backend was not asked, since it failed just now.
    pub(crate) failing: IntCounter,
    /// Answers that needed a run of the backend.
    pub(crate) misses: IntCounter,
    /// Answers that waited for another call's run.
    pub(crate) joined: IntCounter,
    /// What it answers with just now.
    pub(crate) now: RouteNow,
    present: Histogram,
    absent: Histogram,
    unknown: Histogram,
    route: String,
    failures: IntCounterVec,
}

impl RouteMetrics {
    /// Notes a run of the backend.
    pub(crate) fn ran(&self, outcome: Verdict, took: Duration) {
        let histogram = match outcome {
            Verdict::Present => &self.present,
            Verdict::Absent => &self.absent,
            Verdict::Unknown => &self.unknown,
        };
        histogram.observe(took.as_secs_f64());
    }

    /// Notes that a run brought no answer, or none that is believed; `kind` says why.
    pub(crate) fn failed(&self, kind: &str) {
        self.failures.with_label_values(&[&self.route, kind]).inc();
    }
}

/// A gauge at zero, registered.
fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

/// Counters with labels, registered.
fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}

/// What stands for the route of a request that found none.
pub(crate) const NO_ROUTE: &str = "none";

impl Metrics {
    /// All metrics at zero.
    ///
    /// # Errors
    /// Never: names are constants and registered once.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| gauge(&registry, name, help);
        let counters = |name: &str, help: &str, labels: &[&str]| counters(&registry, name, help, labels);
        let histograms = |name: &str, help: &str, labels: &[&str]| -> Result<HistogramVec, prometheus::Error> {
            let histograms = HistogramVec::new(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec()), labels)?;
            registry.register(Box::new(histograms.clone()))?;
            Ok(histograms)
        };
        let disk_errors =
            IntCounter::new("appset_gateway_disk_errors_total", "Reads and writes of last good answers that failed.")?;
        registry.register(Box::new(disk_errors.clone()))?;
        let disk_writes =
            IntCounter::new("appset_gateway_disk_writes_total", "Last good answers that are safe on disk.")?;
        registry.register(Box::new(disk_writes.clone()))?;
        let disk_lost = IntCounter::new(
            "appset_gateway_disk_lost_total",
            "Records that could not be kept on disk or had to leave for want of room; what they were counts as unknown.",
        )?;
        registry.register(Box::new(disk_lost.clone()))?;
        let metrics = Self {
            callers: CallerMetrics::new(&registry)?,
            connections: ConnectionMetrics::new(&registry)?,
            reloads: ReloadMetrics::new(&registry)?,
            spans: SpanMetrics::new(&registry)?,
            outbound: OutboundMetrics::new(&registry)?,
            programs: ProgramMetrics::new(&registry)?,
            evaluations: EvaluationMetrics::new(&registry)?,
            requests: counters(
                "appset_gateway_requests_total",
                "Requests, by route and code; the code is ok or that of the error.",
                &["route", "code"],
            )?,
            request_seconds: histograms(
                "appset_gateway_request_duration_seconds",
                "How long requests took, by route.",
                &["route"],
            )?,
            backend_seconds: histograms(
                "appset_gateway_backend_duration_seconds",
                "How long runs of backends took, by route, kind and outcome (present, absent, unknown).",
                &["route", "backend", "outcome"],
            )?,
            lookups: counters(
                "appset_gateway_cache_lookups_total",
                "Lookups of answers, by route and state (hit, stale, stale_if_error, failing, miss, joined).",
                &["route", "state"],
            )?,
            failures: counters(
                "appset_gateway_backend_failures_total",
                "Runs of backends that brought no answer, by route and kind (unavailable, timeout, throttled, denied, \
                 invalid_input, invalid_output, crashed, held).",
                &["route", "kind"],
            )?,
            in_flight: gauge("appset_gateway_requests_in_flight", "Requests that are being answered.")?,
            flights: gauge("appset_gateway_backend_runs_in_flight", "Runs of backends under way.")?,
            routes: RouteGauges::new(&registry)?,
            process: ProcessMetrics::new(&registry)?,
            disk: DiskMetrics { writes: disk_writes, errors: disk_errors, lost: disk_lost },
            cache_entries: gauge("appset_gateway_cache_entries", "Answers in memory.")?,
            cache_bytes: gauge("appset_gateway_cache_size_bytes", "Size of the answers in memory.")?,
            registry: registry.clone(),
        };
        let build = Opts::new("appset_gateway_build_info", "Always 1; the labels say which build this is.");
        let build = IntGaugeVec::new(build, &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(build))?;
        Ok(metrics)
    }

    /// The metrics of one route.
    #[must_use]
    pub(crate) fn route(&self, route: &str, backend: &str) -> RouteMetrics {
        let lookups = |state: &str| self.lookups.with_label_values(&[route, state]);
        let ran = |outcome: &str| self.backend_seconds.with_label_values(&[route, backend, outcome]);
        RouteMetrics {
            answered: self.requests.with_label_values(&[route, "ok"]),
            seconds: self.request_seconds.with_label_values(&[route]),
            hits: lookups("hit"),
            stale: lookups("stale"),
            stale_if_error: lookups("stale_if_error"),
            failing: lookups("failing"),
            misses: lookups("miss"),
            joined: lookups("joined"),
            now: self.routes.route(route),
            present: ran("present"),
            absent: ran("absent"),
            unknown: ran("unknown"),
            route: route.to_owned(),
            failures: self.failures.clone(),
        }
    }

    /// Counts a request that ended with `code`. `route` is a configured one or [`NO_ROUTE`].
    pub(crate) fn ended(&self, route: &str, code: &str, took: Duration) {
        self.requests.with_label_values(&[route, code]).inc();
        self.request_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    /// The exposition format, version 0.0.4.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::with_capacity(8192);
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
