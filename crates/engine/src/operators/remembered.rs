//! The last questions of callers, with the answers that were served, for a comparison with another configuration. Reading them
//! changes nothing, not even which answers leave the cache next.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use crate::{
    answer::{Engine, live::live_whole_under},
    cache::{Entry, Key, round_robin},
    failure::Failure,
    route::{ResolvedQuery, Route, RouteTable},
};
use domain::{
    clock::Timestamp,
    generator::{Before, ParameterSet, Question},
};

/// How many bytes of answers are read, at most. Older questions are only counted.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// A question, and the answer that callers got.
#[derive(Debug)]
pub struct Remembered {
    /// The question.
    pub question: Question,
    /// The route that answers it.
    pub route: Arc<Route>,
    /// Its key.
    pub key: Key,
    /// The key of its lineage.
    pub lineage: Key,
    /// When a caller last waited for an answer; `None` if there never was one.
    pub queried_at: Option<Timestamp>,
    /// The last answer to it, however old; else that of its lineage.
    pub sets: Option<Vec<ParameterSet>>,
    /// The backend's notes with the answers.
    pub before: Before,
    /// Why the last run failed.
    pub failing: Option<Failure>,
}

impl Engine {
    /// The last `limit` questions to `routes`, and how many there are in all. Routes come round-robin: the most recent question of each
    /// comes first, then the next one of each. Questions that were never answered come last of their route. Reads the whole file, if there
    /// is one.
    #[must_use]
    pub fn remembered(&self, routes: &RouteTable, limit: usize) -> (Vec<Remembered>, usize) {
        let (stored, all) = (self.stored_now(), self.known_questions(routes));
        let (total, mut left) = (all.len(), MAX_BYTES);
        let mut remembered = Vec::new();
        for (queried_at, resolved) in round_robin(all, |(_, resolved)| resolved.key.route()).into_iter().take(limit) {
            let (key, lineage) = (resolved.key, resolved.lineage());
            let own = stored.get(&key);
            let of_lineage = if lineage == key { None } else { stored.get(&lineage) };
            let last = own.as_ref().or(of_lineage.as_ref());
            let Some(rest) = left.checked_sub(last.map_or(0, |entry| entry.encoded.body().len())) else { break };
            left = rest;
            let note = |entry: &Option<Arc<Entry>>| entry.as_ref().and_then(|entry| entry.note.clone());
            remembered.push(Remembered {
                sets: last.map(|entry| entry.encoded.decode()),
                before: Before { own: note(&own), lineage: note(&of_lineage) },
                failing: stored.failing.get(&key).map(|backoff| backoff.failure.failure.clone()),
                question: resolved.question,
                route: resolved.route,
                key,
                lineage,
                queried_at,
            });
        }
        (remembered, total)
    }

    /// All questions that `routes` answer, and when callers last sent them, the most recent first.
    fn known_questions(&self, routes: &RouteTable) -> Vec<(Option<Timestamp>, ResolvedQuery)> {
        let mut known: HashMap<Key, (Option<Timestamp>, Question)> =
            self.known.failing.all().map(|(key, failed)| (key, (None, failed.question))).collect();
        let answered = self.answers().list().into_iter();
        known.extend(answered.map(|(key, listed)| (key, (Some(listed.queried_at), listed.question))));
        let mut all: Vec<(Option<Timestamp>, ResolvedQuery)> = known
            .into_iter()
            .filter_map(|(key, (at, question))| {
                // The record of a lineage is a copy of a question's answer.
                let resolved = live_whole_under(routes, &question, &key)?;
                Some((at, resolved))
            })
            .collect();
        all.sort_unstable_by_key(|(at, resolved)| (Reverse(*at), *resolved.key.as_bytes()));
        all
    }
}
