//! Durations and sizes as people write them: `30s`, `1h30m`, `64MiB`.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Unexpected, Visitor},
};

/// The end of a noun after `count`: `1 route`, `2 routes`.
#[must_use]
pub fn plural<N: From<u8> + PartialEq + Copy>(count: N) -> &'static str {
    if count == N::from(1) { "" } else { "s" }
}

/// A duration written as `500ms`, `30s`, `5m`, `24h` or a sum such as `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

/// The longest duration. Sums of it do not overflow.
const LONGEST: Duration = Duration::from_hours(365 * 24);

impl HumanDuration {
    /// `seconds` seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// Reads a text. The error for a bare number proposes a unit.
struct WithUnit {
    what: &'static str,
    /// The value with a unit that a bare number may stand for.
    likely: fn(f64) -> Option<String>,
    accepts: fn(&str) -> bool,
}

impl WithUnit {
    fn bare<T: Error>(&self, number: impl std::fmt::Display) -> T {
        let text = number.to_string();
        let likely = text.parse().ok().and_then(self.likely).filter(|likely| (self.accepts)(likely));
        T::custom(match likely {
            Some(likely) => format!("`{text}` has no unit: write {}, such as `{likely}`", self.what),
            None => format!("`{text}` is not {}", self.what),
        })
    }

    /// The value of `text`.
    fn read<T, E: Error>(&self, text: &str, parse: fn(&str) -> Result<T, String>) -> Result<T, E> {
        parse(text).map_err(|why| match text.parse::<f64>() {
            Ok(_) => self.bare(text),
            Err(_) => E::custom(format!("`{text}` is not {}{why}", self.what)),
        })
    }
}

impl<'de> Visitor<'de> for &WithUnit {
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

    /// `serde_json` hands over other numbers as objects with their text.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        match map.next_entry::<String, String>() {
            Ok(Some((_, text))) if text.parse::<f64>().is_ok() => Err(self.bare(text)),
            _ => Err(A::Error::invalid_type(Unexpected::Map, &self)),
        }
    }
}

const DURATION: WithUnit = WithUnit {
    what: "a duration with a unit, `ms`, `s`, `m`, `h` or `d`",
    likely: |number| {
        if number.fract() == 0.0 {
            Some(format!("{number}s"))
        } else {
            Some(format!("{}ms", (number * 1000.0).round()))
        }
    },
    accepts: |text| duration(text).is_ok(),
};

fn duration(text: &str) -> Result<HumanDuration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| format!(": {error}"))?;
    if duration > LONGEST {
        return Err(" up to 365 days".to_owned());
    }
    Ok(HumanDuration(duration))
}

/// The text to write instead of `text`, if it is a duration in months, by `M`. Minutes are meant, by `m`.
#[must_use]
pub fn months(text: &str) -> Option<String> {
    let (before, after) = text.split_once('M')?;
    let is_unit = before.trim_end().ends_with(|c: char| c.is_ascii_digit()) && !after.starts_with(char::is_alphabetic);
    let minutes = format!("{before}m{after}");
    (is_unit && duration(text).is_ok() && duration(&minutes).is_ok())
        .then(|| format!("write `{minutes}` for minutes, or days, such as `30d`"))
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(&DURATION)?;
        DURATION.read(&text, duration)
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
pub struct Percent(pub u8);

impl Percent {
    /// Whether `part` is more than this share of `whole`.
    #[must_use]
    pub const fn is_exceeded(self, part: usize, whole: usize) -> bool {
        part.saturating_mul(100) > whole.saturating_mul(self.0 as usize)
    }

    /// Whether the share is 100%, which nothing exceeds.
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
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
        let text = deserializer.deserialize_any(&SHARE)?;
        SHARE.read(&text, share)
    }
}

const SHARE: WithUnit = WithUnit {
    what: "a share in whole percent, from `0%` to `100%`",
    // `0.3` most likely is a fraction.
    likely: |number| Some(format!("{}%", if number.fract() == 0.0 { number } else { (number * 100.0).round() })),
    accepts: |text| share(text).is_ok(),
};

fn share(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
    number.filter(|number| *number <= 100).map(Percent).ok_or_else(String::new)
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
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` mebibytes.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }

    /// The size as an index; saturates on a 32-bit machine.
    #[must_use]
    pub fn as_usize(self) -> usize {
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
        let text = deserializer.deserialize_any(&SIZE)?;
        SIZE.read(&text, size)
    }
}

const SIZE: WithUnit = WithUnit {
    what: "a size with a unit, `KiB`, `MiB` or `GiB`",
    // Nobody means 64 bytes; large numbers are bytes.
    likely: |number| {
        let (number, unit) = match number {
            0.0..1024.0 => (number, "MiB"),
            0.0..1_048_576.0 => ((number / 1024.0).round(), "KiB"),
            _ => ((number / 1_048_576.0).round(), "MiB"),
        };
        Some(format!("{number}{unit}"))
    },
    accepts: |text| size(text).is_ok(),
};

fn size(text: &str) -> Result<ByteSize, String> {
    text.parse::<bytesize::ByteSize>().map(|size| ByteSize(size.as_u64())).map_err(|error| format!(": {error}"))
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
pub fn in_kib(bytes: f64, max: f64) -> Option<u32> {
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
        assert!(error.contains("`soon` is not a duration with a unit"), "{error}");
        let error = serde_json::from_str::<ByteSize>("\"big\"").unwrap_err().to_string();
        assert!(error.contains("`big` is not a size with a unit"), "{error}");
    }

    #[test]
    fn each_form_that_is_suggested_is_accepted() {
        fn suggested<T: for<'de> Deserialize<'de>>(written: &str) -> Option<String> {
            let Err(error) = serde_json::from_str::<T>(written) else { return None };
            let error = error.to_string();
            let (_, form) = error.split_once("such as `")?;
            let form = form.split('`').next().unwrap_or_default().to_owned();
            assert!(serde_json::from_str::<T>(&format!("\"{form}\"")).is_ok(), "{written}: {error}");
            Some(form)
        }
        let form = |text: &str| Some(text.to_owned());
        for number in
            ["0", "1", "30", "64", "0.3", "1.5", "-5", "100", "300", "65536", "1e300", "8388608", "\"60\"", "\"0.3\""]
        {
            let _ = (suggested::<HumanDuration>(number), suggested::<Percent>(number), suggested::<ByteSize>(number));
        }
        assert_eq!(suggested::<HumanDuration>("60"), form("60s"));
        assert_eq!(suggested::<HumanDuration>("0.5"), form("500ms"));
        assert_eq!(suggested::<HumanDuration>("-1"), None);
        assert_eq!(suggested::<Percent>("0.3"), form("30%"));
        assert_eq!(suggested::<Percent>("30"), form("30%"));
        assert_eq!(suggested::<Percent>("300"), None);
        assert_eq!(suggested::<ByteSize>("64"), form("64MiB"));
        assert_eq!(suggested::<ByteSize>("65536"), form("64KiB"));
        assert_eq!(suggested::<ByteSize>("8388608"), form("8MiB"));
    }

    #[test]
    fn months_are_not_meant() {
        assert_eq!(months("5M").as_deref(), Some("write `5m` for minutes, or days, such as `30d`"));
        assert!(months("1h 5M").is_some());
        for fine in ["5m", "5min", "Monday", "5 Mx", "M", "64MiB"] {
            assert_eq!(months(fine), None, "{fine}");
        }
    }
}
