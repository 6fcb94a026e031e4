//! Values of templates. A number that minijinja would print otherwise than it was written is an object that prints its text, so
//! that `{{ n }}`, `~` and filters of texts use it as written. A template that compares or calculates gets floats, and prints one
//! that it did not change as it was written.

use std::{cell::RefCell, collections::HashMap, fmt, sync::Arc};

use minijinja::{
    Error, Value,
    machinery::{
        ast::{BinOpKind, CallArg, Expr, Stmt, UnaryOpKind},
        parse,
    },
    value::{Kwargs, Object, ObjectRepr, ValueKind},
};
use serde_json::{Map, Number, Value as Json};

use super::{JsonError, refused};

/// Filters that use a number as a text, or pass it on. All others calculate.
const OF_TEXTS: &[&str] = &[
    "attr",
    "batch",
    "capitalize",
    "chain",
    "count",
    "d",
    "default",
    "e",
    "escape",
    "first",
    "indent",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "name",
    "replace",
    "reverse",
    "safe",
    "sha8",
    "slice",
    "slug",
    "split",
    "string",
    "tag",
    "title",
    "tojson",
    "trim",
    "upper",
    "urlencode",
    "zip",
];

/// A number with the text in which it was written.
#[derive(Debug)]
struct Written(Number);

impl Object for Written {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.0.as_f64() != Some(0.0)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// `json` as a value of templates.
#[must_use]
pub fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => number_of(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(value_of).collect(),
        Json::Object(object) => object_of(object),
    }
}

/// `object` as a value of templates.
#[must_use]
pub(super) fn object_of(object: &Map<String, Json>) -> Value {
    Value::from_pairs(object.iter().map(|(key, value)| (key.as_str(), value_of(value))))
}

/// A number that minijinja prints as it was written, also as JSON; else one that prints its own text.
fn number_of(number: &Number) -> Value {
    let is_written = |value: &Value| value.to_string() == number.as_str();
    let whole = number.as_u64().map(Value::from).or_else(|| number.as_i64().map(Value::from));
    let float = || number.as_f64().filter(|float| Number::from_f64(*float).as_ref() == Some(number)).map(Value::from);
    whole.or_else(float).filter(is_written).unwrap_or_else(|| Value::from_object(Written(number.clone())))
}

/// The text of `value`, if it is a number that prints its own.
pub(super) fn text(value: &Value) -> Option<&str> {
    value.downcast_object_ref::<Written>().map(|written| written.0.as_str())
}

/// `value` as JSON.
///
/// # Errors
/// When it holds a value that JSON cannot express.
pub fn json_of(value: &Value) -> Result<Json, JsonError> {
    if let Some(written) = value.downcast_object_ref::<Written>() {
        return Ok(Json::Number(written.0.clone()));
    }
    Ok(match value.kind() {
        ValueKind::Seq => Json::Array(items(value)?.iter().map(json_of).collect::<Result<_, _>>()?),
        ValueKind::Map => {
            let entry = |key: &Value| Ok::<_, JsonError>((key.to_string(), json_of(&value.get_item(key)?)?));
            Json::Object(items(value)?.iter().map(entry).collect::<Result<_, _>>()?)
        }
        _ => serde_json::to_value(value)?,
    })
}

fn items(value: &Value) -> Result<Vec<Value>, Error> {
    Ok(value.try_iter()?.collect())
}

/// `value` with `change` in place of each number that prints its own text. `None` if there is none.
fn replaced(value: &Value, change: &mut dyn FnMut(&Number) -> Value) -> Option<Value> {
    if let Some(written) = value.downcast_object_ref::<Written>() {
        return Some(change(&written.0));
    }
    let is_map = value.kind() == ValueKind::Map;
    if !is_map && value.kind() != ValueKind::Seq {
        return None;
    }
    let keys = items(value).ok()?;
    let inner: Vec<Value> =
        if is_map { keys.iter().map(|key| value.get_item(key).unwrap_or_default()).collect() } else { keys.clone() };
    let changed: Vec<Option<Value>> = inner.iter().map(|inner| replaced(inner, change)).collect();
    if changed.iter().all(Option::is_none) {
        return None;
    }
    let all = changed.into_iter().zip(inner).map(|(changed, inner)| changed.unwrap_or(inner));
    Some(if is_map { Value::from_pairs(keys.into_iter().zip(all)) } else { all.collect() })
}

thread_local! {
    /// The texts of the floats that the template under way got: `None` for a float that was written in two ways.
    static TEXTS: RefCell<HashMap<u64, Option<String>>> = RefCell::default();
}

/// Renders by `render` with `context`, in which numbers are floats.
pub(super) fn with_floats<T>(context: &Value, render: impl FnOnce(&Value) -> T) -> T {
    let mut texts: HashMap<u64, Option<String>> = HashMap::new();
    let floats = replaced(context, &mut |number| {
        let float = number.as_f64().unwrap_or_default();
        let known = texts.entry(float.to_bits()).or_insert_with(|| Some(number.to_string()));
        if known.as_deref() != Some(number.as_str()) {
            *known = None;
        }
        Value::from(float)
    });
    TEXTS.with_borrow_mut(|all| *all = texts);
    let rendered = render(floats.as_ref().unwrap_or(context));
    TEXTS.with_borrow_mut(HashMap::clear);
    rendered
}

/// The text in which the float `value` was written, if the template got it so.
///
/// # Errors
/// When it was written in two ways.
pub(super) fn text_of_float(value: &Value) -> Result<Option<String>, Error> {
    if value.is_integer() || value.kind() != ValueKind::Number {
        return Ok(None);
    }
    let float = f64::try_from(value.clone()).unwrap_or_default();
    match TEXTS.with_borrow(|texts| texts.get(&float.to_bits()).cloned()) {
        Some(None) => Err(refused(format!(
            "{value} is written in two ways, so a template that compares or calculates cannot choose one of them; print it in a template of its own"
        ))),
        known => Ok(known.flatten()),
    }
}

/// minijinja's `tojson`, with numbers as they were written.
pub(super) fn tojson(value: &Value, indent: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let mut written = Vec::new();
    let mark = |place: usize| format!("\u{e000}{place}\u{e000}");
    let Some(marked) = replaced(value, &mut |number| {
        written.push(number.clone());
        Value::from(mark(written.len() - 1))
    }) else {
        return minijinja::filters::tojson(value, indent, options);
    };
    let is_marked = |text: &str| text.contains('\u{e000}');
    if is_marked(&value.to_string()) {
        return Err(refused("a text with U+E000 cannot stand beside a number such as `1.10` in `tojson`"));
    }
    let mut text = minijinja::filters::tojson(&marked, indent, options)?.to_string();
    for (place, number) in written.iter().enumerate() {
        text = text.replace(&format!("\"{}\"", mark(place)), number.as_str());
    }
    Ok(Value::from_safe_string(text))
}

/// Whether the template `source` compares or calculates.
pub(super) fn computes(source: &str) -> bool {
    let parsed = parse(source, "", minijinja::syntax::SyntaxConfig::default());
    parsed.is_ok_and(|parsed| statement(&parsed))
}

fn statement(part: &Stmt<'_>) -> bool {
    let all = |parts: &[Stmt<'_>]| parts.iter().any(statement);
    match part {
        Stmt::Template(template) => all(&template.children),
        Stmt::EmitRaw(_) => false,
        Stmt::EmitExpr(emit) => expression(&emit.expr),
        Stmt::IfCond(each) => expression(&each.expr) || all(&each.true_body) || all(&each.false_body),
        Stmt::ForLoop(each) => {
            let filter = each.filter_expr.as_ref().is_some_and(expression);
            filter || expression(&each.iter) || all(&each.body) || all(&each.else_body)
        }
        Stmt::Set(set) => expression(&set.expr),
        Stmt::SetBlock(set) => set.filter.as_ref().is_some_and(expression) || all(&set.body),
        Stmt::WithBlock(with) => with.assignments.iter().any(|(_, value)| expression(value)) || all(&with.body),
        Stmt::AutoEscape(block) => all(&block.body),
        Stmt::FilterBlock(block) => expression(&block.filter) || all(&block.body),
        Stmt::Do(call) => arguments(&call.call.args),
    }
}

fn expression(part: &Expr<'_>) -> bool {
    match part {
        Expr::Var(_) | Expr::Const(_) => false,
        Expr::UnaryOp(unary) => matches!(unary.op, UnaryOpKind::Neg) || expression(&unary.expr),
        Expr::BinOp(binary) => {
            let is_logic = matches!(binary.op, BinOpKind::Concat | BinOpKind::ScAnd | BinOpKind::ScOr);
            !is_logic || expression(&binary.left) || expression(&binary.right)
        }
        Expr::Compare(_) | Expr::Test(_) | Expr::Call(_) => true,
        Expr::IfExpr(either) => {
            let otherwise = either.false_expr.as_ref().is_some_and(expression);
            otherwise || expression(&either.test_expr) || expression(&either.true_expr)
        }
        Expr::GetAttr(get) => expression(&get.expr),
        Expr::GetItem(get) => expression(&get.expr) || !matches!(get.subscript_expr, Expr::Const(_)),
        Expr::Slice(slice) => expression(&slice.expr),
        Expr::List(list) => list.items.iter().any(expression),
        Expr::Tuple(tuple) => tuple.items.iter().any(expression),
        Expr::Map(map) => map.keys.iter().chain(&map.values).any(expression),
        Expr::Filter(filter) => {
            !OF_TEXTS.contains(&filter.name) || filter.expr.as_ref().is_some_and(expression) || arguments(&filter.args)
        }
    }
}

fn arguments(args: &[CallArg<'_>]) -> bool {
    args.iter().any(|arg| match arg {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
            expression(value)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{super::Template, *};
    use domain::document;

    const VALUES: &str =
        r#"{"v":1.10,"e":7222E2,"z":-0,"l":[1.10,2.0,"x"],"m":{"a":0.50},"w":1.1,"i":7,"p":0.00001,"t":"a"}"#;

    fn render(source: &str) -> Result<String, String> {
        let values = document::parse(VALUES.as_bytes()).unwrap();
        Template::parse_open(source).unwrap().render(&value_of(&values)).map_err(|refusal| refusal.message)
    }

    #[test]
    fn a_number_is_printed_as_it_was_written() {
        for (source, text) in [
            ("{{ v }}", "1.10"),
            ("v{{ v }}-{{ e }}-{{ z }}-{{ i }}", "v1.10-7222E2--0-7"),
            ("{% if t %}{{ v }}{% endif %}", "1.10"),
            ("{{ v ~ '-x' }}", "1.10-x"),
            ("{{ v | string | replace('.', '-') }}", "1-10"),
            ("{{ v | default('x') }}", "1.10"),
            ("{{ l | join(',') }}", "1.10,2.0,x"),
            ("{% for n in l %}{{ n }};{% endfor %}", "1.10;2.0;x;"),
            ("{{ v | tojson }}", "1.10"),
            ("{{ p }}{{ p | tojson }}", "0.000010.00001"),
            ("{{ m | tojson }}", r#"{"a": 0.50}"#),
            ("{{ l | tojson }}", r#"[1.10, 2.0, "x"]"#),
            // These compare or calculate.
            ("{% if v > 1 %}{{ e }}{% endif %}", "7222E2"),
            ("{% if t == 'a' %}{{ e }}{% endif %}", "7222E2"),
            ("{{ m.a if m.a < 1.5 else v }}", "0.50"),
            ("{{ e + 1 }}", "722201.0"),
            ("{{ m.a * 2 }}", "1.0"),
            ("{{ e | int }}", "722200"),
            ("{{ 'y' if v == 1.1 else 'n' }}", "y"),
            ("{{ 'y' if m.a is number else 'n' }}", "y"),
        ] {
            assert_eq!(render(source), Ok(text.to_owned()), "{source}");
        }
        let error = render("{% if v > 1 %}{{ v }}{{ w }}{% endif %}");
        assert!(error.is_ok() || error.unwrap_err().contains("two ways"));
    }

    #[test]
    fn values_come_back_as_the_same_json() {
        let values = document::parse(VALUES.as_bytes()).unwrap();
        assert_eq!(json_of(&value_of(&values)).unwrap(), values);
    }
}
