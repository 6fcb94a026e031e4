//! What a process builds once, at its start: the certificates of its listeners, and the traces. A reload only checks it.

use std::sync::Arc;

use crate::{collector::Traces, config::Config};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    section::Section,
};
use outbound::Outbound;
use telemetry::metrics::Metrics;
use tls::ServerTls;

/// The parts that a reload does not replace.
pub(super) struct Startup {
    /// The certificate and key of the main listener, which is cleartext without them.
    pub(super) tls: Option<Arc<ServerTls>>,
    /// The same of the admin listener.
    pub(super) admin_tls: Option<Arc<ServerTls>>,
    /// Begins and sends spans.
    pub(super) traces: Traces,
}

impl Startup {
    /// Builds the parts of `config`, whose files are below `base`. Notes their problems.
    pub(super) fn build(
        config: &Config,
        base: &BaseDir,
        outbound: &Outbound,
        metrics: &Metrics,
        problems: &mut Problems,
    ) -> Self {
        let root = Path::root();
        let traces = config.traces.as_ref().and_then(|traces| {
            Traces::build(traces, outbound, &metrics.spans, Section::new(base, root.key("traces"), problems))
        });
        let (server, at) = (&config.server, root.key("server"));
        let tls = server.tls.as_ref().and_then(|tls| tls.build(base, &at.key("tls"), problems));
        let admin_tls = server.admin_tls.as_ref().and_then(|tls| tls.build(base, &at.key("adminTls"), problems));
        if let Some(store) = &config.cache.shared {
            // Its replica is built before everything else.
            let _ = store.build(base, &root.key("cache").key("shared"), problems);
        }
        Self { tls, admin_tls, traces: traces.unwrap_or_default() }
    }
}
