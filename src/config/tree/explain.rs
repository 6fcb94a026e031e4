//! The usual causes of a syntax error in YAML, in plain words. The parser reports where it could not continue, which is often behind the mistake.

use std::sync::LazyLock;

use regex::Regex;

use super::{Position, Report};

/// Keys whose value is a list of mappings.
const LISTS: [&str; 10] =
    ["backends", "certificates", "hooks", "input", "jwt", "merge", "pipeline", "routes", "subjects", "tokens"];

/// An error, its place, and the correction.
struct Cause {
    at: Position,
    message: String,
    help: String,
}

/// A line of the file.
struct Line<'a> {
    /// From 0.
    index: usize,
    text: &'a str,
}

/// Notes the syntax error at `at`. The parser's `message` is shown if the cause is unknown.
pub(super) fn explain(report: &mut Report, source: &str, at: Position, message: String) {
    match cause(source, at, &message) {
        Some(Cause { at, message, help }) => report.syntax_with_help(at, &message, &help),
        None => report.syntax(at, message),
    }
}

fn cause(source: &str, at: Position, message: &str) -> Option<Cause> {
    let found = |at: Position, message: &str, help: &str| {
        Some(Cause { at, message: message.to_owned(), help: help.to_owned() })
    };
    if let Some(at) = tab_after(source, at).filter(|_| message.contains(" tab") || message.starts_with("tabs ")) {
        return found(at, "a tab, where YAML is indented with spaces only", "write spaces in its place");
    }
    if let Some(at) = template_at(source, at) {
        let help = "write quotes around the whole value, such as `\"{{ name }}\"`";
        return found(at, "a template without quotes: YAML takes its `{` for the start of a mapping", help);
    }
    let rest = &source[at.offset..];
    match message {
        _ if message.starts_with("while scanning an anchor or alias") || message.starts_with("alias references") => {
            let mark = mark(rest);
            let more = if word(rest).len() > 1 { "…" } else { "" };
            let message = format!("a `{mark}` without quotes: YAML takes it for a reference to another value");
            found(at, &message, &format!("write quotes around the whole value: `\"{mark}{more}\"`"))
        }
        _ if message.starts_with("unexpected character") => {
            let message = format!("a value that begins with `{}` must be in quotes", mark(rest));
            found(at, &message, "write quotes around the whole value")
        }
        "unclosed quote" => open_quote(source, at),
        "invalid indentation in multiline quoted scalar" => open_quote(source, opened_before(source, at)?),
        _ if message.starts_with("invalid trailing content after") => {
            let message = "a text goes on after its closing quote";
            found(at, message, "put the whole value into the quotes")
        }
        "while parsing a quoted scalar, found unknown escape character" => {
            let help = "write single quotes around the value, or each `\\` twice";
            found(at, "in double quotes a `\\` begins an escape, and this one does not exist", help)
        }
        "misplaced bracket" => {
            found(at, &format!("there is a `{}` too many", mark(rest)), "remove it, or open it further to the left")
        }
        "YAML merge keys are not allowed by configured policy" => {
            found(at, "`<<` merges mappings, and no file here may do that", "write the keys out")
        }
        "mapping values are not allowed in this context" => not_a_key(source, at),
        _ if message.starts_with("while parsing a block ") => other_indentation(source, at),
        _ if message.starts_with("while parsing a flow ") || message.contains("illegal placement of ':'") => {
            unclosed(source, at)
        }
        _ => {
            let bracket = message.strip_prefix("unclosed bracket '")?.chars().next()?;
            Some(not_closed(at, bracket))
        }
    }
}

/// A `key:` where none can stand. Its line, or the one above, shows why.
fn not_a_key(source: &str, at: Position) -> Option<Cause> {
    static GLUED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(\s*(?:- +)?)([A-Za-z][\w-]*):(?:[^\s/]|\x{a0})").ok());
    static DASHED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^(\s*)-([A-Za-z][\w-]*): ").ok());
    let own = line_of(source, at)?;
    let above = lines_above(source, &own).find(|line| !line.text.trim().is_empty() && !is_comment(line.text));
    for line in above.iter().chain([&own]) {
        if let Some(glued) = GLUED.as_ref()?.captures(line.text) {
            let key = &glued[2];
            return Some(Cause {
                at: place(source, line.index, glued[1].chars().count()),
                message: format!("a space is missing after the colon of `{key}:`"),
                help: format!("write `{key}: …`, with a plain space"),
            });
        }
        if let Some(dashed) = DASHED.as_ref()?.captures(line.text) {
            return Some(Cause {
                at: place(source, line.index, dashed[1].chars().count()),
                message: "a space is missing after the `-` of this item".to_owned(),
                help: format!("write `- {}: …`", &dashed[2]),
            });
        }
    }
    let key = own.text.find(": ").map(|end| own.text[..end].chars().count());
    if key.is_some_and(|key| key + 1 < usize::try_from(at.column).unwrap_or_default()) {
        return Some(Cause {
            at,
            message: "this `:` is within a value, and the value is not in quotes".to_owned(),
            help: "write quotes around the whole value, or `>-` and the value in the next line".to_owned(),
        });
    }
    let above = above?;
    let parent = lines_above(source, &above)
        .find(|line| !line.text.trim().is_empty() && !is_comment(line.text) && indent(line.text) < indent(above.text));
    let list = parent.and_then(|parent| key_of(parent.text)).filter(|key| LISTS.contains(key));
    match list {
        Some(list) if !above.text.trim_start().starts_with("- ") => Some(Cause {
            at: place(source, above.index, indent(above.text)),
            message: format!("a `- ` is missing: `{list}` is a list, and this is its first item"),
            help: format!("write `- {}`", first_words(above.text)),
        }),
        _ => Some(Cause {
            at: place(source, own.index, indent(own.text)),
            message: "this line is indented further than the key above it, which has a value already".to_owned(),
            help: "begin the keys of one mapping in the same column; if an item of a list begins above, write `- ` before it".to_owned(),
        }),
    }
}

/// A line that begins in another column than the lines around it.
fn other_indentation(source: &str, at: Position) -> Option<Cause> {
    let own = line_of(source, at)?;
    let column = indent(own.text);
    let is_item = |line: &Line<'_>| indent(line.text) == column && line.text.trim_start().starts_with("- ");
    let above = lines_above(source, &own).filter(|line| !line.text.trim().is_empty() && !is_comment(line.text));
    let lower = above.take_while(|line| indent(line.text) >= column).any(|line| is_item(&line));
    let (message, help) = if lower && !own.text.trim_start().starts_with("- ") {
        (
            "a `- ` is missing: the lines above in this column are items of a list",
            format!("write `- {}`", first_words(own.text)),
        )
    } else {
        let help =
            "begin the keys of one mapping in the same column, and the items of a list with `-` in the same column";
        ("this line has another indentation than the lines around it", help.to_owned())
    };
    Some(Cause { at, message: message.to_owned(), help })
}

/// A mapping or a list in brackets that does not end, or two entries without a comma.
fn unclosed(source: &str, at: Position) -> Option<Cause> {
    let (offset, bracket) = open_bracket(&source[..at.offset])?;
    let opened = position_of(source, offset);
    if opened.line < at.line {
        return Some(not_closed(opened, bracket));
    }
    Some(Cause {
        at,
        message: format!("a `,` is missing before this, or the `{bracket}` is not closed"),
        help: "write a `,` between two entries".to_owned(),
    })
}

fn not_closed(at: Position, bracket: char) -> Cause {
    let close = if bracket == '{' { '}' } else { ']' };
    Cause { at, message: format!("the `{bracket}` is not closed"), help: format!("write `{close}` at its end") }
}

/// The last bracket in `text` that is open at its end.
fn open_bracket(text: &str) -> Option<(usize, char)> {
    let (mut open, mut quote, mut before) = (Vec::new(), None, ' ');
    for (offset, c) in text.char_indices() {
        match (quote, c) {
            (Some('#'), '\n') => quote = None,
            (Some(end), c) if end == c => quote = None,
            (None, '#') if before.is_whitespace() => quote = Some('#'),
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(c),
            (None, '{' | '[') => open.push((offset, c)),
            (None, '}' | ']') => _ = open.pop(),
            _ => {}
        }
        before = c;
    }
    open.pop()
}

/// A quote at `at` that does not end.
fn open_quote(source: &str, at: Position) -> Option<Cause> {
    let quote = source[at.offset..].chars().next().filter(|c| matches!(c, '"' | '\''))?;
    Some(Cause {
        at,
        message: format!("the quote `{quote}` is not closed"),
        help: format!("write `{quote}` at the end of the value"),
    })
}

/// The quote above the line of `at` that is still open there.
fn opened_before(source: &str, at: Position) -> Option<Position> {
    let own = line_of(source, at)?;
    lines_above(source, &own).find_map(|line| {
        let open = ['"', '\''].into_iter().find(|quote| line.text.matches(*quote).count() % 2 == 1)?;
        let offset = line.text.rfind(open)?;
        Some(place(source, line.index, line.text[..offset].chars().count()))
    })
}

/// The first word of `rest`.
fn word(rest: &str) -> &str {
    let end = rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len());
    &rest[..end]
}

fn mark(text: &str) -> char {
    text.chars().next().unwrap_or(' ')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The key of a line, without its value, which may be a secret.
fn first_words(line: &str) -> String {
    line.trim().split_once(": ").map_or_else(|| "…".to_owned(), |(key, _)| format!("{key}: …"))
}

/// The key of a line that has nothing behind it.
fn key_of(line: &str) -> Option<&str> {
    line.trim().trim_start_matches("- ").strip_suffix(':')
}

fn line_of(source: &str, at: Position) -> Option<Line<'_>> {
    let index = usize::try_from(at.line).ok()?.checked_sub(1)?;
    Some(Line { index, text: source.lines().nth(index)? })
}

/// The lines above `line`, the nearest first.
fn lines_above<'a>(source: &'a str, line: &Line<'_>) -> impl Iterator<Item = Line<'a>> {
    let lines: Vec<&str> = source.lines().take(line.index).collect();
    lines.into_iter().enumerate().rev().map(|(index, text)| Line { index, text })
}

/// The position of the character `column` of the line `index`, both from 0.
fn place(source: &str, index: usize, column: usize) -> Position {
    let [line, column] = [index + 1, column + 1].map(|number| u64::try_from(number).unwrap_or_default());
    Position { line, column, offset: 0 }.with_offset(source)
}

/// The position of the byte at `offset`.
pub(super) fn position_of(source: &str, offset: usize) -> Position {
    let before = &source[..offset];
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    place(source, before.matches('\n').count(), before[begin..].chars().count())
}

/// The first tab that indents a line of `source`, from the line of `at` on.
fn tab_after(source: &str, at: Position) -> Option<Position> {
    let first = usize::try_from(at.line).ok()?.saturating_sub(1);
    source.lines().enumerate().skip(first).find_map(|(index, line)| {
        let indent = &line[..indent(line)];
        Some(place(source, index, indent.chars().position(|c| c == '\t')?))
    })
}

/// The first `{{` without quotes in the line of `at` or in the line before it, where a value begins.
fn template_at(source: &str, at: Position) -> Option<Position> {
    let line = usize::try_from(at.line).ok()?;
    let lines = source.split('\n').enumerate().skip(line.saturating_sub(2)).take(if line < 2 { 1 } else { 2 });
    lines.into_iter().find_map(|(index, text)| {
        let (mut quote, mut before) = (None, None);
        for (column, (offset, c)) in text.char_indices().enumerate() {
            match (quote, c) {
                (Some(open), c) if open == c => quote = None,
                (None, '#') if before.is_none_or(|(_, was_space)| was_space) => return None,
                (None, '"' | '\'') => quote = Some(c),
                (None, '{') if text[offset..].starts_with("{{") && before.is_none_or(|(c, _)| ":-[{,".contains(c)) => {
                    let (line, column) = (u64::try_from(index + 1).ok()?, u64::try_from(column + 1).ok()?);
                    return Some(Position { line, column, offset: 0 }.with_offset(source));
                }
                _ => {}
            }
            before = if c.is_whitespace() { before.map(|(c, _)| (c, true)) } else { Some((c, false)) };
        }
        None
    })
}
