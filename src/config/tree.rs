//! A YAML document as a tree in which every node knows its position, so that later problems still have a line.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Spanned, options::MergeKeyPolicy};

use super::Report;
use crate::domain::{
    document::yaml_tree::YamlTree,
    problem::{Path, Segment},
};

/// The most duplicate keys that are reported at once.
const DUPLICATES: u32 = 20;

/// A position in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// From 1.
    pub(crate) line: u64,
    /// In characters, from 1.
    pub(crate) column: u64,
    /// In bytes, from 0.
    pub(crate) offset: usize,
}

impl Position {
    /// This position with its offset in `source`. Errors of the YAML parser have only a line and a column.
    fn with_offset(self, source: &str) -> Self {
        let lines = usize::try_from(self.line).unwrap_or_default().saturating_sub(1);
        let before: usize = source.split_inclusive('\n').take(lines).map(str::len).sum();
        let rest = &source[before..];
        let column = usize::try_from(self.column).unwrap_or_default().saturating_sub(1);
        let within = rest.char_indices().nth(column).map_or(rest.len(), |(offset, _)| offset);
        Self { offset: before + within, ..self }
    }
}

/// A value and its position.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Where the value begins.
    pub(crate) at: Position,
    /// The value.
    pub(crate) kind: NodeKind,
}

/// A YAML value.
#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    /// A text, number, boolean or null.
    Scalar(Value),
    /// A list. Each item keeps its index in the file, even if an item before it was taken out.
    List(Vec<(usize, Node)>),
    /// A mapping: keys, their positions, and values.
    Mapping(Vec<(String, Position, Node)>),
}

/// Parses the report's source. `None` if it is not YAML; the report then says why. All repeated keys are reported too.
pub(crate) fn parse(report: &mut Report) -> Option<Node> {
    let mut source = report.source().to_owned();
    for number in 0..=DUPLICATES {
        let error = match serde_saphyr::from_str_with_options::<Spanned<YamlTree<Spanned<String>>>>(&source, options())
        {
            Ok(tree) => return checked(report, tree),
            Err(error) => error,
        };
        let at = error.location().map(position).unwrap_or_default().with_offset(&source);
        if let Error::MultipleDocuments { .. } = error.without_snippet() {
            report.syntax(at, "one YAML document is expected, and here is a second one".to_owned());
            return None;
        }
        let Error::DuplicateMappingKey { key: Some(key), .. } = error.without_snippet() else {
            let message = message(&error);
            explain(report, &source, at, message);
            return None;
        };
        report.syntax(at, format!("the key `{key}` stands twice in this mapping"));
        // Replaces the second key, so that the next round finds further repeated keys.
        let mark = char::from_u32(MARK + number).unwrap_or('\u{e000}').to_string().repeat(key.chars().count().max(1));
        if !source[at.offset..].starts_with(key.as_str()) {
            return None;
        }
        source.replace_range(at.offset..at.offset + key.len(), &mark);
    }
    None
}

/// The tree without marks; `None` when it holds a number that would lose digits, which the report then names.
fn checked(report: &mut Report, tree: Spanned<YamlTree<Spanned<String>>>) -> Option<Node> {
    match node(tree) {
        Ok(node) => Some(without_marks(node)),
        Err(at) => {
            let message = "a number that is too large to be kept to the digit; write it as text, in quotes";
            report.syntax(at, message.to_owned());
            None
        }
    }
}

/// The first of the private-use characters that mark repeated keys.
const MARK: u32 = 0xe000;

fn without_marks(mut node: Node) -> Node {
    let is_mark = |key: &str| key.chars().next().is_some_and(|c| (MARK..=MARK + DUPLICATES).contains(&u32::from(c)));
    node.kind = match node.kind {
        NodeKind::Scalar(value) => NodeKind::Scalar(value),
        NodeKind::List(items) => {
            NodeKind::List(items.into_iter().map(|(index, item)| (index, without_marks(item))).collect())
        }
        NodeKind::Mapping(entries) => NodeKind::Mapping(
            entries
                .into_iter()
                .filter(|(key, _, _)| !is_mark(key))
                .map(|(key, at, value)| (key, at, without_marks(value)))
                .collect(),
        ),
    };
    node
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

impl Node {
    /// The value without positions.
    #[must_use]
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar(value) => value.clone(),
            NodeKind::List(items) => Value::Array(items.iter().map(|(_, item)| item.to_value()).collect()),
            NodeKind::Mapping(entries) => {
                Value::Object(entries.iter().map(|(key, _, value)| (key.clone(), value.to_value())).collect())
            }
        }
    }

    /// All texts with their paths.
    pub(crate) fn texts(&self) -> Vec<(Path, &str)> {
        let (mut found, mut left) = (Vec::new(), vec![(Path::root(), self)]);
        while let Some((path, node)) = left.pop() {
            match &node.kind {
                NodeKind::Scalar(Value::String(text)) => found.push((path, text.as_str())),
                NodeKind::Scalar(_) => {}
                NodeKind::List(items) => {
                    left.extend(items.iter().enumerate().map(|(index, (_, item))| (path.index(index), item)));
                }
                NodeKind::Mapping(entries) => {
                    left.extend(entries.iter().map(|(key, _, value)| (path.key(key), value)));
                }
            }
        }
        found
    }

    /// The node at `path`.
    #[must_use]
    pub(crate) fn at(&self, path: &Path) -> Option<&Self> {
        path.segments().iter().try_fold(self, |node, segment| Some(node.child(segment)?.2))
    }

    /// The text of the scalar at `path`. `None` if there is a list, a mapping or nothing.
    #[must_use]
    pub(crate) fn text(&self, path: &Path) -> Option<String> {
        match &self.at(path)?.kind {
            NodeKind::Scalar(Value::String(text)) => Some(text.clone()).filter(|text| !text.is_empty()),
            NodeKind::Scalar(value) => Some(value.to_string()),
            NodeKind::List(_) | NodeKind::Mapping(_) => None,
        }
    }

    /// The position of the last key or item of `path` that exists, and the whole path with indexes as in the file. `path` itself has indexes as
    /// in this tree.
    #[must_use]
    pub(crate) fn locate(&self, path: &Path) -> (Position, Path) {
        let (mut node, mut at, mut real) = (Some(self), self.at, Path::root());
        for segment in path.segments() {
            let step = node.and_then(|node| node.child(segment));
            real = match (&step, segment) {
                (Some((_, index, _)), Segment::Index(_)) | (None, Segment::Index(index)) => real.index(*index),
                (_, Segment::Key(key)) => real.key(key),
            };
            at = step.map_or(at, |(position, _, _)| position);
            node = step.map(|(_, _, child)| child);
        }
        (at, real)
    }

    /// Takes out the value at `path`. Returns whether there was one.
    pub(crate) fn prune(&mut self, path: &Path) -> bool {
        let Some((last, parents)) = path.segments().split_last() else { return false };
        let mut node = self;
        for segment in parents {
            let next = match (&mut node.kind, segment) {
                (NodeKind::List(items), Segment::Index(index)) => items.get_mut(*index).map(|(_, item)| item),
                (NodeKind::Mapping(entries), Segment::Key(key)) => {
                    entries.iter_mut().find(|(name, _, _)| name == key).map(|(_, _, value)| value)
                }
                _ => None,
            };
            let Some(next) = next else { return false };
            node = next;
        }
        match (&mut node.kind, last) {
            (NodeKind::List(items), Segment::Index(index)) if *index < items.len() => {
                items.remove(*index);
                true
            }
            (NodeKind::Mapping(entries), Segment::Key(key)) => {
                let before = entries.len();
                entries.retain(|(name, _, _)| name != key);
                entries.len() < before
            }
            _ => false,
        }
    }

    /// The longest beginning of `path` that exists in this tree.
    #[must_use]
    pub(crate) fn existing(&self, path: &Path) -> Path {
        let (mut node, mut known) = (self, Path::root());
        for segment in path.segments() {
            let Some((_, _, child)) = node.child(segment) else { break };
            node = child;
            known = match segment {
                Segment::Key(key) => known.key(key),
                Segment::Index(index) => known.index(*index),
            };
        }
        known
    }

    fn child(&self, segment: &Segment) -> Option<(Position, usize, &Node)> {
        match (&self.kind, segment) {
            (NodeKind::List(items), Segment::Index(index)) => {
                items.get(*index).map(|(real, item)| (item.at, *real, item))
            }
            (NodeKind::Mapping(entries), Segment::Key(key)) => {
                entries.iter().find(|(name, _, _)| name == key).map(|(_, at, value)| (*at, 0, value))
            }
            _ => None,
        }
    }
}

fn position(location: Location) -> Position {
    let offset = location.span().byte_offset().and_then(|offset| usize::try_from(offset).ok()).unwrap_or_default();
    Position { line: location.line(), column: location.column(), offset }
}

/// The first tab that indents a line of `source`, from the line of `at` on.
fn tab_after(source: &str, at: Position) -> Option<Position> {
    let first = usize::try_from(at.line).ok()?.saturating_sub(1);
    let mut lines = source.split_inclusive('\n').enumerate().skip(first);
    lines.find_map(|(index, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let column = indent.chars().position(|c| c == '\t')? + 1;
        let (line, column) = (u64::try_from(index + 1).ok()?, u64::try_from(column).ok()?);
        Some(Position { line, column, offset: 0 }.with_offset(source))
    })
}

/// Notes a syntax error in plain words, where its usual causes are known.
fn explain(report: &mut Report, source: &str, at: Position, message: String) {
    if let Some(at) = tab_after(source, at).filter(|_| message.ends_with("found a tab")) {
        report.syntax_with_help(at, "a tab, where YAML is indented with spaces only", "write spaces in its place");
    } else if let Some(at) = template_at(source, at) {
        let help = "write quotes around the whole value, such as `\"{{ name }}\"`";
        report.syntax_with_help(at, "a template without quotes: YAML takes its `{` for the start of a mapping", help);
    } else if message.starts_with("while parsing a block ") {
        let help =
            "begin the keys of one mapping in the same column, and the items of a list with `-` in the same column";
        report.syntax_with_help(at, "this line has another indentation than the lines around it", help);
    } else if let Some(bracket) = message.strip_prefix("unclosed bracket '").and_then(|rest| rest.chars().next()) {
        let close = if bracket == '{' { '}' } else { ']' };
        report.syntax_with_help(at, &format!("the `{bracket}` is not closed"), &format!("write `{close}` at its end"));
    } else {
        report.syntax(at, message);
    }
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

/// serde-saphyr's message without the position, which the report shows in its own form.
fn message(error: &Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.lines().next().unwrap_or_default();
    // Not `Error::Budget`: inside an alias that error arrives as text in `Error::AliasError`.
    if text.starts_with("budget breached") {
        return "the file is too large or too deep, perhaps by its aliases".to_owned();
    }
    let text = text.split(" at line ").next().unwrap_or(text);
    text.to_owned()
}

/// 2^63: smaller whole numbers are never read as floats.
const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;

/// The tree with its positions. Fails with the position of a number that does not keep all its digits: a whole number
/// beyond 64 bits is a float here.
fn node(tree: Spanned<YamlTree<Spanned<String>>>) -> Result<Node, Position> {
    let at = position(tree.referenced);
    let kind = match tree.value {
        YamlTree::Scalar(Value::Number(number))
            if number.is_f64() && number.as_f64().is_some_and(|n| n.abs() >= TOO_LARGE) =>
        {
            return Err(at);
        }
        YamlTree::Scalar(value) => NodeKind::Scalar(value),
        YamlTree::List(items) => {
            let items = items.into_iter().map(node).enumerate().map(|(index, item)| Ok((index, item?)));
            NodeKind::List(items.collect::<Result<_, _>>()?)
        }
        YamlTree::Mapping(entries) => {
            let entries = entries.into_iter();
            let entries = entries.map(|(key, value)| Ok((key.value, position(key.referenced), node(value)?)));
            NodeKind::Mapping(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node { at, kind })
}
