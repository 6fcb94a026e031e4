//! Counts the parameter sets that each route serves, for metrics: those of each lineage's last answer, while it may be served.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    cache::{ElementCounts, Entry, Freshness, Key, Life, Listed, MadeUnder, Shares},
    route::RouteTable,
};
use domain::clock::Timestamp;

/// The number of lineages that are counted. Routes share it.
const MAX_COUNTED: u64 = 50_000;

/// The last answers of one route that may be served.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServedNow {
    /// How many there are: one for each lineage.
    pub answers: usize,
    /// How many parameter sets they have together.
    pub sets: usize,
    /// How many elements they are made of, by state.
    pub elements: ElementCounts,
    /// When the first of them was stored.
    pub oldest: Option<Timestamp>,
    /// When the last of them was stored.
    pub newest: Option<Timestamp>,
}

/// The sizes of the last answers, by lineage.
#[derive(Debug, Clone)]
pub(crate) struct Served(Arc<Mutex<Shares<Key, Size>>>);

impl Default for Served {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Shares::new(MAX_COUNTED))))
    }
}

#[derive(Debug)]
struct Size {
    route: Arc<str>,
    sets: usize,
    elements: ElementCounts,
    made_under: MadeUnder,
    stored_at: Timestamp,
    life: Life,
}

impl Served {
    /// Records the last answer of `lineage` on `route`. If too many are counted, some of the route with the most of them are not.
    pub(crate) fn note(&self, lineage: Key, route: &Arc<str>, entry: &Entry) {
        let Entry { made_under, stored_at, life, .. } = *entry;
        let elements = entry.elements.as_ref().map(|elements| elements.counts).unwrap_or_default();
        let sets = entry.encoded.sets();
        let size = Size { route: Arc::clone(route), sets, elements, made_under, stored_at, life };
        self.0.lock().insert(lineage, size, 1);
    }

    /// Records `answer`, the last one of `lineage` before the start, unless there is a later one.
    pub(crate) fn restore(&self, lineage: Key, route: &Arc<str>, answer: &Listed) {
        let Listed { made_under, stored_at, life, sets, elements, .. } = *answer;
        let elements = elements.unwrap_or_default();
        let mut sizes = self.0.lock();
        if sizes.peek(&lineage).is_none() {
            sizes.insert(lineage, Size { route: Arc::clone(route), sets, elements, made_under, stored_at, life }, 1);
        }
    }

    /// Counts the last answer of `lineage` no more.
    pub(crate) fn forget(&self, lineage: &Key) {
        self.0.lock().remove(lineage);
    }

    /// The parameter sets that each of `routes` serves at `now`. Drops answers that may not be served any more.
    pub(crate) fn count(&self, routes: &RouteTable, now: Timestamp) -> HashMap<Arc<str>, ServedNow> {
        let mut counts = HashMap::<Arc<str>, ServedNow>::new();
        let mut sizes = self.0.lock();
        let mut over = Vec::new();
        for (lineage, size) in sizes.iter() {
            let served = routes
                .by_any_name(&size.route)
                .filter(|route| route.state(size.made_under, size.stored_at, size.life, now) != Freshness::Expired);
            let Some(route) = served else {
                over.push(*lineage);
                continue;
            };
            let of_route = counts.entry(Arc::clone(&route.name)).or_default();
            of_route.answers += 1;
            of_route.sets += size.sets;
            of_route.elements = of_route.elements.with(size.elements);
            of_route.oldest = Some(of_route.oldest.map_or(size.stored_at, |oldest| oldest.min(size.stored_at)));
            of_route.newest = of_route.newest.max(Some(size.stored_at));
        }
        for lineage in over {
            sizes.remove(&lineage);
        }
        drop(sizes);
        counts
    }
}
