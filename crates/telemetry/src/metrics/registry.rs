//! Where each metric is made and registered, with its name, help text and labels.

use prometheus::{
    Counter, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::{Atomic, Collector, GenericCounter, GenericGauge},
};

/// Bounds for times that range from a cache hit to a deadline, in seconds.
const BUCKETS: [f64; 12] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 25.0];

/// A metric that was made, or why it could not be: its name is taken or invalid.
pub(super) type Made<T> = Result<T, prometheus::Error>;

/// A label's value and its meaning.
pub(super) type Meaning = (&'static str, &'static str);

/// All metrics of the process.
#[derive(Debug, Default)]
pub(super) struct MetricRegistry {
    registry: Registry,
    #[cfg(test)]
    pub(super) made: Vec<MadeMetric>,
}

/// The parts of a metric that a test checks.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct MadeMetric {
    pub(super) description: prometheus::core::Desc,
    pub(super) kind: prometheus::proto::MetricType,
    /// The values of its last label, if the help text explains them.
    pub(super) values: Vec<&'static str>,
}

impl MetricRegistry {
    /// A counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str) -> Made<IntCounter> {
        self.register(GenericCounter::new(name, help)?)
    }

    /// A counter of seconds, without labels.
    pub(super) fn seconds(&mut self, name: &str, help: &str) -> Made<Counter> {
        self.register(Counter::new(name, help)?)
    }

    /// Counters with `labels`.
    pub(super) fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> Made<IntCounterVec> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    /// Counters with `labels`. The last label has one of the listed values, which the help text explains.
    pub(super) fn explained(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: &[Meaning],
    ) -> Made<IntCounterVec> {
        let label = labels.last().copied().unwrap_or_default();
        let list: Vec<String> = values.iter().map(|(value, meaning)| format!("{value} ({meaning})")).collect();
        let counters = self.counters(name, &format!("{help} The {label} is one of: {}.", list.join("; ")), labels)?;
        #[cfg(test)]
        self.made.last_mut().iter_mut().for_each(|made| made.values = values.iter().map(|(value, _)| *value).collect());
        Ok(counters)
    }

    /// A gauge without labels, at zero.
    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Made<IntGauge> {
        self.register(GenericGauge::new(name, help)?)
    }

    /// Gauges with `labels`. Each appears once it is set.
    pub(super) fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> Made<IntGaugeVec> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Histograms of seconds with `labels`.
    pub(super) fn histograms(&mut self, name: &str, help: &str, labels: &[&str]) -> Made<HistogramVec> {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec()), labels)?)
    }

    /// The registry that gathers all of them.
    pub(super) fn gatherer(&self) -> Registry {
        self.registry.clone()
    }

    fn register<C: Collector + Clone + 'static>(&mut self, collector: C) -> Made<C> {
        #[cfg(test)]
        for (description, family) in collector.desc().into_iter().zip(collector.collect()) {
            let (description, kind) = (description.clone(), family.get_field_type());
            self.made.push(MadeMetric { description, kind, values: Vec::new() });
        }
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

/// A gauge goes up and down with the number that it counts.
impl<P: Atomic + 'static> crate::count::Count for GenericGauge<P> {
    fn increment(&self) {
        self.inc();
    }

    fn decrement(&self) {
        self.dec();
    }
}

/// Whether `value` is among the explained ones. A value that is not would lack its zero, and its meaning in the help text.
pub(super) fn is_explained(values: &[Meaning], value: &str) -> bool {
    values.iter().any(|(known, _)| *known == value)
}
