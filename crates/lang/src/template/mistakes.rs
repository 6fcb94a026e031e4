//! The probable meaning of a template that is wrong: the ways of Go's templates, of shells and of other languages.

use std::sync::LazyLock;

use regex::Regex;

use super::known::FILTERS;
use crate::scope::{NameScope, ValueType};

fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// The text to write in place of a template that cannot be parsed, as the end of a message. Empty if that is unknown.
pub(super) fn of_syntax(source: &str, scope: Option<&NameScope>) -> String {
    meant(source, scope).map(|meant| format!("; {meant}")).unwrap_or_default()
}

/// The name to write for the one top-level name that is `unknown`. `names` are all names, with their parts.
pub(super) fn of_unknown<'n>(
    unknown: &[&str],
    mut names: impl Iterator<Item = &'n str>,
    scope: &NameScope,
) -> Option<String> {
    let [top] = unknown else { return None };
    instead(names.find(|name| name.split('.').next() == Some(top))?, scope)
}

fn meant(source: &str, scope: Option<&NameScope>) -> Option<String> {
    static GO: LazyLock<Option<Regex>> =
        LazyLock::new(|| regex(r"\{\{-?\s*\$?\.((?:Values\.)?[A-Za-z_]\w*(?:\.\w+)*)"));
    static ARGUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r#"\|\s*(\w+)\s+("[^"]*"|'[^']*'|\d+)"#));
    static STATEMENT: LazyLock<Option<Regex>> =
        LazyLock::new(|| regex(r"\{\{-?\s*(if|else|end|range|with|include|index|printf)\b"));
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"\{\{-?\s*(\w+)\s+([A-Za-z_][\w.]*)"));
    if let Some(go) = GO.as_ref()?.captures(source) {
        let name = go[1].strip_prefix("Values.").unwrap_or(&go[1]);
        return Some(format!("write `{{{{ {} }}}}`, without the dot of Go's templates", known(name, scope)));
    }
    if let Some(statement) = STATEMENT.as_ref()?.captures(source) {
        return Some(match &statement[1] {
            "if" | "else" | "end" => "write `{% if … %}…{% endif %}`, and not as in Go's templates".to_owned(),
            "range" | "with" => "write `{% for … in … %}…{% endfor %}`, and not as in Go's templates".to_owned(),
            "index" => "write `{{ list[0] }}` or `{{ map['key'] }}`".to_owned(),
            other => format!("there is no `{other}` here; join texts and names as in `a-{{{{ name }}}}`"),
        });
    }
    if let Some(argument) = ARGUMENT.as_ref()?.captures(source) {
        return Some(format!("write arguments of a filter in parentheses: `| {}({})`", &argument[1], &argument[2]));
    }
    if let Some(call) = CALL.as_ref()?.captures(source).filter(|call| FILTERS.contains(&&call[1])) {
        return Some(format!("write a filter after the value: `{{{{ {} | {} }}}}`", &call[2], &call[1]));
    }
    let operators = [("||", "or"), ("&&", "and"), ("??", "| default('…')")];
    if let Some((operator, meant)) = operators.into_iter().find(|(operator, _)| source.contains(operator)) {
        return Some(format!("write `{meant}` in place of `{operator}`"));
    }
    let is_open = |begin: &str, end: &str| source.matches(begin).count() > source.matches(end).count();
    if is_open("{{", "}}") {
        return Some("write `}}` at the end of what `{{` begins".to_owned());
    }
    if source.contains("{% if") && !source.contains("endif") {
        return Some("write `{% endif %}` at its end".to_owned());
    }
    if source.contains("{% for") && !source.contains("endfor") {
        return Some("write `{% endfor %}` at its end".to_owned());
    }
    None
}

/// The name to write for `name`, which may be one of a parameter.
fn known(name: &str, scope: Option<&NameScope>) -> String {
    scope.and_then(|scope| instead(name, scope)).unwrap_or_else(|| name.to_owned())
}

/// The name that is meant by the `dotted` name, of which the first part is unknown: without its first parts, or a parameter.
pub(super) fn instead(dotted: &str, scope: &NameScope) -> Option<String> {
    let candidates = std::iter::successors(Some(dotted), |name| name.split_once('.').map(|(_, rest)| rest));
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let candidates: Vec<&str> = candidates.collect();
    if let Some(name) = candidates.iter().find(|name| scope.has(&first(name))) {
        return Some((*name).to_owned());
    }
    let parameters = scope.get("params").filter(|_| scope.has("params"))?;
    let is_parameter =
        |name: &&&str| matches!(&parameters, ValueType::Object(_)) && parameters.field(&first(name)).is_ok();
    candidates.iter().find(is_parameter).map(|name| format!("params.{name}"))
}

/// A `${name}` in `source` that is plain text here, and the text to write instead.
pub(super) fn shell_variable(source: &str, scope: &NameScope) -> Option<(String, String)> {
    static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"\$\{([A-Za-z_][\w.]*)\}"));
    VARIABLE.as_ref()?.captures_iter(source).find_map(|variable| {
        let meant = instead(&variable[1], scope)?;
        Some((variable[0].to_owned(), format!("write `{{{{ {meant} }}}}`")))
    })
}
