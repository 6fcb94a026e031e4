//! The last good answer, which is served when the current one is not known, or the reason why it is not.

use std::sync::Arc;

use crate::{
    answer::{Answer, AnswerSource, Engine, Unknown},
    cache::{Entry, Key, Stale},
    guard::{Held, identity::label, usual_key},
    route::{ResolvedQuery, Route, RouteTable},
};
use domain::clock::Timestamp;

/// How many sets that a held answer leaves are named.
const MAX_STAYING: usize = 100;

/// Why a last good answer is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// It was stored at this time, and is older than `cache.staleIfError` allows.
    TooOld(Timestamp),
    /// It was stored at this time, and the route had another configuration then.
    OtherConfiguration(Timestamp),
    /// It was stored at this time, before the shared store lost writes. Another replica may have served a later one since.
    OfBefore(Timestamp),
}

impl Engine {
    /// The last good answer that is served instead of `held`, if it is still stored.
    #[must_use]
    pub fn last_good(&self, held: &Held) -> Option<Arc<Entry>> {
        self.answers().get(&held.key).or_else(|| self.answers().get(&held.lineage))
    }

    /// Whether a last good answer is served instead of `held`.
    #[must_use]
    pub fn has_fallback(&self, routes: &RouteTable, held: &Held) -> bool {
        let Some(route) = routes.by_any_name(&held.question.route) else { return false };
        let is_usable = |key| self.known.usable(route, key, self.clock.now()).is_some();
        self.may_run() && [&held.key, &held.lineage].into_iter().any(is_usable)
    }

    /// The names of the sets of the last good answer that `held` leaves, at most a hundred. Empty if they are not known by name.
    #[must_use]
    pub fn staying(&self, held: &Held) -> Vec<String> {
        let gone = &held.breach.gone;
        let last = self.last_good(held).map(|entry| entry.encoded.decode()).unwrap_or_default();
        let keys = Some(held.breach.identity.clone()).filter(|keys| !keys.is_empty());
        let Some(keys) = keys.or_else(|| usual_key(&[&last])) else { return Vec::new() };
        let mut names: Vec<String> = last.iter().map(|set| label(set, &keys)).collect();
        if !gone.iter().all(|name| names.contains(name)) {
            return Vec::new();
        }
        names.retain(|name| !gone.contains(name));
        names.truncate(MAX_STAYING);
        names
    }

    /// The answer that is stored now, perhaps by another replica while a caller waited here.
    pub(crate) fn stored_meanwhile(&self, resolved: &ResolvedQuery) -> Option<(Arc<Entry>, Stale)> {
        // In a single gateway, the answer that was stored when the call began is the one that its run was compared with.
        self.known.peers.replica()?;
        let (entry, freshness) = self.known.usable(&resolved.route, &resolved.key, self.clock.now())?;
        Some((entry, freshness.stale()?))
    }

    /// The last good answer of the lineage, for a question without an answer of its own. An invalid question gets none: it
    /// belongs to no lineage.
    pub(crate) fn follow(&self, resolved: &ResolvedQuery, unknown: Unknown, now: Timestamp) -> Result<Answer, Unknown> {
        if unknown.failure.is_invalid_question() || self.is_missing_here(&resolved.key) {
            return Err(unknown);
        }
        let (route, lineage) = (&*resolved.route, resolved.lineage());
        let usable = |key: Key| self.known.usable(route, &key, now).map(|found| (key, found));
        let others = || resolved.other_keys().find_map(|other| usable(other.key).or_else(|| usable(other.lineage)));
        let Some((key, (entry, freshness))) = usable(lineage).or_else(others) else { return Err(unknown) };
        let Some(stale) = freshness.stale() else { return Err(unknown) };
        self.known.answers.used(key);
        Ok(fallback(route, entry, stale, unknown))
    }

    /// Whether the store has an answer to the question with `key` that is not here any more. Other replicas may still serve it.
    fn is_missing_here(&self, key: &Key) -> bool {
        self.known.peers.others_may_serve(key) && !matches!(self.known.answers.try_get(key), Ok(Some(_)))
    }

    /// Why the last good answer of the question, else of its lineage, is not served.
    pub(crate) fn unusable(&self, resolved: &ResolvedQuery) -> Option<Unusable> {
        let (key, last) = [resolved.key, resolved.lineage()]
            .into_iter()
            .find_map(|key| Some((key, self.known.answers.get(&key)?)))?;
        Some(self.why_unusable(resolved, &key, &last))
    }

    /// Why `last`, the answer under `key`, is not served.
    pub(crate) fn why_unusable(&self, resolved: &ResolvedQuery, key: &Key, last: &Entry) -> Unusable {
        let why = if last.made_under != resolved.route.made_under() {
            Unusable::OtherConfiguration
        } else if !self.known.peers.may_serve(key) {
            Unusable::OfBefore
        } else {
            Unusable::TooOld
        };
        why(last.stored_at)
    }
}

/// Serves `entry`, because the current answer is not known.
pub(crate) fn fallback(route: &Route, entry: Arc<Entry>, stale: Stale, unknown: Unknown) -> Answer {
    route.metrics.stale_if_error.inc();
    Answer { entry, source: AnswerSource::StaleIfError(stale, Box::new(unknown)) }
}
