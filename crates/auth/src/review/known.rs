//! The remembered results of token reviews. Good tokens have a cache of their own, so that unknown tokens cannot evict them. A good result
//! is kept longer than it is fresh: it is still used for a while if the API server does not answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;

use super::answer::User;
use crate::{Caller, Refused, TokenHash};
use domain::clock::Timestamp;

/// How long a good token is accepted without a review. A revoked token still works for so long.
const GOOD_FOR: Duration = Duration::from_mins(1);
/// How much longer it is accepted while the API server does not answer.
const STANDS_FOR: Duration = Duration::from_mins(5);
/// The pause before the next review of the same token after a failed one.
const BACKOFF: Duration = Duration::from_secs(5);
/// How long a bad token is refused without a review.
const BAD_FOR: Duration = Duration::from_secs(10);
/// How many good tokens are remembered, and how many bad ones.
const MAX_TOKENS: u64 = 4096;

/// The results of reviews, by token.
#[derive(Debug)]
pub(super) struct KnownTokens {
    good: Cache<TokenHash, Arc<Good>>,
    bad: Cache<TokenHash, Bad>,
}

/// A token that was good.
#[derive(Debug)]
pub(super) struct Good {
    /// Its caller.
    pub caller: Arc<Caller>,
    /// The API server's name and groups of the holder.
    pub user: User,
    since: Timestamp,
    expires: Timestamp,
    /// When the last review failed, in milliseconds since 1970; 0 if none did.
    failed: AtomicU64,
}

#[derive(Debug, Clone)]
struct Bad {
    why: Refused,
    since: Timestamp,
    expires: Timestamp,
}

impl KnownTokens {
    /// No results yet.
    pub(super) fn new() -> Self {
        Self { good: Cache::new(MAX_TOKENS), bad: Cache::new(MAX_TOKENS) }
    }

    /// The result for `token` at `now`, if no new review is needed.
    pub(super) fn verdict(&self, token: &TokenHash, now: Timestamp) -> Option<Result<Arc<Caller>, Refused>> {
        if let Some(good) = self.good.get(token) {
            return good.is_accepted(now).then(|| Ok(Arc::clone(&good.caller)));
        }
        let bad = self.bad.get(token)?;
        is_within(bad.since, BAD_FOR.min(life(bad.since, bad.expires)), now).then_some(Err(bad.why))
    }

    /// The good result for `token`, if the token has not expired at `now`.
    pub(super) fn good(&self, token: &TokenHash, now: Timestamp) -> Option<Arc<Good>> {
        self.good.get(token).filter(|good| now < good.expires)
    }

    /// Remembers that `token` belongs to `user`, by a review at `since`.
    pub(super) fn admit(
        &self,
        token: TokenHash,
        caller: Arc<Caller>,
        user: User,
        since: Timestamp,
        expires: Timestamp,
    ) {
        self.good.insert(token, Arc::new(Good { caller, user, since, expires, failed: AtomicU64::new(0) }));
        self.bad.invalidate(&token);
    }

    /// Remembers that `token` is bad.
    pub(super) fn refuse(&self, token: TokenHash, why: Refused, since: Timestamp, expires: Timestamp) {
        self.bad.insert(token, Bad { why, since, expires });
        self.good.invalidate(&token);
    }

    /// Takes over the good tokens of `former`; `caller` maps their users to callers.
    pub(super) fn take_over(&self, former: &Self, caller: impl Fn(&User) -> Option<Arc<Caller>>) {
        for (token, good) in &former.good {
            if let Some(caller) = caller(&good.user) {
                self.admit(*token, caller, good.user.clone(), good.since, good.expires);
            }
        }
    }
}

impl Good {
    /// Whether it is accepted at `now` without a review: the last review is fresh, or a new one has just failed.
    fn is_accepted(&self, now: Timestamp) -> bool {
        let failed = Timestamp(self.failed.load(Ordering::Relaxed));
        let is_fresh = now < self.expires && is_within(self.since, GOOD_FOR, now);
        is_fresh || self.stands(now) && is_within(failed, BACKOFF, now)
    }

    /// Whether it is accepted at `now` if the API server does not answer.
    pub(super) fn stands(&self, now: Timestamp) -> bool {
        now < self.expires && is_within(self.since, GOOD_FOR + STANDS_FOR, now)
    }

    /// Notes that a review failed at `now`.
    pub(super) fn failed(&self, now: Timestamp) {
        self.failed.store(now.0, Ordering::Relaxed);
    }
}

fn life(since: Timestamp, expires: Timestamp) -> Duration {
    expires.since(since).unwrap_or_default()
}

/// Whether less than `time` has passed from `since` to `now`. If the clock was set back, nothing holds.
fn is_within(since: Timestamp, time: Duration, now: Timestamp) -> bool {
    now.since(since).is_some_and(|passed| passed < time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, Scope};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const TOKEN: TokenHash = [1; 32];

    fn after(seconds: u64) -> Timestamp {
        NOW.plus(Duration::from_secs(seconds))
    }

    fn good(expires: Timestamp) -> KnownTokens {
        let known = KnownTokens::new();
        let caller = Caller::new("a".to_owned(), Role::Caller, Scope::all(), Arc::default());
        known.admit(TOKEN, Arc::new(caller), User::default(), NOW, expires);
        known
    }

    #[test]
    fn a_good_one_is_accepted_for_a_minute_and_stands_for_five_more() {
        let known = good(after(3600));
        let is_accepted = |seconds| matches!(known.verdict(&TOKEN, after(seconds)), Some(Ok(_)));
        let stands = |seconds| known.good(&TOKEN, after(seconds)).is_some_and(|good| good.stands(after(seconds)));
        assert!(is_accepted(0) && is_accepted(59) && !is_accepted(60));
        assert!(stands(60) && stands(359) && !stands(360));
        for seconds in [60, 358] {
            known.good(&TOKEN, after(seconds)).unwrap().failed(after(seconds));
            assert!(is_accepted(seconds), "the API server is left alone for a while");
        }
        assert!(is_accepted(359) && !is_accepted(360), "but not for longer than it stands");
        assert!(known.verdict(&TOKEN, Timestamp(NOW.0 - 1)).is_none(), "a clock that was put back ends it");
    }

    #[test]
    fn nothing_outlives_a_token() {
        let known = good(after(30));
        assert!(matches!(known.verdict(&TOKEN, after(29)), Some(Ok(_))));
        known.good(&TOKEN, after(29)).unwrap().failed(after(29));
        assert!(known.verdict(&TOKEN, after(30)).is_none() && known.good(&TOKEN, after(30)).is_none());
    }

    #[test]
    fn one_that_is_good_no_more_is_known_as_bad() {
        let known = good(after(3600));
        known.refuse(TOKEN, Refused::wrong("revoked"), after(10), after(3600));
        assert_eq!(known.verdict(&TOKEN, after(19)).map(Result::err), Some(Some(Refused::wrong("revoked"))));
        assert!(known.verdict(&TOKEN, after(20)).is_none() && known.good(&TOKEN, after(20)).is_none());
    }

    #[test]
    fn unknown_tokens_push_no_good_one_out() {
        let known = good(after(3600));
        for n in 0..4 * MAX_TOKENS {
            let mut token = TOKEN;
            token[..8].copy_from_slice(&n.to_le_bytes());
            known.refuse(token, Refused::wrong("unknown"), NOW, after(3600));
        }
        assert!(known.verdict(&TOKEN, NOW).is_some());
    }

    #[test]
    fn another_configuration_decides_anew_whose_users_may_call() {
        let known = good(after(3600));
        let (same, none) = (KnownTokens::new(), KnownTokens::new());
        let caller = known.good(&TOKEN, NOW).unwrap().caller.clone();
        same.take_over(&known, |_| Some(Arc::clone(&caller)));
        none.take_over(&known, |_| None);
        assert!(same.good(&TOKEN, after(59)).is_some() && same.verdict(&TOKEN, after(60)).is_none());
        assert!(none.good(&TOKEN, NOW).is_none());
    }
}
