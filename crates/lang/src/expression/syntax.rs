//! The errors of CEL's parser in plain words, each with its place and the probable meaning.

use std::fmt;

use domain::problem::{Path, Problems};

/// Why a text is not an expression.
#[derive(Debug)]
pub struct SyntaxError {
    /// The character at which it is wrong, from 0; `None` if it is wrong as a whole.
    at: Option<usize>,
    message: String,
    help: Option<String>,
}

impl SyntaxError {
    pub(super) const fn whole(message: String) -> Self {
        Self { at: None, message, help: None }
    }

    /// Notes it for the expression at `path`.
    pub(super) fn note(self, path: &Path, problems: &mut Problems) {
        match (self.at, &self.help) {
            (None, _) => problems.error(path, self.message),
            (Some(at), help) => problems.error_within(path, at, self.placed(), help.clone()),
        }
    }

    /// The message with the place.
    fn placed(&self) -> String {
        let place = self.at.map(|at| format!("column {}: ", at + 1)).unwrap_or_default();
        format!("{place}{}", self.message)
    }
}

impl std::error::Error for SyntaxError {}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.placed())?;
        self.help.iter().try_for_each(|help| write!(f, " ({help})"))
    }
}

/// The first of the parser's `errors`, each with its line and column from 1. Those that follow are most often consequences.
pub(super) fn explain(source: &str, errors: &[((isize, isize), &str)]) -> SyntaxError {
    if source.trim().is_empty() {
        return SyntaxError::whole("the expression is empty".to_owned());
    }
    let errors = errors.iter().map(|(place, message)| (offset(source, *place), *message));
    // It only repeats that a part of the expression is missing.
    let first = errors.clone().filter(|(_, message)| !message.starts_with("Incomplete ")).min_by_key(|(at, _)| *at);
    let Some((at, message)) = first.or_else(|| errors.clone().next()) else {
        return SyntaxError::whole("it is not an expression".to_owned());
    };
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let is_dot = message.starts_with("no viable alternative at input '.");
    let (before, rest) = split(source, at);
    let message = if is_dot { "a name is expected after the `.`".to_owned() } else { in_words(message, rest) };
    SyntaxError { at: Some(at), message, help: meant(source, before, rest, is_dot) }
}

/// The characters before the place, from 0.
fn offset(source: &str, (line, column): (isize, isize)) -> usize {
    let [line, column] = [line, column].map(|number| usize::try_from(number - 1).unwrap_or_default());
    source.split_inclusive('\n').take(line).map(|line| line.chars().count()).sum::<usize>() + column
}

fn split(source: &str, at: usize) -> (&str, &str) {
    source.split_at(source.char_indices().nth(at).map_or(source.len(), |(offset, _)| offset))
}

/// The parser's message in plain words. `rest` begins at its place.
fn in_words(message: &str, rest: &str) -> String {
    if message.starts_with("token recognition error") {
        return match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => format!("the text that begins with this `{quote}` has no end"),
            Some(c) => format!("`{}` cannot stand here", c.escape_debug()),
            None => "something is missing at the end".to_owned(),
        };
    }
    let found = ["mismatched input ", "extraneous input "].iter().find_map(|start| message.strip_prefix(start));
    if let Some((found, expected)) = found.and_then(|rest| rest.split_once(" expecting ")) {
        // The list of all that can begin an expression says nothing.
        let expected = if expected.len() > 60 { "a value or a name".to_owned() } else { tokens(expected) };
        return format!("{} stands where {expected} is expected", token(found));
    }
    if let Some((missing, at)) = message.strip_prefix("missing ").and_then(|rest| rest.split_once(" at ")) {
        return format!("{} is missing before {}", token(missing), token(at));
    }
    if let Some(word) = message.strip_prefix("reserved identifier: ") {
        return format!("`{word}` is a reserved word and cannot be a name");
    }
    match message.strip_prefix("no viable alternative at input ") {
        Some(text) => format!("{} does not continue to an expression", token(text)),
        None => message.to_owned(),
    }
}

/// A token of the grammar as a person would call it.
fn token(text: &str) -> String {
    match text.trim() {
        "<EOF>" | "'<EOF>'" => "the end".to_owned(),
        "IDENTIFIER" | "ESC_IDENTIFIER" => "a name".to_owned(),
        "STRING" | "BYTES" => "a text".to_owned(),
        "NUM_INT" | "NUM_UINT" | "NUM_FLOAT" => "a number".to_owned(),
        text => {
            let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text);
            format!("`{inner}`")
        }
    }
}

/// A set of tokens, such as `{'}', ','}`.
fn tokens(text: &str) -> String {
    let Some(all) = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')) else { return token(text) };
    // A comma may be one of them.
    let mut names: Vec<String> =
        all.replace("','", "'\u{0}'").split(", ").map(|each| token(&each.replace('\u{0}', ","))).collect();
    names.dedup();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => token(text),
    }
}

/// The probable meaning of the expression that is wrong between `before` and `rest`.
fn meant(source: &str, before: &str, rest: &str, is_dot: bool) -> Option<String> {
    let last = last_word(before);
    let next: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let help = match (last, &*next) {
        _ if source.trim_start().starts_with("{{") => "write the expression without `{{ }}`: those are for templates",
        _ if is_dot && rest.starts_with(['\'', '"']) => "write the key in brackets: `body['items']`",
        _ if is_dot && next.starts_with(|c: char| c.is_ascii_digit()) => "write an index in brackets: `body.items[0]`",
        (_, "in" | "as" | "for" | "if" | "let" | "package" | "namespace" | "return" | "var" | "while") if is_dot => {
            "this word is reserved: write the key in brackets, such as `body['in']`"
        }
        _ if is_dot => return None,
        (_, "and") => "write `&&`",
        (_, "or") => "write `||`",
        ("not", _) => "write `!` before it, such as `!item.active`",
        (_, "if" | "else") | ("if" | "else", _) => "write `condition ? value : other`",
        ("for" | "lambda", _) | (_, "for") => "write `body.items.map(item, …)`",
        _ if rest.starts_with("=>") => "write a comma: `body.items.filter(item, item.active)`",
        _ if rest.starts_with('=') => "two values are compared by `==`",
        _ if rest.starts_with('>') && before.ends_with('<') => "write `!=`",
        _ if rest.starts_with('|') => "`or` is `||`; a filter of templates is a function here: `.lowerAscii()`",
        _ if rest.starts_with('&') => "`and` is `&&`",
        _ if rest.starts_with('$') || source.trim_start().starts_with(['$', '@']) => {
            "begin with a name, as in `body.items`; this is not JSONPath"
        }
        _ if rest.starts_with(['"', '\'']) && !rest[1..].contains(&rest[..1]) => {
            "write the same quotation mark at its end"
        }
        _ if rest.starts_with('`') => "texts are in `'` or `\"`",
        _ if rest.starts_with('?') && before.ends_with('?') => "write `has(body.items) ? body.items : []`",
        _ if rest.starts_with('\'') && in_struct(before).is_some() => {
            return in_struct(before).map(|name| format!("write a comma between `{name}` and `{{`"));
        }
        _ if rest.starts_with(|c: char| c.is_alphabetic() && !c.is_ascii()) => {
            "write a name with other letters in brackets: `item['größe']`"
        }
        _ => return None,
    };
    Some(help.to_owned())
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    &text[text
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8))..]
}

/// The name before the `{` at the end of `before`.
fn in_struct(before: &str) -> Option<&str> {
    let name = last_word(before.trim_end().strip_suffix('{')?);
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use crate::expression::Expression;

    #[test]
    fn a_syntax_error_says_what_is_expected_and_what_was_meant() {
        for (source, why) in [
            ("body.map(i, {'name': i.id)", "column 26: `)` stands where `}` or `,` is expected"),
            ("body.items[0", "column 13: `]` is missing before the end"),
            ("body.", "column 6: a name is expected after the `.`"),
            ("body..items", "column 6: a name is expected after the `.`"),
            ("body.'items'", "column 6: a name is expected after the `.` (write the key in brackets: `body['items']`)"),
            (
                "body.in",
                "column 6: a name is expected after the `.` (this word is reserved: write the key in brackets, such as `body['in']`)",
            ),
            (
                "items.map(i {'a': i.x})",
                "column 14: `'a'` stands where `}`, `,`, `?` or a name is expected (write a comma between `i` and `{`)",
            ),
            ("items.filter(i, i.x = 'a')", "column 21: `=` cannot stand here (two values are compared by `==`)"),
            (
                "items.filter(i, i.x == 'a' and i.y)",
                "column 28: `and` stands where a value or a name is expected (write `&&`)",
            ),
            (
                "items.filter(i, i.x == 'a)",
                "column 24: the text that begins with this `'` has no end (write the same quotation mark at its end)",
            ),
            (
                "items.filter(i => i.x)",
                "column 16: `=` cannot stand here (write a comma: `body.items.filter(item, item.active)`)",
            ),
            (
                "not body.items",
                "column 5: `body` stands where a value or a name is expected (write `!` before it, such as `!item.active`)",
            ),
            (
                "body.items ?? []",
                "column 13: `?` stands where a value or a name is expected (write `has(body.items) ? body.items : []`)",
            ),
            (
                "$.items[*]",
                "column 1: `$` cannot stand here (begin with a name, as in `body.items`; this is not JSONPath)",
            ),
            (
                "{{ body.items }}",
                "column 15: `}` stands where a value or a name is expected (write the expression without `{{ }}`: those are for templates)",
            ),
            (
                "for i in body.items",
                "column 1: `for` is a reserved word and cannot be a name (write `body.items.map(item, …)`)",
            ),
            ("body.items\n  .map(i, i.)", "column 24: a name is expected after the `.`"),
            (" ", "the expression is empty"),
        ] {
            let error = Expression::compile(source).unwrap_err().to_string();
            assert_eq!(error, why, "{source}");
            assert!(!error.contains("EOF") && !error.contains("IDENTIFIER") && !error.contains("token"), "{error}");
        }
    }
}
