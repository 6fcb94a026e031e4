//! Requests that were sent before, byte by byte. Argo CD sends the same body for the same question again and again. What was made of it is
//! kept with the bytes, so that the next such request needs no parsing, no search for its route, no check of its input, and no hash for its
//! cache key.
//!
//! This is only right where all of these depend on nothing but the configuration and the bytes, as `Route::depends_on_bytes_only` tells. Each
//! setup has its own repeats, so that a reload begins with none. Who asks is no part of it: permissions are checked each time.

use std::{
    fmt,
    hash::BuildHasher as _,
    sync::atomic::{AtomicU8, Ordering},
};

use foldhash::quality::RandomState;
use tokio::time::Instant;

use crate::{
    bounded_cache::Recent,
    engine::route::{RepeatedQuery, ResolvedQuery},
};

/// The longest body that is kept, in bytes.
const MAX_BODY: usize = 2048;
/// The share of `cache.memory` that may be used besides, as a divisor.
const SHARE: u64 = 4;
/// About what a request takes beside its bytes and [`Repeat`]: its parameters as a map, and its place among the others.
const BESIDE: usize = 640;
/// How many requests are not kept after one for which another had to leave.
const PASSED_OVER: u8 = 7;

/// The requests that are kept. Those that were not sent for the longest time leave first.
///
/// Argo CD asks round after round. If there is no room for all questions of a round, and each request were kept, then each would have left
/// when it comes again. So once there is no more room, only one of eight is kept. Most of the others then stay until they come again.
pub(crate) struct Repeats {
    hash: RandomState,
    /// By the hash of their bytes. If two have the same, one of them is kept.
    by_hash: Recent<u64, Repeat>,
    /// How many requests are yet to be passed over.
    passing: AtomicU8,
}

/// A request and what it asks.
struct Repeat {
    /// The route's name in the path, if there is one.
    named: Option<Box<str>>,
    body: Box<[u8]>,
    asked: RepeatedQuery,
}

impl Repeats {
    /// Room for requests beside answers of at most `memory` bytes (`cache.memory`).
    #[must_use]
    pub(crate) fn beside(memory: u64) -> Self {
        let most = usize::try_from(memory / SHARE).unwrap_or(usize::MAX);
        let weigh = |_: &u64, repeat: &Repeat| repeat.weight();
        Self { hash: RandomState::default(), by_hash: Recent::weighed(most, weigh), passing: AtomicU8::new(0) }
    }

    /// What a request with this route name and `body` asks, which came at `began`, if such a request was kept.
    #[must_use]
    pub(crate) fn get(&self, named: Option<&str>, body: &[u8], began: Instant) -> Option<ResolvedQuery> {
        let if_same = |repeat: &Repeat| {
            let is_same = repeat.named.as_deref() == named && *repeat.body == *body;
            is_same.then(|| repeat.asked.resolve(began))
        };
        self.by_hash.read(&self.hash(named, body)?, if_same).flatten()
    }

    /// Keeps what a request asks, if there is room for it.
    pub(crate) fn keep(&self, named: Option<&str>, body: &[u8], asked: &ResolvedQuery) {
        if !asked.route.depends_on_bytes_only(named.is_some()) {
            return;
        }
        let Some(hash) = self.hash(named, body) else { return };
        let pass = |left: u8| left.checked_sub(1);
        if self.passing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pass).is_ok() {
            return;
        }
        let repeat = Repeat { named: named.map(Box::from), body: Box::from(body), asked: RepeatedQuery::of(asked) };
        let left = self.by_hash.insert(hash, repeat);
        if !left.is_empty() {
            self.passing.store(PASSED_OVER, Ordering::Relaxed);
        }
    }

    /// Keeps nothing of what was sent before.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.by_hash.clear();
    }

    /// The hash of a request; `None` if its body is too long to be kept.
    fn hash(&self, named: Option<&str>, body: &[u8]) -> Option<u64> {
        (body.len() <= MAX_BODY).then(|| self.hash.hash_one((named, body)))
    }
}

impl Repeat {
    /// About how much memory it takes, in bytes. Its parameters are counted as long as the body that they are from.
    fn weight(&self) -> usize {
        BESIDE + size_of::<Self>() + 2 * self.body.len() + self.named.as_ref().map_or(0, |name| name.len())
    }
}

impl fmt::Debug for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeats").field("kept", &self.by_hash.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        app::App,
        clients::launcher::own_program,
        config::Loaded,
        domain::{clock::SystemClock, generator::Query},
        file::base_dir::BaseDir,
    };

    /// What any request to a route asks.
    fn any_query() -> ResolvedQuery {
        let token = crate::auth::hash_token("t");
        let config = format!(
            "auth: {{ tokens: [ {{ name: t, sha256: \"{token}\" }} ] }}\n\
             routes: [ {{ name: r, match: {{}}, backend: {{ fixed: {{ parameters: [] }} }} }} ]"
        );
        let loaded = Loaded::parse("t.yaml", config, BaseDir::default()).unwrap();
        let (app, _) = App::build(loaded, Arc::new(SystemClock), own_program()).unwrap();
        let route = Arc::clone(app.setup().routes.by_name("r").unwrap());
        ResolvedQuery::new(route, Query::new("x".into(), Arc::default(), Instant::now()))
    }

    /// Room for about `count` requests with bodies of 8 bytes.
    fn room_for(count: usize) -> Repeats {
        Repeats::beside(SHARE * (count * (BESIDE + size_of::<Repeat>() + 16)) as u64)
    }

    #[test]
    fn most_of_a_round_without_room_for_all_is_recognised() {
        let (repeats, asked) = (room_for(100), any_query());
        let round = || {
            let is_known = |number: u64| {
                let body = number.to_be_bytes();
                let known = repeats.get(None, &body, Instant::now()).is_some();
                if !known {
                    repeats.keep(None, &body, &asked);
                }
                known
            };
            (0..200).filter(|number| is_known(*number)).count()
        };
        assert_eq!(round(), 0);
        for _ in 0..10 {
            let known = round();
            assert!((60..=100).contains(&known), "{known}");
        }
    }

    #[test]
    fn new_questions_come_in_the_place_of_those_that_are_asked_no_more() {
        let (repeats, asked) = (room_for(100), any_query());
        (0..100_u64).for_each(|number| repeats.keep(None, &number.to_be_bytes(), &asked));
        let is_known = |number: u64| repeats.get(None, &number.to_be_bytes(), Instant::now()).is_some();
        for _ in 0..40 {
            (100..200)
                .filter(|number| !is_known(*number))
                .for_each(|number| repeats.keep(None, &number.to_be_bytes(), &asked));
        }
        assert_eq!(((0..100).filter(|n| is_known(*n)).count(), (100..200).filter(|n| is_known(*n)).count()), (0, 100));
    }

    #[test]
    fn the_route_name_and_each_byte_matter() {
        let (repeats, asked) = (room_for(9), any_query());
        repeats.keep(Some("r"), b"{}", &asked);
        let is_known = |named, body: &[u8]| repeats.get(named, body, Instant::now()).is_some();
        assert!(is_known(Some("r"), b"{}"));
        assert!(!is_known(None, b"{}") && !is_known(Some("s"), b"{}") && !is_known(Some("r"), b"{} "));
        let long = vec![b' '; MAX_BODY + 1];
        repeats.keep(None, &long, &asked);
        assert!(!is_known(None, &long));
    }
}
