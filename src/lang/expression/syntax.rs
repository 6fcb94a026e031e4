//! The messages of CEL's parser in plain words.

/// The parser's message in plain words.
pub(super) fn in_words(message: &str) -> String {
    let message = message
        .strip_prefix("Syntax error: ")
        .unwrap_or(message)
        .replace("'<EOF>'", "the end")
        .replace("<EOF>", "the end");
    let quoted = |text: &str| text.trim().replace('\'', "`");
    let one_of = |text: &str| match text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        Some(all) => format!("one of {}", quoted(all)),
        None => quoted(text),
    };
    let found = ["mismatched input ", "extraneous input "].iter().find_map(|start| message.strip_prefix(start));
    if let Some((found, expected)) = found.and_then(|rest| rest.split_once(" expecting ")) {
        // The list of all that can begin an expression says nothing.
        let is_long = expected.len() > 60;
        let expected = if is_long { "a value or a name".to_owned() } else { one_of(expected) };
        return format!("{} stands where {expected} is expected", quoted(found));
    }
    if let Some((missing, at)) = message.strip_prefix("missing ").and_then(|rest| rest.split_once(" at ")) {
        return format!("{} is missing before {}", quoted(missing), quoted(at));
    }
    match message.strip_prefix("no viable alternative at input ") {
        Some(text) => format!("{} does not continue to an expression", quoted(text)),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use crate::lang::expression::Expression;

    #[test]
    fn a_syntax_error_says_what_is_expected() {
        for (source, why) in [
            ("body.map(i, {'name': i.id)", "column 26: `)` stands where one of `}`, `,` is expected"),
            ("body.items[0", "column 13: `]` is missing before the end"),
            ("body.", "column "),
        ] {
            let error = Expression::compile(source).unwrap_err();
            assert!(
                error.starts_with(why) && !error.contains("EOF") && !error.contains("expecting"),
                "{source}: {error}"
            );
        }
    }
}
