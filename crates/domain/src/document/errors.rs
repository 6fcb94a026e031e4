//! Errors that a document reports beside its content: the keys `error` and `errors` at the top.

use super::Document;

/// The key at the top of `document` that reports an error, and its value. A blank value reports none: some sources always write
/// the key.
#[must_use]
pub fn reported_error<'d>(document: &'d Document<'_>) -> Option<(&'d str, &'d Document<'d>)> {
    let Document::Object(object) = document else { return None };
    object.iter().find(|(key, value)| is_error_key(key) && has_content(value))
}

/// Whether `key` is `error` or `errors`, in any case.
#[must_use]
pub fn is_error_key(key: &str) -> bool {
    ["error", "errors"].iter().any(|name| key.eq_ignore_ascii_case(name))
}

/// Whether `value` has any content. `null`, `false`, `0`, `""`, `[]` and `{}` do not.
#[must_use]
pub fn has_content(value: &Document<'_>) -> bool {
    match value {
        Document::Null | Document::Bool(false) => false,
        Document::Bool(true) => true,
        Document::Number(number) => number.as_f64() != Some(0.0),
        Document::Text(text) => !text.is_empty(),
        Document::List(items) => !items.is_empty(),
        Document::Object(object) => object.iter().len() > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::read;

    #[test]
    fn an_error_is_what_is_not_blank() {
        for blank in ["null", "false", "0", "0.0", "-0", "\"\"", "[]", "{}"] {
            for key in ["error", "errors", "Error"] {
                let document = format!("{{\"items\":[],\"{key}\":{blank}}}");
                assert_eq!(reported_error(&read(document.as_bytes()).unwrap()), None, "{document}");
            }
        }
        for value in ["true", "1", "-0.5", "\"down\"", "[null]", "[\"down\"]", "{\"message\":\"down\"}"] {
            for key in ["error", "errors", "Error", "ERRORS"] {
                let document = format!("{{\"items\":[{{}}],\"{key}\":{value}}}");
                let document = read(document.as_bytes()).unwrap();
                assert_eq!(reported_error(&document).map(|(key, _)| key), Some(key), "{document:?}");
            }
        }
        for other in [r#"[{"error":"down"}]"#, r#"{"item":{"error":"down"}}"#, r#"{"errored":1}"#, "\"error\""] {
            assert_eq!(reported_error(&read(other.as_bytes()).unwrap()), None, "{other}");
        }
    }
}
