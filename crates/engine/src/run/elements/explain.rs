//! The parts of an answer as they are now, for operators: the list and each element are queried once, and nothing is stored.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::{StreamExt as _, stream};

use super::{Composed, Gathering, of_list};
use crate::{
    cache::{Entry, LastServed, MadeUnder, PackedQuestion},
    failure::Failure,
    route::{ResolvedQuery, parts::Parts},
    run::{Finished, RunAnswer, fetch_in_time},
    state::EngineState,
};
use domain::{
    clock::{Clock, Timestamp},
    generator::{Before, Part},
};
use source::ELEMENTS_AT_ONCE;

/// An answer, and the elements that it would be made of.
pub(crate) struct PartsNow {
    pub(crate) answer: Result<RunAnswer, Failure>,
    /// Each element, with what its backend says. `None` without a list.
    pub(crate) elements: Option<Vec<(Arc<ResolvedQuery>, Finished)>>,
}

/// Queries the `parts` of the answer to `resolved` once. `before` has the backend's notes on the last answers.
pub(crate) async fn query_parts(
    (known, clock): (&Arc<EngineState>, &Arc<dyn Clock>),
    resolved: &ResolvedQuery,
    parts: &Parts,
    before: impl Fn(&ResolvedQuery) -> Before,
) -> PartsNow {
    let gathering = Gathering::of(resolved, parts, known, clock);
    let list = resolved.of_part(&parts.list, Part::List, gathering.watch.clone());
    let found = fetch_now(&list, before(&list), &**clock).await.map_err(of_list);
    let found = found.and_then(|list| Ok((gathering.elements(&list)?, list)));
    let (elements, list) = match found {
        Ok(found) => found,
        Err(failure) => return PartsNow { answer: Err(failure), elements: None },
    };
    let fetches: Vec<_> = elements.iter().map(|element| fetch_now(element, before(element), &**clock)).collect();
    let found: Vec<Finished> = stream::iter(fetches).buffered(ELEMENTS_AT_ONCE).collect().await;
    let all = elements.iter().cloned().zip(found.iter().cloned()).collect();
    let composed = Composed::of(&gathering, elements, found);
    PartsNow { answer: composed.and_then(|composed| composed.answer(&gathering, &list)), elements: Some(all) }
}

/// The answer of the backend of `resolved` now, which is not stored.
async fn fetch_now(resolved: &ResolvedQuery, before: Before, clock: &dyn Clock) -> Finished {
    let started = StdInstant::now();
    let found = fetch_in_time(resolved, before).await?;
    Ok(Arc::new(entry(resolved, found, started.elapsed(), clock.now())))
}

fn entry(resolved: &ResolvedQuery, found: RunAnswer, took: Duration, now: Timestamp) -> Entry {
    let route = &resolved.route;
    let RunAnswer { encoded, evidence, lasting, note, elements, .. } = found;
    Entry {
        encoded,
        question: PackedQuestion::from(&resolved.question),
        made_under: MadeUnder { revision: route.revision(), trust: route.trust().fingerprint },
        stored_at: now,
        queried_at: now,
        first_at: now,
        run_number: 0,
        life: route.policy.life(&resolved.key, lasting, now),
        took,
        evidence,
        note,
        elements,
        last_served: LastServed::default(),
    }
}
