//! From a tree to [`super::Config`] and others, with all errors at once: serde stops at the first, so what it stopped at
//! is noted, taken out, and the rest is tried again.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment as SerdeSegment;

use super::{
    Report,
    tree::{Node, NodeKind},
};
use crate::domain::problem::{Path, Problem, Segment, Severity};

/// The most errors that are looked for.
const MAX_ERRORS: usize = 100;

/// Decodes what can be decoded of `tree`; what cannot is taken out of it and noted in `report`.
/// `None` when not even the outermost mapping fits.
pub(crate) fn decode<T: DeserializeOwned>(tree: &mut Node, report: &mut Report) -> Option<T> {
    decode_knowing(tree, report, |_, _| ())
}

/// As [`decode`]. `knowing` is given the place of each mapping with an unknown key and the keys that are known there, and
/// makes them what an advice should offer.
pub(crate) fn decode_knowing<T: DeserializeOwned>(
    tree: &mut Node,
    report: &mut Report,
    knowing: impl Fn(&Path, &mut Vec<&str>),
) -> Option<T> {
    // serde would read a list as the fields of a struct in their order.
    if !matches!(tree.kind, NodeKind::Mapping(_)) {
        report.syntax(tree.at, "wrong type: the file must hold one mapping".to_owned());
        return None;
    }
    let mut pruned: Vec<Path> = Vec::new();
    for _ in 0..MAX_ERRORS {
        let value = tree.to_value();
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(config) => return Some(config),
            Err(error) => error,
        };
        let message = error.inner().to_string();
        let path = tree.existing(&own_path(error.path()));
        let unknown = backticked(&message, "unknown field").or_else(|| backticked(&message, "unknown variant"));
        let target = unknown.map_or(path.clone(), |key| tree.existing(&path.key(key)));
        let (_, real) = tree.locate(&target);
        if !follows_from(&pruned, &real, &message) {
            let parent = unknown.and_then(|_| target.parent()).unwrap_or_default();
            let (message, help) = in_words(&message, |known| knowing(&parent, known));
            report.add(tree, Problem { path: target.clone(), message, help, severity: Severity::Error });
        }
        pruned.push(real);
        if !tree.prune(&target) {
            return None;
        }
    }
    None
}

/// Whether the error is only there because something below was taken out.
fn follows_from(pruned: &[Path], path: &Path, message: &str) -> bool {
    match backticked(message, "missing field") {
        Some(field) => pruned.contains(&path.key(field)),
        None => pruned.iter().any(|below| below != path && below.is_within(path)),
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

/// `x` of "unknown field `x`, expected …".
fn backticked<'a>(message: &'a str, what: &str) -> Option<&'a str> {
    message.strip_prefix(what)?.trim_start().strip_prefix('`')?.split('`').next()
}

/// What may help whoever wrote `given` where only `known` is known.
#[must_use]
pub(crate) fn advice(given: &str, known: &[&str]) -> String {
    match near(given, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "nothing is known here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// The one of `known` that `given` may be a slip of.
#[must_use]
pub(crate) fn near<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let far = |name: &str| strsim::damerau_levenshtein(name, given);
    known.iter().copied().filter(|name| far(name) <= given.len().div_ceil(3)).min_by_key(|name| far(name))
}

/// serde's message in the words of a configuration, and advice.
fn in_words(message: &str, knowing: impl Fn(&mut Vec<&str>)) -> (String, Option<String>) {
    for (serde, ours) in [("unknown field", "key"), ("unknown variant", "value")] {
        if let Some(given) = backticked(message, serde) {
            let mut known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            knowing(&mut known);
            return (format!("unknown {ours} `{given}`"), Some(advice(given, &known)));
        }
    }
    if let Some(field) = backticked(message, "missing field") {
        return (format!("the key `{field}` is missing"), None);
    }
    let text = message
        .replace("invalid type: ", "wrong type: ")
        .replace("invalid value: ", "wrong value: ")
        .replace("a sequence", "a list")
        .replace("sequence", "list")
        .replace("a map", "a mapping")
        .replace(": map,", ": a mapping,");
    let is_scalar_for_string = message.ends_with("expected a string")
        && ["integer", "floating point", "boolean"]
            .iter()
            .any(|kind| message.contains(&format!("invalid type: {kind}")));
    let help = is_scalar_for_string.then(|| "write it in quotes".to_owned());
    (text, help)
}

#[cfg(test)]
mod tests {
    use crate::{config::Loaded, file::base_dir::BaseDir};

    fn problems(source: &str) -> Vec<String> {
        let report = match Loaded::parse("t.yaml", source.to_owned(), BaseDir::default()) {
            Ok(loaded) => loaded.report(Vec::new()),
            Err(report) => report,
        };
        report.lines()
    }

    #[test]
    fn all_errors_at_once_each_at_its_place() {
        let source = "\
server: { listen: nowhere, deadlin: 3s }
auth:
  tokens:
    - { name: 5, env: X }
    - { env: X }
routes:
  - name: a
    backend: { script: { timeout: soon } }
  - name: b
    backend: { fixd: {} }
    echo: yes
  - name: c
    match: { parameters: [] }
    backend: { fixed: { parameters: [ 1 ] } }
";
        assert_eq!(
            problems(source),
            [
                "t.yaml:1:11: server.listen: invalid socket address syntax",
                "t.yaml:1:28: server.deadlin: unknown key `deadlin` (did you mean `deadline`?)",
                "t.yaml:4:9: auth.tokens[0].name: wrong type: integer `5`, expected a string (write it in quotes)",
                "t.yaml:5:7: auth.tokens[1]: the key `name` is missing",
                "t.yaml:8:16: routes[0].backend.script: the key `command` is missing",
                "t.yaml:8:26: routes[0].backend.script.timeout: `soon` is not a duration such as `500ms`, `30s` or `5m`: expected number at 0",
                "t.yaml:10:16: routes[1].backend.fixd: unknown value `fixd` (did you mean `fixed`?)",
                "t.yaml:11:5: routes[1].echo: wrong type: string \"yes\", expected a list",
                "t.yaml:13:14: routes[2].match.parameters: wrong type: list, expected a mapping",
                "t.yaml:14:39: routes[2].backend.fixed.parameters[0]: wrong type: integer `1`, expected a mapping",
            ]
        );
    }

    #[test]
    fn duplicate_keys_and_broken_yaml() {
        assert_eq!(
            problems("log: {}\nserver: { admin: \"0.0.0.0:1\", admin: \"0.0.0.0:2\" }\nlog: {}\n"),
            [
                "t.yaml:2:31: the key `admin` stands twice in this mapping",
                "t.yaml:3:1: the key `log` stands twice in this mapping",
            ]
        );
        let broken = problems("routes:\n  - name: [\n");
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("t.yaml:"), "{broken:?}");
        let two = "t.yaml:3:1: one YAML document is expected, and here is a second one";
        assert_eq!(problems("log: {}\n---\nroutes: []\n"), [two]);
        let bomb = "a: &a [x, x, x, x, x, x, x, x]\n".to_owned()
            + &[("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f"), ("h", "g")]
                .map(|(one, of)| format!("{one}: &{one} [{}]\n", vec![format!("*{of}"); 8].join(", ")))
                .concat();
        let told = problems(&bomb);
        assert!(told[0].ends_with(": the file is too large or too deep, perhaps by its aliases"), "{told:?}");
        assert_eq!(problems("- a\n"), ["t.yaml:1:1: wrong type: the file must hold one mapping"]);
    }
}
