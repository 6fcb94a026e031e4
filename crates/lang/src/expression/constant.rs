//! Finds the parts of an expression that fail for all documents: calls with too few or too many arguments, regular expressions
//! with a syntax error, and calculations with only constants.

use std::sync::Arc;

use cel::{
    Context, IdedExpr,
    common::ast::{CallExpr, Expr, LiteralValue},
};

use super::{bound, environment, structure::parts};
use domain::{
    pattern,
    problem::{Path, Problems},
};

/// Functions of texts and lists with a target, and how many arguments each takes, at least and at most.
const ARGUMENTS: &[(&str, usize, usize)] = &[
    ("charAt", 1, 1),
    ("contains", 1, 1),
    ("endsWith", 1, 1),
    ("indexOf", 1, 2),
    ("join", 0, 1),
    ("lastIndexOf", 1, 2),
    ("lowerAscii", 0, 0),
    ("matches", 1, 1),
    ("name", 0, 1),
    ("replace", 2, 3),
    ("split", 1, 2),
    ("startsWith", 1, 1),
    ("substring", 1, 2),
    ("trim", 0, 0),
    ("upperAscii", 0, 0),
];

/// Notes at `path` the parts of `expression` that always fail.
pub(super) fn check(expression: &IdedExpr, path: &Path, problems: &mut Problems) {
    let found = match &expression.expr {
        Expr::Call(call) => wrong_arguments(call).or_else(|| wrong_pattern(call)).or_else(|| always_fails(expression)),
        _ => None,
    };
    match found {
        Some((message, help)) => problems.mistake(path, message, help),
        None => parts(expression).into_iter().for_each(|part| check(part, path, problems)),
    }
}

/// The mistake in the number of the arguments of `call`, and advice.
fn wrong_arguments(call: &CallExpr) -> Option<(String, String)> {
    call.target.as_ref()?;
    let (name, least, most) = ARGUMENTS.iter().find(|(name, ..)| *name == call.func_name)?;
    let count = call.args.len();
    if (*least..=*most).contains(&count) {
        return None;
    }
    let expected = match (least, most) {
        (0, 0) => "no argument".to_owned(),
        (1, 1) => "1 argument".to_owned(),
        (least, most) => format!("{least} or {most} arguments"),
    };
    let example = match least {
        0 => format!("write `value.{name}()`"),
        1 => format!("write `value.{name}('a')`"),
        _ => format!("write `value.{name}('a', 'b')`"),
    };
    Some((format!("`{name}` takes {expected}, not {count}"), example))
}

/// The mistake in the regular expression that `call` matches, if it is a constant, and advice.
fn wrong_pattern(call: &CallExpr) -> Option<(String, String)> {
    let Expr::Literal(LiteralValue::String(pattern)) = &call.args.last()?.expr else { return None };
    let why = (call.func_name == "matches").then(|| pattern::anywhere(pattern.inner()).err())??.to_string();
    Some((why, "put a `\\\\` before a character that stands for itself, such as `\\\\[`".to_owned()))
}

/// Why `part` has no value, if it uses no name, and advice.
fn always_fails(part: &IdedExpr) -> Option<(String, String)> {
    if !is_constant(part) || bound::of(part, &[]).is_none() {
        return None;
    }
    let context = Context::with_env(Arc::clone(environment()));
    let error = cel::Value::resolve_val(part, &context).err()?;
    let message = format!("a part of it always fails, with any document: {error}");
    Some((message, "correct it: it holds constants only".to_owned()))
}

/// Whether it uses no name at all.
fn is_constant(expression: &IdedExpr) -> bool {
    !matches!(expression.expr, Expr::Ident(_)) && parts(expression).into_iter().all(is_constant)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expression::Expression;
    use domain::document::Document;

    fn found(source: &str) -> Vec<String> {
        let mut problems = Problems::default();
        check(Expression::compile(source).unwrap().program.expression(), &Path::root(), &mut problems);
        problems.into_vec().into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn what_always_fails_is_found() {
        for (source, part) in [
            ("body.filter(i, i.name.matches('['))", "`[` is not a regular expression"),
            ("matches(body.x, '(')", "`(` is not a regular expression"),
            ("body.x.replace('a')", "`replace` takes 2 or 3 arguments, not 1"),
            ("body.map(i, i.name.startsWith())", "`startsWith` takes 1 argument, not 0"),
            ("body.map(i, int('x') + i)", "always fails, with any document"),
            ("1 / 0", "always fails, with any document"),
        ] {
            assert!(matches!(&found(source)[..], [one] if one.contains(part)), "{source}: {:?}", found(source));
        }
        for good in [
            "body.x.matches('[a-z]+')",
            "body.x.matches(params.pattern)",
            "'a'.matches('a') ? body : []",
            "body.map(i, i / 0)",
            "lists.range(3).map(n, {'n': string(n)})",
            "[1, 2].map(n, 4 / n)",
            "optional.of(1).orValue(2)",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }

    /// CEL itself refuses each number of arguments that is refused here, for texts and lists, and no other.
    #[test]
    fn the_numbers_of_arguments_are_those_of_cel() {
        let list = json!(["a", "b"]);
        let is_taken = |name: &str, count: usize| {
            let arguments = ["'a'", "1", "0", "20"].map(|one| vec![one; count].join(", "));
            let mixed = ["'a'", "'b'", "1"][..count].join(", ");
            let late = ["'a'", "1", "1"][..count].join(", ");
            let all = arguments.iter().chain([&mixed, &late]);
            let mut sources = all.map(|arguments| format!("body.{name}({arguments})"));
            sources.any(|source| {
                let expression = Expression::compile(&source).unwrap();
                [Document::Text("aba".into()), Document::from(&list)]
                    .iter()
                    .any(|document| expression.evaluate(&[("body", document)]).is_ok())
            })
        };
        for (name, least, most) in ARGUMENTS {
            for count in 0..=3 {
                assert_eq!(is_taken(name, count), (*least..=*most).contains(&count), "{name} with {count}");
            }
        }
    }
}
