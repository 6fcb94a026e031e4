//! Metrics in Prometheus' text format: `appset_gateway_<noun>_<unit>[_total]`. Labels have values of closed sets (routes, kinds,
//! codes, states), never values of a request.
//!
//! To add a metric, add a field and the line that registers it to the struct of its topic, and a row to `docs/metrics.md`. The
//! tests below name the metric that misses a row, or whose name or help text breaks the rules.

mod callers;
mod connections;
mod evaluations;
mod hooks;
mod limits;
mod outbound;
mod process;
mod programs;
mod refreshes;
mod registry;
mod reloads;
mod routes;
mod shadows;
mod store;
#[cfg(test)]
mod tests;
mod traces;

use std::time::Duration;

use prometheus::{Encoder as _, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder};

use self::registry::{Made, Meaning, MetricRegistry, is_explained};
pub use self::{
    callers::{CallerMetrics, KeySetMetrics, ReviewMetrics},
    connections::ConnectionMetrics,
    evaluations::EvaluationMetrics,
    hooks::HookMetrics,
    limits::{LimitMetrics, LimitUse, SharedLimit},
    outbound::OutboundMetrics,
    process::ProcessMetrics,
    programs::ProgramMetrics,
    refreshes::RefreshMetrics,
    reloads::ReloadMetrics,
    routes::{RouteGauges, RouteNow},
    shadows::{RouteShadowMetrics, ShadowMetrics},
    store::StoreMetrics,
    traces::SpanMetrics,
};
use domain::generator::OutcomeKind;

const LOOKUP_STATES: [Meaning; 6] = [
    ("hit", "a fresh answer"),
    ("stale", "an older answer, renewed in the background"),
    ("stale_if_error", "an older answer, since the backend gave none"),
    ("failing", "the backend was not called, since it failed just before"),
    ("miss", "a run of the backend"),
    ("joined", "the run of another request"),
];

const FAILURE_KINDS: [Meaning; 8] = [
    ("unavailable", "the backend or a service behind it did not work"),
    ("timeout", "no answer in time"),
    ("throttled", "a service requested a pause"),
    ("denied", "a service refused access"),
    ("invalid_input", "the input is bad"),
    ("invalid_output", "the answer is malformed"),
    ("crashed", "a bug in the gateway"),
    ("held", "the guard holds the answer"),
];

/// Codes of requests that no route answered, and on which alerts look for an increase. They are counted from zero, as an increase from
/// nothing to one is none.
const CODES_WITHOUT_ROUTE: [&str; 6] =
    ["forbidden", "internal", "overloaded", "throttled", "unavailable", "unknown_route"];

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    backend_seconds: HistogramVec,
    lookups: IntCounterVec,
    failures: IntCounterVec,
    refused: IntCounterVec,
    /// Requests under way.
    pub in_flight: IntGauge,
    max_in_flight: IntGauge,
    /// Backend runs under way.
    pub flights: IntGauge,
    /// The current state of each route.
    pub routes: RouteGauges,
    /// The use of the limits that routes share.
    pub limits: LimitMetrics,
    /// Comparisons with shadows.
    pub shadows: ShadowMetrics,
    /// The resources of the gateway's process.
    pub process: ProcessMetrics,
    /// Reads and writes of the file of last good answers.
    pub disk: DiskMetrics,
    /// The shared store.
    pub store: StoreMetrics,
    /// Requests to other services.
    pub outbound: OutboundMetrics,
    /// Programs of scripts.
    pub programs: ProgramMetrics,
    /// Evaluations in evaluators.
    pub evaluations: EvaluationMetrics,
    /// Events of hooks.
    pub hooks: HookMetrics,
    /// Notifications of ApplicationSets.
    pub refreshes: RefreshMetrics,
    /// Connections to the gateway.
    pub connections: ConnectionMetrics,
    /// The configuration in use, and reloads.
    pub reloads: ReloadMetrics,
    /// Issuers of tokens, and token reviews.
    pub callers: CallerMetrics,
    /// The outcomes of spans.
    pub spans: SpanMetrics,
    /// Answers in memory.
    pub cache_entries: IntGauge,
    /// The size of the answers in memory, in bytes.
    pub cache_bytes: IntGauge,
}

/// Counts reads and writes of the file of last good answers.
#[derive(Debug, Clone)]
pub struct DiskMetrics {
    /// Answers that are safe on disk.
    pub writes: IntCounter,
    /// Reads and writes that failed.
    pub errors: IntCounter,
    /// Records that were lost. A lost record counts as unknown.
    pub lost: IntCounter,
}

impl DiskMetrics {
    fn new(registry: &mut MetricRegistry) -> Made<Self> {
        Ok(Self {
            writes: registry
                .counter("appset_gateway_disk_writes_total", "Last good answers that were written to disk.")?,
            errors: registry.counter(
                "appset_gateway_disk_errors_total",
                "Reads and writes of last good answers that failed.",
            )?,
            lost: registry.counter(
                "appset_gateway_disk_lost_total",
                "Records that could not be written, or were evicted because the limit was reached. The content of a lost record is unknown.",
            )?,
        })
    }
}

/// The metrics of one route, looked up once.
#[derive(Debug, Clone)]
pub struct RouteMetrics {
    /// Requests answered with parameter sets.
    pub answered: IntCounter,
    /// How long requests took, in seconds.
    pub seconds: Histogram,
    /// Fresh answers from the cache.
    pub hits: IntCounter,
    /// Older answers from the cache, renewed in the background.
    pub stale: IntCounter,
    /// Older answers from the cache, served since the backend gave none.
    pub stale_if_error: IntCounter,
    /// Requests for which the backend was not called, since it failed just before.
    pub failing: IntCounter,
    /// Answers that needed a run of the backend.
    pub misses: IntCounter,
    /// Answers that came from the run of another request.
    pub joined: IntCounter,
    /// The route's current state.
    pub now: RouteNow,
    present: Histogram,
    absent: Histogram,
    unknown: Histogram,
    refused: IntCounter,
    route: String,
    failures: IntCounterVec,
    backend_seconds: HistogramVec,
}

impl RouteMetrics {
    /// Those of a part of the route, whose backend is of the kind `backend`: its runs are counted by that.
    #[must_use]
    pub fn of_part(&self, backend: &str) -> Self {
        let ran = |outcome: &str| self.backend_seconds.with_label_values(&[&self.route, backend, outcome]);
        Self { present: ran("present"), absent: ran("absent"), unknown: ran("unknown"), ..self.clone() }
    }

    /// Counts a run of the backend.
    pub fn ran(&self, outcome: OutcomeKind, took: Duration) {
        let histogram = match outcome {
            OutcomeKind::Present => &self.present,
            OutcomeKind::Absent => &self.absent,
            OutcomeKind::Unknown => &self.unknown,
        };
        histogram.observe(took.as_secs_f64());
    }

    /// Counts an image that a run refused.
    pub fn refused(&self) {
        self.refused.inc();
    }

    /// How many runs ended without an accepted answer, by the kind of failure. Kinds without any are left out.
    pub fn failures(&self) -> Vec<(&'static str, u64)> {
        let count = |kind: &str| self.failures.with_label_values(&[&self.route, kind]).get();
        FAILURE_KINDS.iter().map(|(kind, _)| (*kind, count(kind))).filter(|(_, count)| *count > 0).collect()
    }

    /// Counts a run without an accepted answer, by the `kind` of failure.
    pub fn failed(&self, kind: &str) {
        debug_assert!(is_explained(&FAILURE_KINDS, kind), "{kind}");
        self.failures.with_label_values(&[&self.route, kind]).inc();
    }
}

/// The label of a request for which no route was found.
pub const NO_ROUTE: &str = "none";

fn requests(registry: &mut MetricRegistry) -> Made<IntCounterVec> {
    let requests = registry.counters(
        "appset_gateway_requests_total",
        "Requests, by route and code. The code is ok, that of the error, or cancelled if the caller left.",
        &["route", "code"],
    )?;
    for code in CODES_WITHOUT_ROUTE {
        requests.with_label_values(&[NO_ROUTE, code]);
    }
    Ok(requests)
}

impl Metrics {
    /// All metrics at zero.
    ///
    /// # Errors
    /// Never: the names are constants, and each is registered once.
    pub fn new() -> Result<Self, prometheus::Error> {
        Self::register(&mut MetricRegistry::default())
    }

    fn register(registry: &mut MetricRegistry) -> Made<Self> {
        let build = registry.gauges(
            "appset_gateway_build_info",
            "Always 1. The label names the version of this build.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            callers: CallerMetrics::new(registry)?,
            connections: ConnectionMetrics::new(registry)?,
            reloads: ReloadMetrics::new(registry)?,
            spans: SpanMetrics::new(registry)?,
            outbound: OutboundMetrics::new(registry)?,
            programs: ProgramMetrics::new(registry)?,
            evaluations: EvaluationMetrics::new(registry)?,
            hooks: HookMetrics::new(registry)?,
            refreshes: RefreshMetrics::new(registry)?,
            requests: requests(registry)?,
            request_seconds: registry.histograms(
                "appset_gateway_request_duration_seconds",
                "How long requests took, by route.",
                &["route"],
            )?,
            backend_seconds: registry.histograms(
                "appset_gateway_backend_duration_seconds",
                "How long runs of backends took, by route, kind of backend and outcome (present, absent, unknown).",
                &["route", "backend", "outcome"],
            )?,
            lookups: registry.explained(
                "appset_gateway_cache_lookups_total",
                "Lookups of answers in the cache, by route.",
                &["route", "state"],
                &LOOKUP_STATES,
            )?,
            failures: registry.explained(
                "appset_gateway_backend_failures_total",
                "Runs of backends without an accepted answer, by route.",
                &["route", "kind"],
                &FAILURE_KINDS,
            )?,
            refused: registry.counters(
                "appset_gateway_refused_images_total",
                "Images that runs refused, since a signature or a label is not what it claims to be, by route.",
                &["route"],
            )?,
            in_flight: registry.gauge("appset_gateway_requests_in_flight", "Requests under way.")?,
            max_in_flight: registry.gauge(
                "appset_gateway_requests_in_flight_limit",
                "How many requests may be under way, which is `server.maxInFlight`.",
            )?,
            flights: registry.gauge("appset_gateway_backend_runs_in_flight", "Runs of backends under way.")?,
            routes: RouteGauges::new(registry)?,
            limits: LimitMetrics::new(registry)?,
            shadows: ShadowMetrics::new(registry)?,
            process: ProcessMetrics::new(registry)?,
            disk: DiskMetrics::new(registry)?,
            store: StoreMetrics::new(registry)?,
            cache_entries: registry.gauge("appset_gateway_cache_entries", "Answers in memory.")?,
            cache_bytes: registry
                .gauge("appset_gateway_cache_size_bytes", "Size of the answers in memory, in bytes.")?,
            registry: registry.gatherer(),
        })
    }

    /// The metrics of one route.
    #[must_use]
    pub fn route(&self, route: &str, backend: &str) -> RouteMetrics {
        let lookups = |state: &str| {
            debug_assert!(is_explained(&LOOKUP_STATES, state), "{state}");
            self.lookups.with_label_values(&[route, state])
        };
        let ran = |outcome: &str| self.backend_seconds.with_label_values(&[route, backend, outcome]);
        // From zero, so that the first failure is an increase.
        self.requests.with_label_values(&[route, "internal"]);
        for (kind, _) in FAILURE_KINDS {
            self.failures.with_label_values(&[route, kind]);
        }
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
            refused: self.refused.with_label_values(&[route]),
            route: route.to_owned(),
            failures: self.failures.clone(),
            backend_seconds: self.backend_seconds.clone(),
        }
    }

    /// Sets how many requests may be under way.
    pub fn set_max_in_flight(&self, max: usize) {
        self.max_in_flight.set(i64::try_from(max).unwrap_or(i64::MAX));
    }

    /// Counts a request that ended with `code`. `route` is a configured name or [`NO_ROUTE`].
    pub fn ended(&self, route: &str, code: &str, took: Duration) {
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
