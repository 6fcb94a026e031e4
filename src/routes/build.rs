//! Builds a route from its configuration, and checks its name, lineage and deadline.

use std::sync::Arc;

use serde_json::Value;

use super::{RouteConfig, former::FormerNames, shadow::ShadowOf};
use backend::{
    BackendConfig, BuildContext, Building,
    script::{Package, probe::CommandProbe},
};
use domain::{
    problem::{Path, Problems},
    spelling::near,
    units::HumanDuration,
};
use engine::{
    guard::Guard,
    route::{Accepts, Origin, Route, RouteParts, announced::Announced, input::Input},
    shape::{Shape, ShapeConfig},
};
use lang::scope::ValueType;
use source::Backend;
use telemetry::metrics::Metrics;

/// Notes the problems of a deadline for Argo CD's calls.
pub(crate) fn check_deadline(deadline: HumanDuration, path: &Path, problems: &mut Problems) {
    problems.check_not_zero(path, deadline.0);
    if deadline.0.as_secs() >= 30 {
        problems.warning(
            path,
            "Argo CD gives up after 30 s and then shows no reason",
            "keep it below 30 s, or raise `requestTimeout` in the plugin's ConfigMap",
        );
    }
}

/// Notes the problems of the route's name.
pub(super) fn check_name(config: &RouteConfig, is_taken: bool, building: &mut Building<'_>) {
    let name = &config.name;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > 63
        || !name.chars().all(fits)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let message = format!("`{}` cannot be a route's name", name.escape_debug());
        let help =
            "it has up to 63 of a-z, 0-9, `-`, `_` and `.`, and begins with a letter or a digit, such as `team-a`";
        building.error_with_help(message, help);
    }
    if is_taken {
        let help = "give one of them another name; the name is a part of the route's URL";
        building.error_with_help(format!("two routes are called `{name}`"), help);
    }
}

/// Notes the problems of a lineage, or that there should be one: a commit that is new
/// has no answer of its own, and an empty one deletes the preview of the commit before.
fn check_lineage(config: &RouteConfig, raw: &Value, building: &mut Building<'_>) {
    let declared: Vec<&str> = config.input.iter().flatten().map(|parameter| parameter.name.as_str()).collect();
    let is_all = config.input.is_some() && config.dynamic_input.is_none();
    let Some(lineage) = &config.lineage else {
        let uses = |name: &&&str| uses_parameter(config, raw, name, &declared);
        if let Some(commit) = COMMITS.iter().find(uses) {
            building.warning(
                format!("the route uses the commit `{commit}` and names no lineage"),
                "name the parameters that stay when the commit moves on, such as `lineage: [branch]`; else each new commit \
                 begins without a last good answer",
            );
        }
        return;
    };
    if lineage.is_empty() {
        building.error_with_help(
            "the lineage is empty, so that all queries would be one",
            "leave it out, or name parameters",
        );
    }
    for (index, name) in lineage.iter().enumerate().filter(|(_, name)| is_all && !declared.contains(&name.as_str())) {
        let message = format!("`{name}` is not declared in `input`");
        building.index(index).error_with_help(message, declare(name, &declared));
    }
}

/// Whether an answer of the route depends on the parameter `name` for its query or its answer.
fn uses_parameter(config: &RouteConfig, raw: &Value, name: &str, declared: &[&str]) -> bool {
    let mut own = raw.clone();
    for unrelated in ["shadow", "match", "input"] {
        own.as_object_mut().map(|own| own.remove(unrelated));
    }
    let text = own.to_string();
    // A script and another plugin get all parameters.
    let gets_all = ["\"script\":", "\"plugin\":"].iter().any(|kind| text.contains(kind))
        || config.backend.kind() == "script"
        || config.dynamic_input.is_some();
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let in_dots = format!("params.{name}");
    let in_brackets = ["'", "\\\""].map(|quote| format!("params[{quote}{name}{quote}]"));
    text.match_indices(&in_dots).any(|(at, _)| is_end(&text[at + in_dots.len()..]))
        || in_brackets.iter().any(|written| text.contains(written))
        || config.echo.iter().any(|echoed| echoed == name)
        || gets_all && declared.contains(&name)
}

/// Warns of fields of `each.key` that no template of `output` reads: two elements may make the same Application.
fn check_element_key(config: &RouteConfig, backend: &dyn Backend, building: &mut Building<'_>) {
    let each = backend.each().filter(|each| each.has_item_in_sets);
    let (Some(each), Some(output)) = (each, &config.output) else { return };
    let is_read =
        |field: &String| config.echo.contains(field) || output.values().any(|template| reads_item(template, field));
    let dropped: Vec<&str> = each.key.iter().filter(|field| !is_read(field)).map(String::as_str).collect();
    if let Some(first) = dropped.first() {
        building.warning(
            format!(
                "no value is made of `{}`, which `each.key` names, so two elements may make the same Application",
                dropped.join("`, `")
            ),
            format!("add one, such as `{}: \"{{{{ item.{first} }}}}\"`", first.rsplit('.').next().unwrap_or(first)),
        );
    }
}

/// Whether `template` reads the `field` of the list's item, or the whole item.
fn reads_item(template: &str, field: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    template.match_indices("item").any(|(at, name)| {
        let (before, rest) = (&template[..at], &template[at + name.len()..]);
        if before.ends_with(|c: char| is_word(c) || c == '.') || rest.starts_with(is_word) {
            return false;
        }
        let rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(path) => {
                path.strip_prefix(field).is_some_and(|end| !end.starts_with(is_word))
                    || field.starts_with(&format!("{}.", path_of(path)))
            }
            // `item['number']`, or the whole item.
            None => !rest.starts_with('[') || rest.contains(field),
        }
    })
}

/// The names with dots at the beginning of `text`.
fn path_of(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
    &text[..end]
}

/// Advice about `name`, which is not among the `declared` parameters.
fn declare(name: &str, declared: &[&str]) -> String {
    match near(name, declared) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("declare it in `input`, or leave it out; declared: {}", declared.join(", ")),
    }
}

/// Notes the names in `echo` that `input` does not declare.
fn check_echo(config: &RouteConfig, input: &Input, building: &mut Building<'_>) {
    let declared: Vec<&str> = config.input.iter().flatten().map(|parameter| parameter.name.as_str()).collect();
    for (index, name) in config.echo.iter().enumerate().filter(|(_, name)| !input.has(name)) {
        let message = format!("`{name}` is not declared in `input`");
        building.index(index).error_with_help(message, declare(name, &declared));
    }
}

/// Notes the parameters in `match` that `input` does not declare. A call with one of them is refused.
fn check_match(config: &RouteConfig, input: &Input, building: &mut Building<'_>) {
    let declared: Vec<&str> = config.input.iter().flatten().map(|parameter| parameter.name.as_str()).collect();
    for name in config.matches.iter().flat_map(|matches| matches.parameters.keys()).filter(|name| !input.has(name)) {
        let message = format!("`{name}` is not declared in `input`, so each call that fits is refused");
        building.key(name).mistake(message, declare(name, &declared));
    }
}

/// The names of commits in generators; the first three are those of Argo CD's pull request generator.
const COMMITS: [&str; 6] = ["head_sha", "head_short_sha", "head_short_sha_7", "sha", "commit", "revision"];

/// The known parameters of a call: the names that `input` declares. Others are refused.
fn parameters(config: &RouteConfig) -> ValueType {
    match &config.input {
        Some(input) if config.dynamic_input.is_none() => {
            ValueType::object(input.iter().map(|parameter| parameter.name.as_str()))
        }
        _ => ValueType::Anything,
    }
}

/// The common parts of routes.
#[derive(Clone, Copy)]
pub(super) struct Defaults<'a> {
    /// The deadline of a route that sets none: the server's.
    pub(super) deadline: HumanDuration,
    pub(super) metrics: &'a Metrics,
}

/// The route of `config`, or `None` with its problems noted. `raw` is its configuration as a document.
pub(super) fn build_route(
    config: &RouteConfig,
    raw: &Value,
    defaults: Defaults<'_>,
    building: &mut Building<'_>,
) -> Option<Route> {
    let Defaults { deadline: usual, metrics } = defaults;
    let evaluator = building.context.evaluator.of_another_route();
    let scope = building.context.scope.with("params", parameters(config));
    let context = BuildContext { raw, evaluator: &evaluator, scope: &scope, ..building.context };
    let building = &mut building.with(context);
    let matcher = config.matches.as_ref().map(|matches| matches.build(&config.backend, &mut building.key("match")));
    let input = build_input(config, building);
    check_lineage(config, raw, &mut building.key("lineage"));
    if let Some(deadline) = config.deadline {
        check_deadline(deadline, &building.path.key("deadline"), building.problems);
    }
    let deadline = config.deadline.unwrap_or(usual);
    let backend = config.backend.build(&mut building.key("backend"));
    if let Some(backend) = &backend {
        check_element_key(config, &**backend, &mut building.key("output"));
    }
    let item = backend.as_ref().map(|backend| backend.nature().item.clone()).unwrap_or_default();
    let of_shape = ShapeConfig {
        output: config.output.as_ref(),
        echo: &config.echo,
        stringify: config.stringify,
        nulls: config.nulls,
    };
    let shape = Shape::build(of_shape, &scope.with_keys_of(&item), &evaluator, &building.path, building.problems);
    if let BackendConfig::Fixed(fixed) = &config.backend {
        shape.check_names(&fixed.parameters, &building.path.key("output"), building.problems);
    }
    let guard = building.path.key("guard");
    if let Some(keys) = shape.possible_keys(&item) {
        config.guard.identity.check_keys(&keys, &guard.key("identity"), building.problems);
    }
    let of = ShadowOf {
        route: &config.name,
        raw,
        primary: backend.as_ref(),
        shape: of_shape,
        keys: shape.possible_keys(&item),
        identity: &config.guard.identity,
        deadline,
    };
    let shadow = config.shadow.as_ref().and_then(|shadow| shadow.build(&of, metrics, &mut building.key("shadow")));
    Some(Route::new(RouteParts {
        name: config.name.clone(),
        formerly: config.formerly.iter().flat_map(FormerNames::names).map(|name| name.as_str().into()).collect(),
        kind: config.backend.kind(),
        backend: backend?,
        matcher: matcher.flatten(),
        input: input?,
        shape,
        cache: config.cache,
        lineage: config.lineage.clone(),
        guard: Guard::build(&config.guard, &guard, building.problems),
        deadline: deadline.0,
        shadow,
        metrics: metrics.route(&config.name, config.backend.kind()),
        origin: Origin {
            raw: raw.clone(),
            base: context.base.clone(),
            deadline: usual,
            package: context.package.map(Package::origin),
        },
    }))
}

/// Which parameters the route accepts, or `None` with the problems noted.
fn build_input(config: &RouteConfig, building: &mut Building<'_>) -> Option<Accepts> {
    let input = config.input.as_ref().map(|input| Input::build(input, &building.path.key("input"), building.problems));
    if let Some(command) = &config.dynamic_input {
        let mut building = building.key("dynamicInput");
        let probe = CommandProbe::build(command, &config.backend, &mut building.key("command"));
        let declared = config.input.as_deref().unwrap_or_default();
        let announced = Announced::new(Arc::new(probe?), declared, building.context.clock);
        return Some(Accepts::Announced(Box::new(announced)));
    }
    let Some(input) = input else { return Some(Accepts::All) };
    check_echo(config, &input, &mut building.key("echo"));
    check_match(config, &input, &mut building.key("match").key("parameters"));
    Some(Accepts::Declared(input))
}

#[cfg(test)]
mod tests {
    use super::reads_item;

    #[test]
    fn a_template_reads_a_field_of_the_item() {
        let reads = |template: &str| reads_item(template, "number");
        for template in
            ["{{ item.number }}", "pr-{{item.number|int}}", "{{ item['number'] }}", "{{ item | tojson }}", "{{ item }}"]
        {
            assert!(reads(template), "{template}");
        }
        for template in
            ["{{ item.numbers }}", "{{ number }}", "{{ items.number }}", "{{ x.item.number }}", "{{ item.branch }}"]
        {
            assert!(!reads(template), "{template}");
        }
        assert!(reads_item("{{ item.head.sha }}", "head.sha") && reads_item("{{ item.head | tojson }}", "head.sha"));
        assert!(!reads_item("{{ item.head.ref }}", "head.sha"));
    }
}
