//! Counts the workers that live.

use std::sync::{Arc, atomic::AtomicUsize};

use crate::domain::count::CountGuard;

/// A worker that counts as living until the permit is dropped.
pub(crate) type WorkerPermit = CountGuard<Arc<AtomicUsize>>;
