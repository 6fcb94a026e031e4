//! Finds calls of filters and tests with too few or too many arguments. minijinja reports these only when it renders.

use minijinja::{Environment, Error, ErrorKind, Value, machinery::ast::CallArg, value::Kwargs};

/// Larger numbers are not tried: a filter may make that many values.
const MAX_TRIED: i64 = 100;

/// An argument as it is written: its name if it has one, and its value if that is a constant.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    name: Option<String>,
    value: Option<Value>,
}

/// The arguments of a call. `None` if their number depends on a value.
pub(super) fn arguments(all: &[CallArg<'_>]) -> Option<Vec<Argument>> {
    let argument = |argument: &CallArg<'_>| match argument {
        CallArg::Pos(value) => Some(Argument { name: None, value: value.as_const() }),
        CallArg::Kwarg(name, value) => Some(Argument { name: Some((*name).to_owned()), value: value.as_const() }),
        CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
    };
    all.iter().map(argument).collect()
}

/// The mistake in the number of the arguments of a filter.
pub(super) fn of_filter(environment: &Environment<'_>, name: &str, arguments: &[Argument]) -> Option<&'static str> {
    wrong(arguments, |values| environment.empty_state().apply_filter(name, values).map(drop))
}

/// The mistake in the number of the arguments of a test.
pub(super) fn of_test(environment: &Environment<'_>, name: &str, arguments: &[Argument]) -> Option<&'static str> {
    wrong(arguments, |values| environment.empty_state().perform_test(name, values).map(drop))
}

/// The mistake in the number of `arguments`, if `call` takes them with no kind of value.
fn wrong(arguments: &[Argument], call: impl Fn(&[Value]) -> Result<(), Error>) -> Option<&'static str> {
    let mut found = None;
    for subject in samples() {
        for unknown in samples() {
            let error = call(&values(&subject, arguments, &unknown)).err()?;
            match error.kind() {
                ErrorKind::MissingArgument => found = Some("needs more arguments"),
                ErrorKind::TooManyArguments => found = Some("takes fewer arguments"),
                _ => {}
            }
        }
    }
    found
}

/// Values of all kinds.
fn samples() -> [Value; 5] {
    let text = Value::from("a");
    let map = Value::from_iter([("a", 1)]);
    [text.clone(), Value::from(1), Value::from(vec![text]), map, Value::from(true)]
}

/// The values of a call: the value that it is about, and the arguments. `unknown` is the value of those that are not constants.
fn values(subject: &Value, arguments: &[Argument], unknown: &Value) -> Vec<Value> {
    let value = |argument: &Argument| match &argument.value {
        Some(value) if value.as_i64().is_some_and(|number| number.abs() > MAX_TRIED) => Value::from(MAX_TRIED),
        Some(value) => value.clone(),
        None => unknown.clone(),
    };
    let named = arguments.iter().filter_map(|argument| Some((argument.name.clone()?, value(argument))));
    let named: Vec<(String, Value)> = named.collect();
    let positional = arguments.iter().filter(|argument| argument.name.is_none()).map(value);
    let mut all: Vec<Value> = [subject.clone()].into_iter().chain(positional).collect();
    if !named.is_empty() {
        all.push(Kwargs::from_iter(named).into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{ValueContext, environment};

    fn argument(value: &str) -> Argument {
        Argument { name: None, value: (!value.is_empty()).then(|| Value::from(value)) }
    }

    #[test]
    fn the_number_of_arguments_is_checked() {
        let environment = environment(ValueContext::Text);
        let of = |name: &str, values: &[&str]| {
            of_filter(environment, name, &values.iter().map(|value| argument(value)).collect::<Vec<_>>())
        };
        assert_eq!(of("replace", &["a"]), Some("needs more arguments"));
        assert_eq!(of("replace", &[""]), Some("needs more arguments"));
        assert_eq!(of("replace", &["a", "b"]), None);
        assert_eq!(of("slug", &["a"]), Some("takes fewer arguments"));
        assert_eq!(of("sha8", &[]), None, "the sample is not a commit");
        assert_eq!(of("map", &["replace"]), Some("needs more arguments"));
        assert_eq!(of_test(environment, "divisibleby", &[]), Some("needs more arguments"));
        assert_eq!(of_test(environment, "startingwith", &[argument("a")]), None);
        let width = Argument { name: Some("width".to_owned()), value: Some(Value::from(2)) };
        assert_eq!(of_filter(environment, "indent", &[width]), None);
    }
}
