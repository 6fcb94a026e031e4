//! Counts the placeholders of a query, so that a missing or a superfluous value is found before the first call.

/// How many values `query` needs. `is_numbered`: placeholders are `$1`, `$2` … (PostgreSQL), else `?` (MySQL). Those in texts, quoted names and
/// comments do not count.
pub(super) fn count(query: &str, is_numbered: bool) -> usize {
    let bytes = query.as_bytes();
    let (mut at, mut found) = (0, 0);
    while at < bytes.len() {
        let rest = &query.as_bytes()[at..];
        at += match rest {
            [quote @ (b'\'' | b'"' | b'`'), ..] => quoted(rest, *quote, !is_numbered),
            [b'-', b'-', ..] => line(rest),
            [b'#', ..] if !is_numbered => line(rest),
            [b'/', b'*', ..] => find(rest, b"*/").map_or(rest.len(), |end| end + 2),
            [b'?', ..] if !is_numbered => {
                found += 1;
                1
            }
            [b'$', digits @ ..] if is_numbered => {
                let length = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
                let number = std::str::from_utf8(&digits[..length]).ok().and_then(|digits| digits.parse().ok());
                found = found.max(number.unwrap_or(0));
                1 + length
            }
            _ => 1,
        };
    }
    found
}

/// The length of the quoted text at the beginning of `text`. A doubled quote is two texts side by side, which has the same effect.
fn quoted(text: &[u8], quote: u8, has_escapes: bool) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' if has_escapes => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_counted_outside_of_texts_and_comments() {
        for (query, numbered, marked) in [
            ("select 1", 0, 0),
            ("select a from t where b = $1 and c = $2 and d = $1", 2, 0),
            ("select a from t where b = ? and c = ?", 0, 2),
            ("select '$1 ?', \"$2?\" from t -- $3 ?\nwhere a = $1", 1, 0),
            ("select `?`, 'it\\'s ?' from t # ?\nwhere a = ?", 0, 1),
            ("select 'it''s $1' /* $2 ? */ from t where a in ($10)", 10, 0),
            ("select $", 0, 0),
            ("select 'open $1 ?", 0, 0),
            ("select /* open ?", 0, 0),
        ] {
            assert_eq!(count(query, true), numbered, "{query}");
            assert_eq!(count(query, false), marked, "{query}");
        }
    }
}
