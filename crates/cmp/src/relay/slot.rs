//! The place of a remote: its socket stays when its configuration changes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Response;
use prometheus::IntGauge;
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

use super::remote::{Memory, Remote};
use crate::{
    grpc::{reader::MessageReader, reply::ReplyBody, status::Status},
    metrics::PluginMetrics,
    service::{Answers, Method},
};
use telemetry::trace::Tracer;

/// A remote as it is configured now.
#[derive(Debug)]
pub(super) struct Slot {
    name: String,
    now: ArcSwap<Watched>,
    metrics: PluginMetrics,
    tracer: Arc<Tracer>,
}

/// A remote whose replicas are watched. Calls that are open hold it.
#[derive(Debug)]
struct Watched {
    remote: Arc<Remote>,
    watching: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Watched {
    fn begin(remote: Arc<Remote>) -> Self {
        let watching: JoinHandle<()> = tokio::spawn(Arc::clone(&remote).watch());
        Self { remote, watching: watching.abort_handle() }
    }
}

impl Slot {
    /// Calls go to `remote`.
    pub(super) fn new(remote: Remote) -> Self {
        let (name, metrics, tracer) = (remote.name.clone(), remote.metrics.clone(), Arc::clone(&remote.shared.tracer));
        Self { name, now: ArcSwap::from_pointee(Watched::begin(Arc::new(remote))), metrics, tracer }
    }

    /// The remote of the next call.
    pub(super) fn remote(&self) -> Arc<Remote> {
        Arc::clone(&self.now.load().remote)
    }

    /// Calls that come from now on go to `remote`.
    pub(super) fn replace(&self, remote: Remote) {
        self.now.store(Arc::new(Watched::begin(Arc::new(remote))));
    }

    /// What another remote of the same name may go on with. Verdicts only if the rules stay.
    pub(super) fn memory(&self, has_same_rules: bool) -> Memory {
        let memory = self.remote().memory.clone();
        if has_same_rules { memory } else { memory.without_verdicts() }
    }
}

impl Answers for Slot {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    fn under_way(&self) -> &IntGauge {
        &self.metrics.under_way
    }

    fn called(&self, method: &str, status: Option<&Status>) {
        self.metrics.called(method, status);
    }

    async fn call(
        &self,
        method: Method<'_>,
        messages: &mut MessageReader,
        deadline: Option<Instant>,
    ) -> Result<Response<ReplyBody>, Status> {
        // To its end, also if the configuration changes.
        let watched = self.now.load_full();
        watched.remote.call(method, messages, deadline).await
    }
}
