//! The rate limits of accounts, learned from a destination's answers: how many requests are left, and how long to pause.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, StatusCode};

use super::{Reply, retry};
use domain::{
    bounded_cache::Recent,
    clock::Timestamp,
    error::{BackendError, ErrorKind},
};

/// How many accounts are remembered. The least recently used leave first.
const MAX_ACCOUNTS: usize = 10_000;
/// The pause if an answer names no time.
const UNNAMED: Duration = Duration::from_mins(1);
/// How long the number of remaining requests holds, if the answer names no time.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// A reset time from this number on is in seconds since 1970. A smaller number is in seconds from now.
const FIRST_DATE: u64 = 1_000_000_000;

/// The owner of a budget: the destination's origin and the account.
pub(crate) type Owner = (Arc<str>, Arc<str>);

/// The accounts' budgets.
#[derive(Debug)]
pub(crate) struct Budgets(Recent<Owner, Budget>);

#[derive(Debug, Clone, Default)]
struct Budget {
    rate_limit: Option<(AccountLimit, Timestamp)>,
    pause: Option<Pause>,
}

#[derive(Debug, Clone)]
struct Pause {
    since: Timestamp,
    lasts: Duration,
    why: Arc<str>,
}

/// The rate limit in an answer's headers, as GitHub, GitLab or Docker Hub send them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AccountLimit {
    limit: Option<u64>,
    remaining: Option<u64>,
    /// The time until the limit starts again.
    reset: Option<Duration>,
    /// The period for which the limit counts requests.
    window: Option<Duration>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self(Recent::new(MAX_ACCOUNTS))
    }
}

impl Budgets {
    /// Checks whether `owner` may send a request at `now`.
    ///
    /// # Errors
    /// When `owner` must pause. The error names the reason.
    pub(crate) fn check(&self, owner: &Owner, now: Timestamp) -> Result<(), BackendError> {
        let Some(pause) = self.0.get(owner).and_then(|budget| budget.pause) else {
            return Ok(());
        };
        let Some(left) = pause.left(now) else { return Ok(()) };
        Err(BackendError::new(
            ErrorKind::Throttled { retry_after: Some(left) },
            format!("no request sent: {}; this account pauses", pause.why),
        ))
    }

    /// Learns from `reply`, which `owner` received at `now`. Sets `reply.retry_after` to the pause that the answer demands.
    pub(crate) fn learn(&self, owner: &Owner, reply: &mut Reply, now: Timestamp) {
        let rate_limit = AccountLimit::read(&reply.headers, now);
        reply.retry_after = demanded(reply.status, rate_limit, retry::retry_after(&reply.headers, now));
        let pause = pause(reply.status, rate_limit, reply.retry_after, now);
        if pause.is_none() && rate_limit.remaining.is_none() {
            return;
        }
        self.0.update(owner.clone(), |known| {
            let mut budget = known.cloned().unwrap_or_default();
            if rate_limit.remaining.is_some() {
                budget.rate_limit = Some((rate_limit, now));
            }
            let until = |pause: &Pause| pause.left(now).unwrap_or_default();
            // The answer to an earlier request does not shorten a pause.
            if let Some(pause) = pause
                && budget.pause.as_ref().is_none_or(|known| until(known) < until(&pause))
            {
                budget.pause = Some(pause);
            }
            budget
        });
    }

    /// Whether `owner` has less than a tenth of its limit left, by the last answer that named the limit. An outdated answer does not
    /// count.
    pub(crate) fn is_low(&self, owner: &Owner, now: Timestamp) -> bool {
        let Some((rate_limit, then)) = self.0.get(owner).and_then(|budget| budget.rate_limit) else { return false };
        let holds_for = rate_limit.reset.or(rate_limit.window).unwrap_or(KNOWN_FOR);
        let holds = now.since(then).is_some_and(|age| age < holds_for);
        holds
            && matches!((rate_limit.limit, rate_limit.remaining), (Some(limit), Some(left)) if left.saturating_mul(10) < limit)
    }
}

/// The last known budget of an account, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountNow {
    /// The account.
    pub account: Arc<str>,
    /// How many requests it may send in all.
    pub limit: Option<u64>,
    /// How many of these were left.
    pub remaining: Option<u64>,
    /// When an answer reported that.
    pub known_at: Option<Timestamp>,
    /// How long until the limit starts again.
    pub resets_in: Option<Duration>,
    /// How long the account pauses, and why.
    pub pause: Option<(Duration, Arc<str>)>,
}

impl Budgets {
    /// The last known budgets of all accounts, by the origin of their destination. A limit that has started again is left out.
    pub(crate) fn accounts(&self, now: Timestamp) -> Vec<(Arc<str>, AccountNow)> {
        let account = |(origin, account): &Owner, budget: &Budget| {
            let known = budget.rate_limit.filter(|(limit, then)| {
                let holds_for = limit.reset.or(limit.window).unwrap_or(KNOWN_FOR);
                now.since(*then).is_some_and(|age| age < holds_for)
            });
            let (limit, known_at) = known.unzip();
            let pause = budget.pause.as_ref().and_then(|pause| Some((pause.left(now)?, Arc::clone(&pause.why))));
            if limit.is_none() && pause.is_none() {
                return None;
            }
            let limit = limit.unwrap_or_default();
            let elapsed = known_at.and_then(|then| now.since(then)).unwrap_or_default();
            let account = AccountNow {
                account: Arc::clone(account),
                limit: limit.limit,
                remaining: limit.remaining,
                known_at,
                resets_in: limit.reset.map(|reset| reset.saturating_sub(elapsed)),
                pause,
            };
            Some((Arc::clone(origin), account))
        };
        self.0.snapshot().into_iter().filter_map(|(owner, budget)| account(&owner, &budget)).collect()
    }
}

impl Pause {
    /// How long the pause still lasts. `None` if it is over, or the clock was set back.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        self.lasts.checked_sub(now.since(self.since)?).filter(|left| !left.is_zero())
    }
}

/// The names of the headers with a rate limit.
struct Names {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

/// A part of all these names.
const IN_ALL_NAMES: &str = "ratelimit-";
/// The names that GitHub uses, and others that follow GitHub.
const WITH_X: Names = Names {
    limit: HeaderName::from_static("x-ratelimit-limit"),
    remaining: HeaderName::from_static("x-ratelimit-remaining"),
    reset: HeaderName::from_static("x-ratelimit-reset"),
};
/// The names that GitLab and Docker Hub use.
const WITHOUT_X: Names = Names {
    limit: HeaderName::from_static("ratelimit-limit"),
    remaining: HeaderName::from_static("ratelimit-remaining"),
    reset: HeaderName::from_static("ratelimit-reset"),
};

impl AccountLimit {
    fn read(headers: &HeaderMap, now: Timestamp) -> Self {
        // Most answers have none of these headers.
        if !headers.keys().any(|name| name.as_str().contains(IN_ALL_NAMES)) {
            return Self::default();
        }
        let rate_limit = Self::read_as(headers, &WITH_X, now);
        if rate_limit.remaining.is_some() { rate_limit } else { Self::read_as(headers, &WITHOUT_X, now) }
    }

    fn read_as(headers: &HeaderMap, names: &Names, now: Timestamp) -> Self {
        let field = |name: &HeaderName| {
            let text = headers.get(name)?.to_str().ok()?;
            // The header may list several limits. The first one applies.
            let first = text.split(',').next().unwrap_or_default();
            let mut parts = first.split(';').map(str::trim);
            let number: u64 = parts.next()?.parse().ok()?;
            let window = parts.find_map(|part| part.strip_prefix("w=")?.parse().ok());
            Some((number, window.map(Duration::from_secs)))
        };
        let (limit, remaining) = (field(&names.limit), field(&names.remaining));
        let reset = field(&names.reset).map(|(number, _)| match number {
            FIRST_DATE.. => {
                UNIX_EPOCH.checked_add(Duration::from_secs(number)).map_or(Duration::MAX, |at| retry::until(at, now))
            }
            _ => Duration::from_secs(number),
        });
        let window = limit.or(remaining).and_then(|(_, window)| window);
        Self { limit: limit.map(|(number, _)| number), remaining: remaining.map(|(number, _)| number), reset, window }
    }

    fn is_used_up(self) -> bool {
        self.remaining == Some(0)
    }
}

/// The pause that an answer demands: in `Retry-After`, or by the end of the rate limit's window.
fn demanded(status: StatusCode, rate_limit: AccountLimit, retry_after: Option<Duration>) -> Option<Duration> {
    let refuses = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
    let demanded =
        retry_after.or_else(|| (refuses && rate_limit.is_used_up()).then(|| rate_limit.reset.unwrap_or(UNNAMED)));
    demanded.map(|pause| pause.min(retry::LONGEST_PAUSE))
}

/// The pause for the account that received the answer.
fn pause(status: StatusCode, rate_limit: AccountLimit, demanded: Option<Duration>, now: Timestamp) -> Option<Pause> {
    let used_up = || {
        let limit = rate_limit.limit.map(|limit| format!(" of {limit} requests")).unwrap_or_default();
        format!("the account's budget{limit} is used up")
    };
    let (lasts, why) = match status {
        StatusCode::FORBIDDEN if rate_limit.is_used_up() => (demanded?, used_up()),
        StatusCode::FORBIDDEN => (demanded?, format!("it demanded a pause with {status}")),
        StatusCode::TOO_MANY_REQUESTS => {
            (demanded.or(rate_limit.reset).unwrap_or(UNNAMED), format!("it demanded a pause with {status}"))
        }
        _ if rate_limit.is_used_up() => (rate_limit.reset?, used_up()),
        _ => return None,
    };
    let lasts = lasts.min(retry::LONGEST_PAUSE);
    (!lasts.is_zero()).then(|| Pause { since: now, lasts, why: why.into() })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;
    use domain::secret::Secrets;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn later(seconds: u64) -> Timestamp {
        Timestamp(NOW.0 + seconds * 1000)
    }

    fn owner(account: &str) -> Owner {
        ("https://h.example".into(), account.into())
    }

    fn reply(status: u16, headers: &[(&'static str, &'static str)]) -> Reply {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let (status, secrets) = (StatusCode::from_u16(status).unwrap(), Secrets::default());
        Reply { status, headers, body: Bytes::new(), secrets, retry_after: None, attempts: 1 }
    }

    #[test]
    fn each_header_with_a_limit_is_noticed() {
        for names in [&WITH_X, &WITHOUT_X] {
            for name in [&names.limit, &names.remaining, &names.reset] {
                assert!(name.as_str().contains(IN_ALL_NAMES), "{name}");
            }
        }
    }

    #[test]
    fn a_pause_lasts_as_long_as_it_was_said() {
        for (status, headers, seconds) in [
            (200, &[][..], None),
            (200, &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "1700000300")][..], None),
            (200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000300")], Some(300)),
            (200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1600000000")], None),
            (200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1800000000")], Some(3600)),
            (200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "18446744073709551615")], Some(3600)),
            (200, &[("x-ratelimit-remaining", "0")], None),
            (404, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "1700000060")], Some(60)),
            (200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "42")], Some(42)),
            (200, &[("ratelimit-remaining", "0;w=21600")], None),
            (429, &[], Some(60)),
            (429, &[("retry-after", "7")], Some(7)),
            (429, &[("retry-after", "0")], None),
            (429, &[("retry-after", "soon")], Some(60)),
            (429, &[("retry-after", "100000")], Some(3600)),
            (429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000300")], Some(300)),
            (403, &[], None),
            (403, &[("retry-after", "30")], Some(30)),
            (403, &[("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", "1700000300")], None),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000300")], Some(300)),
            (403, &[("x-ratelimit-remaining", "0")], Some(60)),
            (503, &[("retry-after", "30")], None),
        ] {
            let budgets = Budgets::default();
            budgets.learn(&owner("a"), &mut reply(status, headers), NOW);
            let found = budgets.check(&owner("a"), NOW).map_err(|error| error.kind);
            let expected = seconds.map_or(Ok(()), |seconds| {
                Err(ErrorKind::Throttled { retry_after: Some(Duration::from_secs(seconds)) })
            });
            assert_eq!(found, expected, "{status} {headers:?}");
            assert!(budgets.check(&owner("b"), NOW).is_ok(), "another account");
            assert!(budgets.check(&owner("a"), later(3600)).is_ok(), "it ends");
            assert!(budgets.check(&owner("a"), Timestamp(NOW.0 - 1)).is_ok(), "the clock jumped");
        }
    }

    #[test]
    fn a_pause_is_not_shortened() {
        let budgets = Budgets::default();
        for headers in [[("retry-after", "90")], [("retry-after", "10")], [("x-ratelimit-remaining", "50")]] {
            budgets.learn(&owner("a"), &mut reply(429, &headers), NOW);
        }
        let error = budgets.check(&owner("a"), later(80)).unwrap_err();
        assert!(error.message.ends_with("with 429 Too Many Requests; this account pauses"), "{error}");
    }

    #[test]
    fn a_403_that_names_a_time_is_no_denial() {
        let kind = |status, headers: &[_]| {
            let mut reply = reply(status, headers);
            Budgets::default().learn(&owner("a"), &mut reply, NOW);
            reply.refusal().kind
        };
        let throttled = |seconds| ErrorKind::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
        assert_eq!(kind(403, &[]), ErrorKind::Denied);
        assert_eq!(kind(401, &[("retry-after", "30")]), ErrorKind::Denied);
        assert_eq!(kind(403, &[("retry-after", "30")]), throttled(30));
        let used_up = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000300")];
        assert_eq!(kind(403, &used_up), throttled(300));
        assert_eq!(kind(429, &[]), ErrorKind::Throttled { retry_after: None });
    }

    #[test]
    fn less_than_a_tenth_is_low() {
        for (headers, is_low, holds_for) in [
            (&[("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "76;w=21600")][..], false, 0),
            (&[("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "10;w=21600")], false, 0),
            (&[("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "9;w=21600")], true, 21600),
            (&[("ratelimit-limit", "100, 100;w=60"), ("ratelimit-remaining", "9")], true, 3600),
            (
                &[("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "499"), ("x-ratelimit-reset", "1700000300")],
                true,
                300,
            ),
            (&[("x-ratelimit-remaining", "0")], false, 0),
            (&[("x-ratelimit-limit", "many"), ("x-ratelimit-remaining", "-1")], false, 0),
        ] {
            let budgets = Budgets::default();
            budgets.learn(&owner("a"), &mut reply(200, headers), NOW);
            assert_eq!(budgets.is_low(&owner("a"), NOW), is_low, "{headers:?}");
            assert!(!budgets.is_low(&owner("b"), NOW));
            if is_low {
                assert!(budgets.is_low(&owner("a"), later(holds_for - 1)), "{headers:?}");
                assert!(!budgets.is_low(&owner("a"), later(holds_for)), "{headers:?}");
            }
        }
    }
}
