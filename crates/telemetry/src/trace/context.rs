//! W3C Trace Context: the header `traceparent`. A `tracestate` is not passed on, since it concerns other systems.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

/// <https://www.w3.org/TR/trace-context-2/#traceparent-header>
pub const HEADER: HeaderName = HeaderName::from_static("traceparent");

/// The flag: the spans of this trace are kept.
const SAMPLED: u8 = 0b01;
/// The flag: the trace's id is random.
const RANDOM: u8 = 0b10;
/// The length of the fields of version 00.
const LENGTH: usize = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".len();

/// A span's ids: `00-<trace>-<span>-<flags>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceContext {
    /// The first span of a new trace.
    #[must_use]
    pub fn new(is_sampled: bool) -> Self {
        let flags = RANDOM | if is_sampled { SAMPLED } else { 0 };
        Self { trace: fastrand::u128(1..), span: fastrand::u64(1..), flags }
    }

    /// The context in `headers`. `None` if the header is repeated or malformed.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let header = headers.get(HEADER)?;
        let is_alone = headers.get_all(HEADER).iter().nth(1).is_none();
        is_alone.then(|| Self::parse(header.to_str().ok()?))?
    }

    /// Reads `version-trace-span-flags`. Later versions may append more.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (fields, rest) = text.split_at_checked(LENGTH)?;
        let mut fields = fields.split('-');
        let mut field = |length: usize| fields.next().filter(|field| field.len() == length).and_then(hex);
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let is_whole = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
        if !is_whole || version == 0xff || trace == 0 || span == 0 {
            return None;
        }
        let (span, flags) = (u64::try_from(span).ok()?, u8::try_from(flags).ok()?);
        Some(Self { trace, span, flags: flags & (SAMPLED | RANDOM) })
    }

    /// A span within this one.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: fastrand::u64(1..), ..self }
    }

    /// Whether the spans of this trace are kept.
    #[must_use]
    pub const fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace's id.
    #[must_use]
    pub const fn trace(self) -> [u8; 16] {
        self.trace.to_be_bytes()
    }

    /// The span's id.
    #[must_use]
    pub const fn span(self) -> [u8; 8] {
        self.span.to_be_bytes()
    }

    /// The flags as they are passed on.
    #[must_use]
    pub const fn flags(self) -> u8 {
        self.flags
    }

    /// The value of [`HEADER`].
    #[must_use]
    pub fn to_header(self) -> Option<HeaderValue> {
        self.to_string().try_into().ok()
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Lower-case hexadecimal digits, as the standard writes them.
fn hex(digits: &str) -> Option<u128> {
    let is_hex = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u128::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "12345678901234567890123456789012";
    const SPAN: &str = "1234567890123456";

    /// The cases of <https://github.com/w3c/trace-context/tree/main/test>, by their names there.
    #[test]
    fn what_is_not_as_the_standard_wants_it_is_none() {
        let zeros = "0".repeat(32);
        for (case, header) in [
            ("empty", String::new()),
            ("trace_id_all_zero", format!("00-{zeros}-{SPAN}-01")),
            ("trace_id_illegal_characters", format!("00-.2345678901234567890123456789012-{SPAN}-01")),
            ("trace_id_upper_case", format!("00-ABCDEF78901234567890123456789012-{SPAN}-01")),
            ("trace_id_too_long", format!("00-{TRACE}3-{SPAN}-01")),
            ("trace_id_too_short", format!("00-{}-{SPAN}-01", &TRACE[1..])),
            ("parent_id_all_zero", format!("00-{TRACE}-0000000000000000-01")),
            ("parent_id_illegal_characters", format!("00-{TRACE}-.234567890123456-01")),
            ("parent_id_too_long", format!("00-{TRACE}-{SPAN}7-01")),
            ("parent_id_too_short", format!("00-{TRACE}-{}-01", &SPAN[1..])),
            ("trace_flags_illegal_characters", format!("00-{TRACE}-{SPAN}-.0")),
            ("trace_flags_sign", format!("00-{TRACE}-{SPAN}-+1")),
            ("trace_flags_too_long", format!("00-{TRACE}-{SPAN}-001")),
            ("trace_flags_too_short", format!("00-{TRACE}-{SPAN}-1")),
            ("version_0x00 with more", format!("00-{TRACE}-{SPAN}-01.")),
            ("version_0x00 with a field more", format!("00-{TRACE}-{SPAN}-01-what-the-future-will-be-like")),
            ("version_0xcc without a dash", format!("cc-{TRACE}-{SPAN}-01.what-the-future-will-be-like")),
            ("version_0xff", format!("ff-{TRACE}-{SPAN}-01")),
            ("version_illegal_characters", format!(".0-{TRACE}-{SPAN}-01")),
            ("version_too_long", format!("000-{TRACE}-{SPAN}-01")),
            ("version_too_short", format!("0-{TRACE}-{SPAN}-01")),
            ("no_version", format!("{TRACE}-{SPAN}-01")),
            ("other_dashes", format!("00_{TRACE}_{SPAN}_01")),
            ("spaces", format!(" 00-{TRACE}-{SPAN}-01")),
            ("no_ascii", format!("00-{TRACE}-{SPAN}-é")),
            ("long", "0".repeat(10_000)),
        ] {
            assert_eq!(TraceContext::parse(&header), None, "{case}");
        }
    }

    #[test]
    fn what_is_passed_on_is_what_came() {
        for (header, passed) in [
            (format!("00-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-01")),
            (format!("00-{TRACE}-{SPAN}-00"), format!("00-{TRACE}-{SPAN}-00")),
            // Only known flags remain.
            (format!("00-{TRACE}-{SPAN}-ff"), format!("00-{TRACE}-{SPAN}-03")),
            // Of later versions, the part that version 00 has.
            (format!("cc-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-01")),
            (format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"), format!("00-{TRACE}-{SPAN}-01")),
        ] {
            assert_eq!(TraceContext::parse(&header).unwrap().to_string(), passed, "{header}");
        }
    }

    #[test]
    fn two_headers_are_none() {
        let (one, other) = (TraceContext::new(true), TraceContext::new(true));
        let headers = |all: &[TraceContext]| -> HeaderMap {
            all.iter().map(|context| (HEADER, context.to_header().unwrap())).collect()
        };
        assert_eq!(TraceContext::of(&headers(&[one])), Some(one));
        let mut both = headers(&[one]);
        both.append(HEADER, other.to_header().unwrap());
        assert_eq!(TraceContext::of(&both), None);
        assert_eq!(TraceContext::of(&headers(&[])), None);
    }

    #[test]
    fn new_ids_are_of_the_form_that_is_read() {
        for is_sampled in [true, false] {
            let root = TraceContext::new(is_sampled);
            assert_eq!((root.is_sampled(), TraceContext::parse(&root.to_string())), (is_sampled, Some(root)));
            let child = root.child();
            assert_eq!((child.trace(), child.flags()), (root.trace(), root.flags()));
            assert_ne!(child.span(), root.span());
        }
    }
}
