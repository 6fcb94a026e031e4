//! `input`: the parameters that a route understands, as a Config Management Plugin announces its own:
//! checked, converted where Argo CD could only send text, and completed with defaults.

use std::fmt;

use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use domain::{
    document::{self, exact, kind_of},
    generator::Parameters,
    pattern,
    problem::{Path, Problems},
    secret::literal,
};

/// One declared parameter.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputParameter {
    /// Its name.
    pub name: String,
    /// Its type. Interpolated parameters reach Argo CD's plugin as text, so `"3"` and `"true"` are
    /// taken for a number and a boolean where one is declared.
    #[serde(rename = "type", default)]
    pub kind: Type,
    /// Whether a call without it is refused.
    #[serde(default)]
    pub required: bool,
    /// Its value where the call has none.
    #[serde(default, deserialize_with = "exact::read")]
    pub default: Option<Value>,
    /// A regular expression that the whole text must match. For strings only.
    pub pattern: Option<String>,
    /// Its meaning, in a few words; shown when it is missing or wrong.
    pub title: Option<String>,
}

/// Types of parameters, in the words of a Config Management Plugin (`map` is an object).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// Text.
    #[default]
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list.
    Array,
    /// An object.
    Map,
}

impl Type {
    const fn article(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Array => "a list",
            Self::Map => "an object",
        }
    }

    /// `value` as this type; `None` if it has another type.
    fn convert(self, value: Value) -> Result<Value, Value> {
        match (self, value) {
            (Self::Number, Value::String(text)) => match document::parse(text.as_bytes()) {
                Ok(Value::Number(number)) => Ok(Value::Number(number)),
                _ => Err(Value::String(text)),
            },
            (Self::Boolean, Value::String(text)) => match text.as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(Value::String(text)),
            },
            (Self::String, value @ Value::String(_))
            | (Self::Number, value @ Value::Number(_))
            | (Self::Boolean, value @ Value::Bool(_))
            | (Self::Array, value @ Value::Array(_))
            | (Self::Map, value @ Value::Object(_)) => Ok(value),
            (_, other) => Err(other),
        }
    }
}

/// Why a value is not one of a declared parameter.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// It has another type.
    #[error("must be {expected}, is {found}")]
    Type {
        /// The declared type.
        expected: &'static str,
        /// Its type.
        found: &'static str,
    },
    /// It is empty, and the parameter is required.
    #[error("is required and empty")]
    Empty,
    /// It does not match the parameter's pattern.
    #[error("`{}` does not match `{pattern}`", .text.escape_debug())]
    Pattern {
        /// Its beginning.
        text: String,
        /// The pattern.
        pattern: String,
    },
}

/// The mistake in one parameter of a call.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// Its value is refused.
    #[error("parameter `{name}`{title}: {cause}")]
    Value {
        /// The name.
        name: String,
        /// The title in parentheses, or nothing.
        title: String,
        /// Why the value is refused.
        #[source]
        cause: ValueError,
    },
    /// It is required, and the call does not have it.
    #[error("parameter `{name}`{title} is missing")]
    Missing {
        /// The name.
        name: String,
        /// The title in parentheses, or nothing.
        title: String,
    },
    /// The call has parameters that are not declared.
    #[error("unknown parameter `{}`; this route has: {known}", .names.escape_debug())]
    Unknown {
        /// Some of their names.
        names: String,
        /// The names of the declared parameters.
        known: String,
    },
}

/// All mistakes in the parameters of a call.
#[derive(Debug)]
pub struct InputError(Vec<ParameterError>);

impl std::error::Error for InputError {}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

/// All declared parameters of a route.
#[derive(Debug)]
pub struct Input {
    declared: Vec<(InputParameter, Option<Regex>)>,
}

impl Input {
    /// Checks each declaration, and the declarations against each other.
    pub fn build(config: &[InputParameter], path: &Path, problems: &mut Problems) -> Self {
        let mut declared = Vec::new();
        for (index, parameter) in config.iter().enumerate() {
            let path = path.index(index);
            if config[..index].iter().any(|other| other.name == parameter.name) {
                problems.error(&path.key("name"), format!("two parameters are called `{}`", parameter.name));
            }
            if parameter.required && parameter.default.is_some() {
                let help = "leave out `required` or `default`";
                problems.error_with_help(&path.key("default"), "a required parameter needs no default", help);
            }
            let pattern = match &parameter.pattern {
                Some(_) if parameter.kind != Type::String => {
                    problems.error(&path.key("pattern"), "a pattern is for strings only");
                    None
                }
                Some(pattern) => problems.note(&path.key("pattern"), pattern::whole(pattern)),
                None => None,
            };
            let mut entry = (parameter.clone(), pattern);
            if let Some(default) = &parameter.default {
                if let Some(text) = default.as_str() {
                    literal::check_default(&parameter.name, text, &path.key("default"), problems);
                }
                entry.0.default = problems.note(&path.key("default"), check(&entry, default.clone()));
            }
            declared.push(entry);
        }
        Self { declared }
    }

    /// Whether `name` is declared.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.declared.iter().any(|(parameter, _)| parameter.name == name)
    }

    /// `accepted` without the parameters that have their default, which a caller need not send.
    #[must_use]
    pub fn without_defaults(&self, accepted: &Parameters) -> Parameters {
        let is_default = |name: &str, value: &Value| {
            self.declared.iter().any(|(known, _)| known.name == *name && known.default.as_ref() == Some(value))
        };
        let sent = accepted.iter().filter(|(name, value)| !is_default(name, value));
        sent.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The parameters of a call: checked, converted, with defaults.
    ///
    /// # Errors
    /// All problems of the parameters.
    pub fn accept(&self, mut parameters: Parameters) -> Result<Parameters, InputError> {
        let mut accepted = Parameters::new();
        let mut wrong = Vec::new();
        for entry in &self.declared {
            let parameter = &entry.0;
            let name = || parameter.name.clone();
            match parameters.shift_remove(&parameter.name).filter(|value| !value.is_null()) {
                Some(value) => match check(entry, value) {
                    Ok(value) => _ = accepted.insert(name(), value),
                    Err(cause) => wrong.push(ParameterError::Value { name: name(), title: title(parameter), cause }),
                },
                None if parameter.required => {
                    wrong.push(ParameterError::Missing { name: name(), title: title(parameter) });
                }
                None => accepted.extend(parameter.default.clone().map(|value| (name(), value))),
            }
        }
        if !parameters.is_empty() {
            let unknown: Vec<&str> = parameters.keys().map(String::as_str).take(5).collect();
            let known: Vec<&str> = self.declared.iter().map(|(parameter, _)| parameter.name.as_str()).collect();
            wrong.push(ParameterError::Unknown { names: unknown.join("`, `"), known: known.join(", ") });
        }
        if wrong.is_empty() { Ok(accepted) } else { Err(InputError(wrong)) }
    }
}

fn title(parameter: &InputParameter) -> String {
    parameter.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default()
}

fn check((parameter, pattern): &(InputParameter, Option<Regex>), value: Value) -> Result<Value, ValueError> {
    let value = parameter
        .kind
        .convert(value)
        .map_err(|value| ValueError::Type { expected: parameter.kind.article(), found: kind_of(&value) })?;
    if parameter.required && value.as_str().is_some_and(str::is_empty) {
        return Err(ValueError::Empty);
    }
    match (pattern, value.as_str()) {
        (Some(pattern), Some(text)) if !pattern.is_match(text) => {
            let pattern = parameter.pattern.clone().unwrap_or_default();
            Err(ValueError::Pattern { text: text.chars().take(80).collect(), pattern })
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(config: &Value) -> Input {
        let config: Vec<InputParameter> = serde_json::from_value(config.clone()).unwrap();
        let mut problems = Problems::default();
        let input = Input::build(&config, &Path::root(), &mut problems);
        assert_eq!(problems.into_vec(), vec![]);
        input
    }

    fn accept(input: &Input, parameters: &Value) -> Result<String, String> {
        let accepted = input.accept(parameters.as_object().unwrap().clone());
        accepted.map(|map| Value::Object(map).to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn types_defaults_and_conversions() {
        let input = input(&json!([
            {"name": "branch", "required": true, "pattern": "[a-z/0-9-]+"},
            {"name": "n", "type": "number", "default": 3},
            {"name": "all", "type": "boolean"},
            {"name": "list", "type": "array", "default": []},
            {"name": "map", "type": "map"},
        ]));
        assert_eq!(
            accept(&input, &json!({"branch": "a/b", "all": "true"})).unwrap(),
            r#"{"branch":"a/b","n":3,"all":true,"list":[]}"#
        );
        assert_eq!(
            accept(&input, &json!({"n": "12", "branch": "x", "map": {}})).unwrap(),
            r#"{"branch":"x","n":12,"list":[],"map":{}}"#
        );
        let error = accept(&input, &json!({"n": "many", "all": 1, "branch": "A", "zone": 1})).unwrap_err();
        for part in [
            "parameter `branch`: `A` does not match `[a-z/0-9-]+`",
            "parameter `n`: must be a number, is a string",
            "parameter `all`: must be a boolean, is a number",
            "unknown parameter `zone`; this route has: branch, n, all, list, map",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_pattern_is_for_the_whole_text() {
        let input =
            input(&json!([{"name": "sha", "pattern": "[0-9a-f]{4}|x", "title": "the head commit", "required": true}]));
        assert!(accept(&input, &json!({"sha": "12ab"})).is_ok());
        assert!(accept(&input, &json!({"sha": "12ab\n"})).is_err());
        assert!(accept(&input, &json!({"sha": "12abc"})).is_err());
        assert_eq!(
            accept(&input, &json!({"sha": ""})).unwrap_err(),
            "parameter `sha` (the head commit): is required and empty"
        );
        assert_eq!(accept(&input, &json!({"sha": null})).unwrap_err(), "parameter `sha` (the head commit) is missing");
    }
}
