//! Why a mapping made nothing of an event, without what the event holds: CEL's messages show the values that they are about, and replies and
//! the log must not repeat a body.

use domain::visible::one_line;
use lang::expression::Expression;

/// How CEL's messages begin, and what is said instead.
const KINDS: [(&str, &str); 12] = [
    ("No such key", "a field is missing"),
    ("Undeclared reference", "a name does not exist"),
    ("Error executing function", "a function fails"),
    ("Invalid argument count", "a function has too many or too few arguments"),
    ("Invalid argument type", "an argument of a function has the wrong type"),
    ("Method ", "a value does not have this method"),
    ("Unexpected type", "a value has the wrong type"),
    ("No such overload", "an operator or function does not take values of these types"),
    ("Division by zero", "a division by zero"),
    ("Remainder by zero", "a division by zero"),
    ("Overflow", "a number is too large"),
    ("Index out of bounds", "a list is too short"),
];

/// The text about `error`, with which `expression` ended. Only names that the expression itself has are repeated.
pub(super) fn why(expression: &Expression, error: &str) -> String {
    let source = one_line(expression.source().trim());
    let error = error.strip_prefix(&format!("`{source}`: ")).unwrap_or(error);
    let kind = KINDS.iter().find(|(begin, _)| error.starts_with(begin));
    let kind = kind.map_or("its values do not fit, or it gives no JSON", |(_, kind)| kind);
    let name = name_in(error).filter(|name| words(&source).any(|word| word == *name));
    let name = name.map(|name| format!(": `{name}`")).unwrap_or_default();
    format!("the hook's `subjects`: `{source}`: {kind}{name}")
}

/// The name of a field or function that a message of CEL is about.
fn name_in(error: &str) -> Option<&str> {
    if let Some(key) = error.strip_prefix("No such key: ") {
        return Some(key);
    }
    ["Error executing function '", "Method '", "Undeclared reference to '"].iter().find_map(|begin| {
        let (name, _) = error.strip_prefix(begin)?.split_once('\'')?;
        Some(name)
    })
}

fn words(source: &str) -> impl Iterator<Item = &str> {
    source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    #[test]
    fn no_value_of_the_body_is_repeated() {
        let body = json!({"secret": "hunter2", "list": ["hunter2", 1], "number": 9_223_372_036_854_775_807_i64});
        let (body, mut shown) = (body.to_string(), 0);
        for (source, said) in [
            ("[{'image': body.image}]", "a field is missing: `image`"),
            ("[body.list[7]]", ""),
            ("[{}[body.secret]]", ""),
            ("[max(body.list)]", ""),
            ("[max(body.secret, 1)]", ""),
            ("[min(body.list)]", ""),
            ("[body.number + 1]", "a number is too large"),
            ("[body.number * 2]", "a number is too large"),
            ("[body.number / 0]", "a division by zero"),
            ("[int(body.secret)]", ""),
            ("[timestamp(body.secret)]", ""),
            ("[duration(body.secret)]", ""),
            ("[body.secret + 1]", ""),
            ("[body.secret.nothing()]", ""),
            ("[body.secret.matches('(')]", ""),
            ("[{body.list: 1}]", ""),
            ("[-body.secret]", ""),
            ("body.list.map(i, i.x)", ""),
        ] {
            let expression = Expression::compile(source).unwrap();
            let result = expression.evaluate_json(&[("body", body.as_bytes())], usize::MAX);
            let Err(error) = result else { panic!("{source} gives something") };
            shown += usize::from(error.contains("hunter2") || error.contains("92233"));
            let why = why(&expression, &error);
            assert!(!why.contains("hunter2") && !why.contains("92233"), "{why}");
            assert!(why.starts_with(&format!("the hook's `subjects`: `{source}`: ")) && why.ends_with(said), "{why}");
        }
        assert!(shown > 3, "CEL's messages show values in {shown} cases");
    }
}
