//! How many explanations are under way: one of each route, and few in all. Each asks a source, as a caller does, so that without a limit
//! a person at the page could starve Argo CD.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

/// How many explanations may be under way.
pub(crate) const MAX_AT_ONCE: usize = 4;

/// The routes of which an explanation is under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Explaining(Arc<Mutex<HashSet<Arc<str>>>>);

/// The permit of one explanation, until it is dropped.
#[derive(Debug)]
pub(crate) struct ExplainPermit {
    route: Arc<str>,
    of: Explaining,
}

impl Explaining {
    /// A permit to explain an answer of `route`. `None` if one of that route is under way, or too many in all.
    pub(crate) fn enter(&self, route: &Arc<str>) -> Option<ExplainPermit> {
        let mut under_way = self.0.lock();
        let is_free = under_way.len() < MAX_AT_ONCE && under_way.insert(Arc::clone(route));
        is_free.then(|| ExplainPermit { route: Arc::clone(route), of: self.clone() })
    }
}

impl Drop for ExplainPermit {
    fn drop(&mut self) {
        self.of.0.lock().remove(&self.route);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_explanations_are_under_way_and_one_of_each_route() {
        let explaining = Explaining::default();
        let names: Vec<Arc<str>> = ["a", "b", "c", "d", "e"].map(Arc::from).into();
        let mut permits: Vec<ExplainPermit> =
            names[..MAX_AT_ONCE].iter().filter_map(|name| explaining.enter(name)).collect();
        assert_eq!(permits.len(), MAX_AT_ONCE);
        assert!(explaining.enter(&names[4]).is_none(), "too many in all");
        drop(permits.remove(0));
        assert!(explaining.enter(&names[1]).is_none(), "one of this route is under way");
        assert!(explaining.enter(&names[4]).is_some());
    }
}
