//! Requests that were sent before, byte by byte. Argo CD sends the same body for the same question again and again. What was made of it is
//! kept with the bytes, so that the next such request needs no parsing, no search for its route, no check of its input, and no hash for its
//! cache key.
//!
//! This is only right where all of these depend on nothing but the configuration and the bytes, which `Route::depends_on_bytes_only` checks. Each
//! setup has its own repeats, so that a reload begins with none. The caller is not a part of it: permissions are checked each time.

use std::{
    fmt,
    hash::BuildHasher as _,
    sync::atomic::{AtomicU8, Ordering},
};

use foldhash::quality::RandomState;
use tokio::time::Instant;

use domain::bounded_cache::Recent;
use engine::route::{RepeatedQuery, ResolvedQuery};

/// The longest body that is kept, in bytes.
const MAX_BODY: usize = 2048;
/// `cache.memory` divided by this is the most memory that the kept requests take.
const SHARE: usize = 4;
/// About the memory of a request besides its body, in bytes: its place among the others.
const BESIDE: usize = 96;
/// The number of shards, so that calls on different cores seldom wait for the same lock.
const SHARDS: usize = 16;
/// How many requests are not kept after one for which another had to leave.
const PASSED_OVER: u8 = 31;

/// The requests that are kept.
pub(crate) struct Repeats {
    hash: RandomState,
    shards: [Shard; SHARDS],
}

/// A part of the requests. Those that were not sent for the longest time leave first.
///
/// Argo CD asks round after round, in the same order. If a whole round did not fit, and each request were kept, then each would have
/// left when it comes again. So once the shard is full, only one of 32 new requests is kept, and most of the others are still there when they
/// come again.
struct Shard {
    /// By the hash of their bytes. Of two with the same hash, the later one is kept.
    by_hash: Recent<u64, Repeat>,
    /// How many requests are yet to be passed over.
    passing: AtomicU8,
}

/// A request and its question.
struct Repeat {
    /// The route's name in the path, if there is one.
    named: Option<Box<str>>,
    body: Box<[u8]>,
    resolved: RepeatedQuery,
}

impl Repeats {
    /// Memory for requests beside answers of at most `memory` bytes (`cache.memory`).
    #[must_use]
    pub(crate) fn beside(memory: u64) -> Self {
        let most = usize::try_from(memory).unwrap_or(usize::MAX) / SHARE / SHARDS;
        let shard = || Shard { by_hash: Recent::weighed(most, |_, repeat| repeat.weight()), passing: AtomicU8::new(0) };
        Self { hash: RandomState::default(), shards: std::array::from_fn(|_| shard()) }
    }

    /// The parsed result of a request with this route name and `body`, which came at `began`, if such a request was kept.
    #[must_use]
    pub(crate) fn get(&self, named: Option<&str>, body: &[u8], began: Instant) -> Option<ResolvedQuery> {
        let (hash, shard) = self.shard(named, body)?;
        shard.get(hash, named, body, began)
    }

    /// Keeps the parsed result of a request, unless it is too long or passed over.
    pub(crate) fn keep(&self, named: Option<&str>, body: &[u8], resolved: &ResolvedQuery) {
        if !resolved.route.depends_on_bytes_only(named.is_some()) {
            return;
        }
        let Some((hash, shard)) = self.shard(named, body) else { return };
        shard.keep(hash, || Repeat {
            named: named.map(Box::from),
            body: Box::from(body),
            resolved: RepeatedQuery::of(resolved),
        });
    }

    /// Keeps none of the earlier requests.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.shards.iter().for_each(|shard| shard.by_hash.clear());
    }

    /// The hash of a request, and its shard; `None` if its body is too long to be kept.
    fn shard(&self, named: Option<&str>, body: &[u8]) -> Option<(u64, &Shard)> {
        if body.len() > MAX_BODY {
            return None;
        }
        let hash = self.hash.hash_one((named, body));
        let index = usize::try_from(hash % SHARDS as u64).ok()?;
        Some((hash, self.shards.get(index)?))
    }
}

impl Shard {
    fn get(&self, hash: u64, named: Option<&str>, body: &[u8], began: Instant) -> Option<ResolvedQuery> {
        let if_same = |repeat: &Repeat| {
            let is_same = repeat.named.as_deref() == named && *repeat.body == *body;
            is_same.then(|| repeat.resolved.resolve(began))
        };
        self.by_hash.read(&hash, if_same).flatten()
    }

    fn keep(&self, hash: u64, make: impl FnOnce() -> Repeat) {
        let pass = |left: u8| left.checked_sub(1);
        if self.passing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pass).is_ok() {
            return;
        }
        if !self.by_hash.insert(hash, make()).is_empty() {
            self.passing.store(PASSED_OVER, Ordering::Relaxed);
        }
    }
}

impl Repeat {
    /// About how much memory it takes, in bytes.
    fn weight(&self) -> usize {
        let named = self.named.as_ref().map_or(0, |name| name.len());
        BESIDE + size_of::<Self>() + named + self.body.len() + self.resolved.heap_size()
    }
}

impl fmt::Debug for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept: usize = self.shards.iter().map(|shard| shard.by_hash.len()).sum();
        f.debug_struct("Repeats").field("kept", &kept).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{app::App, config::Loaded};
    use domain::{clock::SystemClock, file::base_dir::BaseDir, generator::Query};
    use launcher::own_program;

    /// A request to the route. The requests of `matches` are matched by a command, and a command announces the parameters of `learns`.
    fn resolved_for(route: &str) -> ResolvedQuery {
        let token = auth::hash_token("t");
        let config = format!(
            "auth: {{ tokens: [ {{ name: t, sha256: \"{token}\" }} ] }}\nroutes:\n\
             \x20 - {{ name: r, match: {{}}, backend: {{ fixed: {{ parameters: [] }} }} }}\n\
             \x20 - {{ name: matches, match: {{ command: [\"true\"] }}, backend: {{ script: {{ command: [\"true\"] }} }} }}\n\
             \x20 - {{ name: learns, match: {{ applicationSet: x }}, dynamicInput: {{ command: [\"true\"] }}, \
             backend: {{ script: {{ command: [\"true\"] }} }} }}\n"
        );
        let loaded = Loaded::parse("t.yaml", config, BaseDir::default()).unwrap();
        let (app, _) = App::build(loaded, Arc::new(SystemClock), own_program()).unwrap();
        let route = Arc::clone(app.setup().routes.by_name(route).unwrap());
        ResolvedQuery::new(route, Query::new("x".into(), Arc::default(), Instant::now()))
    }

    /// Memory for about `count` requests with bodies of 8 bytes.
    fn limited_to(count: usize) -> Repeats {
        let repeat = Repeat { named: None, body: Box::new([0; 8]), resolved: RepeatedQuery::of(&resolved_for("r")) };
        Repeats::beside((SHARE * count * repeat.weight()) as u64)
    }

    /// Sends the requests with these numbers, and keeps those that are new. Returns how many are known.
    fn send(repeats: &Repeats, resolved: &ResolvedQuery, numbers: std::ops::Range<u64>) -> usize {
        let is_known = |number: &u64| {
            let body = number.to_be_bytes();
            let is_known = repeats.get(None, &body, Instant::now()).is_some();
            if !is_known {
                repeats.keep(None, &body, resolved);
            }
            is_known
        };
        numbers.filter(is_known).count()
    }

    #[test]
    fn most_kept_requests_are_recognised_in_a_round_that_does_not_fit() {
        let (repeats, resolved) = (limited_to(1600), resolved_for("r"));
        assert_eq!(send(&repeats, &resolved, 0..6400), 0);
        for _ in 0..5 {
            let known = send(&repeats, &resolved, 0..6400);
            assert!((1200..=1600).contains(&known), "{known}");
        }
    }

    #[test]
    fn new_requests_take_the_places_of_those_that_are_sent_no_more() {
        let (repeats, resolved) = (limited_to(1600), resolved_for("r"));
        send(&repeats, &resolved, 0..1600);
        let rounds = (0..1000).take_while(|_| send(&repeats, &resolved, 10_000..11_000) < 1000).count();
        assert!((2..1000).contains(&rounds), "{rounds}");
    }

    #[test]
    fn the_kept_requests_have_a_limit_in_bytes() {
        let (repeats, resolved) = (Repeats::beside(1 << 20), resolved_for("r"));
        let zeros: Vec<u8> = vec![0; 1000];
        let parameters = serde_json::json!({ "a": zeros }).as_object().unwrap().clone();
        let query = Query::new("x".into(), Arc::new(parameters), Instant::now());
        let resolved = ResolvedQuery::new(resolved.route, query);
        send(&repeats, &resolved, 0..1000);
        let kept: usize = repeats.shards.iter().map(|shard| shard.by_hash.len()).sum();
        assert!(kept * 1000 * size_of::<serde_json::Value>() <= (1 << 20) / SHARE, "{kept}");
    }

    #[test]
    fn the_route_name_and_each_byte_matter() {
        let (repeats, resolved) = (limited_to(1600), resolved_for("r"));
        repeats.keep(Some("r"), b"{}", &resolved);
        let is_known = |named, body: &[u8]| repeats.get(named, body, Instant::now()).is_some();
        assert!(is_known(Some("r"), b"{}"));
        assert!(!is_known(None, b"{}") && !is_known(Some("s"), b"{}") && !is_known(Some("r"), b"{} "));
        let long = vec![b' '; MAX_BODY + 1];
        repeats.keep(None, &long, &resolved);
        assert!(!is_known(None, &long));
    }

    #[test]
    fn what_depends_on_a_command_is_not_kept() {
        for (route, named, is_kept) in [
            ("r", None, true),
            ("matches", None, false),
            ("matches", Some("matches"), true),
            ("learns", Some("learns"), false),
        ] {
            let repeats = limited_to(1600);
            repeats.keep(named, b"{}", &resolved_for(route));
            assert_eq!(repeats.get(named, b"{}", Instant::now()).is_some(), is_kept, "{route} {named:?}");
        }
    }

    #[test]
    fn requests_with_the_same_hash_are_distinguished() {
        let (repeats, resolved) = (limited_to(1600), resolved_for("r"));
        let shard = &repeats.shards[0];
        let repeat = |named: Option<&str>, body: &[u8]| Repeat {
            named: named.map(Box::from),
            body: Box::from(body),
            resolved: RepeatedQuery::of(&resolved),
        };
        let is_known = |named, body: &[u8]| shard.get(7, named, body, Instant::now()).is_some();
        shard.keep(7, || repeat(None, b"{}"));
        assert!(is_known(None, b"{}") && !is_known(None, b"[]") && !is_known(Some("r"), b"{}"));
        shard.keep(7, || repeat(Some("r"), b"[]"));
        assert!(is_known(Some("r"), b"[]") && !is_known(None, b"{}"));
    }
}
