//! The headers of an answer. Each value is made on the stack and copied once.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue};

use engine::cache::ElementCounts;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// RFC 9211.
pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// <https://www.w3.org/TR/server-timing/>
pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// How many elements of the answer are in which state.
pub(super) const ELEMENTS: HeaderName = HeaderName::from_static("x-appset-gateway-elements");

pub(super) const EMPTY: HeaderValue = HeaderValue::from_static("");

/// Room for the longest value, in bytes.
const ROOM: usize = 128;

/// The caller's own request id, if it is safe to repeat.
pub(super) fn given_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(REQUEST_ID)?;
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_safe = (1..=64).contains(&value.len()) && value.as_bytes().iter().all(fits);
    is_safe.then(|| value.clone())
}

/// A new id: unique in this process, and unlikely to occur in another.
pub(super) fn new_id() -> HeaderValue {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    id(STATE.hash_one(NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn id(number: u64) -> HeaderValue {
    let mut digits = [0; 16];
    let digits = base16ct::lower::encode(&number.to_be_bytes(), &mut digits);
    digits.ok().and_then(|digits| HeaderValue::from_bytes(digits).ok()).unwrap_or(EMPTY)
}

/// `Cache-Status` of a fresh answer.
pub(super) fn hit(left: Duration) -> HeaderValue {
    let mut text = Text::new();
    text.add("appset-gateway; hit; ttl=");
    text.number(left.as_secs());
    text.value()
}

/// `Cache-Status` of an answer that is older than it should be, and the code of the error in whose place it is served.
pub(super) fn stale(over: Duration, detail: Option<&str>) -> HeaderValue {
    let mut text = Text::new();
    text.add("appset-gateway; hit; ttl=-");
    text.number(over.as_secs());
    if let Some(detail) = detail {
        text.add("; detail=");
        text.add(detail);
    }
    text.value()
}

/// `Age`, in seconds.
pub(super) fn age(age: Duration) -> HeaderValue {
    let mut text = Text::new();
    text.number(age.as_secs());
    text.value()
}

/// `Server-Timing` in milliseconds: the whole request, and the backend if this request waited for it.
pub(super) fn server_timing(total: Duration, backend: Option<Duration>) -> HeaderValue {
    let mut text = Text::new();
    text.add("total;dur=");
    text.milliseconds(total);
    if let Some(backend) = backend {
        text.add(", backend;dur=");
        text.milliseconds(backend);
    }
    text.value()
}

/// How many elements of an answer are in which state, as a dictionary of RFC 9651.
pub(super) fn elements(counts: ElementCounts) -> HeaderValue {
    let mut text = Text::new();
    for (index, (state, count)) in counts.by_name().into_iter().enumerate() {
        if index > 0 {
            text.add(", ");
        }
        text.add(if state == "last_known" { "last-known" } else { state });
        text.add("=");
        text.number(count as u64);
    }
    text.value()
}

/// The text of a value.
struct Text {
    bytes: [u8; ROOM],
    len: usize,
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    fn add(&mut self, text: &str) {
        let end = self.len + text.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(text.as_bytes());
            self.len = end;
        }
    }

    fn number(&mut self, number: u64) {
        self.add(itoa::Buffer::new().format(number));
    }

    /// With three digits after the point. Times beyond 500 million years are that long.
    fn milliseconds(&mut self, time: Duration) {
        self.number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let micros = time.subsec_micros() % 1000;
        let digit = |unit: u32| char::from(b'0' + (micros / unit % 10) as u8);
        for part in ['.', digit(100), digit(10), digit(1)] {
            self.add(part.encode_utf8(&mut [0; 4]));
        }
    }

    fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.bytes[..self.len]).unwrap_or(EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::server::error::Code;

    fn seconds() -> impl Strategy<Value = Duration> {
        let second = prop_oneof![any::<u64>(), 0..100_000_u64, (0..20_u32).prop_map(|power| 10_u64.pow(power))];
        (second, 0..1_000_000_000_u32).prop_map(|(second, nanos)| Duration::new(second, nanos))
    }

    /// Times in which milliseconds fit 64 bits, short ones above all.
    fn times() -> impl Strategy<Value = Duration> {
        let nanos = prop_oneof![0..20_000_000_000_u64, any::<u64>()].prop_map(Duration::from_nanos);
        prop_oneof![4 => nanos, 1 => (0..u64::MAX / 1000, 0..1_000_000_000_u32).prop_map(|(second, nanos)| Duration::new(second, nanos))]
    }

    fn formatted(time: Duration) -> String {
        let micros = time.as_micros();
        format!("{}.{:03}", micros / 1000, micros % 1000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

        #[test]
        fn values_are_those_that_format_makes(
            one in seconds(), code in prop::sample::select(Code::ALL.to_vec()), (total, backend) in (times(), times()), number in any::<u64>(),
        ) {
            let (second, detail) = (one.as_secs(), code.as_str());
            prop_assert_eq!(age(one), second.to_string());
            prop_assert_eq!(hit(one), format!("appset-gateway; hit; ttl={second}"));
            prop_assert_eq!(stale(one, None), format!("appset-gateway; hit; ttl=-{second}"));
            prop_assert_eq!(stale(one, Some(detail)), format!("appset-gateway; hit; ttl=-{second}; detail={detail}"));
            let (whole, part) = (formatted(total), formatted(backend));
            prop_assert_eq!(server_timing(total, None), format!("total;dur={whole}"));
            prop_assert_eq!(server_timing(total, Some(backend)), format!("total;dur={whole}, backend;dur={part}"));
            prop_assert_eq!(id(number), format!("{number:016x}"));
        }
    }

    #[test]
    fn the_longest_values_fit() {
        let longest = Duration::from_millis(u64::MAX) + Duration::from_micros(999);
        let (time, second) = (formatted(longest), u64::MAX);
        assert_eq!(server_timing(longest, Some(longest)), format!("total;dur={time}, backend;dur={time}"));
        let all =
            ElementCounts { present: usize::MAX, absent: usize::MAX, last_known: usize::MAX, unknown: usize::MAX };
        assert_eq!(elements(all), format!("present={second}, absent={second}, last-known={second}, unknown={second}"));
        for code in Code::ALL {
            let expected = format!("appset-gateway; hit; ttl=-{second}; detail={}", code.as_str());
            assert_eq!(stale(Duration::from_secs(second), Some(code.as_str())), expected);
        }
    }
}
