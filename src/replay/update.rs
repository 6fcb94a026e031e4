//! Writes the given answers into files of cases, and leaves every other line as it is.

use std::{io, path::Path};

use serde_json::{Map, Value, json};

use super::{
    ask::Answered,
    case::{CaseFile, Expected},
    read::case_path,
};
use crate::config::Decoded;
use domain::{
    document::yaml::{self, YamlError},
    file::replace::replace,
};

/// Why a file of cases cannot get its answers. It stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpdateError {
    /// The lines of an answer are not YAML.
    #[error(transparent)]
    Lines(#[from] YamlError),
    /// The file does not have the step.
    #[error("a step is not there")]
    NoStep,
    /// Lines of the file cannot be replaced one by one.
    #[error("write each step and its `expect` in lines of their own, not in brackets")]
    Form,
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// An answer that a file of cases is to expect.
#[derive(Debug)]
pub(crate) struct NewAnswer {
    /// The index of the case.
    pub(crate) case: usize,
    /// The number of the step; 0 is the case itself.
    pub(crate) step: usize,
    /// The lines of `expect`, without their indentation.
    pub(crate) lines: Vec<String>,
}

/// Writes `answers` into `file`, which was read as `decoded`.
///
/// # Errors
/// When the file cannot be written, or has a form in which single lines cannot be replaced. Then it stays as it is.
pub(crate) fn write(file: &Path, decoded: &Decoded<CaseFile>, answers: Vec<NewAnswer>) -> Result<(), UpdateError> {
    let mut wanted = decoded.raw();
    let mut changes = Vec::new();
    for NewAnswer { case, step, lines } in answers {
        let (mut path, mut pointer) = (case_path(case), format!("/cases/{case}"));
        if step > 0 {
            path = path.key("then").index(step - 1);
            pointer = format!("{pointer}/then/{}", step - 1);
        }
        let new = yaml::parse_exact(lines.join("\n").as_bytes())?.into_iter().next().unwrap_or_default();
        let step = wanted.pointer_mut(&pointer).and_then(Value::as_object_mut).ok_or(UpdateError::NoStep)?;
        step.insert("expect".to_owned(), new["expect"].clone());
        let begin = decoded.place(&path);
        let expect = decoded.has(&path.key("expect")).then(|| decoded.place(&path.key("expect")));
        let as_number = |number: u64| usize::try_from(number).unwrap_or_default();
        changes.push(Change {
            begin: as_number(begin.line),
            // In the line `- expect: …` both begin at the same column.
            column: as_number(expect.map_or(begin.column, |expect| expect.column)),
            expect: expect.map(|expect| as_number(expect.line)),
            lines,
        });
    }
    let text = apply(decoded.source(), changes);
    let is_right = Decoded::<CaseFile>::parse("", text.clone()).is_ok_and(|read| read.raw() == wanted);
    if !is_right {
        return Err(UpdateError::Form);
    }
    Ok(replace(file, &text)?)
}

/// A place in a file of cases where an answer is to be written.
#[derive(Debug)]
struct Change {
    /// The number of the line with the first key of the case or step, from 1.
    begin: usize,
    /// The column of that key, from 1.
    column: usize,
    /// The number of the line with `expect`, if there is one.
    expect: Option<usize>,
    /// The new lines, without their indentation.
    lines: Vec<String>,
}

/// `text` with `changes`.
fn apply(text: &str, changes: Vec<Change>) -> String {
    let end_of_line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let range = |change: &Change| {
        if let Some(line) = change.expect {
            return line - 1..value_end(&lines, line, change.column);
        }
        let end = expect_place(&lines, change.begin, change.column);
        end..end
    };
    let mut changes: Vec<_> = changes.into_iter().map(|change| (range(&change), change)).collect();
    // From the end, so that the numbers of lines before stay right.
    changes.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    for (range, change) in changes {
        let indent = " ".repeat(change.column - 1);
        let mut new: Vec<String> = change.lines.iter().map(|line| format!("{indent}{line}")).collect();
        // `- expect: …` begins the step.
        if let (Some(first), Some(old)) = (new.first_mut(), lines.get(range.start).filter(|_| !range.is_empty()))
            && let Some(before) = old.get(..change.column - 1)
        {
            first.replace_range(..change.column - 1, before);
        }
        lines.splice(range, new);
    }
    lines.join(end_of_line) + end_of_line
}

/// The end of the value of a key in line `line` and `column`, even if it is in brackets that end below the key.
fn value_end(lines: &[String], line: usize, column: usize) -> usize {
    let end = block_end(lines, line, column + 1);
    let closes = |line: &&String| indent(line) == Some(column - 1) && line.trim_start().starts_with([']', '}']);
    end + lines[end..].iter().take_while(closes).count()
}

/// Where `expect` is added to a mapping: before its `then`, else at its end.
fn expect_place(lines: &[String], begin: usize, column: usize) -> usize {
    let end = block_end(lines, begin, column);
    let is_then = |line: &String| indent(line) == Some(column - 1) && line.trim_start().starts_with("then:");
    lines[begin..end].iter().position(is_then).map_or(end, |at| begin + at)
}

/// The number of lines up to the end of the block that begins in line `begin` (from 1): the lines after it are indented by less than
/// `column` - 1.
fn block_end(lines: &[String], begin: usize, column: usize) -> usize {
    let mut end = begin;
    for (number, line) in lines.iter().enumerate().skip(begin) {
        match indent(line) {
            Some(indent) if indent + 1 < column => break,
            Some(_) => end = number + 1,
            None => {}
        }
    }
    end
}

/// The spaces before the text of `line`. `None` if it is blank, or a comment.
fn indent(line: &str) -> Option<usize> {
    let text = line.trim_start();
    (!text.is_empty() && !text.starts_with('#')).then(|| line.len() - text.len())
}

/// The lines of `expect` for `answer`. They keep the parts that `before` has.
pub(crate) fn expected_lines(answer: &Answered, before: Option<&Expected>) -> Vec<String> {
    match answer {
        Answered::Error(code, message) => {
            let mut lines = vec!["expect:".to_owned(), format!("  error: {code}")];
            // A message may name times and numbers that change.
            let part = before.and_then(|before| before.message.as_ref()).filter(|part| message.contains(*part));
            lines.extend(part.map(|part| format!("  message: {}", json_line(&json!(part)))));
            lines
        }
        Answered::Sets { sets, cache, because } => {
            let is_told = because.is_some() || before.is_some_and(|before| before.cache.is_some());
            let cache = is_told.then(|| format!("  cache: {}", cache.as_str()));
            let because = because.map(|code| format!("  because: {code}"));
            sets_lines(sets, cache.into_iter().chain(because))
        }
    }
}

fn sets_lines(sets: &[Map<String, Value>], found: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines = vec!["expect:".to_owned()];
    lines.extend(found);
    if sets.is_empty() {
        lines.push("  parameters: []".to_owned());
        return lines;
    }
    lines.push("  parameters:".to_owned());
    lines.extend(sets.iter().map(|set| format!("    - {}", json_line(&Value::Object(set.clone())))));
    lines
}

/// `value` in one line that YAML reads as the same value. JSON is YAML, but for a few characters in texts.
pub(crate) fn json_line(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{}: {}", quoted(&json!(name)), quoted(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        other => quoted(other),
    }
}

/// As [`json_line`], within brackets: a text is plain only if it is a word.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) if !is_word(text) => {
            let is_printed = |c: &char| {
                !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
            };
            let escape = |c: char| if is_printed(&c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
            json!(text).to_string().chars().map(escape).collect()
        }
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => json_line(value),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Whether YAML reads `text` as a text without quotes, also within brackets.
fn is_word(text: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_safe) && !is_reserved(text)
}

/// Whether YAML reads `text` as a text without quotes, as the value of a key.
fn is_plain(text: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_./-?=&+%~@ ".contains(c);
    let words = text.replace("://", "");
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && words.replace(':', "").chars().all(is_safe)
        && !words.contains(": ")
        && !words.ends_with(':')
        && !is_reserved(text)
}

/// Whether some reader of YAML takes the word for something else than a text.
fn is_reserved(text: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    words.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::document::number;

    #[test]
    fn a_line_reads_as_the_same_value() {
        for value in [
            json!("GET https://a.example.com/x?y=z&a=%20"),
            json!("a: b"),
            json!("a #b"),
            json!(""),
            json!("1"),
            json!("true"),
            json!("No"),
            json!("- a"),
            json!("2026-01-01"),
            json!("x:"),
            json!("a\u{85}b\u{7f}\u{feff}\u{2028}\u{9b}\u{ffff}\n\t\""),
            json!({"a": [1, "2", null, true, {"b": "c, d", "e: f": "[x]"}], "n": "null"}),
            json!({}),
            json!([]),
            json!("[x"),
            json!("{x"),
            json!("a, b"),
            json!("a ]"),
            json!([number::written("1.10"), number::written("7222E2"), number::written("-0")]),
        ] {
            let line = format!("k: {}\n", json_line(&value));
            let read = yaml::parse_exact(line.as_bytes()).unwrap_or_else(|why| panic!("{line}: {why}"));
            assert_eq!(read[0]["k"], value, "{line}");
        }
    }

    #[test]
    fn only_expectations_change() {
        let text = "# a comment\ncases:\n  - name: a # one\n    expect: # two\n      parameters:\n        - { a: b }\n    # three\n    then:\n      \
                    - expect: { error: held }\n  - name: b\n    then:\n      - after: 1m\n\n  - name: c\n";
        let change = |begin, column, expect, line: &str| Change { begin, column, expect, lines: vec![line.to_owned()] };
        let changes = vec![
            change(3, 5, Some(4), "expect: 1"),
            change(9, 9, Some(9), "expect: 2"),
            change(10, 5, None, "expect: 3"),
            change(12, 9, None, "expect: 4"),
            change(14, 5, None, "expect: 5"),
        ];
        assert_eq!(
            apply(text, changes),
            "# a comment\ncases:\n  - name: a # one\n    expect: 1\n    # three\n    then:\n      - expect: 2\n  - name: b\n    expect: \
             3\n    then:\n      - after: 1m\n        expect: 4\n\n  - name: c\n    expect: 5\n"
        );
    }
}
