//! An upper bound of the cost of an expression over certain documents. An expression with a small bound is evaluated in the
//! gateway's own process, all others in an evaluator.
//!
//! Sizes are rough, in bytes of memory: each value counts [`NODE`], a text its length besides. Work has the same unit: the
//! bytes that a step makes, and those that it reads.
//!
//! In a loop, the bound of one step is a polynomial in the size of its item, without negative coefficients: sizes are only
//! added and multiplied. All items together are as large as the list. So `count × step(0) + step(list) − step(0)` bounds all
//! steps. That keeps an ordinary `filter` and `map` linear, and shows which expressions are not.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

use super::number;
use domain::{
    document::{Document, NODE},
    units::in_kib,
};

/// The most memory of the variables that are converted, in bytes.
const MAX_READ: usize = 256 * 1024;
/// The most work and memory of an expression in this process, in bytes.
const MAX_WORK: f64 = 4.0 * 1024.0 * 1024.0;
/// The most nested loops that are analysed. Each level doubles the time of the analysis.
const MAX_LOOPS: usize = 4;
/// The cost of compiling a harmless regular expression, and of everything else that is done once per call.
const REGEX: f64 = 64.0 * 1024.0;
/// The longest harmless regular expression, in bytes.
const LONGEST_REGEX: usize = 64;

/// The size of one value without content.
#[expect(clippy::cast_precision_loss, reason = "it is small")]
const ONE: f64 = NODE as f64;

/// The cost of evaluating an expression, at most.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// The size of the result.
    size: f64,
    /// The work, and the memory it takes.
    work: f64,
}

impl Bound {
    const UNKNOWN: Self = Self { size: f64::INFINITY, work: f64::INFINITY };
}

/// The variables.
struct Scope<'a> {
    variables: &'a [(&'a str, &'a Document<'a>)],
    /// The variables of loops with their sizes, the innermost last.
    locals: Vec<(&'a str, f64)>,
    /// The size of all variables together.
    total: f64,
    loops: usize,
}

/// The cost of evaluating `expression` over `variables`, at most, in KiB. `None` if that is not small.
pub(super) fn of<'a>(expression: &'a IdedExpr, variables: &'a [(&'a str, &'a Document<'a>)]) -> Option<u32> {
    let mut left = MAX_READ;
    if !variables.iter().all(|(_, document)| document.spend(&mut left)) {
        return None;
    }
    let total = as_size(MAX_READ - left) + ONE;
    let mut scope = Scope { variables, locals: Vec::new(), total, loops: 0 };
    let bound = scope.bound(expression);
    in_kib(bound.work + bound.size + total, MAX_WORK)
}

#[expect(clippy::cast_precision_loss, reason = "a bound need not be exact to the byte")]
const fn as_size(bytes: usize) -> f64 {
    bytes as f64
}

impl<'a> Scope<'a> {
    fn bound(&mut self, expression: &'a IdedExpr) -> Bound {
        if let Some(size) = self.named(expression) {
            return Bound { size, work: ONE };
        }
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                let size = ONE + as_size(text.inner().len());
                Bound { size, work: size }
            }
            Expr::Literal(LiteralValue::Bytes(_)) | Expr::Struct(_) | Expr::Unspecified => Bound::UNKNOWN,
            Expr::Literal(_) => Bound { size: ONE, work: ONE },
            Expr::Select(select) => {
                let operand = self.bound(&select.operand);
                let size = if select.test { ONE } else { operand.size };
                // A field of a new value is a copy.
                Bound { size, work: operand.work + operand.size + ONE }
            }
            Expr::List(list) => self.sum(list.elements.iter()),
            Expr::Map(map) => {
                let parts = map.entries.iter().flat_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                    EntryExpr::StructField(field) => vec![&field.value],
                });
                self.sum(parts)
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(each) => self.each(each),
            Expr::Ident(_) => Bound { size: self.total, work: ONE },
        }
    }

    /// The cost of all `parts`, and of a value that holds them.
    fn sum(&mut self, parts: impl Iterator<Item = &'a IdedExpr>) -> Bound {
        let mut sum = Bound { size: ONE, work: ONE };
        for part in parts {
            let part = self.bound(part);
            sum = Bound { size: sum.size + part.size, work: sum.work + part.work + part.size };
        }
        sum
    }

    /// The size of `body.items`. Finding it makes nothing.
    fn named(&self, expression: &'a IdedExpr) -> Option<f64> {
        let (root, fields) = path(expression)?;
        if let Some((_, size)) = self.locals.iter().rev().find(|(name, _)| *name == root) {
            return Some(*size);
        }
        let Some(found) = self.found(root, &fields) else {
            return Some(if self.variables.iter().any(|(name, _)| *name == root) { ONE } else { self.total });
        };
        let mut left = MAX_READ;
        Some(if found.spend(&mut left) { ONE + as_size(MAX_READ - left) } else { self.total })
    }

    fn found(&self, root: &str, fields: &[&str]) -> Option<&'a Document<'a>> {
        let (_, document) = self.variables.iter().find(|(name, _)| *name == root)?;
        fields.iter().try_fold(*document, |value, field| value.get(field))
    }

    fn call(&mut self, call: &'a CallExpr) -> Bound {
        let operands: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let bounds: Vec<Bound> = operands.iter().map(|operand| self.bound(operand)).collect();
        let work: f64 = ONE + bounds.iter().map(|bound| bound.work).sum::<f64>();
        let sizes: f64 = bounds.iter().map(|bound| bound.size).sum();
        let size_of = |index: usize| bounds.get(index).map_or(f64::INFINITY, |bound| bound.size);
        let made = |size: f64| Bound { size, work: work + size };
        // It reads all operands.
        let read = |size: f64| Bound { size, work: work + sizes + size };
        match &*call.func_name {
            operators::EQUALS | operators::NOT_EQUALS => {
                // Each side is read only as far as the other side goes.
                let compared = if self.is_local(operands[0]) { size_of(0) } else { size_of(1) };
                Bound { size: ONE, work: work + compared }
            }
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE => {
                Bound { size: ONE, work }
            }
            operators::CONDITIONAL => Bound { size: size_of(1) + size_of(2), work },
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
            | "startsWith"
            | "endsWith"
            | "contains" => read(ONE),
            operators::INDEX | operators::ADD => made(sizes + ONE),
            operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE
            | "int"
            | "uint"
            | "double"
            | "bool"
            | "type"
            | "timestamp"
            | "duration"
            | "date" => read(2.0 * ONE),
            // Counting a named value copies nothing.
            "size" if operands.first().is_some_and(|operand| path(operand).is_some()) => Bound { size: ONE, work },
            "size" => read(ONE),
            "lowerAscii" | "upperAscii" | "trim" | "charAt" | "substring" | "string" | number::WRITTEN => {
                made(size_of(0) + ONE)
            }
            "indexOf" | "lastIndexOf" => Bound { size: ONE, work: work + size_of(0) * size_of(1) },
            // At most 63 characters; its slug may be longer for a while.
            "name" => Bound { size: 2.0 * ONE, work: work + 32.0 * size_of(0) },
            "decode" | "encode" if is_base64(call) => made(2.0 * size_of(1) + ONE),
            "split" => made(size_of(0) * ONE),
            "join" => made(size_of(0) * (1.0 + operands.get(1).map_or(0.0, |text| length(text).unwrap_or(size_of(1))))),
            "replace" => {
                made(size_of(0) * (1.0 + operands.get(2).and_then(|text| length(text)).unwrap_or_else(|| size_of(2))))
            }
            "matches" if operands.last().is_some_and(|pattern| is_harmless(pattern)) => {
                Bound { size: ONE, work: work + sizes * 64.0 + REGEX }
            }
            _ => Bound::UNKNOWN,
        }
    }

    /// A loop, such as `map` and `exists`. `cel.bind` is a loop over nothing.
    fn each(&mut self, each: &'a ComprehensionExpr) -> Bound {
        if each.iter_var2.is_some() || self.loops >= MAX_LOOPS {
            return Bound::UNKNOWN;
        }
        let (range, start) = (self.bound(&each.iter_range), self.bound(&each.accu_init));
        let count = path(&each.iter_range)
            .filter(|(root, _)| !self.locals.iter().any(|(name, _)| name == root))
            .and_then(|(root, fields)| self.found(root, &fields)?.as_list())
            .map_or(range.size / ONE, |items| as_size(items.len()));
        self.loops += 1;
        let (none, all) = (self.step(each, 0.0), self.step(each, range.size));
        let result = start.size + count * none.size + (all.size - none.size);
        self.locals.push((&each.accu_var, result));
        let last = self.bound(&each.result);
        self.locals.pop();
        self.loops -= 1;
        // The range is evaluated twice: once to check that it is a list.
        let work = 2.0 * range.work + range.size + start.work + count * none.work + (all.work - none.work) + last.work;
        Bound { size: last.size, work }
    }

    /// One step of `each` with an item of this size.
    fn step(&mut self, each: &'a ComprehensionExpr, item: f64) -> Bound {
        self.locals.extend([(&*each.iter_var, item), (&*each.accu_var, ONE)]);
        let (condition, step) = (self.bound(&each.loop_cond), self.bound(&each.loop_step));
        self.locals.truncate(self.locals.len() - 2);
        Bound { size: step.size, work: condition.work + step.work + ONE }
    }

    fn is_local(&self, expression: &IdedExpr) -> bool {
        path(expression).is_some_and(|(root, _)| self.locals.iter().any(|(name, _)| *name == root))
    }
}

/// Whether `call` is one of `base64.encode` and `base64.decode`.
fn is_base64(call: &CallExpr) -> bool {
    call.target.as_ref().is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "base64"))
}

/// The length of a literal text.
fn length(expression: &IdedExpr) -> Option<f64> {
    if let Expr::Literal(LiteralValue::String(text)) = &expression.expr {
        Some(as_size(text.inner().len()))
    } else {
        None
    }
}

/// The variable of `body.items.first`, and its fields.
fn path(expression: &IdedExpr) -> Option<(&str, Vec<&str>)> {
    match &expression.expr {
        Expr::Ident(name) => Some((name, Vec::new())),
        Expr::Select(select) if !select.test => {
            let (root, mut fields) = path(&select.operand)?;
            fields.push(&select.field);
            Some((root, fields))
        }
        _ => None,
    }
}

/// Whether a regular expression is a literal, short, and without counted repetitions, so that compiling it is cheap.
fn is_harmless(pattern: &IdedExpr) -> bool {
    let Expr::Literal(LiteralValue::String(pattern)) = &pattern.expr else { return false };
    let pattern = pattern.inner();
    let mut after_backslash = pattern.split('\\').skip(1).map(|rest| rest.chars().next());
    pattern.len() <= LONGEST_REGEX
        && !pattern.contains(['{', '|'])
        && !pattern.contains("(?")
        && after_backslash.all(|c| c.is_some_and(|c| c.is_ascii_punctuation()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::expression::Expression;

    fn is_small_over(source: &str, body: &Value) -> bool {
        let expression = Expression::compile(source).unwrap();
        of(expression.program.expression(), &[("body", &body.into())]).is_some()
    }

    fn items(count: usize) -> Value {
        let item = |n: usize| json!({"n": format!("item-{n}"), "active": n.is_multiple_of(2), "labels": ["a", "b"]});
        json!({"items": (0..count).map(item).collect::<Vec<_>>(), "env": "prod", "text": "x".repeat(20 * count)})
    }

    #[test]
    fn ordinary_expressions_over_a_hundred_items_are_small() {
        let body = items(100);
        for source in [
            "body.items.filter(t, t.active).map(t, {'name': t.n, 'labels': t.labels})",
            "body.items.filter(t, t.n.startsWith('item-1') && t.n != body.env)",
            "body.items.map(t, {'name': t.n.replace('-', '_'), 'all': t.labels.join(',')})",
            "body.items.exists(t, t.labels.exists(l, l == 'b')) ? body.items : []",
            "body.text.matches('^x+$')",
            "size(body.items) < 100 ? null : 2",
            "body.env.split(',').map(c, c.trim()).filter(c, c != '')",
            "has(body.next) ? body.next : ''",
        ] {
            assert!(is_small_over(source, &body), "{source}");
        }
    }

    #[test]
    fn what_multiplies_is_not_small() {
        let body = items(400);
        for source in [
            "body.items.filter(i, !body.items.exists(j, j.n == i.n + 'x'))",
            "body.items.map(i, body.items)",
            "body.items.map(i, body.items.map(j, [i, j]))",
            "body.text.replace('x', body.text).replace('x', body.text)",
            "body.text.split('').join(body.text)",
            "body.text.split('').map(c, body.text)",
            "body.items.map(i, i.n.matches('(a|a)*b'))",
            "body.text.matches(body.text)",
            "body.text.matches('((x{100}){100}){100}')",
            "lists.range(1000000)",
            "body.items.sortBy(i, i.n)",
            "cel.bind(a, body.text + body.text, cel.bind(b, a.replace('x', a), b.replace('x', a)))",
        ] {
            if Expression::compile(source).is_ok() {
                assert!(!is_small_over(source, &body), "{source}");
            }
        }
        // The same forms over little data are.
        assert!(is_small_over("body.items.filter(i, !body.items.exists(j, j.n == i.n + 'x'))", &items(5)));
    }

    #[test]
    fn a_large_document_is_never_small() {
        assert!(!is_small_over("body.env == 'prod'", &items(5000)));
    }
}
