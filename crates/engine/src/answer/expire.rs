//! Makes the sources of stored answers be called again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    answer::{Engine, live::live_under},
    cache::Key,
    failure::Failure,
    route::{Route, RouteTable},
};
use domain::generator::{Question, Selector};

/// The effect of an invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalidated {
    /// Answers to callers that now wait for a call of their backend. The parts of one, such as its elements, are not counted beside it.
    pub answers: usize,
    /// Runs that were cut off: later callers do not get their answers.
    pub runs: usize,
}

impl Engine {
    /// Makes invalidations here. The file is read once for all of them.
    pub(crate) fn expire(&self, routes: &RouteTable, selectors: &[Selector]) -> Invalidated {
        let (mut expired, mut runs) = (HashMap::new(), 0);
        for selector in selectors {
            let (of_selector, runs_of_selector) = self.expire_in_memory(routes, selector);
            expired.extend(of_selector);
            runs += runs_of_selector;
        }
        expired.extend(self.answers().disk().map(|disk| disk.expire(selectors.to_vec())).into_iter().flatten());
        let whole = |(key, question): (&Key, &Question)| Some(live_under(routes, question, key)?.whole_key());
        let wholes: HashSet<Key> = expired.iter().filter_map(whole).collect();
        Invalidated { answers: wholes.len(), runs }
    }

    /// The same without the file, which may be large. Returns the expired answers, and how many runs were cut off.
    pub(crate) fn expire_in_memory(&self, routes: &RouteTable, selector: &Selector) -> (HashMap<Key, Question>, usize) {
        // This comes first, so that no run that begins now uses what a backend remembers. A run for a single question says itself that
        // it must ask.
        let is_meant = |route: &&Arc<Route>| {
            !selector.is_exact && selector.route.as_deref().is_none_or(|name| *name == *route.name)
        };
        for route in routes.iter().filter(is_meant) {
            route.backend.forget();
            route.shadow.iter().for_each(|shadow| shadow.forget());
        }
        let mut expired = HashMap::new();
        let mut runs = self.known.flights.supersede(
            |question| selector.selects(question),
            || expired.extend(self.answers().expire_in_memory(selector, self.clock.now())),
        );
        // An answer that is made of an expired part is not fresh either. A run of it may have taken the part before.
        for whole in wholes_of(&expired) {
            let whole = Selector::only(&whole);
            runs += self.known.flights.supersede(
                |question| whole.selects(question),
                || expired.extend(self.answers().expire_in_memory(&whole, self.clock.now())),
            );
        }
        if selector.is_exact {
            // A source that wants no calls is not called.
            let is_free = |failure: &Failure| failure.retry_after().is_none();
            self.known.failing.end_backoffs(|failed| selector.selects(&failed.question) && is_free(&failed.failure));
        } else {
            self.known.failing.forget(|failed| selector.selects(&failed.question));
        }
        (expired, runs)
    }

    /// Ends the backoff of failed questions of the routes that `is_meant`, because these routes changed.
    pub fn forget_failures(&self, is_meant: impl Fn(&str) -> bool) {
        self.known.failing.forget(|failed| is_meant(&failed.question.route));
    }
}

/// The questions about the whole answers of the parts that are `expired`, without those that are expired too.
fn wholes_of(expired: &HashMap<Key, Question>) -> Vec<Question> {
    let mut wholes = Vec::<Question>::new();
    for part in expired.values().filter(|question| question.part.is_some()) {
        let is_of = |whole: &Question| {
            whole.part.is_none()
                && whole.route == part.route
                && whole.application_set == part.application_set
                && whole.parameters == part.parameters
        };
        if !wholes.iter().any(is_of) {
            wholes.push(part.whole());
        }
    }
    wholes.retain(|whole| !expired.values().any(|question| question == whole));
    wholes
}
