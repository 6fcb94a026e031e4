//! Counts the values of a JSON text without building them in memory.

/// The number of values, lists and objects included. For a text that is not JSON, any number.
pub(super) fn values(mut bytes: &[u8]) -> usize {
    let mut values = 1;
    while let Some(at) = bytes.iter().position(|byte| matches!(byte, b'"' | b',' | b'[' | b'{')) {
        let (is_text, after) = (bytes[at] == b'"', &bytes[at + 1..]);
        // Each value except the outermost follows a comma, or is the first of a list or object, which may be empty.
        let is_empty = after.trim_ascii_start().starts_with(b"]") || after.trim_ascii_start().starts_with(b"}");
        values += usize::from(!is_text && !is_empty);
        bytes = if is_text { after_text(after) } else { after };
    }
    values
}

/// The bytes after the closing quote of the text at the start of `bytes`. Empty if there is none.
pub(super) fn after_text(mut bytes: &[u8]) -> &[u8] {
    while let Some(at) = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        if bytes[at] == b'"' {
            return &bytes[at + 1..];
        }
        bytes = bytes.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_counted_once() {
        for (text, count) in [
            ("1", 1),
            ("[]", 1),
            ("[ ]", 1),
            ("{}", 1),
            ("[1]", 2),
            ("[1,[2,3],{}]", 6),
            (r#"{"a":1,"b":[],"c":{"d":null}}"#, 5),
            (r#"["a,b","[{\",",1]"#, 4),
            (r#""a,b""#, 1),
        ] {
            assert_eq!(values(text.as_bytes()), count, "{text}");
        }
    }
}
