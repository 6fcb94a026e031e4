//! After a start, renews the answers to recent questions at a bounded rate, so that the first reconcile is answered from the cache.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    answer::{Engine, live::live_whole_under},
    cache::{Freshness, Key, Listed, round_robin},
    renewal::left_behind::LeftBehind,
    route::RouteTable,
    run::{Wanted, wait},
};
use flight::FlightJoin;

/// How many answers are renewed in a second, at most.
const RATE: u32 = 20;
/// How many are in flight at the same time, at most.
const AT_ONCE: usize = 4;
/// A question that no caller sent for this long is not renewed.
const QUERIED_WITHIN: Duration = Duration::from_hours(24);

impl Engine {
    /// Renews the stored answers that are not fresh: routes come round-robin, the latest answer of each first. Skips answers that are too
    /// old, that no caller wanted in the last day, or whose parameters the route's `input` no longer accepts. A failed run changes nothing.
    /// Returns how many answers were renewed.
    pub async fn warm_up(&self, routes: &RouteTable) -> usize {
        let now = self.clock.now();
        let is_wanted = |(key, answer): &(Key, Listed)| {
            let is_recent = now.since(answer.queried_at).is_none_or(|idle| idle < QUERIED_WITHIN);
            // An answer of any revision counts: after a change of the configuration, all answers are missing.
            // A part is renewed with its whole.
            let state = live_whole_under(routes, &answer.question, key)
                .filter(|resolved| resolved.route.accepts(&answer.question.parameters))
                .map(|resolved| resolved.route.policy.state(answer.stored_at, answer.life, now));
            is_recent && matches!(state, Some(Freshness::StaleWhileRevalidate(_) | Freshness::StaleIfError(_)))
        };
        let answers = self.answers().clone();
        let all = tokio::task::spawn_blocking(move || answers.list()).await.unwrap_or_default();
        let all: Vec<(Key, Listed)> = all.into_iter().collect();
        self.left_behind_before_the_start(routes, &all).iter().for_each(LeftBehind::warn);
        let mut wanted: Vec<(Key, Listed)> = all.into_iter().filter(is_wanted).collect();
        wanted.sort_unstable_by_key(|(_, answer)| Reverse(answer.stored_at));
        let wanted = round_robin(wanted, |(key, _)| key.route());
        let known = wanted.len();
        let mut ticks = interval(Duration::from_secs(1) / RATE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let slots = stream::unfold(ticks, async |mut ticks| {
            ticks.tick().await;
            Some(((), ticks))
        });
        let renewals =
            stream::iter(wanted).zip(slots).map(async |((key, answer), ())| self.renew(routes, &key, &answer).await);
        let renewed = renewals.buffer_unordered(AT_ONCE).filter(|renewed| std::future::ready(*renewed)).count().await;
        if known > 0 {
            tracing::info!(known, renewed, "the answers from before the start are renewed");
        }
        renewed
    }

    async fn renew(&self, routes: &RouteTable, key: &Key, answer: &Listed) -> bool {
        let resolved = live_whole_under(routes, &answer.question, key).filter(|_| self.may_run());
        let Some(resolved) = resolved else { return false };
        let deadline = resolved.query.deadline;
        match self.join(&Arc::new(resolved), Wanted::Since(answer.queried_at)) {
            FlightJoin::Finished(finished) => finished.is_ok(),
            FlightJoin::Joined(result) | FlightJoin::Started(result) => wait(result, deadline).await.is_ok(),
        }
    }
}
