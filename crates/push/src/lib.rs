//! From an event to the ApplicationSets that it concerns. Start at [`Push`].
//!
//! A delivery of a hook ([`Push::take_delivery`]) has subjects: tags, commits, addresses. The questions whose answers depend on these are
//! rechecked ([`Push::follow_events`]): their backends are called again, whatever is stored. The engine reports the results as notices (a new
//! answer, a held one, a source in trouble). These are passed to Argo CD ([`Push::follow_notices`]): ApplicationSets that were served another
//! answer are refreshed, and Kubernetes Events show the rest.
//!
//! A source may be behind its event. So `events/queue` repeats a recheck that found nothing new, and `events/late` compares the subjects
//! a second time, with questions that became known after the event. `deliveries` records the effects of each delivery, for operators.
//!
//! ```text
//! hook ─► Events ─► queue of rechecks ─► engine ─► notices ─► queue of refreshes ─► argocd
//!            └───────────────┴── Deliveries: the effects of each ──────┘
//! ```

mod deliveries;
mod events;
mod refresh;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;

pub use self::deliveries::{Delivered, Deliveries, MAX_KEPT, RecheckedQuestion, Unproven};
use self::events::Events;
use argocd::Argocd;
use domain::{
    clock::{Clock, Timestamp},
    lifecycle::Lifecycle,
};
use engine::{answer::Engine, route::RouteTable};
use telemetry::metrics::Metrics;

/// The parts of the current configuration that this crate uses.
#[derive(Debug)]
pub struct Current {
    /// The routes.
    pub routes: Arc<RouteTable>,
    /// Argo CD's ApplicationSets, if they are refreshed.
    pub argocd: Option<Arc<Argocd>>,
}

/// Follows the events of hooks and the notices of the engine.
pub struct Push {
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    lifecycle: Arc<Lifecycle>,
    current: ArcSwap<Current>,
    events: Events,
    /// The last deliveries of hooks.
    pub deliveries: Deliveries,
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").finish_non_exhaustive()
    }
}

impl Push {
    /// One that has taken no delivery yet.
    pub fn new(
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        lifecycle: Arc<Lifecycle>,
        current: Current,
    ) -> Self {
        let current = ArcSwap::from_pointee(current);
        Self {
            engine,
            metrics,
            clock,
            lifecycle,
            current,
            events: Events::default(),
            deliveries: Deliveries::default(),
        }
    }

    /// Uses another configuration from now on.
    pub fn set_current(&self, current: Current) {
        self.current.store(Arc::new(current));
    }

    fn current(&self) -> Arc<Current> {
        self.current.load_full()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
