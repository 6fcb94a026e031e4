//! The deadline of a call: `grpc-timeout` (PROTOCOL-HTTP2.md).

use std::time::Duration;

/// A call's time, if `text` is a valid timeout: at most eight digits and a unit.
#[must_use]
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read() {
        for (text, time) in [
            ("1H", Some(Duration::from_hours(1))),
            ("90S", Some(Duration::from_secs(90))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("5m", Some(Duration::from_millis(5))),
            ("100000000u", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("1ä", None),
            ("1s", None),
        ] {
            assert_eq!(parse(text), time, "{text}");
        }
    }
}
