//! Times and durations as whole seconds, for both languages, so that they are numbers in each: to compare, to add, and to send to an evaluator.

use jiff::Timestamp;

/// Why a text is not a time or a duration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimeError {
    /// It is not a time.
    #[error("`{text}` is not a time of RFC 3339, such as `2026-01-31T12:00:00Z`: {cause}")]
    Timestamp {
        /// The beginning of the text.
        text: String,
        /// Why it is none.
        #[source]
        cause: jiff::Error,
    },
    /// It is not a duration.
    #[error("`{text}` is not a duration, such as `36h`, `1h 30m` or `14d`: {cause}")]
    Duration {
        /// The beginning of the text.
        text: String,
        /// Why it is none.
        #[source]
        cause: humantime::DurationError,
    },
    /// It is longer than all time.
    #[error("`{0}` is too long a duration")]
    TooLong(String),
    /// There is no date for so many seconds.
    #[error("{0} seconds since 1970 are no date: {1}")]
    NoDate(i64, #[source] jiff::Error),
}

/// The seconds since 1970 at the time `text` (RFC 3339), rounded down.
///
/// # Errors
/// When it is not a time with its offset.
pub(crate) fn timestamp(text: &str) -> Result<i64, TimeError> {
    let time: Timestamp = text.trim().parse().map_err(|cause| TimeError::Timestamp { text: shown(text), cause })?;
    Ok(time.as_millisecond().div_euclid(1000))
}

/// The seconds of the duration `text`, written as in the configuration, rounded down.
///
/// # Errors
/// When it is not a duration.
pub(crate) fn duration(text: &str) -> Result<i64, TimeError> {
    let duration = humantime::parse_duration(text.trim());
    let duration = duration.map_err(|cause| TimeError::Duration { text: shown(text), cause })?;
    i64::try_from(duration.as_secs()).map_err(|_| TimeError::TooLong(shown(text)))
}

/// The time `seconds` after 1970, as RFC 3339 has it in UTC.
///
/// # Errors
/// When the year has more than four digits.
pub(crate) fn date(seconds: i64) -> Result<String, TimeError> {
    Ok(Timestamp::from_second(seconds).map_err(|cause| TimeError::NoDate(seconds, cause))?.to_string())
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-01T00:00:00Z", 1_767_225_600),
            ("2026-01-01T02:00:00.999+02:00", 1_767_225_600),
            ("1969-12-31T23:59:59.5Z", -1),
        ] {
            assert_eq!(timestamp(text).unwrap(), seconds, "{text}");
        }
        assert_eq!(date(1_767_225_600).unwrap(), "2026-01-01T00:00:00Z");
        for bad in ["", "2026-01-01", "2026-01-01T00:00:00", "yesterday", "1767225600", "2026-02-30T00:00:00Z"] {
            assert!(timestamp(bad).unwrap_err().to_string().contains("is not a time of RFC 3339"), "{bad}");
        }
        assert!(date(i64::MAX).unwrap_err().to_string().contains("are no date"));
    }

    #[test]
    fn durations_are_seconds() {
        for (text, seconds) in
            [("90s", 90), ("1h30m", 5400), ("14d", 1_209_600), ("1500ms", 1), ("1.5h", 5400), ("0s", 0)]
        {
            assert_eq!(duration(text).unwrap(), seconds, "{text}");
        }
        for bad in ["", "7", "-1h", "soon"] {
            assert!(duration(bad).unwrap_err().to_string().contains("is not a duration"), "{bad}");
        }
    }
}
