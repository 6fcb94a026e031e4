//! Whole numbers beyond 64 bits. The parser makes floats of them, which silently changes their digits.

use super::scan::after_text;

/// The digits of the smallest whole numbers beyond 64 bits: -2^63 has 19.
const LONG: usize = 19;

/// The first whole number in the JSON text `bytes` that is below -2^63 or at least 2^64, as written.
#[must_use]
pub(crate) fn too_long(bytes: &[u8]) -> Option<&str> {
    if has_long_run(bytes) { Numbers::of(bytes).find(|number| is_too_long(number)) } else { None }
}

/// Whether so many digits follow each other anywhere, even inside a text. Checks one byte in 19 first: a run that is long
/// enough contains one of them.
fn has_long_run(bytes: &[u8]) -> bool {
    (LONG - 1..bytes.len()).step_by(LONG).any(|at| {
        let before = bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let from_here = bytes[at..].iter().take(LONG).take_while(|byte| byte.is_ascii_digit()).count();
        from_here > 0 && before + from_here >= LONG
    })
}

/// The numbers of a JSON text, as written.
#[derive(Debug)]
pub(super) struct Numbers<'a> {
    rest: &'a [u8],
}

impl<'a> Numbers<'a> {
    pub(super) const fn of(rest: &'a [u8]) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Numbers<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let start = self.rest.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))?;
            self.rest = &self.rest[start..];
            if self.rest[0] == b'"' {
                self.rest = after_text(&self.rest[1..]);
                continue;
            }
            let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
            let end = self.rest.iter().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
            let (number, after) = self.rest.split_at(end);
            self.rest = after;
            return std::str::from_utf8(number).ok();
        }
    }
}

fn is_too_long(number: &str) -> bool {
    let is_whole = !number.contains(['.', 'e', 'E']);
    is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_whole_numbers_beyond_64_bits_are_too_long() {
        for (text, found) in [
            ("18446744073709551616", Some("18446744073709551616")),
            ("-9223372036854775809", Some("-9223372036854775809")),
            (r#"{"a":[1,2.5,{"b":1180591620717411303425}]}"#, Some("1180591620717411303425")),
            (r#"["\"",1180591620717411303425]"#, Some("1180591620717411303425")),
            (r#"["\\",1180591620717411303425]"#, Some("1180591620717411303425")),
            ("[18446744073709551615,-9223372036854775808]", None),
            (r#"["1180591620717411303425","\"1180591620717411303425"]"#, None),
            (r#"{"1180591620717411303425":1}"#, None),
            ("[1180591620717411303425.0,1e30,1180591620717411303425e1]", None),
            ("", None),
            ("\"1180591620717411303425", None),
            ("\"1180591620717411303425\\", None),
        ] {
            assert_eq!(too_long(text.as_bytes()), found, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_has_its_digits(before in "[ ]{0,40}", digits in "-?[1-9][0-9]{0,40}", after in "[ ]{0,40}") {
            let text = format!("{before}{digits}{after}");
            let fits = digits.parse::<i64>().is_ok() || digits.parse::<u64>().is_ok();
            prop_assert_eq!(too_long(text.as_bytes()), (!fits).then_some(&*digits));
            if let Ok(read) = crate::document::parse(text.as_bytes()) {
                prop_assert_eq!(read.to_string(), digits);
            }
        }
    }
}
