//! The parts of a route whose answer has elements: one for the list, and one for the elements. Each is a route of its own behind the route:
//! no call comes to it, and its answers are stored, renewed and shared as those of any route.

use std::sync::Arc;

use crate::{
    guard::{Guard, GuardConfig},
    route::{Accepts, Route},
};
use domain::generator::{Part, Query};
use source::{Backend, Each, MaxUnknown};

/// The parts of a route.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) list: Arc<Route>,
    pub(crate) element: Arc<Route>,
    /// How many elements may be unknown.
    pub(crate) max_unknown: MaxUnknown,
}

impl Parts {
    /// Those of `whole`, if its backend has any.
    pub(super) fn of(whole: &Route) -> Option<Self> {
        let Each { list, element, kinds, max_unknown, .. } = whole.backend.each()?;
        Some(Self {
            list: Arc::new(whole.part(list, kinds[0], true)),
            element: Arc::new(whole.part(element, kinds[1], false)),
            max_unknown: *max_unknown,
        })
    }
}

impl Route {
    /// The part of this route that `backend` answers.
    fn part(&self, backend: &Arc<dyn Backend>, kind: &'static str, is_list: bool) -> Self {
        Self {
            name: Arc::clone(&self.name),
            kind,
            backend: Arc::clone(backend),
            // The list's items are no parameter sets.
            shape: self.shape.clone().filter(|_| !is_list),
            policy: self.policy,
            // The answer as a whole is compared with the last one, and no element by itself.
            guard: Guard::new(GuardConfig::allowing_all()),
            deadline: self.deadline,
            metrics: self.metrics.of_part(kind),
            shadow: None,
            parts: None,
            input: Accepts::All,
            lineage: self.lineage.clone(),
            matcher: None,
            formerly: self.formerly.clone(),
            prefix: self.prefix.clone(),
            other_prefixes: self.other_prefixes.clone(),
            revision: self.revision,
            origin: self.origin.clone(),
        }
    }

    /// The route that answers questions about `part`: this one, or its part. `None` if it has no such part any more.
    #[must_use]
    pub(crate) fn that_answers(self: &Arc<Self>, part: Option<&Part>) -> Option<Arc<Self>> {
        match part {
            None => Some(Arc::clone(self)),
            Some(Part::List) => Some(Arc::clone(&self.parts.as_ref()?.list)),
            Some(Part::Element(_)) => Some(Arc::clone(&self.parts.as_ref()?.element)),
        }
    }
}

/// The parameters that the lineage of `query` is made of: `names`; without them, all that an element has.
pub(super) fn lineage_names(names: Option<&[String]>, query: &Query) -> Option<Vec<String>> {
    match names {
        Some(names) => Some(names.to_vec()),
        None => query.item().map(|_| query.parameters.keys().cloned().collect()),
    }
}
