//! The input parameters as environment variables, so that a shell script needs no JSON. The names are those that Argo CD gives a
//! Config Management Plugin. A caller controls the values of `PARAM_…` and [`PARAMETERS`], and of no other variable.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    ffi::{OsStr, OsString},
    sync::LazyLock,
};

use regex::Regex;
use serde::{Serialize, Serializer};
use serde_json::Value;

use domain::{document, error::BackendError, generator::Parameters};
use launcher::Environment;
use telemetry::trace;

/// All parameters as JSON.
pub(super) const PARAMETERS: &str = "ARGOCD_APP_PARAMETERS";
/// The variable with the trace context of the run, in the format of the header `traceparent`. Many tools read it.
const TRACE_CONTEXT: &str = "TRACEPARENT";
/// The prefix of a parameter's variable.
const PREFIX: &str = "PARAM_";
/// The largest variable, name and value, in bytes. Linux allows 128 KiB.
const MAX_VARIABLE: usize = 100 * 1024;
/// The limit for the variables of all parameters, in bytes. Linux allows 2 MiB for arguments and environment together.
const MAX_VARIABLES: usize = 1024 * 1024;
/// The size of a variable without its text, in bytes: `=`, the end and a pointer.
const OVERHEAD: usize = 10;

/// The second name of a configured variable.
#[must_use]
pub(super) fn alias(name: &str) -> String {
    format!("ARGOCD_ENV_{name}")
}

/// The variable of the parameter `name`.
#[must_use]
pub(super) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", escaped(name))
}

fn escaped(name: &str) -> String {
    let letter = |c: char| match c.to_ascii_uppercase() {
        c @ ('A'..='Z' | '0'..='9' | '_') => c,
        _ => '_',
    };
    name.chars().map(letter).collect()
}

/// A value as text: a string unchanged, other values as JSON, `None` for null.
#[must_use]
pub(super) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.into()),
        other => Some(other.to_string().into()),
    }
}

/// Adds the variables of `parameters` to the configured variables. A parameter that is too large for the remaining space is left
/// out whole. The program still gets it on stdin.
///
/// # Errors
/// When two values need the same variable, or a value contains NUL.
pub(super) fn add<'a>(variables: &mut Environment<'a>, parameters: &'a Parameters) -> Result<(), BackendError> {
    let all: Vec<Vec<TextPart<'a>>> = parameters.iter().map(|(name, value)| parts(name, value)).collect();
    // Check all names first: a collision must not depend on the size of a value.
    let mut owners: BTreeMap<&str, Option<&str>> = variables.iter().map(|(name, _)| (&**name, None)).collect();
    for (name, parts) in parameters.keys().zip(&all) {
        if parts.iter().any(|part| part.value.contains('\0')) {
            let name = shown(name);
            return Err(BackendError::invalid_input(format!(
                "the parameter `{name}` holds a NUL character, which no environment variable can hold"
            )));
        }
        for part in parts {
            match owners.entry(&part.variable) {
                Entry::Occupied(taken) => return Err(collision(taken.key(), *taken.get(), &part.label)),
                Entry::Vacant(free) => _ = free.insert(Some(&part.label)),
            }
        }
    }
    let mut room = MAX_VARIABLES;
    let announced: Vec<Announced<'_>> = parameters.iter().filter_map(|(name, value)| announced(name, value)).collect();
    let announced = document::text(&announced);
    if PARAMETERS.len() + announced.len() <= MAX_VARIABLE {
        room -= announced.len();
        variables.push((PARAMETERS.into(), os(announced.into())));
    }
    for parts in all {
        let sizes = || parts.iter().map(|part| part.variable.len() + part.value.len() + OVERHEAD);
        let size: usize = sizes().sum();
        if size > room || sizes().any(|size| size > MAX_VARIABLE) {
            continue;
        }
        room -= size;
        variables.extend(parts.into_iter().map(|part| (part.variable.into(), os(part.value))));
    }
    Ok(())
}

/// `text` as a string of the operating system.
fn os(text: Cow<'_, str>) -> Cow<'_, OsStr> {
    match text {
        Cow::Borrowed(text) => OsStr::new(text).into(),
        Cow::Owned(text) => OsString::from(text).into(),
    }
}

/// Adds [`TRACE_CONTEXT`], if the run belongs to a trace and the configuration sets nothing of that name.
pub(crate) fn add_trace(variables: &mut Environment<'_>) {
    if let Some(span) = trace::current()
        && variables.iter().all(|(name, _)| name != TRACE_CONTEXT)
    {
        variables.push((TRACE_CONTEXT.into(), os(span.context().to_string().into())));
    }
}

fn collision(variable: &str, other: Option<&str>, label: &str) -> BackendError {
    let (variable, label) = (shown(variable), shown(label));
    BackendError::invalid_input(match other {
        Some(other) => {
            format!("the parameters `{}` and `{label}` would both be the variable {variable}; rename one", shown(other))
        }
        None => format!("the parameter `{label}` would be the variable {variable}, which the configuration sets"),
    })
}

/// A name that a caller chose, in a message.
fn shown(name: &str) -> String {
    name.escape_debug().take(80).collect()
}

/// Matches the variables of `parameters` in a listing of the environment on stderr. Messages hide these values, because no message
/// may hold a whole request. A value that the program prints in another form stays.
#[must_use]
pub(crate) fn dump_pattern(parameters: &Parameters) -> &'static Regex {
    static LINE: LazyLock<Regex> = LazyLock::new(|| pattern(".*"));
    static ALL: LazyLock<Regex> = LazyLock::new(|| pattern("(?s:.*)"));
    let has_lines = |value: &Value| match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).any(|text| text.contains('\n')),
        Value::Object(map) => map.values().filter_map(Value::as_str).any(|text| text.contains('\n')),
        scalar => scalar.as_str().is_some_and(|text| text.contains('\n')),
    };
    if parameters.values().any(has_lines) { &ALL } else { &LINE }
}

fn pattern(value: &str) -> Regex {
    let source = format!(r#"((?:{PREFIX}[A-Z0-9_]*|{PARAMETERS})(?:['"]?=|['"]\s*:)){value}"#);
    #[expect(clippy::expect_used, reason = "it is the same each time, and a test builds it")]
    Regex::new(&source).expect("a regular expression")
}

/// One variable of a parameter.
struct TextPart<'a> {
    variable: String,
    value: Cow<'a, str>,
    /// Which value it is: `list[0]`, `map.key`.
    label: Cow<'a, str>,
}

fn parts<'a>(name: &'a str, value: &'a Value) -> Vec<TextPart<'a>> {
    let base = variable(name);
    match value {
        Value::Array(items) => items
            .iter()
            .filter_map(text)
            .enumerate()
            .map(|(index, value)| TextPart {
                variable: format!("{base}_{index}"),
                value,
                label: format!("{name}[{index}]").into(),
            })
            .collect(),
        Value::Object(map) => map
            .iter()
            .filter_map(|(key, value)| {
                let variable = format!("{base}_{}", escaped(key));
                Some(TextPart { variable, value: text(value)?, label: format!("{name}.{key}").into() })
            })
            .collect(),
        scalar => {
            let part = text(scalar).map(|value| TextPart { variable: base, value, label: name.into() });
            part.into_iter().collect()
        }
    }
}

/// A parameter in the form of an Application's `spec.source.plugin.parameters`.
#[derive(Serialize)]
struct Announced<'a> {
    name: &'a str,
    #[serde(flatten)]
    texts: Texts<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Texts<'a> {
    Array(Vec<Cow<'a, str>>),
    #[serde(serialize_with = "in_order")]
    Map(Vec<(&'a str, Cow<'a, str>)>),
    String(Cow<'a, str>),
}

fn in_order<S: Serializer>(entries: &[(&str, Cow<'_, str>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
}

fn announced<'a>(name: &'a str, value: &'a Value) -> Option<Announced<'a>> {
    let texts = match value {
        Value::Array(items) => Texts::Array(items.iter().filter_map(text).collect()),
        Value::Object(map) => {
            Texts::Map(map.iter().filter_map(|(key, value)| Some((key.as_str(), text(value)?))).collect())
        }
        scalar => Texts::String(text(scalar)?),
    };
    Some(Announced { name, texts })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn added(configured: &[&str], parameters: &Value) -> Result<Vec<String>, String> {
        let mut variables: Environment<'_> =
            configured.iter().map(|&name| (name.into(), os("configured".into()))).collect();
        add(&mut variables, parameters.as_object().unwrap()).map_err(|error| error.message)?;
        let lines = variables.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap()));
        Ok(lines.skip(configured.len()).collect())
    }

    #[test]
    fn names_and_values_follow_config_management_plugins() {
        let parameters = json!({
            "values-files": ["a.yaml", null, 2, ["x"]], "helm": {"image.tag": "v1", "none": null, "deep": {"a": true}},
            "n": 1.5, "on": false, "none": null, "ä/b": "x\n=y", "empty": [],
        });
        assert_eq!(
            added(&["PATH"], &parameters).unwrap(),
            [
                concat!(
                    r#"ARGOCD_APP_PARAMETERS=[{"name":"values-files","array":["a.yaml","2","[\"x\"]"]},"#,
                    r#"{"name":"helm","map":{"image.tag":"v1","deep":"{\"a\":true}"}},{"name":"n","string":"1.5"},"#,
                    r#"{"name":"on","string":"false"},{"name":"ä/b","string":"x\n=y"},{"name":"empty","array":[]}]"#
                ),
                "PARAM_VALUES_FILES_0=a.yaml",
                "PARAM_VALUES_FILES_1=2",
                r#"PARAM_VALUES_FILES_2=["x"]"#,
                "PARAM_HELM_IMAGE_TAG=v1",
                r#"PARAM_HELM_DEEP={"a":true}"#,
                "PARAM_N=1.5",
                "PARAM_ON=false",
                "PARAM___B=x\n=y",
            ]
        );
    }

    #[test]
    fn no_parameter_sets_another_variable() {
        let names = json!({"PATH": "x", "LD_PRELOAD=/x.so": "x", "": "x", "BASH_FUNC_ls%%": "() { :; }", "\0\n": "x"});
        let variables = added(&["PATH", "LD_PRELOAD"], &names).unwrap();
        assert_eq!(
            variables[1..],
            ["PARAM_PATH=x", "PARAM_LD_PRELOAD__X_SO=x", "PARAM_=x", "PARAM_BASH_FUNC_LS__=() { :; }", "PARAM___=x"]
        );
    }

    #[test]
    fn a_collision_or_nul_names_the_parameter() {
        for (parameters, says) in [
            (json!({"a-b": "x", "a_b": "y"}), "the parameters `a-b` and `a_b` would both be the variable PARAM_A_B;"),
            (json!({"a": ["x"], "a_0": "y"}), "`a[0]` and `a_0`"),
            (json!({"a": {"b.c": 1, "b/c": 2}}), "`a.b.c` and `a.b/c`"),
            (json!({"x": "y"}), "the parameter `x` would be the variable PARAM_X, which the configuration sets"),
            (json!({"a": "x\u{0}"}), "the parameter `a` holds a NUL"),
            (json!({"a": ["x\u{0}"]}), "the parameter `a` holds a NUL"),
        ] {
            let error = added(&["PARAM_X"], &parameters).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        // No collision: a null has no variable, and JSON escapes NUL.
        added(&["PARAM_X"], &json!({"a-b": null, "a_b": 1, "X": [], "deep": [{"a": "\u{0}"}]})).unwrap();
    }

    #[test]
    fn a_listed_environment_is_hidden() {
        let hidden = |parameters: Value, text: &str| {
            dump_pattern(parameters.as_object().unwrap()).replace_all(text, "${1}*").into_owned()
        };
        for (text, shown) in [
            (
                "PATH=/bin\nPARAM_A=b c\nARGOCD_APP_PARAMETERS=[]\nX=y",
                "PATH=/bin\nPARAM_A=*\nARGOCD_APP_PARAMETERS=*\nX=y",
            ),
            ("export PARAM_A='b'\nno network", "export PARAM_A=*\nno network"),
            ("environ({'X': 'y', 'PARAM_A': 'b', 'Z': 'z'})\nKeyError", "environ({'X': 'y', 'PARAM_A':*\nKeyError"),
            ("sh: 1: PARAM_A: parameter not set", "sh: 1: PARAM_A: parameter not set"),
        ] {
            assert_eq!(hidden(json!({"a": "b c"}), text), shown);
        }
        for parameters in [json!({"a": "b\nc"}), json!({"a": ["b\nc"]}), json!({"a": {"b": "b\nc"}})] {
            assert_eq!(hidden(parameters, "X=y\nPARAM_A=b\nc\nZ=z"), "X=y\nPARAM_A=*");
        }
    }

    #[test]
    fn a_large_parameter_is_only_on_stdin() {
        let of = |bytes: usize| "x".repeat(bytes);
        let names = |parameters: Value| {
            let variables = added(&[], &parameters).unwrap();
            variables.iter().map(|line| line.split('=').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(json!({"a": of(90_000)})), [PARAMETERS, "PARAM_A"]);
        assert_eq!(names(json!({"a": of(102_400), "b": "x"})), ["PARAM_B"]);
        assert_eq!(names(json!({"a": ["x", of(102_400)], "b": "x"})), ["PARAM_B"]);
        // A parameter that is only on stdin collides too.
        for both in [json!({"a-b": of(102_400), "a_b": "x"}), json!({"a-b": "x", "a_b": of(102_400)})] {
            assert!(added(&[], &both).unwrap_err().contains("`a-b` and `a_b` would both be"));
        }
        let many: Vec<u32> = (0..100_000).collect();
        assert_eq!(names(json!({"a": many, "b": "x"})), ["PARAM_B"]);
        let twelve: Parameters = (0..12).map(|n| (format!("p{n}"), of(100_000).into())).collect();
        assert_eq!(names(Value::Object(twelve)).len(), 10);
    }
}
