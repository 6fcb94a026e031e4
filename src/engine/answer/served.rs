//! Counts the parameter sets that each route serves, for metrics: those of each lineage's last answer, while it may be served.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::{
    domain::clock::Timestamp,
    engine::{
        cache::{Entry, Freshness, Key, Life, MadeUnder},
        route::RouteTable,
    },
};

/// The number of lineages that are counted.
const MAX_COUNTED: usize = 50_000;

/// The last answers of one route that may be served.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServedNow {
    /// How many there are: one for each lineage.
    pub(crate) answers: usize,
    /// How many parameter sets they have together.
    pub(crate) sets: usize,
    /// When the first of them was stored.
    pub(crate) oldest: Option<Timestamp>,
    /// When the last of them was stored.
    pub(crate) newest: Option<Timestamp>,
}

/// The sizes of the last answers, by lineage.
#[derive(Debug, Clone, Default)]
pub(super) struct Served(Arc<Mutex<HashMap<Key, Size, RandomState>>>);

#[derive(Debug)]
struct Size {
    route: Arc<str>,
    sets: usize,
    made_under: MadeUnder,
    stored_at: Timestamp,
    life: Life,
}

impl Served {
    /// Records the last answer of `lineage` on `route`. If too many are counted, new ones are not.
    pub(crate) fn note(&self, lineage: Key, route: &Arc<str>, entry: &Entry) {
        let mut sizes = self.0.lock();
        if sizes.len() < MAX_COUNTED || sizes.contains_key(&lineage) {
            let Entry { made_under, stored_at, life, .. } = *entry;
            sizes.insert(
                lineage,
                Size { route: Arc::clone(route), sets: entry.encoded.sets(), made_under, stored_at, life },
            );
        }
    }

    /// What each of `routes` serves at `now`. Drops answers that may not be served any more.
    pub(crate) fn count(&self, routes: &RouteTable, now: Timestamp) -> HashMap<Arc<str>, ServedNow> {
        let mut counts = HashMap::<Arc<str>, ServedNow>::new();
        self.0.lock().retain(|_, size| {
            let state =
                routes.by_name(&size.route).map(|route| route.state(size.made_under, size.stored_at, size.life, now));
            let is_served = state.is_some_and(|state| state != Freshness::Expired);
            if is_served {
                let of_route = counts.entry(Arc::clone(&size.route)).or_default();
                of_route.answers += 1;
                of_route.sets += size.sets;
                of_route.oldest = Some(of_route.oldest.map_or(size.stored_at, |oldest| oldest.min(size.stored_at)));
                of_route.newest = of_route.newest.max(Some(size.stored_at));
            }
            is_served
        });
        counts
    }
}
