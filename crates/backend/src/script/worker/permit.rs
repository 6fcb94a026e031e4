//! Counts the workers that live.

use std::sync::{Arc, atomic::AtomicUsize};

use telemetry::count::CountGuard;

/// A worker that counts as living until the permit is dropped.
pub(super) type WorkerPermit = CountGuard<Arc<AtomicUsize>>;
