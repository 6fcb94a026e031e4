//! `expires_in`: how long a token lasts, as token servers write it.

use std::time::Duration;

use serde::Deserialize;

/// The seconds for which a token lasts (RFC 6749, section 5.1), if the server names them. Some servers write the number as text.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ExpiresIn(Option<Written>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Written {
    /// A `f64` would not be found behind `untagged`: `serde_json` keeps numbers as texts.
    Number(serde_json::Number),
    Text(String),
}

impl ExpiresIn {
    /// The time. `None` if the server names none.
    ///
    /// # Errors
    /// When it names something else. The text names it.
    pub fn time(self) -> Result<Option<Duration>, &'static str> {
        let seconds = match self.0 {
            None => return Ok(None),
            Some(Written::Number(seconds)) => seconds.as_f64().unwrap_or(f64::INFINITY),
            Some(Written::Text(text)) if text.trim().is_empty() => return Ok(None),
            Some(Written::Text(text)) => text.trim().parse().map_err(|_| "`expires_in` is not a number")?,
        };
        Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| "`expires_in` is not a time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_or_its_text() {
        let read = |json: &str| serde_json::from_str::<ExpiresIn>(json).unwrap().time();
        for (json, seconds) in [
            ("3599", Some(3599.0)),
            ("\"3599\"", Some(3599.0)),
            ("\" 3599 \"", Some(3599.0)),
            ("3599.5", Some(3599.5)),
            ("\"3599.5\"", Some(3599.5)),
            ("3.6e3", Some(3600.0)),
            ("0", Some(0.0)),
            ("null", None),
            ("\"\"", None),
        ] {
            assert_eq!(read(json), Ok(seconds.map(Duration::from_secs_f64)), "{json}");
        }
        for (json, says) in [
            ("\"soon\"", "not a number"),
            ("-1", "not a time"),
            ("\"-1\"", "not a time"),
            ("1e300", "not a time"),
            ("\"NaN\"", "not a time"),
        ] {
            assert!(read(json).unwrap_err().contains(says), "{json}");
        }
    }
}
