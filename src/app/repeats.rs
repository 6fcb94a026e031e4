//! Requests that were sent before, byte by byte. Argo CD sends the same body for the same question again and again. What was made of it is
//! kept with the bytes, so that the next such request needs no parsing, no search for its route, no check of its input, and no hash for its
//! cache key.
//!
//! This is only right where all of these depend on nothing but the configuration and the bytes, as `Route::depends_on_bytes_only` tells. Each
//! setup has its own repeats, so that a reload begins with none. Who asks is no part of it: permissions are checked each time.

use std::{
    hash::BuildHasher as _,
    sync::{Arc, OnceLock},
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::engine::route::ResolvedQuery;

/// How many requests are kept at most.
const SLOTS: usize = 2048;
/// The longest body that is kept, in bytes.
const MAX_BODY: usize = 2048;

/// The requests that are kept. Each has one slot, by the hash of its bytes.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    hash: RandomState,
    /// Made when the first request is kept.
    slots: OnceLock<Box<[Slot]>>,
}

type Slot = Mutex<Option<Box<Repeat>>>;

/// A request and what it asks.
#[derive(Debug)]
struct Repeat {
    /// The route's name in the path, if there is one.
    named: Option<Box<str>>,
    body: Box<[u8]>,
    asked: Arc<ResolvedQuery>,
    /// Whether it came again since another request wanted the slot.
    is_used: bool,
}

impl Repeats {
    /// What a request with this route name and `body` asks, if it was kept. Its deadline is that of the request that was kept.
    #[must_use]
    pub(crate) fn get(&self, named: Option<&str>, body: &[u8]) -> Option<Arc<ResolvedQuery>> {
        let slots = self.slots.get()?;
        let mut slot = self.slot(slots, named, body)?.lock();
        let repeat = slot.as_mut().filter(|kept| kept.named.as_deref() == named && *kept.body == *body)?;
        repeat.is_used = true;
        Some(Arc::clone(&repeat.asked))
    }

    /// Keeps what a request asks. If another request has its slot, that one leaves unless it came again lately.
    pub(crate) fn keep(&self, named: Option<&str>, body: &[u8], asked: &Arc<ResolvedQuery>) {
        if !asked.route.depends_on_bytes_only(named.is_some()) {
            return;
        }
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| Slot::default()).collect());
        let Some(slot) = self.slot(slots, named, body) else { return };
        let mut slot = slot.lock();
        if slot.as_mut().is_some_and(|kept| std::mem::take(&mut kept.is_used)) {
            return;
        }
        let (named, body) = (named.map(Box::from), Box::from(body));
        *slot = Some(Box::new(Repeat { named, body, asked: Arc::clone(asked), is_used: false }));
    }

    /// Keeps nothing from now on. Only before the first request is kept.
    #[cfg(test)]
    pub(crate) fn switch_off(&self) {
        assert!(self.slots.set(Box::default()).is_ok(), "a request is kept already");
    }

    /// The slot of a request; `None` if its body is too long to be kept.
    fn slot<'a>(&self, slots: &'a [Slot], named: Option<&str>, body: &[u8]) -> Option<&'a Slot> {
        if body.len() > MAX_BODY {
            return None;
        }
        let hash = self.hash.hash_one((named, body));
        slots.get(usize::try_from(hash).ok()?.checked_rem(slots.len())?)
    }
}
