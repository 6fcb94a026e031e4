//! What the relay counts beyond what `serve` counts.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The counters of all remotes.
#[derive(Debug, Clone)]
pub(crate) struct RelayMetrics {
    attempts: IntCounterVec,
    sent: IntCounterVec,
    spared: IntCounterVec,
    replicas: IntGaugeVec,
}

/// The counters of one remote.
#[derive(Debug, Clone)]
pub(super) struct RemoteMetrics {
    plugin: String,
    attempts: IntCounterVec,
    /// Bytes of archives that were sent.
    pub(super) sent: IntCounter,
    /// Bytes that were not sent, since the remote had the tree.
    pub(super) spared: IntCounter,
    /// Replicas that can be asked, and that cannot.
    pub(super) replicas: [IntGauge; 2],
}

impl RelayMetrics {
    /// # Errors
    /// When a name is taken or invalid, which a test would find.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let attempts = counters(
            "cmp_gateway_relay_attempts_total",
            "Calls of replicas. The outcome is one of: ok, error (an answer), unreached, broken (asked again elsewhere, both).",
            &["plugin", "outcome"],
        )?;
        let sent = counters(
            "cmp_gateway_relay_sent_bytes_total",
            "Bytes of archives that were sent to remotes.",
            &["plugin"],
        )?;
        let spared = counters(
            "cmp_gateway_relay_spared_bytes_total",
            "Bytes of archives that were not sent, since the remote had the tree.",
            &["plugin"],
        )?;
        let replicas = Opts::new("cmp_gateway_relay_replicas", "Replicas of remotes. The state is one of: up, down.");
        let replicas = IntGaugeVec::new(replicas, &["plugin", "state"])?;
        registry.register(Box::new(replicas.clone()))?;
        Ok(Self { attempts, sent, spared, replicas })
    }

    /// Those of `plugin`, all at zero.
    pub(super) fn remote(&self, plugin: &str) -> RemoteMetrics {
        for outcome in ["ok", "error", "unreached", "broken"] {
            self.attempts.with_label_values(&[plugin, outcome]);
        }
        RemoteMetrics {
            plugin: plugin.to_owned(),
            attempts: self.attempts.clone(),
            sent: self.sent.with_label_values(&[plugin]),
            spared: self.spared.with_label_values(&[plugin]),
            replicas: ["up", "down"].map(|state| self.replicas.with_label_values(&[plugin, state])),
        }
    }
}

impl RemoteMetrics {
    /// A replica was asked.
    pub(super) fn attempted(&self, outcome: &str) {
        self.attempts.with_label_values(&[self.plugin.as_str(), outcome]).inc();
    }
}
