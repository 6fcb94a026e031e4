//! The structure of a parsed expression: its parts, its depth, and comprehensions within comprehensions.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators},
};

/// The operators that compare two values.
const COMPARISONS: [&str; 7] = [
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::IN,
];

/// Whether a comprehension stands within another one. `is_within`: whether `expression` already stands within one.
pub(super) fn nests(expression: &IdedExpr, is_within: bool) -> bool {
    match &expression.expr {
        Expr::Comprehension(_) if is_within => true,
        // The range is evaluated once.
        Expr::Comprehension(inner) => {
            nests(&inner.iter_range, false)
                || [&inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                    .iter()
                    .any(|part| nests(part, true))
        }
        _ => parts(expression).into_iter().any(|part| nests(part, is_within)),
    }
}

/// How many levels `expression` has, itself included.
pub(super) fn depth(expression: &IdedExpr) -> usize {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// The operators that are true for the values that they name.
const EQUALITIES: [&str; 2] = [operators::EQUALS, operators::IN];

/// Whether `expression` uses the variable `name`.
pub(super) fn uses(expression: &IdedExpr, name: &str) -> bool {
    matches!(&expression.expr, Expr::Ident(ident) if ident == name)
        || parts(expression).into_iter().any(|part| uses(part, name))
}

/// The whole numbers with which `expression` compares the variable `name`.
pub(super) fn compared(expression: &IdedExpr, name: &str) -> Vec<i64> {
    compared_by(&COMPARISONS, expression, name)
}

/// The whole numbers that the variable `name` is expected to have, as in `name == 1` and `name in [1, 2]`.
pub(super) fn expected(expression: &IdedExpr, name: &str) -> Vec<i64> {
    compared_by(&EQUALITIES, expression, name)
}

fn compared_by(by: &[&str], expression: &IdedExpr, name: &str) -> Vec<i64> {
    let mut found: Vec<i64> = parts(expression).into_iter().flat_map(|part| compared_by(by, part, name)).collect();
    let is_name = |part: &IdedExpr| matches!(&part.expr, Expr::Ident(ident) if ident == name);
    if let Expr::Call(call) = &expression.expr
        && by.contains(&&*call.func_name)
        && call.args.iter().any(is_name)
    {
        found.extend(call.args.iter().flat_map(whole_numbers));
    }
    found
}

/// `expression`, if it is a whole number, or those of a list.
fn whole_numbers(expression: &IdedExpr) -> Vec<i64> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Int(number)) => vec![*number.inner()],
        Expr::List(list) => list.elements.iter().flat_map(whole_numbers).collect(),
        _ => Vec::new(),
    }
}

/// The part of `expression` that makes the value of `key`, if it is an object that is written out. Else the whole expression.
pub(super) fn value_of<'e>(expression: &'e IdedExpr, key: &str) -> &'e IdedExpr {
    let Expr::Map(map) = &expression.expr else { return expression };
    let is_key =
        |part: &IdedExpr| matches!(&part.expr, Expr::Literal(LiteralValue::String(name)) if name.inner() == key);
    let mut entries = map.entries.iter().filter_map(|entry| match &entry.expr {
        EntryExpr::MapEntry(entry) => Some(entry),
        EntryExpr::StructField(_) => None,
    });
    entries.find(|entry| is_key(&entry.key)).map_or(expression, |entry| &entry.value)
}

/// The functions that make no text.
const TESTS: [&str; 7] = ["contains", "duration", "endsWith", "matches", "size", "startsWith", "timestamp"];

/// Whether it makes new texts of others: all functions except those that are known to make none, such as `split` or `trim`.
pub(super) fn composes(expression: &IdedExpr) -> bool {
    // The sum in a loop is that of a macro such as `map`, and collects items.
    let is_made = match &expression.expr {
        Expr::Call(call) if call.func_name == operators::ADD => !collects(call),
        Expr::Call(call) => !call.func_name.starts_with(['_', '!', '-', '@']) && !TESTS.contains(&&*call.func_name),
        _ => false,
    };
    is_made || parts(expression).into_iter().any(composes)
}

/// Whether `call` adds a list with one item to the items that a macro has collected.
fn collects(call: &CallExpr) -> bool {
    matches!(&call.args[..], [found, next] if matches!((&found.expr, &next.expr), (Expr::Ident(name), Expr::List(_)) if name.starts_with('@')))
}

/// The direct parts of `expression`.
pub(super) fn parts(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Comprehension(inner) => {
            vec![&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
        }
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts_of(&entry.expr)).collect(),
        Expr::Struct(fields) => fields.entries.iter().flat_map(|entry| parts_of(&entry.expr)).collect(),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn parts_of(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
