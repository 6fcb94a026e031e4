//! Numbers with the text in which they were written. `serde_json` keeps that text (its feature `arbitrary_precision`), except for
//! exponents, which it writes in its own form: it reads `7222E2` as `7222e+2`. A name may be made of such a number, so the text
//! itself is taken from the document.

use std::cell::{Cell, RefCell};

use serde::de::Error;
use serde_json::Number;

use super::digits::Numbers;

/// The key under which `serde_json` hands over a number that is not a whole number of 64 bits, as if it were an object.
pub const TOKEN: &str = "$serde_json::private::Number";

/// The numbers of one JSON text while it is read.
#[derive(Debug)]
pub struct WrittenNumbers<'a> {
    /// Those with an exponent that were not read yet, in their order.
    exponents: RefCell<Numbers<'a>>,
    /// Whether the last value that was read under [`TOKEN`] was a number. An object of the text may have a key of this name too.
    is_number: Cell<bool>,
}

impl<'a> WrittenNumbers<'a> {
    /// Those of `bytes`.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { exponents: RefCell::new(Numbers::of(bytes)), is_number: Cell::new(false) }
    }

    /// The next number, which `serde_json` read as `text`.
    ///
    /// # Errors
    /// When it is beyond the range of a float.
    pub fn next<E: Error>(&self, mut text: String) -> Result<Number, E> {
        self.is_number.set(true);
        if text.contains('e') {
            let written = self.exponents.borrow_mut().find(|number| number.contains(['e', 'E']));
            written.ok_or_else(|| E::custom("a number that is not in the text"))?.clone_into(&mut text);
        }
        let is_finite = text.parse::<f64>().is_ok_and(f64::is_finite);
        if is_finite { Ok(Number::from_string_unchecked(text)) } else { Err(E::custom("number out of range")) }
    }

    /// Whether a number was read since the last call of this function.
    pub fn took_number(&self) -> bool {
        self.is_number.replace(false)
    }
}

/// Reads a number as JSON writes numbers, and keeps its text.
#[must_use]
pub fn written(text: &str) -> Option<Number> {
    match super::parse(text.as_bytes()) {
        Ok(serde_json::Value::Number(number)) if number.as_str() == text => Some(number),
        _ => None,
    }
}

/// Whether a reader that makes a float64 of `number`, as Argo CD does, still has all its digits.
#[must_use]
pub fn fits_float(number: &Number) -> bool {
    let float = number.as_f64().map(|float| format!("{float:e}"));
    float.is_some_and(|float| decimal(&float) == decimal(number.as_str()))
}

/// The significant digits of a JSON number, and the power of ten of the last one. Zero has no digits.
fn decimal(text: &str) -> (String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let dropped = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0').to_owned();
    if significant.is_empty() {
        return (significant, 0);
    }
    let power = exponent.parse::<i64>().unwrap_or(i64::MAX);
    let places = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    (significant, power.saturating_add(places(dropped)).saturating_sub(places(fraction.len())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::document::{Document, parse, read, read_back};

    #[test]
    fn a_number_keeps_its_text() {
        for text in [
            "1.10",
            "1.0",
            "0.00",
            "-0",
            "-0.0",
            "7222e2",
            "7222E2",
            "1e+06",
            "1E-5",
            "0.00001",
            "1e5",
            "100000.0",
            "1.5e300",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1234567890123456789",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().to_string(), text);
            let nested = format!(r#"{{"a":[1,{text},"1E9",{{"1e7":{text}}}],"b":{text}}}"#);
            assert_eq!(parse(nested.as_bytes()).unwrap().to_string(), nested);
            assert_eq!(read_back(nested.as_bytes()).unwrap().to_string(), nested);
            assert_eq!(written(text).unwrap().as_str(), text);
        }
        for text in ["1e999", "-1e999"] {
            assert!(parse(text.as_bytes()).unwrap_err().to_string().contains("number out of range"), "{text}");
        }
        for text in ["01", "+1", ".5", "1.", "0x1F", "1_000", " 1", "1 ", "", "x", "\"1\"", "1e", "--1"] {
            assert_eq!(written(text), None, "{text}");
        }
    }

    #[test]
    fn a_float_has_all_digits_or_not() {
        for (text, fits) in [
            ("1.10", true),
            ("7222E2", true),
            ("-0.00", true),
            ("0", true),
            ("-0", true),
            ("1e300", true),
            ("100", true),
            ("1e-7", true),
            ("9007199254740992", true),
            ("9007199254740993", false),
            ("18446744073709551615", false),
            ("0.1", true),
            ("0.30000000000000004", true),
            ("0.3000000000000000001", false),
            ("-12.50e1", true),
            ("123456789012345678", false),
        ] {
            assert_eq!(fits_float(&written(text).unwrap()), fits, "{text}");
        }
    }

    /// `serde_json` takes such an object for a number. A source may write one.
    #[test]
    fn an_object_is_no_number() {
        for text in [
            r#"{"$serde_json::private::Number":"1.5"}"#,
            r#"{"$serde_json::private::Number":"1e5"}"#,
            r#"{"$serde_json::private::Number":1e5}"#,
            r#"{"$serde_json::private::Number":7,"x":1e5}"#,
            r#"{"$serde_json::private::Number":{"x":1E5}}"#,
            r#"{"$serde_json::private::Number":[1E5],"$":"x"}"#,
        ] {
            let document = read(text.as_bytes()).unwrap();
            assert!(matches!(document, Document::Object(_)), "{text}: {document:?}");
            assert_eq!(serde_json::Value::from(document).to_string(), text);
        }
        let twice = br#"{"$serde_json::private::Number":1.5,"$serde_json::private::Number":2}"#;
        assert!(read(twice).unwrap_err().to_string().contains("stands twice"));
    }

    proptest! {
        #[test]
        fn every_number_of_a_document_keeps_its_text(
            numbers in prop::collection::vec(r"-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?", 0..8),
            texts in prop::collection::vec(r#"[0-9eE.,:\[\]{}"\\-]{0,8}"#, 8),
        ) {
            let items = numbers.iter().zip(&texts).map(|(number, text)| format!(r"{{{}:{number}}}", json!(text)));
            let document = format!("[{}]", items.collect::<Vec<_>>().join(","));
            prop_assert_eq!(parse(document.as_bytes()).unwrap().to_string(), document);
        }
    }
}
