//! The functions that are added to CEL's: `base64.encode`, `base64.decode`, `name`, and those of time. They take and give texts and numbers, since
//! documents have neither bytes nor times.

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{CelInt, CelString, INT_TYPE, STRING_TYPE},
        value::CowVal,
    },
};

use crate::functions::{base64, label, time};

/// Declares the functions.
pub(super) fn add_to(environment: &mut Env) -> Result<(), DeclarationError> {
    environment.add_overload("base64.encode", "base64_encode_text", vec![STRING_TYPE], |args| {
        Ok(CowVal::owned(CelString::from(base64::encode(text(&args, 0)?))))
    })?;
    environment.add_overload("base64.decode", "base64_decode_text", vec![STRING_TYPE], |args| {
        text_or(base64::decode(text(&args, 0)?), "base64.decode")
    })?;
    environment.add_member_overload("name", "text_name", STRING_TYPE, vec![], |args| {
        text_or(label::label(text(&args, 0)?, label::MAX_CHARS), "name")
    })?;
    environment.add_member_overload("name", "text_name_max", STRING_TYPE, vec![INT_TYPE], |args| {
        let max = number(&args, 1).map(|max| usize::try_from(max).unwrap_or_default())?;
        text_or(label::label(text(&args, 0)?, max), "name")
    })?;
    add_times(environment)
}

fn add_times(environment: &mut Env) -> Result<(), DeclarationError> {
    environment.add_overload("timestamp", "timestamp_text", vec![STRING_TYPE], |args| {
        number_or(time::timestamp(text(&args, 0)?), "timestamp")
    })?;
    environment.add_overload("timestamp", "timestamp_seconds", vec![INT_TYPE], |args| {
        Ok(CowVal::owned(CelInt::from(number(&args, 0)?)))
    })?;
    environment.add_overload("duration", "duration_text", vec![STRING_TYPE], |args| {
        number_or(time::duration(text(&args, 0)?), "duration")
    })?;
    environment
        .add_overload("date", "date_seconds", vec![INT_TYPE], |args| text_or(time::date(number(&args, 0)?), "date"))
}

/// The text at `index` of `args`.
fn text<'a>(args: &'a [CowVal<'_, '_>], index: usize) -> Result<&'a str, ExecutionError> {
    let text = args.get(index).and_then(|value| value.as_ref().downcast_ref::<CelString<'_>>());
    text.map(CelString::inner).ok_or_else(|| ExecutionError::function_error("text", "it needs a text"))
}

/// The whole number at `index` of `args`.
fn number(args: &[CowVal<'_, '_>], index: usize) -> Result<i64, ExecutionError> {
    let number = args.get(index).and_then(|value| value.as_ref().downcast_ref::<CelInt>());
    number.map(|number| *number.inner()).ok_or_else(|| ExecutionError::function_error("number", "it needs a number"))
}

/// The number that `function` made.
fn number_or<'b, 'v, E: std::error::Error>(
    made: Result<i64, E>,
    function: &str,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    made.map(|number| CowVal::owned(CelInt::from(number)))
        .map_err(|error| ExecutionError::function_error(function, error.to_string()))
}

/// The text that `function` made.
fn text_or<'b, 'v, E: std::error::Error>(
    made: Result<String, E>,
    function: &str,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    made.map(|text| CowVal::owned(CelString::from(text)))
        .map_err(|error| ExecutionError::function_error(function, error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::expression::Expression;

    fn evaluate(source: &str) -> Result<Value, String> {
        let body = json!({"content": "Zm9v\nYmFy", "branch": "feature/Login", "at": "2026-01-01T12:00:00Z", "epoch": 60, "f": 1.5});
        let now = json!(1_767_268_800 + 3600);
        let expression = Expression::compile(source).unwrap();
        let variables = [("body", &(&body).into()), ("now", &(&now).into())];
        let evaluated = expression.evaluate(&variables).map_err(|error| error.to_string());
        let small = expression.evaluate_small(&variables).expect("it is cheap").map_err(|error| error.to_string());
        assert_eq!(evaluated, small, "{source}");
        evaluated
    }

    #[test]
    fn functions_give_texts_and_numbers() {
        for (source, expected) in [
            ("base64.decode(body.content)", json!("foobar")),
            ("string(base64.decode(body.content))", json!("foobar")),
            ("base64.encode('foobar')", json!("Zm9vYmFy")),
            ("'main'.name()", json!("main")),
            ("body.branch.name().startsWith('feature-login-')", json!(true)),
            ("size(body.branch.name(12))", json!(12)),
            ("timestamp(body.at)", json!(1_767_268_800)),
            ("timestamp(body.epoch) + duration('1m')", json!(120)),
            ("now - timestamp(body.at) < duration('1h30m')", json!(true)),
            ("now - timestamp(body.at) > duration('1d')", json!(false)),
            ("date(now - duration('1h'))", json!("2026-01-01T12:00:00Z")),
            ("[body].filter(b, timestamp(b.at) > now - duration('2h')).map(b, b.epoch)", json!([60])),
        ] {
            assert_eq!(evaluate(source), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_they_cannot_read_is_an_error() {
        for (source, says) in [
            ("base64.decode(body.branch + '%')", "it is not base64"),
            ("body.branch.name(64)", "from 10 to 63 characters, not 64"),
            ("body.branch.name(-1)", "from 10 to 63 characters"),
            ("timestamp(body.branch)", "`feature/Login` is not a time of RFC 3339"),
            ("duration(body.at)", "is not a duration, such as `36h`"),
            ("date(9999999999999)", "are no date"),
        ] {
            let error = evaluate(source).unwrap_err();
            assert!(error.contains(says), "{source}: {error}");
        }
    }
}
