//! Texts, times and numbers as people read them.

use std::time::{Duration, UNIX_EPOCH};

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use domain::{clock::Timestamp, generator::Parameters, visible::is_hidden};

/// The longest document that is shown whole, in characters.
const MAX_DOCUMENT: usize = 32 * 1024;
/// The characters that a segment of a path may contain unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A text from outside. Characters that cannot be seen, or that change the direction of others, are shown by their code.
pub(super) fn outside(text: &str) -> Markup {
    html! {
        bdi {
            @for part in text.split_inclusive(is_hidden) {
                @match part.chars().next_back().filter(|last| is_hidden(*last)) {
                    Some(hidden) => {
                        (part[..part.len() - hidden.len_utf8()])
                        span.hidden-character title="a character that cannot be seen" { (hidden.escape_unicode()) }
                    }
                    None => (part),
                }
            }
        }
    }
}

/// A message, in which names of keys and values are between backticks. These are shown as code.
pub(super) fn prose(text: &str) -> Markup {
    let is_paired = text.matches('`').count().is_multiple_of(2);
    html! {
        @if is_paired {
            @for (index, part) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (outside(part)) } } @else if !part.is_empty() { (outside(part)) }
            }
        } @else { (outside(text)) }
    }
}

/// The time of day in UTC, with the date if it is not that of `now`.
pub(super) fn moment(now: Timestamp, then: Timestamp) -> Markup {
    let (date, today) = (then.to_date(), now.to_date());
    let (day, time) = date.split_once('T').unwrap_or(("", &date));
    let minute = time.get(..5).unwrap_or(time);
    html! { time datetime=(date) title=(date) { @if !today.starts_with(day) { (day) " " } (minute) " UTC" } }
}

/// `text` as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// A moment, as the time that has passed since.
pub(super) fn ago(now: Timestamp, then: Timestamp) -> Markup {
    let words = match now.since(then) {
        Some(passed) if passed < Duration::from_secs(1) => "just now".to_owned(),
        Some(passed) => format!("{} ago", duration(passed)),
        None => then.to_date(),
    };
    html! { time datetime=(then.to_date()) title=(then.to_date()) { (words) } }
}

/// A moment that a view has as text, as the time that has passed since.
pub(super) fn since(now: Timestamp, date: &str) -> Markup {
    timestamp(date).map_or_else(|| outside(date), |then| ago(now, then))
}

/// A moment that a view has as text.
pub(super) fn timestamp(date: &str) -> Option<Timestamp> {
    let passed = humantime::parse_rfc3339(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)))
}

/// Milliseconds, as a person reads them.
pub(super) fn milliseconds(length: f64) -> String {
    match length {
        length if length < 10.0 => format!("{length:.1} ms"),
        length if length < 1000.0 => format!("{length:.0} ms"),
        length => format!("{:.1} s", length / 1000.0),
    }
}

/// A document of several lines, of which only the beginning is shown if it is long.
pub(super) fn document(text: &str) -> Markup {
    let shown: String = text.chars().take(MAX_DOCUMENT).collect();
    html! {
        pre.document tabindex="0" {
            @for (index, line) in shown.trim_end_matches('\n').split('\n').enumerate() {
                @if index > 0 { "\n" }
                (outside(line))
            }
        }
        @if shown.len() < text.len() { p.quiet { "Only the beginning is shown; the command line has it all." } }
    }
}

/// A JSON document.
pub(super) fn json(value: &Value) -> Markup {
    document(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// A duration in its two largest units.
pub(super) fn duration(length: Duration) -> String {
    let seconds = length.as_secs();
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |large: u64, unit: &str, small: u64, other: &str| {
        if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {other}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 => format!("{} ms", length.as_millis()),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, 1..=9) => two(minutes, "min", seconds % 60, "s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => two(hours, "h", minutes, "min"),
        _ => two(days, "d", hours, "h"),
    }
}

/// `1 route`, `2 routes`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Names and values.
pub(super) fn parameters(parameters: &Parameters) -> Markup {
    html! {
        @if parameters.is_empty() {
            span.quiet { "no parameters" }
        } @else {
            ul.parameters {
                @for (name, value) in parameters {
                    li { span.name { (outside(name)) } span.equals { "=" } span.value { (value_of(value)) } }
                }
            }
        }
    }
}

/// A JSON value; a text without quotation marks.
pub(super) fn value_of(value: &Value) -> Markup {
    match value {
        Value::String(text) => outside(text),
        other => outside(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_shows_no_backticks() {
        let drawn = |text: &str| prose(text).into_string().replace("<bdi>", "").replace("</bdi>", "");
        assert_eq!(drawn("more than `guard.maxShrink: 30%`"), "more than <code>guard.maxShrink: 30%</code>");
        assert_eq!(drawn("`a` and `<b>`"), "<code>a</code> and <code>&lt;b&gt;</code>");
        assert_eq!(drawn("one ` only"), "one ` only");
    }

    #[test]
    fn a_moment_has_the_date_if_it_is_another_day() {
        let (now, hour) = (Timestamp(1_700_000_000_000), 3_600_000);
        let drawn = |then: u64| moment(now, Timestamp(then)).into_string();
        assert!(drawn(now.0 + hour / 6).ends_with(">22:23 UTC</time>"), "{}", drawn(now.0 + hour / 6));
        assert!(drawn(now.0 + 4 * hour).ends_with(">2023-11-15 02:13 UTC</time>"), "{}", drawn(now.0 + 4 * hour));
    }

    #[test]
    fn hostile_text_is_only_text() {
        let drawn = |text: &str| outside(text).into_string();
        assert_eq!(drawn("a<b>&\"'"), "<bdi>a&lt;b&gt;&amp;&quot;'</bdi>");
        let hidden = "<span class=\"hidden-character\" title=\"a character that cannot be seen\">";
        assert_eq!(drawn("a\u{202e}b\0"), format!("<bdi>a{hidden}\\u{{202e}}</span>b{hidden}\\u{{0}}</span></bdi>"));
        assert_eq!(drawn(""), "<bdi></bdi>");
        for character in ['\n', '\u{7f}', '\u{9b}', '\u{200b}', '\u{2066}', '\u{feff}', '\u{e0041}'] {
            assert!(!drawn(&format!("x{character}y")).contains(character), "{character:?}");
        }
        assert_eq!(drawn("grün 日本 👍🏽"), "<bdi>grün 日本 👍🏽</bdi>");
    }

    #[test]
    fn no_text_leaves_its_segment() {
        assert_eq!(segment("a/../b?c#d e%\"<"), "a%2F%2E%2E%2Fb%3Fc%23d%20e%25%22%3C");
        assert_eq!(segment(".."), "%2E%2E");
    }

    #[test]
    fn durations_have_two_units() {
        let shown = |seconds| duration(Duration::from_secs(seconds));
        let all = [1, 59, 60, 61, 600, 601, 3600, 3660, 86_400, 90_000].map(shown);
        assert_eq!(
            all,
            ["1 s", "59 s", "1 min", "1 min 1 s", "10 min", "10 min", "1 h", "1 h 1 min", "1 d", "1 d 1 h"]
        );
        assert_eq!(duration(Duration::from_millis(7)), "7 ms");
    }

    #[test]
    fn a_moment_is_the_time_since() {
        let at = Timestamp(1_700_000_000_000);
        assert!(ago(at.plus(Duration::from_mins(5)), at).into_string().ends_with(">5 min ago</time>"));
        assert!(ago(at, at.plus(Duration::from_secs(9))).into_string().contains(">2023-11-14T22:13:29Z</time>"));
    }

    #[test]
    fn values_are_readable() {
        let Value::Object(set) = json!({"branch": "<x>", "n": 1}) else { panic!() };
        let drawn = parameters(&set).into_string();
        assert!(drawn.contains("<bdi>&lt;x&gt;</bdi>") && drawn.contains("<bdi>1</bdi>"), "{drawn}");
    }
}
