//! Decides whether a failed request is sent again, and when.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};

use super::{
    Reply,
    exchange::{ExchangeFailure, FailureKind},
    reply::is_failure,
};
use domain::clock::Timestamp;

/// The most retries of one request.
const RETRIES: u32 = 2;
/// The first wait is at most this long.
const BASE: Duration = Duration::from_millis(100);
/// The longest wait that the gateway chooses itself.
const CAP: Duration = Duration::from_secs(2);
/// The least time that must be left for another attempt.
const LEAST_ROOM: Duration = Duration::from_millis(100);
/// The longest pause that a destination may demand.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// How long to wait before the request is sent again. `None` if `outcome` is final.
///
/// `attempts` is the number of attempts so far, `took` the time of the last one, and `left` the time until the deadline.
///
/// A request is sent again if the connection failed, or the status means that the destination has trouble. A request whose answer
/// broke off or came too late is not sent again, because the destination may already have done all of the work.
pub(crate) fn wait(
    outcome: &Result<Reply, ExchangeFailure>,
    attempts: u32,
    took: Duration,
    left: Duration,
    random: f64,
) -> Option<Duration> {
    if attempts > RETRIES {
        return None;
    }
    let demanded = match outcome {
        Err(failure) if failure.kind == FailureKind::Connect => Duration::ZERO,
        Ok(reply) if is_failure(reply.status) => reply.retry_after.unwrap_or_default(),
        _ => return None,
    };
    // The destination may demand a wait of half of the time that is left. The other half is for the answer.
    if demanded > left / 2 {
        return None;
    }
    let wait = demanded + jitter(attempts.saturating_sub(1), random);
    (wait + took.max(LEAST_ROOM) <= left).then_some(wait)
}

/// A random wait between zero and a limit that doubles with each retry ("full jitter"). `random` is from 0 to 1.
fn jitter(retry: u32, random: f64) -> Duration {
    BASE.saturating_mul(1_u32.checked_shl(retry).unwrap_or(u32::MAX)).min(CAP).mul_f64(random.clamp(0.0, 1.0))
}

/// The time in `Retry-After`, which is in seconds or a date (RFC 9110, section 10.2.3), but at most [`LONGEST_PAUSE`].
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(LONGEST_PAUSE, Duration::from_secs).min(LONGEST_PAUSE));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(until(date, now).min(LONGEST_PAUSE))
}

/// The time until `date`. Zero if `date` is in the past.
pub(crate) fn until(date: SystemTime, now: Timestamp) -> Duration {
    let date = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    date.saturating_sub(Duration::from_millis(now.0))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderValue, StatusCode};
    use proptest::prelude::*;

    use super::*;
    use domain::secret::Secrets;

    fn reply(status: u16, retry_after: Option<u64>) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            secrets: Secrets::default(),
            retry_after: retry_after.map(Duration::from_secs),
            attempts: 1,
        }
    }

    #[test]
    fn only_requests_that_may_soon_succeed_are_sent_again() {
        let long = Duration::from_mins(1);
        let again = |outcome| wait(&outcome, 1, Duration::ZERO, long, 1.0).is_some();
        for status in [408, 500, 501, 502, 503, 504, 507, 599] {
            assert!(again(Ok(reply(status, None))), "{status}");
        }
        for status in [200, 204, 206, 302, 304, 400, 401, 403, 404, 409, 410, 425, 429] {
            assert!(!again(Ok(reply(status, None))), "{status}");
        }
        for (kind, expected) in [
            (FailureKind::Connect, true),
            (FailureKind::Refused, false),
            (FailureKind::Untrusted, false),
            (FailureKind::Timeout, false),
            (FailureKind::Broken, false),
            (FailureKind::TooLarge, false),
        ] {
            assert_eq!(again(Err(ExchangeFailure { kind, message: String::new() })), expected, "{kind:?}");
        }
    }

    #[test]
    fn there_must_be_room() {
        let seconds = Duration::from_secs_f64;
        let waits = |retry_after, attempts, took, left| {
            wait(&Ok(reply(503, retry_after)), attempts, seconds(took), seconds(left), 0.0).map(|wait| wait.as_secs())
        };
        assert_eq!(waits(None, 1, 0.0, 10.0), Some(0));
        assert_eq!(waits(None, 2, 0.0, 10.0), Some(0));
        assert_eq!(waits(None, 3, 0.0, 10.0), None, "two retries");
        assert_eq!(waits(None, 1, 0.0, 0.05), None, "no time");
        assert_eq!(waits(None, 1, 6.0, 5.0), None, "it takes longer than that");
        assert_eq!(waits(Some(4), 1, 0.0, 10.0), Some(4));
        assert_eq!(waits(Some(6), 1, 0.0, 10.0), None, "it demands too much");
    }

    proptest! {
        #[test]
        fn jitter_stays_in_its_bounds(retry in 0_u32..100, random in 0.0_f64..=1.0) {
            let max = Duration::from_millis(100 * 2_u64.pow(retry.min(10))).min(CAP);
            prop_assert!(jitter(retry, random) <= max);
            prop_assert_eq!(jitter(retry, 0.0), Duration::ZERO);
            prop_assert_eq!(jitter(retry, 1.0), max);
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp(784_111_777_000);
        for (text, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("9999999", Some(3600)),
            ("18446744073709551616", Some(3600)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Sunday, 06-Nov-94 08:50:07 GMT", Some(30)),
            ("Sat, 06 Nov 2094 08:49:37 GMT", Some(3600)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(retry_after(&headers, now).map(|pause| pause.as_secs()), seconds, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
