//! Plain expressions, which only pick values: `body`, `body.items`, and `body.items.map(t, {'name': t.name})`. Most expressions
//! are plain. They are evaluated on the document itself, which CEL would copy first. Everything else, and everything that does
//! not fit the document, goes to CEL, which also words the errors.

use cel::{
    IdedExpr,
    common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};
use serde_json::{Map, Value};

use domain::document::Document;

/// The most memory of a result, in bytes. Larger results go to an evaluator.
const MAX_RESULT_BYTES: usize = 48 * 1024 * 1024;

/// A plain expression.
#[derive(Debug)]
pub(super) enum PlainExpression {
    /// One value.
    One(Way),
    /// One object for each item of a list.
    Each {
        /// The list.
        list: Way,
        /// The name of an item.
        item: String,
        /// The object's keys in alphabetical order, and their values.
        picked: Vec<(String, Way)>,
    },
}

/// `body.items`: a variable, and the fields to follow.
#[derive(Debug)]
pub(super) struct Way {
    variable: String,
    fields: Vec<String>,
}

impl PlainExpression {
    /// `expression`, if it is plain.
    pub(super) fn of(expression: &IdedExpr) -> Option<Self> {
        match &expression.expr {
            Expr::Comprehension(each) => Self::each(each),
            _ => Way::of(expression).map(Self::One),
        }
    }

    /// `map` without a condition, to an object of paths.
    fn each(each: &ComprehensionExpr) -> Option<Self> {
        let is_found = |expression: &IdedExpr| matches!(&expression.expr, Expr::Ident(name) if *name == each.accu_var);
        let Expr::Call(step) = &each.loop_step.expr else { return None };
        let ([found, next], operators::ADD, None) = (&step.args[..], &*step.func_name, &step.target) else {
            return None;
        };
        let (Expr::List(first), Expr::List(next)) = (&each.accu_init.expr, &next.expr) else { return None };
        let ([], [next], None) = (&first.elements[..], &next.elements[..], &each.iter_var2) else { return None };
        let Expr::Map(object) = &next.expr else { return None };
        if !is_found(found) || !is_found(&each.result) || !matches!(each.loop_cond.expr, Expr::Literal(_)) {
            return None;
        }
        let entry = |entry: &EntryExpr| match entry {
            EntryExpr::MapEntry(entry) if !entry.optional => match &entry.key.expr {
                Expr::Literal(LiteralValue::String(key)) => Some((key.inner().to_owned(), Way::of(&entry.value)?)),
                _ => None,
            },
            _ => None,
        };
        let mut picked = object.entries.iter().map(|each| entry(&each.expr)).collect::<Option<Vec<_>>>()?;
        picked.sort_by(|a, b| a.0.cmp(&b.0));
        let is_twice = picked.windows(2).any(|pair| pair[0].0 == pair[1].0);
        (!is_twice).then_some(Self::Each { list: Way::of(&each.iter_range)?, item: each.iter_var.clone(), picked })
    }

    /// The value. `None` if the expression does not fit the variables, or the result is very large.
    pub(super) fn pick(&self, variables: &[(&str, &Document<'_>)]) -> Option<Value> {
        let mut left = MAX_RESULT_BYTES;
        let start = |way: &Way| variables.iter().find(|(name, _)| *name == way.variable).map(|(_, value)| *value);
        match self {
            Self::One(way) => {
                let found = along(start(way)?, &way.fields)?;
                found.spend(&mut left).then(|| found.to_sorted())
            }
            Self::Each { list, item, picked } => {
                let items = along(start(list)?, &list.fields)?.as_list()?;
                // A path that does not begin at the item has the same value for all items, and is read once.
                let of_item = |way: &Way| way.variable == *item;
                let others =
                    picked.iter().map(|(_, way)| if of_item(way) { None } else { along(start(way)?, &way.fields) });
                let others: Vec<Option<&Document<'_>>> = others.collect();
                let mut object = |value: &Document<'_>| {
                    let mut object = Map::with_capacity(picked.len());
                    for ((key, way), other) in picked.iter().zip(&others) {
                        let found = if of_item(way) { along(value, &way.fields) } else { *other }?;
                        left = left.checked_sub(key.len())?;
                        if !found.spend(&mut left) {
                            return None;
                        }
                        object.insert(key.clone(), found.to_sorted());
                    }
                    Some(Value::Object(object))
                };
                items.iter().map(&mut object).collect()
            }
        }
    }
}

impl Way {
    fn of(expression: &IdedExpr) -> Option<Self> {
        match &expression.expr {
            Expr::Ident(variable) => Some(Self { variable: variable.clone(), fields: Vec::new() }),
            Expr::Select(select) if !select.test => {
                let mut way = Self::of(&select.operand)?;
                way.fields.push(select.field.clone());
                Some(way)
            }
            _ => None,
        }
    }
}

/// Follows one field after the other, from `value`.
fn along<'a, 'b>(value: &'a Document<'b>, fields: &[String]) -> Option<&'a Document<'b>> {
    fields.iter().try_fold(value, |value, field| value.get(field))
}
