//! Makes parameter sets from a backend's result: the `output` mapping, echoed input parameters, text for
//! numbers, and no key that Argo CD would overwrite.

mod config;
mod equal_names;

use indexmap::IndexMap;
use minijinja::value::Value as TemplateValue;
use serde_json::Value;
use tokio::{task::yield_now, time::Instant};

pub use self::config::{Nulls, ShapeConfig};
use self::equal_names::EqualNames;
use domain::{
    document::{Document, number::fits_float},
    error::BackendError,
    generator::{ParameterSet, Parameters, Query},
    problem::{Path, Problems},
    secret::literal,
};
use lang::{
    evaluator::{Context, EvaluationError, Evaluator},
    scope::{NameScope, ValueType},
    template::{JsonVariable, Template, input_context, value_of},
};

/// Keys that the ApplicationSet controller overwrites in every parameter set, so that a value of ours
/// would vanish without a word (Argo CD's plugin generator documentation, "Some things to note").
const RESERVED: [&str; 2] = ["generator", "values"];

/// How many levels of lists and objects a parameter set may have. An answer with as many levels as a document may have
/// could not be read back from the cache.
const DEEPEST: usize = 64;

/// How many bytes `output` and `echo` may make for all sets together.
const LARGEST: usize = 32 * 1024 * 1024;
/// After this many sets, the task yields to others.
const BREAK: usize = 64;

/// The shape of a route's parameter sets.
#[derive(Debug)]
pub struct Shape {
    output: Option<Vec<(String, Template)>>,
    equal_names: EqualNames,
    echo: Vec<String>,
    stringify: bool,
    nulls: Nulls,
    evaluator: Evaluator,
}

impl Shape {
    /// Parses the mapping, whose templates may use the names of `scope`. `path` is the route's.
    pub fn build(
        config: ShapeConfig<'_>,
        scope: &NameScope,
        evaluator: &Evaluator,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let ShapeConfig { output, echo, stringify, nulls } = config;
        let reserved = |key: &str, path: &Path, problems: &mut Problems| {
            if RESERVED.contains(&key) {
                problems.error_with_help(
                    path,
                    format!("`{key}` is reserved: Argo CD overwrites it in every parameter set"),
                    "choose another name",
                );
            }
        };
        if output.is_some_and(IndexMap::is_empty) {
            problems.error_with_help(
                &path.key("output"),
                "an empty mapping makes empty parameter sets",
                "leave `output` out to pass the backend's items on",
            );
        }
        let mapping = output.map(|output| {
            let mut templates = Vec::new();
            for (key, source) in output {
                let path = path.key("output").key(key);
                reserved(key, &path, problems);
                literal::check_answered(key, source, &path, problems);
                let template = problems.note(&path, Template::parse_open(source));
                if let Some(template) = &template {
                    template.check(scope, &path, problems);
                }
                templates.extend(template.map(|template| (key.clone(), template)));
            }
            templates
        });
        for (index, key) in echo.iter().enumerate() {
            let path = path.key("echo").index(index);
            reserved(key, &path, problems);
            if output.is_some_and(|output| output.contains_key(key)) {
                problems.error(&path, format!("both `output` and `echo` set `{key}`"));
            }
        }
        let equal_names = EqualNames::of(mapping.as_deref());
        Self { output: mapping, equal_names, echo: echo.to_vec(), stringify, nulls, evaluator: evaluator.clone() }
    }

    /// Warns of names that two of `items`, which are all items of the backend, share.
    pub fn check_names(&self, items: &[Parameters], path: &Path, problems: &mut Problems) {
        equal_names::check(self.output.as_deref().unwrap_or_default(), items, path, problems);
    }

    /// Warns in the log of names that two of `sets`, an answer of `route`, share.
    pub(crate) fn warn_of_equal_names(&self, route: &str, sets: &[ParameterSet]) {
        self.equal_names.warn(route, sets);
    }

    /// The keys of its parameter sets, if they are fixed by the configuration: those of `output` and `echo`.
    #[must_use]
    pub fn keys(&self) -> Option<Vec<&str>> {
        let output = self.output.as_ref()?.iter().map(|(key, _)| key.as_str());
        Some(output.chain(self.echo.iter().map(String::as_str)).collect())
    }

    /// All keys that its parameter sets can have, if the backend's items have the type `item`. `None` if that is not known.
    #[must_use]
    pub fn possible_keys<'k>(&'k self, item: &'k ValueType) -> Option<Vec<&'k str>> {
        let ValueType::Object(keys) = item else { return self.keys() };
        let passed_on = keys.keys().chain(&self.echo).map(String::as_str);
        self.keys().or_else(|| Some(passed_on.collect()))
    }

    /// Whether a template of the mapping uses the ApplicationSet's name.
    #[must_use]
    pub fn reads_application_set(&self) -> bool {
        self.output.iter().flatten().any(|(_, template)| template.reads_application_set())
    }

    /// Shapes all sets of one answer.
    ///
    /// # Errors
    /// When a set cannot be shaped. The text names it by its place in the list.
    pub async fn apply(&self, sets: Vec<ParameterSet>, query: &Query) -> Result<Vec<ParameterSet>, BackendError> {
        let echoed = self.echoed(query)?;
        let (mut input, mut left, mut shaped) = (None, LARGEST, Vec::with_capacity(sets.len()));
        for (index, set) in sets.into_iter().enumerate() {
            if index % BREAK == BREAK - 1 {
                yield_now().await;
                if Instant::now() >= query.deadline {
                    return Err(BackendError::timeout("there was no time left to shape the parameter sets"));
                }
            }
            let set = self.apply_one(set, &echoed, query, &mut input, &mut left).await;
            let wrong = |error: EvaluationError| {
                error.within(format_args!("parameter set {index}")).into_backend_error(BackendError::invalid_output)
            };
            shaped.push(set.map_err(wrong)?);
        }
        Ok(shaped)
    }

    fn echoed<'a>(&'a self, query: &'a Query) -> Result<Vec<(&'a String, &'a Value)>, BackendError> {
        let value = |key| query.parameters.get(key).map(|value| (key, value));
        let missing = |key| {
            BackendError::invalid_input(format!("the route echoes the parameter `{key}`, which the call does not have"))
        };
        self.echo.iter().map(|key| value(key).ok_or_else(|| missing(key))).collect()
    }

    /// Shapes one set. `output` and `echo` may make this many more bytes. `input` are the variables of `query`, once a template needs
    /// them.
    async fn apply_one(
        &self,
        set: ParameterSet,
        echoed: &[(&String, &Value)],
        query: &Query,
        input: &mut Option<TemplateValue>,
        left: &mut usize,
    ) -> Result<ParameterSet, EvaluationError> {
        let too_large = || "the route's `output` and `echo` make more than 32 MiB of all sets".to_owned();
        let mut map = match &self.output {
            None => set.0,
            Some(templates) => {
                let (mut map, mut context) = (Parameters::with_capacity(templates.len() + echoed.len()), None);
                for (key, template) in templates {
                    let text = if let Some(text) = template.render_json(|name| find(&set, query, name)) {
                        text
                    } else {
                        let context = context.get_or_insert_with(|| {
                            let input = input.get_or_insert_with(|| input_context(query));
                            Context::new(item_context(&set, input), &self.evaluator, query.deadline)
                        });
                        let text = context.render(template).await;
                        text.map_err(|error| error.within(format_args!("output `{key}`")))?
                    };
                    *left = left.checked_sub(text.len()).ok_or_else(too_large)?;
                    map.insert(key.clone(), Value::String(text));
                }
                map
            }
        };
        for (key, value) in echoed {
            if map.contains_key(*key) {
                return Err(format!("both the backend and `echo` set `{key}`").into());
            }
            if !Document::from(*value).spend(left) {
                return Err(too_large().into());
            }
            map.insert((*key).clone(), (*value).clone());
        }
        if let Some(key) = map.keys().find(|key| RESERVED.contains(&key.as_str())) {
            return Err(format!(
                "the key `{key}` is reserved: Argo CD would overwrite it; rename it, for example in `output`"
            )
            .into());
        }
        self.settle_map(&mut map, DEEPEST).map_err(|misfit| misfit.message())?;
        Ok(ParameterSet(map))
    }

    /// Checks nulls and numbers at every depth. This many levels are left.
    fn settle_map(&self, map: &mut Parameters, left: usize) -> Result<(), Misfit> {
        if self.nulls == Nulls::Drop {
            map.retain(|_, value| !value.is_null());
        }
        map.iter_mut().try_for_each(|(key, value)| {
            self.acknowledge(value, left).map_err(|misfit| misfit.within(&format!(".{key}")))
        })
    }

    fn acknowledge(&self, value: &mut Value, left: usize) -> Result<(), Misfit> {
        match value {
            Value::Array(_) | Value::Object(_) if left == 0 => {
                Err(Misfit::new(format!(" is more than {DEEPEST} levels deep")))
            }
            Value::Null => {
                Err(Misfit::new(" is null, which Argo CD prints as `<nil>`; leave it out, or set `nulls: drop`"))
            }
            Value::Number(number) => {
                if self.stringify {
                    *value = Value::String(number.to_string());
                    return Ok(());
                }
                if fits_float(number) {
                    return Ok(());
                }
                // Names are made from such numbers, and a changed name means a deleted and a created Application.
                let why = "cannot be carried exactly; make it a string at its source, or leave out `stringify: false`";
                Err(Misfit::new(format!(": the number {number} {why}")))
            }
            Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(index, item)| {
                self.acknowledge(item, left - 1).map_err(|misfit| misfit.within(&format!("[{index}]")))
            }),
            Value::Object(map) => self.settle_map(map, left - 1),
            Value::Bool(_) | Value::String(_) => Ok(()),
        }
    }
}

/// A value that would not reach Argo CD as it is.
struct Misfit {
    /// Its place, such as `.list[2].name`.
    at: String,
    /// The problem, as text that follows the place.
    why: String,
}

impl Misfit {
    fn new(why: impl Into<String>) -> Self {
        Self { at: String::new(), why: why.into() }
    }

    /// The same problem, in a value that holds it at `step`.
    fn within(self, step: &str) -> Self {
        Self { at: format!("{step}{}", self.at), ..self }
    }

    fn message(&self) -> String {
        format!("`{}`{}", self.at.trim_start_matches('.'), self.why)
    }
}

/// The variable `name`, as [`item_context`] has it.
fn find<'a>(set: &'a ParameterSet, query: &'a Query, name: &str) -> Option<JsonVariable<'a>> {
    match name {
        "params" => Some(JsonVariable::Object(&query.parameters)),
        "applicationSet" => Some(JsonVariable::Text(&query.application_set)),
        _ => JsonVariable::of(set.0.get(name)?),
    }
}

/// The item's own keys at the top, and `params` and `applicationSet` for the call's input.
fn item_context(set: &ParameterSet, input: &TemplateValue) -> TemplateValue {
    let own = set.0.iter().map(|(key, value)| (key.as_str(), value_of(value)));
    let of_call = ["params", "applicationSet"].map(|name| (name, input.get_attr(name).unwrap_or_default()));
    TemplateValue::from_pairs(own.chain(of_call))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use domain::document;

    fn shape(config: &Value) -> Shape {
        let output: Option<IndexMap<String, String>> = serde_json::from_value(config["output"].clone()).unwrap();
        let echo: Vec<String> = serde_json::from_value(config["echo"].clone()).unwrap_or_default();
        let stringify = config["stringify"].as_bool().unwrap_or(true);
        let nulls = if config["nulls"] == "drop" { Nulls::Drop } else { Nulls::Refuse };
        let config = ShapeConfig { output: output.as_ref(), echo: &echo, stringify, nulls };
        Shape::build(config, &NameScope::input(), &Evaluator::none(), &Path::root(), &mut Problems::default())
    }

    fn apply(config: &Value, set: Value) -> Result<String, String> {
        let parameters = json!({"branch": "b1", "n": 7}).as_object().unwrap().clone();
        let query = Query::new("fb".into(), parameters.into(), Instant::now());
        let Value::Object(map) = set else { panic!("a set is an object") };
        let shaped = shape(config).apply(vec![ParameterSet(map)], &query).now_or_never().unwrap();
        let sets = shaped.map_err(|error| error.message)?;
        Ok(Value::Object(sets[0].0.clone()).to_string())
    }

    #[test]
    fn numbers_become_text_that_argo_prints_as_it_is() {
        let set = json!({"a": 1_000_000, "b": [1.5, {"c": u64::MAX}], "d": true});
        assert_eq!(
            apply(&json!({}), set.clone()).unwrap(),
            r#"{"a":"1000000","b":["1.5",{"c":"18446744073709551615"}],"d":true}"#
        );
        assert!(apply(&json!({"stringify": false}), set).unwrap_err().contains("`b[1].c`"));
        assert_eq!(apply(&json!({"stringify": false}), json!({"a": 1})).unwrap(), r#"{"a":1}"#);
        let written = |text: &str| document::parse(format!(r#"{{"a":{text}}}"#).as_bytes()).unwrap();
        for text in ["1.10", "7222E2", "1e21", "-0", "1e+06", "0.1234567890123456789"] {
            assert_eq!(apply(&json!({}), written(text)).unwrap(), format!(r#"{{"a":"{text}"}}"#));
        }
        assert_eq!(apply(&json!({"stringify": false}), written("1.10")).unwrap(), r#"{"a":1.10}"#);
        assert!(apply(&json!({"stringify": false}), written("0.1234567890123456789")).unwrap_err().contains("exactly"));
    }

    #[test]
    fn plain_templates_know_the_same_variables() {
        let set = json!({"name": "a/b", "o": {"p": "x"}, "n": 7, "params": {"branch": "-"}, "applicationSet": "-"});
        for name in ["name", "o.p", "n", "params.branch", "params.n", "applicationSet", "name | slug"] {
            let [plain, other] = [("", ""), ("{% if true %}", "{% endif %}")].map(|(before, after)| {
                apply(&json!({"output": {"x": format!("{before}{{{{ {name} }}}}{after}")}}), set.clone()).unwrap()
            });
            assert_eq!(plain, other);
        }
    }

    #[test]
    fn nulls_are_refused_or_dropped() {
        let set = json!({"a": null, "o": {"p": null, "q": "x"}});
        assert!(apply(&json!({}), set.clone()).unwrap_err().contains("`a` is null"));
        assert_eq!(apply(&json!({"nulls": "drop"}), set).unwrap(), r#"{"o":{"q":"x"}}"#);
        assert!(apply(&json!({"nulls": "drop"}), json!({"l": [null]})).unwrap_err().contains("`l[0]` is null"));
    }

    #[test]
    fn levels_have_an_end() {
        let nested = |levels: usize| (0..levels).fold(json!("x"), |inner, _| json!([inner]));
        assert!(apply(&json!({}), json!({"a": nested(64)})).is_ok());
        let error = apply(&json!({}), json!({"a": nested(65)})).unwrap_err();
        assert!(error.contains("[0]` is more than 64 levels deep"), "{error}");
    }

    #[test]
    fn reserved_keys_say_why() {
        for key in RESERVED {
            assert!(apply(&json!({}), json!({ key: "x" })).unwrap_err().contains("Argo CD would overwrite it"));
        }
    }

    #[test]
    fn a_mapping_and_an_echo() {
        let config = json!({"output": {"z": "{{ front.digest }}", "a": "{{ params.branch }}-{{ applicationSet }}"}, "echo": ["n"]});
        assert_eq!(apply(&config, json!({"front": {"digest": "d"}})).unwrap(), r#"{"z":"d","a":"b1-fb","n":"7"}"#);
        assert!(apply(&config, json!({"front": {}})).unwrap_err().contains("`front.digest` is not there"));
        assert!(
            apply(&json!({"echo": ["branch"]}), json!({"branch": "x"}))
                .unwrap_err()
                .contains("both the backend and `echo`")
        );
        assert!(
            apply(&json!({"echo": ["sha"]}), json!({})).unwrap_err().contains("`sha`, which the call does not have")
        );
    }
}
