//! The time of a log line, as `tracing_subscriber` writes it. The date is worked out once per second.

use std::{
    cell::Cell,
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A time such as `2026-11-25T10:00:00.123456Z`.
pub(super) type Stamp = [u8; 27];

/// The length of a time down to the second, such as `2026-11-25T10:00:00.`.
const TO_SECOND: usize = 20;
/// The first second of the year 10000, whose dates are longer.
const END: u64 = 253_402_300_800;

#[derive(Clone, Copy)]
struct Second {
    /// Since 1970.
    number: u64,
    text: [u8; TO_SECOND],
}

thread_local! {
    /// The second of the thread's last line. At first one that no time has.
    static SECOND: Cell<Second> = const { Cell::new(Second { number: u64::MAX, text: [0; TO_SECOND] }) };
}

/// The text of `now`. `None` before the year 1970, and from the year 10000 on.
pub(super) fn stamp(now: SystemTime) -> Option<Stamp> {
    let since = now.duration_since(UNIX_EPOCH).ok()?;
    let number = since.as_secs();
    let mut second = SECOND.get();
    if second.number != number {
        second = Second { number, text: to_second(number)? };
        SECOND.set(second);
    }
    let mut stamp = [b'Z'; 27];
    let (text, micros) = stamp.split_at_mut(TO_SECOND);
    text.copy_from_slice(&second.text);
    write_micros(since.subsec_micros(), micros);
    Some(stamp)
}

fn to_second(number: u64) -> Option<[u8; TO_SECOND]> {
    if number >= END {
        return None;
    }
    let mut text = String::with_capacity(TO_SECOND);
    write!(text, "{}", humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(number))).ok()?;
    // A point in place of the `Z`.
    text.pop();
    text.push('.');
    text.into_bytes().try_into().ok()
}

/// Six digits.
fn write_micros(micros: u32, digits: &mut [u8]) {
    let mut rest = micros;
    for digit in digits.iter_mut().take(6).rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

    use super::*;

    fn text(now: SystemTime) -> Option<String> {
        stamp(now).map(|stamp| String::from_utf8(stamp.to_vec()).unwrap())
    }

    fn after(seconds: u64, nanos: u32) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, nanos)
    }

    /// Times of `tracing_subscriber`'s own tests, and the ends of seconds, days, months and years.
    #[test]
    fn known_times() {
        for (seconds, nanos, expected) in [
            (0, 0, "1970-01-01T00:00:00.000000Z"),
            (0, 1_000, "1970-01-01T00:00:00.000001Z"),
            (0, 999_999_999, "1970-01-01T00:00:00.999999Z"),
            (1, 999, "1970-01-01T00:00:01.000000Z"),
            (90_061, 1_000, "1970-01-02T01:01:01.000001Z"),
            (2_147_483_647, 0, "2038-01-19T03:14:07.000000Z"),
            (2_147_483_648, 0, "2038-01-19T03:14:08.000000Z"),
            (11_847_456_541, 0, "2345-06-07T08:09:01.000000Z"),
            (951_782_399, 999_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000000Z"),
            (1_798_761_599, 500_000_000, "2026-12-31T23:59:59.500000Z"),
            (1_798_761_600, 0, "2027-01-01T00:00:00.000000Z"),
            (END - 1, 0, "9999-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(text(after(seconds, nanos)).as_deref(), Some(expected));
        }
        assert_eq!(text(after(END, 0)), None);
        assert_eq!(text(UNIX_EPOCH - Duration::from_nanos(1)), None);
    }

    #[test]
    fn the_time_now_is_as_tracing_writes_it() {
        for _ in 0..1000 {
            let before = text(SystemTime::now()).unwrap();
            let mut theirs = String::new();
            tracing_subscriber::fmt::time::SystemTime.format_time(&mut Writer::new(&mut theirs)).unwrap();
            let after = text(SystemTime::now()).unwrap();
            assert!(before <= theirs && theirs <= after, "{before} {theirs} {after}");
        }
    }

    /// Seconds, with the neighbours of days and years among them.
    fn seconds() -> impl Strategy<Value = u64> {
        let near = |length: u64| {
            (0..END / length, 0..3_u64).prop_map(move |(count, over)| (count * length + over).saturating_sub(1))
        };
        prop_oneof![0..END, near(86_400), near(31_556_952), near(60)].prop_map(|second| second.min(END - 1))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

        /// `jiff` works dates out by itself. The same second comes again with other microseconds.
        #[test]
        fn any_time_is_as_another_library_writes_it(second in seconds(), nanos in prop::collection::vec(0..1_000_000_000_u32, 1..4)) {
            for nanos in nanos {
                let time = jiff::Timestamp::new(i64::try_from(second).unwrap(), i32::try_from(nanos).unwrap()).unwrap();
                prop_assert_eq!(text(after(second, nanos)).unwrap(), time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string());
            }
        }
    }
}
