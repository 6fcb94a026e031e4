//! Remembered questions, resolved again on the present routes.

use crate::{
    cache::Key,
    route::{ResolvedQuery, RouteTable},
};
use domain::generator::Question;

/// `question` resolved again on its route, which may have another name by now; `None` when there is none.
pub(crate) fn live(routes: &RouteTable, question: &Question) -> Option<ResolvedQuery> {
    let route = routes.by_any_name(&question.route)?.that_answers(question.part.as_ref())?;
    Some(ResolvedQuery::again(route, question))
}

/// `question`, which is remembered under `key`, resolved again on the route that has this key; `None` when there is none. If no route has
/// or had the name, a route may have its former name again.
pub(crate) fn live_under(routes: &RouteTable, question: &Question, key: &Key) -> Option<ResolvedQuery> {
    let has_key = |resolved: &ResolvedQuery| resolved.key == *key;
    if routes.by_any_name(&question.route).is_some() {
        return live(routes, question).filter(has_key);
    }
    let part = question.part.as_ref();
    let routes = routes.iter().filter_map(|route| route.that_answers(part));
    let mut all = routes.map(|route| ResolvedQuery::again(route, question));
    all.find(has_key)
}

/// The same for a question about a whole answer; `None` for one about a part.
pub(crate) fn live_whole_under(routes: &RouteTable, question: &Question, key: &Key) -> Option<ResolvedQuery> {
    if question.part.is_some() { None } else { live_under(routes, question, key) }
}
