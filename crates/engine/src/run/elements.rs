//! A run of a route whose answer has elements. The list and each element are questions of their own ([`Part`]): what is fresh is not queried
//! again, and what is not gets a run of its own, which is stored, shared with other replicas and put into backoff as any run. The run of the
//! whole makes one answer of them, which the guard compares with the last one.
//!
//! An element that is unknown has in the answer what it had last. Without that it may only be left out if it surely never was in an accepted
//! answer, since Argo CD deletes what is left out.

mod compose;
mod explain;
mod query;

pub(crate) use self::{
    compose::is_forgotten,
    explain::{PartsNow, query_parts},
};

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    cache::{Entry, Freshness, Key, Life},
    failure::Failure,
    route::{ResolvedQuery, parts::Parts},
    run::{MARGIN, Run, RunAnswer, elements::compose::Composed},
    state::EngineState,
};
use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
    generator::{Element, Part, watch::Watch},
};

/// Of how many elements the steps of a watched query are recorded.
const MAX_WATCHED: usize = 50;

/// When an element is queried again that was not done by the deadline: its run goes on. No part is queried again sooner.
const SOON: Duration = Duration::from_secs(1);

/// What the run of a whole answer needs to make it of its parts.
struct Gathering<'a> {
    resolved: &'a ResolvedQuery,
    parts: &'a Parts,
    known: &'a Arc<EngineState>,
    clock: &'a Arc<dyn Clock>,
    /// When the answer must be made of what is known.
    until: Instant,
    /// Whether the whole answer is held: a run confirms what is held only by what the sources say now.
    is_held: bool,
    /// Records the steps of the parts.
    watch: Option<Watch>,
}

impl Run {
    /// The whole answer, made of its `parts`.
    pub(super) async fn gather(
        &self,
        parts: &Parts,
        known: &Arc<EngineState>,
        clock: &Arc<dyn Clock>,
    ) -> Result<RunAnswer, Failure> {
        let gathering = Gathering::of(&self.resolved, parts, known, clock);
        let list = gathering.list().await?;
        let elements = gathering.elements(&list)?;
        let found = gathering.query_all(&elements).await?;
        let composed = Composed::of(&gathering, elements, found)?;
        composed.warn(&gathering);
        composed.answer(&gathering, &list)
    }
}

impl<'a> Gathering<'a> {
    fn of(
        resolved: &'a ResolvedQuery,
        parts: &'a Parts,
        known: &'a Arc<EngineState>,
        clock: &'a Arc<dyn Clock>,
    ) -> Self {
        let (deadline, route) = (resolved.query.deadline, &resolved.route);
        let until = deadline.checked_sub(2 * MARGIN.min(route.deadline / 10)).unwrap_or(deadline);
        let watch = resolved.query.watch.as_ref().map(|watch| watch.begin(&route.name, route.kind, None));
        let is_held = known.held_of(resolved, clock.now()).is_some();
        Gathering { resolved, parts, known, clock, until, is_held, watch }
    }
}

impl Gathering<'_> {
    /// The elements of `list`.
    fn elements(&self, list: &Entry) -> Result<Vec<Arc<ResolvedQuery>>, Failure> {
        let each = self.resolved.route.backend.each().ok_or(Failure::Crashed)?;
        let elements = each.elements(list.encoded.decode()).map_err(Failure::Backend)?;
        let element = |(index, element): (usize, Element)| {
            let watch = self.watch.clone().filter(|_| index < MAX_WATCHED);
            Arc::new(self.resolved.of_part(&self.parts.element, Part::Element(element), watch))
        };
        Ok(elements.into_iter().enumerate().map(element).collect())
    }

    /// The list, as it is now.
    async fn list(&self) -> Result<Arc<Entry>, Failure> {
        let resolved = Arc::new(self.resolved.of_part(&self.parts.list, Part::List, self.watch.clone()));
        self.renew_if_held(&resolved.key);
        let found = match self.fresh(&resolved) {
            Some(entry) => Ok(entry),
            None => query::query(self.known, self.clock, &resolved, self.until).await,
        };
        found.map_err(|failure| of_list(failure).retried_in(self.due_again([&resolved.key])))
    }

    /// When the backoff of one of the parts under `keys` is over. `None` if none has one, such as while all still run.
    fn due_again<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> Option<Duration> {
        let now = self.clock.now();
        keys.into_iter().filter_map(|key| Some(self.known.failing.backoff(key, now)?.1.max(SOON))).min()
    }

    /// The stored answer to `resolved`, if it is fresh.
    fn fresh(&self, resolved: &ResolvedQuery) -> Option<Arc<Entry>> {
        let (entry, state) = self.known.usable(&resolved.route, &resolved.key, self.clock.now())?;
        matches!(state, Freshness::Fresh { .. }).then_some(entry)
    }

    /// Ends the life of the stored answer under `key` if the whole answer is held.
    fn renew_if_held(&self, key: &Key) {
        if self.is_held {
            self.known.answers.end_life(key);
        }
    }

    /// How long `entry` is fresh from `now` on, and whether the backend must be called after that.
    fn left(entry: &Entry, now: Timestamp) -> (Duration, bool) {
        let (lasts, is_brief) = match entry.life {
            Life::For(lasts) => (lasts, false),
            Life::Brief(lasts) => (lasts, true),
            Life::Restored => (Duration::ZERO, false),
        };
        let age = now.since(entry.stored_at).unwrap_or_default();
        (lasts.saturating_sub(age), is_brief)
    }
}

/// Why there is no list.
fn of_list(failure: Failure) -> Failure {
    match failure {
        Failure::Backend(error) => Failure::Backend(error.within("the list of elements")),
        Failure::Deadline => {
            Failure::Backend(BackendError::timeout("the list of elements was not known by the deadline"))
        }
        other => other,
    }
}
