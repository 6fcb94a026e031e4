//! Durations and sizes as people write them: `30s`, `1h30m`, `64MiB`.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// The end of a noun after `count`: `1 route`, `2 routes`.
#[must_use]
pub(crate) fn plural<N: From<u8> + PartialEq + Copy>(count: N) -> &'static str {
    if count == N::from(1) { "" } else { "s" }
}

/// A duration written as `500ms`, `30s`, `5m`, `24h` or a sum such as `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HumanDuration(pub(crate) Duration);

/// The longest duration. Sums of it do not overflow.
const LONGEST: Duration = Duration::from_hours(365 * 24);

impl HumanDuration {
    /// `seconds` seconds.
    #[must_use]
    pub(crate) const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// Reads a text, and tells whoever wrote a bare number to add the unit.
struct WithUnit {
    what: &'static str,
    unit: &'static str,
}

impl WithUnit {
    fn bare<T: Error>(&self, number: impl std::fmt::Display) -> T {
        T::custom(format!("`{number}` has no unit: write `{number}{}`, or {}", self.unit, self.what))
    }
}

impl Visitor<'_> for WithUnit {
    type Value = String;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Err(self.bare(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Err(self.bare(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Err(self.bare(number))
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text =
            deserializer.deserialize_any(WithUnit { what: "a duration such as `500ms`, `30s` or `5m`", unit: "s" })?;
        let duration = humantime::parse_duration(&text).map_err(|error| {
            let example = format!("`{text}` is not a duration such as `500ms`, `30s` or `5m`");
            let has_no_unit = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            D::Error::custom(if has_no_unit {
                format!("{example}: it has no unit; {text} seconds are `{text}s`")
            } else {
                format!("{example}: {error}")
            })
        })?;
        if duration > LONGEST {
            return Err(D::Error::custom(format!("`{text}` is longer than 365 days")));
        }
        Ok(Self(duration))
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.to_string().replace(' ', ""))
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration: `500ms`, `30s`, `5m`, `24h`, or a sum such as `1h30m`.",
            "examples": ["30s", "5m"],
        })
    }
}

/// A share written as `30%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Percent(pub(crate) u8);

impl Percent {
    /// Whether `part` is more than this share of `whole`.
    #[must_use]
    pub(crate) const fn is_exceeded(self, part: usize, whole: usize) -> bool {
        part.saturating_mul(100) > whole.saturating_mul(self.0 as usize)
    }

    /// Whether the share is 100%, which nothing exceeds.
    #[must_use]
    pub(crate) const fn is_unlimited(self) -> bool {
        self.0 >= 100
    }
}

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(WithUnit { what: "a share such as `30%`", unit: "%" })?;
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
        number
            .filter(|number| *number <= 100)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a share from `0%` to `100%`")))
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(100|[0-9]{1,2}) *%$",
            "description": "A share from `0%` to `100%`.",
            "examples": ["30%"],
        })
    }
}

/// A number of bytes written as `64KiB`, `64MiB` or `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ByteSize {
    /// `n` mebibytes.
    #[must_use]
    pub(crate) const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }

    /// The size as an index; saturates on a 32-bit machine.
    #[must_use]
    pub(crate) fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        bytesize::ByteSize(self.0).display().iec().fmt(f)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(WithUnit { what: "a size such as `512KiB` or `64MiB`", unit: "B" })?;
        text.parse::<bytesize::ByteSize>()
            .map(|size| Self(size.as_u64()))
            .map_err(|error| D::Error::custom(format!("`{text}` is not a size such as `512KiB` or `64MiB`: {error}")))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.to_string().replace(' ', "").replace(".0", ""))
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A size in bytes: `512KiB`, `64MiB`, `1GiB`.",
            "examples": ["64MiB"],
        })
    }
}

/// `bytes` in KiB, rounded up. `None` if they are more than `max`, or not a number.
#[must_use]
pub(crate) fn in_kib(bytes: f64, max: f64) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between nothing and `max`")]
    (bytes <= max).then(|| (bytes / 1024.0).ceil() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_round_trip() {
        let duration: HumanDuration = serde_json::from_str("\"1h 30m\"").unwrap();
        assert_eq!(duration.0, Duration::from_mins(90));
        assert_eq!(serde_json::to_string(&duration).unwrap(), "\"1h30m\"");
        let size: ByteSize = serde_json::from_str("\"64MiB\"").unwrap();
        assert_eq!(size.0, 64 << 20);
        assert_eq!(serde_json::to_string(&size).unwrap(), "\"64MiB\"");
    }

    #[test]
    fn nonsense_names_what_is_expected() {
        let error = serde_json::from_str::<HumanDuration>("\"soon\"").unwrap_err().to_string();
        assert!(error.contains("`soon` is not a duration such as"), "{error}");
        let error = serde_json::from_str::<ByteSize>("\"big\"").unwrap_err().to_string();
        assert!(error.contains("`big` is not a size such as"), "{error}");
    }
}
