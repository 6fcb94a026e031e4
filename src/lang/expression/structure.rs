//! The structure of a parsed expression: its parts, its depth, and comprehensions within comprehensions.

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr},
};

/// Whether a comprehension stands within another one. `is_within` says whether `expression` already stands within one.
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
