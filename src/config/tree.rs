//! A YAML document as a tree in which every node has its position, so that later problems still have a line.

mod explain;

use serde_json::{Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, Spanned, options::MergeKeyPolicy};

use super::Report;
use domain::{
    document::{number, yaml, yaml_tree::YamlTree},
    file::base_dir::BaseDir,
    problem::{Path, Segment},
};

/// The keys whose values are files with secrets, keys or certificates.
const SECRET_FILES: [&str; 8] = ["ca", "cert", "clientCa", "dockerConfig", "file", "key", "publicKey", "trustedRoot"];

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

/// Parses the report's source. `None` if it is not YAML; the report then has the reason. All repeated keys are reported too.
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
            explain::explain(report, &source, at, message);
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

/// The tree without marks; `None` when it holds a number that would be read as another text, which the report then names.
fn checked(report: &mut Report, tree: Spanned<YamlTree<Spanned<String>>>) -> Option<Node> {
    match node(tree, report.source()) {
        Ok(node) => Some(without_marks(node)),
        Err((at, message)) => {
            report.syntax(at, message);
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

    /// The paths of all keys without a value: not even `null` is written in `source`. `own` is the path of this node.
    pub(crate) fn without_value(&self, own: &Path, source: &str, found: &mut Vec<Path>) {
        match &self.kind {
            NodeKind::Scalar(Value::Null) => {
                let written = source.get(self.at.offset..).unwrap_or_default();
                if !["null", "Null", "NULL", "~"].iter().any(|null| written.starts_with(null)) {
                    found.push(own.clone());
                }
            }
            NodeKind::Scalar(_) => {}
            NodeKind::List(items) => {
                for (index, (_, item)) in items.iter().enumerate() {
                    item.without_value(&own.index(index), source, found);
                }
            }
            NodeKind::Mapping(entries) => {
                for (key, _, value) in entries {
                    value.without_value(&own.key(key), source, found);
                }
            }
        }
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

    /// The position in `source` of the character `within` of the text at `path`. `None` if the file writes the text otherwise, such as with
    /// escapes. Spaces may be line breaks with an indentation there.
    pub(crate) fn position_within(&self, path: &Path, within: usize, source: &str) -> Option<Position> {
        let node = self.at(path)?;
        let NodeKind::Scalar(Value::String(text)) = &node.kind else { return None };
        let written = source.get(node.at.offset..)?;
        let header = if written.starts_with(['|', '>']) { written.find('\n')? + 1 } else { 0 };
        let header = header + usize::from(written.starts_with(['"', '\'']));
        let mut rest = written[header..].trim_start();
        for c in text.trim_start().chars().take(within.saturating_sub(text.len() - text.trim_start().len())) {
            rest = if c.is_whitespace() { rest.trim_start() } else { rest.strip_prefix(c)? };
        }
        Some(explain::position_of(source, source.len() - rest.len()))
    }

    /// Whether the value at `path` names a secret, a key or a certificate, in a file or a variable, that is not on this machine. Without a
    /// value, it is a default: the files of a pod's service account.
    pub(crate) fn lacks_secret(&self, path: &Path, base: &BaseDir) -> bool {
        let named = |key: &str, text: &str| match key {
            "env" => std::env::var_os(text).is_none(),
            _ => SECRET_FILES.contains(&key) && std::fs::File::open(base.resolve(text)).is_err(),
        };
        let Some(node) = self.at(path) else { return true };
        node.texts().into_iter().any(|(below, text)| {
            let last = below.segments().last().or_else(|| path.segments().last());
            matches!(last, Some(Segment::Key(key)) if named(key, text))
        })
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

/// The tree with its positions. A number keeps its text, if JSON can write it so. Fails with the position of any other number, whose
/// digits would change: YAML readers disagree about `010` and `1_000`, and 64 bits do not hold all whole numbers.
fn node(tree: Spanned<YamlTree<Spanned<String>>>, source: &str) -> Result<Node, (Position, String)> {
    let at = position(tree.referenced);
    if let Some(mark) = unused_mark(source, position(tree.defined).offset) {
        return Err((
            at,
            format!("`{mark}` before this value has no effect; put the text in quotes if it belongs to it"),
        ));
    }
    let kind = match tree.value {
        YamlTree::Scalar(Value::Number(read)) => match number::written(yaml::written(tree.defined, source)) {
            Some(number) => NodeKind::Scalar(Value::Number(number)),
            None => return Err((at, unlike(yaml::written(tree.defined, source), &read))),
        },
        YamlTree::Scalar(value) => NodeKind::Scalar(value),
        YamlTree::List(items) => {
            let items = items.into_iter().map(|item| node(item, source)).enumerate();
            NodeKind::List(items.map(|(index, item)| Ok((index, item?))).collect::<Result<_, _>>()?)
        }
        YamlTree::Mapping(entries) => {
            let entries = entries.into_iter();
            let entries = entries.map(|(key, value)| Ok((key.value, position(key.referenced), node(value, source)?)));
            NodeKind::Mapping(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node { at, kind })
}

/// The tag or the anchor before the value at `offset` that changes nothing: a tag that YAML does not define, or an anchor without an alias. It
/// is most often a text whose quotes were forgotten.
fn unused_mark(source: &str, offset: usize) -> Option<&str> {
    let before = source.get(..offset)?;
    let line = before.rsplit('\n').next()?;
    let mark = line.strip_suffix(' ')?.trim_end().rsplit([' ', '{', '[', ',']).next()?;
    let is_unused = match mark.strip_prefix('&') {
        Some(name) => !name.is_empty() && !source.contains(&format!("*{name}")),
        None => mark.starts_with('!') && !mark.starts_with("!!"),
    };
    is_unused.then_some(mark)
}

/// The error of the number `written`, which was read as `read`.
fn unlike(written: &str, read: &Number) -> String {
    if written.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit())
        && !written.trim_start_matches('-').starts_with('0')
    {
        return "a number that is too large to be kept to the digit; write it as text, in quotes".to_owned();
    }
    format!("`{}` would be read as the number {read}; write that, or put it in quotes", written.escape_debug())
}
