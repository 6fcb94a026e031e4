//! Decodes a tree into [`super::Config`] and other types, and reports all errors at once. serde stops at the first error, so the bad value is
//! reported, taken out, and the rest is decoded again.

use std::sync::LazyLock;

use regex::Regex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment as SerdeSegment;

use super::{
    Report,
    places::Places,
    tree::{Node, NodeKind},
};
use domain::{
    problem::{Path, Problem, ProblemKind, Segment, Severity},
    spelling::advice,
};

/// The most errors that are reported at once.
const MAX_ERRORS: usize = 100;

/// Decodes `tree`. Values that cannot be decoded are taken out of it and noted in `report`. `None` if even the outermost mapping does not
/// fit.
pub(crate) fn decode<T: DeserializeOwned>(tree: &mut Node, report: &mut Report) -> Option<T> {
    decode_knowing(tree, report, None, |_, _| ())
}

/// As [`decode`]. `knowing` gets the path of each mapping with an unknown key, and the keys that are known there. It may change them into
/// the ones that the advice should offer. `places` has the places of other keys. It is made from the
/// whole schema, which takes long, so it is called only when there is an error.
pub(crate) fn decode_knowing<T: DeserializeOwned>(
    tree: &mut Node,
    report: &mut Report,
    places: Option<fn() -> &'static Places>,
    knowing: impl Fn(&Path, &mut Vec<&str>),
) -> Option<T> {
    // serde would accept a list as the fields of a struct, in their order.
    if !matches!(tree.kind, NodeKind::Mapping(_)) {
        report.syntax(tree.at, "wrong type: the file must hold one mapping".to_owned());
        return None;
    }
    let mut pruned: Vec<Path> = Vec::new();
    for _ in 0..MAX_ERRORS {
        let value = tree.to_value();
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(config) => {
                report_missing_values(tree, report, places);
                return Some(config);
            }
            Err(error) => error,
        };
        let path = tree.existing(&own_path(error.path()));
        let message = with_number(error.inner().to_string(), tree.at(&path));
        let cause = DecodeCause::of(&message);
        let places = places.map(|places| places());
        let list = places.and_then(|places| list_for_mapping(tree, &path, places));
        let beside = places
            .filter(|_| cause == DecodeCause::NotOneKey)
            .and_then(|places| misplaced(tree.at(&path), &path, places));
        let (cause, path) = match (list, &beside) {
            (Some(list), _) => (DecodeCause::ListForMapping, list),
            (None, Some((key, kind))) => (DecodeCause::Beside(kind), path.key(key)),
            (None, None) => (cause, path),
        };
        let target = match cause {
            DecodeCause::UnknownKey(name) | DecodeCause::UnknownValue(name) => tree.existing(&path.key(name)),
            DecodeCause::MissingKey(_)
            | DecodeCause::WrongType { .. }
            | DecodeCause::NotOneKey
            | DecodeCause::ListForMapping
            | DecodeCause::Beside(_)
            | DecodeCause::OnlyName
            | DecodeCause::Other => path,
        };
        let (_, real) = tree.locate(&target);
        if !follows_from(&pruned, &real, &cause) {
            report.add(tree, problem(tree, &target, &message, &cause, (places, &knowing)));
        }
        report.take_out(real.clone());
        pruned.push(real);
        if !tree.prune(&target) {
            return None;
        }
    }
    None
}

/// Notes each key without a value. serde takes it for a key that is absent: `routes: &team` would allow all routes.
fn report_missing_values(tree: &Node, report: &mut Report, places: Option<fn() -> &'static Places>) {
    let mut missing = Vec::new();
    tree.without_value(&Path::root(), report.source(), &mut missing);
    // The schema is made only if there is something to look up.
    let Some(places) = places.filter(|_| !missing.is_empty()).map(|places| places()) else { return };
    for path in missing.into_iter().filter(|path| places.needs_value(path)) {
        let help = "write a value, or leave the key out; a text that begins with `!`, `&` or `#` needs quotes";
        let message = "there is no value".to_owned();
        let (severity, kind) = (Severity::Error, ProblemKind::Other);
        report.add(tree, Problem { path, message, help: Some(help.to_owned()), severity, kind, within: None });
    }
}

/// An error of serde. Its errors are text, so this is the one place that reads that text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecodeCause<'a> {
    /// A mapping has a key that is not known there.
    UnknownKey(&'a str),
    /// A text is not one of the allowed values.
    UnknownValue(&'a str),
    /// A mapping lacks this key.
    MissingKey(&'a str),
    /// A value has another type than expected.
    WrongType {
        /// A text was expected, and a number or a boolean found.
        is_unquoted_text: bool,
    },
    /// A mapping names one of several kinds by its only key, and this one has another number of keys.
    NotOneKey,
    /// A list stands where a mapping is expected. serde takes it for the mapping's values in their order.
    ListForMapping,
    /// A key stands beside this one, which should be the only one.
    Beside(&'a str),
    /// A name stands where a mapping with that name as its only key is expected.
    OnlyName,
    /// Anything else.
    Other,
}

impl<'a> DecodeCause<'a> {
    fn of(message: &'a str) -> Self {
        // `name` of "unknown field `name`, expected …".
        let name_after = |start: &str| message.strip_prefix(start)?.split('`').next();
        if let Some(name) = name_after("unknown field `") {
            Self::UnknownKey(name)
        } else if let Some(name) = name_after("unknown variant `") {
            Self::UnknownValue(name)
        } else if let Some(name) = name_after("missing field `") {
            Self::MissingKey(name)
        } else if message.ends_with("expected map with a single key") {
            Self::NotOneKey
        } else if message == "invalid type: unit variant, expected newtype variant" {
            Self::OnlyName
        } else if let Some(found) = message.strip_prefix("invalid type: ") {
            let is_scalar = ["integer", "floating point", "boolean"].iter().any(|kind| found.starts_with(kind));
            Self::WrongType { is_unquoted_text: is_scalar && found.ends_with("expected a string") }
        } else {
            Self::Other
        }
    }
}

/// serde's `message` with the number in `node` that it is about, as serde itself names numbers. `serde_json` keeps numbers as texts, and names none.
fn with_number(message: String, node: Option<&Node>) -> String {
    let Some(NodeKind::Scalar(Value::Number(number))) = node.map(|node| &node.kind) else { return message };
    let found = ["invalid type: ", "invalid value: "].into_iter().find_map(|start| {
        let rest = message.strip_prefix(start)?.strip_prefix("number,")?;
        let kind = if number.is_i64() || number.is_u64() { "integer" } else { "floating point" };
        Some(format!("{start}{kind} `{number}`,{rest}"))
    });
    found.unwrap_or(message)
}

/// Whether the error exists only because something below it was taken out.
fn follows_from(pruned: &[Path], path: &Path, cause: &DecodeCause<'_>) -> bool {
    match cause {
        DecodeCause::MissingKey(key) => pruned.contains(&path.key(*key)),
        _ => pruned.iter().any(|below| below != path && below.is_within(path)),
    }
}

fn own_path(path: &serde_path_to_error::Path) -> Path {
    path.iter()
        .filter_map(|segment| match segment {
            SerdeSegment::Seq { index } => Some(Segment::Index(*index)),
            SerdeSegment::Map { key } => Some(Segment::Key(key.clone())),
            SerdeSegment::Enum { variant } => Some(Segment::Key(variant.clone())),
            SerdeSegment::Unknown => None,
        })
        .collect()
}

/// The problem at `path`: serde's message in the words of a configuration, with advice.
fn problem(
    tree: &Node,
    path: &Path,
    message: &str,
    cause: &DecodeCause<'_>,
    (places, knowing): (Option<&Places>, &impl Fn(&Path, &mut Vec<&str>)),
) -> Problem {
    let unknown = |what: &str, name: &str| {
        // The message continues with the names that serde accepts there, each in backticks.
        let mut known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let parent = path.parent().unwrap_or_default();
        knowing(&parent, &mut known);
        let misplaced =
            places.filter(|_| tree.at(path).is_some()).and_then(|places| places.advice(tree, &parent, name));
        let glued = name.split_once(':').filter(|(key, _)| known.contains(key));
        let glued = glued.map(|(key, _)| format!("write a space after the colon: `{key}: …`"));
        (format!("unknown {what} `{name}`"), Some(glued.or(misplaced).unwrap_or_else(|| advice(name, &known))))
    };
    let (message, help) = match cause {
        DecodeCause::MissingKey(key) => {
            let help = places.and_then(|places| places.description(&path.key(*key)));
            return Problem { help, ..Problem::missing_key(path.clone(), key) };
        }
        DecodeCause::UnknownKey(name) => unknown("key", name),
        DecodeCause::UnknownValue(name) => {
            let is_key = matches!(path.segments().last(), Some(Segment::Key(key)) if key == name);
            unknown(if is_key { "kind" } else { "value" }, name)
        }
        DecodeCause::ListForMapping => {
            let help = "write its keys without a `-` before them, and without `[ ]` around them";
            ("wrong type: list, expected a mapping".to_owned(), Some(help.to_owned()))
        }
        DecodeCause::Beside(kind) => {
            let parent = path.parent().unwrap_or_default();
            let key =
                path.segments().last().map(|last| Path::from_iter([last.clone()]).to_string()).unwrap_or_default();
            let help = places.map(|places| beside(&key, kind, &parent, places));
            (format!("`{key}` does not belong beside `{kind}`"), help)
        }
        DecodeCause::OnlyName => {
            let name = tree.text(path).unwrap_or_default();
            let help = format!("write a mapping: `{name}: {{ … }}`");
            (format!("`{name}` alone is not enough: its settings are missing"), Some(help))
        }
        DecodeCause::WrongType { is_unquoted_text: true } => (in_words(message), Some("write it in quotes".to_owned())),
        DecodeCause::NotOneKey => not_one_key(tree.at(path), path, places),
        DecodeCause::WrongType { is_unquoted_text: false } => {
            let glued = tree.text(path).and_then(|text| without_space(&text, message));
            (in_words(message), glued.or_else(|| expected(message, path, places)))
        }
        DecodeCause::Other => (in_words(message), None),
    };
    Problem { path: path.clone(), message, help, severity: Severity::Error, kind: ProblemKind::Other, within: None }
}

/// The error of `node`, which should be a mapping with one key, and advice. Most often a line has the wrong indentation.
fn not_one_key(node: Option<&Node>, path: &Path, places: Option<&Places>) -> (String, Option<String>) {
    let Some(NodeKind::Mapping(entries)) = node.map(|node| &node.kind) else {
        return ("one key is expected here".to_owned(), None);
    };
    let names: Vec<String> = entries.iter().map(|(key, ..)| format!("`{key}`")).collect();
    let kinds = places.map(|places| places.keys(path)).unwrap_or_default();
    if !kinds.is_empty() && !entries.is_empty() && !entries.iter().any(|(key, ..)| kinds.contains(key.as_str())) {
        let help = format!(
            "write one of {} first, and indent the other keys below it",
            kinds.into_iter().collect::<Vec<_>>().join(", ")
        );
        return (format!("no kind is named here, only {}", names.join(" and ")), Some(help));
    }
    let is_parent = |node: &Node| matches!(node.kind, NodeKind::Mapping(_) | NodeKind::Scalar(Value::Null));
    let mut parents = entries.iter().filter(|(.., node)| is_parent(node)).map(|(key, ..)| key);
    let help = match (parents.next(), parents.next(), names.len()) {
        (_, _, 0) => None,
        (Some(parent), None, _) => {
            let others: Vec<&str> =
                names.iter().map(String::as_str).filter(|name| *name != format!("`{parent}`")).collect();
            Some(format!("indent {} further, if it belongs to `{parent}`", others.join(" and ")))
        }
        _ => Some("keep one of them".to_owned()),
    };
    let message = match &names[..] {
        [] => "the mapping is empty; exactly one key is expected".to_owned(),
        _ => format!("exactly one key is expected here, and there are {}", names.join(", ")),
    };
    (message, help)
}

/// A key at `path` that does not belong beside the one key that names a kind there. `None` if there is no such key, or the kind has no value: its
/// keys then most often have the wrong indentation.
fn misplaced(node: Option<&Node>, path: &Path, places: &Places) -> Option<(String, String)> {
    let Some(NodeKind::Mapping(entries)) = node.map(|node| &node.kind) else { return None };
    let kinds = places.keys(path);
    let mut known = entries.iter().filter(|(key, ..)| kinds.contains(key.as_str()));
    let ((kind, _, value), None) = (known.next()?, known.next()) else { return None };
    let (key, ..) = entries.iter().find(|(key, ..)| !kinds.contains(key.as_str()))?;
    (!matches!(value.kind, NodeKind::Scalar(Value::Null))).then(|| (key.clone(), kind.clone()))
}

/// Advice about `key`, which stands beside `kind` in the mapping at `path`.
fn beside(key: &str, kind: &str, path: &Path, places: &Places) -> String {
    let own = places.keys(&path.key(kind));
    match places.above(path, key) {
        _ if own.contains(key) => format!("indent `{key}` further: it belongs to `{kind}`"),
        Some(help) => help,
        None => advice(key, &own.into_iter().collect::<Vec<_>>()),
    }
}

/// The first list around or at `path` where a mapping is expected.
fn list_for_mapping(tree: &Node, path: &Path, places: &Places) -> Option<Path> {
    let around = (1..=path.segments().len()).map(|end| path.segments()[..end].iter().cloned().collect::<Path>());
    let is_list = |path: &Path| matches!(tree.at(path).map(|node| &node.kind), Some(NodeKind::List(_)));
    around.into_iter().find(|path| is_list(path) && places.is_mapping(path))
}

/// Advice about `text`, which is a list or a mapping but for a missing space.
fn without_space(text: &str, message: &str) -> Option<String> {
    let (key, value) = text.trim_start_matches('-').split_once(':').unwrap_or((text, ""));
    let is_key =
        !key.is_empty() && !value.starts_with("//") && key.len() < text.len() && key.chars().all(char::is_alphanumeric);
    match text.strip_prefix('-') {
        Some(item) if message.ends_with("expected a sequence") && !item.starts_with(' ') => {
            Some("write a space after the `-` of each item".to_owned())
        }
        None if is_key && message.contains("expected struct") => {
            Some(format!("write a space after the colon: `{key}: …`"))
        }
        _ => None,
    }
}

/// Advice about a value at `path` that has another type than `message` expects.
fn expected(message: &str, path: &Path, places: Option<&Places>) -> Option<String> {
    if message.ends_with("expected a sequence") {
        return Some("write a list: each item begins with `- `".to_owned());
    }
    let keys: Vec<&str> = places?.keys(path).into_iter().collect();
    let is_mapping = message.contains("expected struct") && !keys.is_empty();
    is_mapping.then(|| format!("write keys below it, indented further; known here: {}", keys.join(", ")))
}

/// Rust's names for types that serde expects, in YAML's names.
static RUST_NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?:internally tagged enum|tuple struct|struct|enum) \w+(?: with \d+ elements?)?").ok()
});

/// serde's message with YAML's names for types.
fn in_words(message: &str) -> String {
    if message == "invalid socket address syntax" {
        return "this is not an address with a port, such as `0.0.0.0:4355`".to_owned();
    }
    // serde takes a list for the fields of a struct, and then misses some.
    if message.starts_with("invalid length ") && message.contains("expected struct") {
        return "wrong type: list, expected a mapping".to_owned();
    }
    let message = RUST_NAMES.as_ref().map_or(message.into(), |names| names.replace_all(message, "a map"));
    let numbers = ["u8", "u16", "u32", "u64", "usize"].map(|name| format!("expected {name}"));
    let message = numbers.iter().fold(message.into_owned(), |message, number| match message.strip_suffix(&**number) {
        Some(before) => format!("{before}expected a whole number, at least 0"),
        None => message,
    });
    message
        .replace("invalid type: ", "wrong type: ")
        .replace("invalid value: ", "wrong value: ")
        .replace("a sequence", "a list")
        .replace("sequence", "list")
        .replace("a map", "a mapping")
        .replace(": map,", ": a mapping,")
}

#[cfg(test)]
mod tests;
