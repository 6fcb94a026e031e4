//! How much each route uses of the limits that routes share, and how many of its records were evicted.

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec};

use super::registry::{Made, Meaning, MetricRegistry};

/// The limits, and the records that count against each.
const LIMITS: [Meaning; 5] = [
    ("memory", "answers in memory"),
    ("baselines", "the baselines of the guard, in memory"),
    ("held", "held answers"),
    ("file", "all records in the file"),
    ("marks", "marks of loss beside the file"),
];

/// A limit that routes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedLimit {
    /// Answers in memory.
    Memory,
    /// Baselines in memory.
    Baselines,
    /// Held answers.
    Held,
    /// Records in the file.
    File,
    /// Marks of loss.
    Marks,
}

impl SharedLimit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Baselines => "baselines",
            Self::Held => "held",
            Self::File => "file",
            Self::Marks => "marks",
        }
    }
}

/// The use of one limit by a route.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitUse {
    /// How many records.
    pub records: u64,
    /// About how many bytes.
    pub bytes: u64,
    /// How many bytes it may use before records of it are evicted.
    pub share: u64,
    /// How many of its records were evicted since the start.
    pub evicted: u64,
}

/// The use of the limits by route.
#[derive(Debug)]
pub struct LimitMetrics {
    records: IntGaugeVec,
    bytes: IntGaugeVec,
    share: IntGaugeVec,
    evicted: IntCounterVec,
    /// Held while a counter is read and increased.
    observing: Mutex<()>,
}

impl LimitMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let limits: Vec<String> = LIMITS.iter().map(|(limit, holds)| format!("{limit} ({holds})")).collect();
        let help = |text: &str| format!("{text} The limit is one of: {}.", limits.join("; "));
        let labels = &["route", "limit"];
        Ok(Self {
            records: registry.gauges(
                "appset_gateway_limit_used_records",
                &help("Records of the route that count against a limit that routes share."),
                labels,
            )?,
            bytes: registry.gauges(
                "appset_gateway_limit_used_bytes",
                &help("About how much the records of the route use of a limit that routes share, in bytes."),
                labels,
            )?,
            share: registry.gauges(
                "appset_gateway_limit_share_bytes",
                &help("How much the route may use of a limit before its own records are evicted, in bytes."),
                labels,
            )?,
            evicted: registry.explained(
                "appset_gateway_limit_evicted_total",
                "Records of the route that were evicted because a limit was reached.",
                labels,
                &LIMITS,
            )?,
            observing: Mutex::new(()),
        })
    }

    /// Notes how much `route` uses of `limit` now.
    pub fn set(&self, route: &str, limit: SharedLimit, of: LimitUse) {
        let labels = &[route, limit.as_str()];
        let as_gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.records.with_label_values(labels).set(as_gauge(of.records));
        self.bytes.with_label_values(labels).set(as_gauge(of.bytes));
        self.share.with_label_values(labels).set(as_gauge(of.share));
        let _observing = self.observing.lock();
        let evicted = self.evicted.with_label_values(labels);
        evicted.inc_by(of.evicted.saturating_sub(evicted.get()));
    }

    /// Removes the gauges of `route`, which is no longer configured. Otherwise its last values would look current.
    pub fn forget(&self, route: &str) {
        for (limit, _) in LIMITS {
            for gauges in [&self.records, &self.bytes, &self.share] {
                // Fails only if there is no such gauge.
                let _ = gauges.remove_label_values(&[route, limit]);
            }
        }
    }
}
