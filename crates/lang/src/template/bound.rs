//! An upper bound of the memory that rendering a template takes, in bytes, computed before it is rendered. A template with a small bound
//! is rendered in the gateway's own process, all others in an evaluator. minijinja's fuel is not such a limit: it counts
//! instructions, and one instruction can make gigabytes.
//!
//! The template's syntax tree becomes a formula over the sizes of its variables. An element without a rule, such as `range` and
//! `set`, has no bound.

use minijinja::{
    Value,
    machinery::{
        ast::{BinOpKind, CallArg, Expr, Stmt},
        parse,
    },
    value::ValueKind,
};

/// The size of a value that is not a text. Most numbers are not longer as text.
const NODE: usize = 48;
/// Keeps a product from being zero: a text of `n` characters has `n + 1` positions around them.
const ONE: Formula = Formula::Fixed(1.0);
/// The weight from which a variable's exact weight no longer matters, in bytes.
const MAX_WEIGHT_BYTES: usize = 4 * 1024 * 1024;

/// How much is made, at most.
#[derive(Debug)]
pub(super) enum Formula {
    /// This many bytes.
    Fixed(f64),
    /// The value of a dotted name.
    Name(Vec<String>),
    /// The sum of these.
    Sum(Vec<Self>),
    /// The product of these.
    Product(Vec<Self>),
    /// A repeated text. The parser repeats it itself if it contains no variable.
    Repeated(f64, Box<Self>),
    /// A body for each item of a list, and the name of the item.
    Each { item: String, list: Box<Self>, body: Box<Self> },
    /// No bound.
    Unbounded,
}

/// The formula of the template `source`.
pub(super) fn of(source: &str) -> Formula {
    let parsed = parse(source, "", minijinja::syntax::SyntaxConfig::default());
    parsed.map_or(Formula::Unbounded, |parsed| statement(&parsed))
}

impl Formula {
    /// The bound with the variables of `context`.
    pub(super) fn with(&self, context: &Value) -> f64 {
        self.evaluate(context, &mut Vec::new())
    }

    /// How much is made without variables. The parser already evaluates such parts.
    pub(super) fn constant(&self) -> f64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Name(_) | Self::Unbounded => 0.0,
            Self::Sum(parts) | Self::Product(parts) => parts.iter().map(Self::constant).sum(),
            Self::Repeated(count, text) => count * text.constant(),
            Self::Each { list, body, .. } => list.constant() + body.constant(),
        }
    }

    fn evaluate<'a>(&'a self, context: &Value, locals: &mut Vec<(&'a str, f64)>) -> f64 {
        match self {
            Self::Unbounded => f64::INFINITY,
            Self::Fixed(bytes) => *bytes,
            Self::Name(parts) => {
                match locals.iter().rev().find(|(name, _)| Some(*name) == parts.first().map(|part| &**part)) {
                    Some((_, size)) => *size,
                    None => weigh(context, parts),
                }
            }
            Self::Sum(parts) => parts.iter().map(|part| part.evaluate(context, locals)).sum(),
            Self::Product(parts) => parts.iter().map(|part| part.evaluate(context, locals)).product(),
            Self::Repeated(count, text) => count * text.evaluate(context, locals),
            Self::Each { item, list, body } => {
                let size = list.evaluate(context, locals);
                let is_local = |name: &str| locals.iter().any(|(local, _)| *local == name);
                let known = match &**list {
                    Self::Name(parts) if !parts.first().is_some_and(|part| is_local(part)) => find(context, parts),
                    _ => None,
                };
                // The number of items and the largest one, but not more than all of them together.
                let (count, largest) = known.and_then(|list| items(&list)).unwrap_or((size, size));
                locals.extend([(&**item, largest), ("loop", size)]);
                let each = body.evaluate(context, locals);
                locals.truncate(locals.len() - 2);
                size + count * each
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bound need not be exact to the byte")]
const fn as_size(bytes: usize) -> f64 {
    bytes as f64
}

/// The value of the dotted name `parts`.
fn find(context: &Value, parts: &[String]) -> Option<Value> {
    let step = |value: Value, part: &String| value.get_attr(part).ok().filter(|next| !next.is_undefined());
    parts.iter().try_fold(context.clone(), step)
}

/// The weight of that value. A missing value is an error, and makes nothing.
fn weigh(context: &Value, parts: &[String]) -> f64 {
    find(context, parts).map_or(as_size(NODE), |value| size(&value))
}

fn size(value: &Value) -> f64 {
    let mut left = MAX_WEIGHT_BYTES;
    if spend(value, &mut left) { as_size(MAX_WEIGHT_BYTES - left) } else { f64::INFINITY }
}

/// The number of items in a list, and the size of the largest.
fn items(list: &Value) -> Option<(f64, f64)> {
    let count = as_size(list.len()?);
    Some((count, list.try_iter().ok()?.map(|item| size(&item)).fold(1.0, f64::max)))
}

/// Subtracts the weight of `value` from `left`. Returns whether `left` sufficed.
fn spend(value: &Value, left: &mut usize) -> bool {
    let own = value.as_str().map_or_else(
        || super::number::text(value).map_or(NODE, |number| number.len().max(NODE)),
        |text| text.len() + 1,
    );
    let Some(remaining) = left.checked_sub(own) else { return false };
    *left = remaining;
    let is_map = value.kind() == ValueKind::Map;
    if !is_map && value.kind() != ValueKind::Seq {
        return true;
    }
    let Ok(mut items) = value.try_iter() else { return false };
    items.all(|item| {
        let inner = !is_map || value.get_item(&item).is_ok_and(|inner| spend(&inner, left));
        inner && spend(&item, left)
    })
}

fn statement(statement: &Stmt<'_>) -> Formula {
    match statement {
        Stmt::Template(template) => statements(&template.children),
        Stmt::EmitRaw(raw) => Formula::Fixed(as_size(raw.raw.len())),
        // A byte takes three when it is encoded for a URL.
        Stmt::EmitExpr(emit) => times(4.0, expression(&emit.expr)),
        Stmt::IfCond(each) => {
            Formula::Sum(vec![expression(&each.expr), statements(&each.true_body), statements(&each.false_body)])
        }
        Stmt::ForLoop(each) => {
            let mut body = vec![ONE, statements(&each.body)];
            body.extend(each.filter_expr.as_ref().map(expression));
            let (list, body, otherwise) = (expression(&each.iter), Formula::Sum(body), statements(&each.else_body));
            match &each.target {
                Expr::Var(target) if !each.recursive => {
                    let item = target.id.to_owned();
                    Formula::Sum(vec![Formula::Each { item, list: Box::new(list), body: Box::new(body) }, otherwise])
                }
                _ => unbounded(vec![list, body, otherwise]),
            }
        }
        // A variable may be set to twice its own value, again and again.
        Stmt::Set(set) => unbounded(vec![expression(&set.expr)]),
        Stmt::SetBlock(set) => unbounded(vec![statements(&set.body)]),
        Stmt::WithBlock(with) => {
            let assigned = with.assignments.iter().map(|(_, value)| expression(value));
            unbounded(assigned.chain([statements(&with.body)]).collect())
        }
        Stmt::AutoEscape(block) => unbounded(vec![statements(&block.body)]),
        Stmt::FilterBlock(block) => unbounded(vec![statements(&block.body), expression(&block.filter)]),
        Stmt::Do(call) => unbounded(vec![arguments(&call.call.args)]),
    }
}

fn statements(all: &[Stmt<'_>]) -> Formula {
    Formula::Sum(all.iter().map(statement).collect())
}

fn expression(expr: &Expr<'_>) -> Formula {
    let sum = |parts: &mut dyn Iterator<Item = &Expr<'_>>| Formula::Sum(parts.map(expression).chain([ONE]).collect());
    match expr {
        Expr::Var(var) => Formula::Name(vec![var.id.to_owned()]),
        Expr::Const(constant) => Formula::Fixed(size(&constant.value)),
        Expr::UnaryOp(unary) => expression(&unary.expr),
        Expr::BinOp(binary) if matches!(binary.op, BinOpKind::Mul) => repeated(&binary.left, &binary.right),
        Expr::BinOp(binary) => sum(&mut [&binary.left, &binary.right].into_iter()),
        Expr::Compare(compare) => sum(&mut [&compare.expr].into_iter().chain(compare.ops.iter().map(|op| &op.expr))),
        Expr::IfExpr(either) => sum(&mut [&either.test_expr, &either.true_expr].into_iter().chain(&either.false_expr)),
        Expr::GetAttr(get) => name(expr).map_or_else(|| expression(&get.expr), Formula::Name),
        Expr::GetItem(get) => sum(&mut [&get.expr, &get.subscript_expr].into_iter()),
        Expr::Slice(slice) => expression(&slice.expr),
        Expr::List(list) => sum(&mut list.items.iter()),
        Expr::Tuple(tuple) => sum(&mut tuple.items.iter()),
        Expr::Map(map) => sum(&mut map.keys.iter().chain(&map.values)),
        Expr::Test(test) => Formula::Sum(vec![expression(&test.expr), arguments(&test.args)]),
        Expr::Filter(filter) => {
            applied(filter.name, filter.expr.as_ref().map_or(Formula::Unbounded, expression), &filter.args)
        }
        // They make a number.
        Expr::Call(call) if matches!(&call.expr, Expr::Var(name) if ["duration", "timestamp"].contains(&name.id)) => {
            Formula::Sum(vec![arguments(&call.args), Formula::Fixed(as_size(NODE))])
        }
        Expr::Call(call) => unbounded(vec![arguments(&call.args)]),
    }
}

/// One side, repeated as often as the number on the other side.
fn repeated(left: &Expr<'_>, right: &Expr<'_>) -> Formula {
    let number = |side: &Expr<'_>| if let Expr::Const(side) = side { side.value.as_i64() } else { None };
    let (count, text) = match (number(right), number(left)) {
        (Some(count), _) => (count, left),
        (None, Some(count)) => (count, right),
        (None, None) => return unbounded(vec![expression(left), expression(right)]),
    };
    let count = usize::try_from(count).map_or(1, |count| count.max(1));
    Formula::Repeated(as_size(count), Box::new(expression(text)))
}

/// The size of a filter's result for `of`.
fn applied(filter: &str, of: Formula, args: &[CallArg<'_>]) -> Formula {
    let (made, passed) = (Formula::Sum(vec![of, ONE]), arguments(args));
    let factor = match filter {
        "abs" | "bool" | "count" | "d" | "default" | "first" | "float" | "int" | "items" | "last" | "length"
        | "list" | "reverse" | "round" | "sha8" | "trim" => 2.0,
        "capitalize" | "lower" | "ref_slug" | "tag" | "title" | "upper" => 4.0,
        "b64decode" | "b64encode" | "date" | "e" | "escape" | "string" | "urlencode" => 8.0,
        // Each character takes six. An indentation has no bound.
        "tojson" if args.is_empty() => 16.0,
        // One character may become several letters.
        "name" | "slug" => 32.0,
        // Each part is a value.
        "split" | "lines" => 64.0,
        // At most 1000 wider for each line or conversion (`width`).
        "format" | "indent" => 1001.0,
        "join" | "replace" => return Formula::Product(vec![made, Formula::Sum(vec![passed, ONE])]),
        _ => return unbounded(vec![made, passed]),
    };
    times(factor, Formula::Sum(vec![made, passed]))
}

fn arguments(args: &[CallArg<'_>]) -> Formula {
    let each = args.iter().map(|arg| match arg {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) => expression(value),
        CallArg::PosSplat(value) | CallArg::KwargSplat(value) => unbounded(vec![expression(value)]),
    });
    Formula::Sum(each.collect())
}

fn times(factor: f64, formula: Formula) -> Formula {
    Formula::Product(vec![Formula::Fixed(factor), formula])
}

/// No bound. `parts` are kept for their constants.
fn unbounded(mut parts: Vec<Formula>) -> Formula {
    parts.push(Formula::Unbounded);
    Formula::Sum(parts)
}

/// The parts of a dotted name.
fn name(expr: &Expr<'_>) -> Option<Vec<String>> {
    match expr {
        Expr::Var(var) => Some(vec![var.id.to_owned()]),
        Expr::GetAttr(get) => {
            let mut parts = name(&get.expr)?;
            parts.push(get.name.to_owned());
            Some(parts)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    fn bound(source: &str) -> f64 {
        let list: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let context = context! { params => context! { b => "x".repeat(60_000), n => "feat/a", list } };
        super::of(source).with(&context)
    }

    #[test]
    fn ordinary_templates_are_small() {
        for source in [
            "https://h/{{ params.n | tag }}?x={{ params.n | urlencode }}",
            "{{ params.n | replace('/', '-') | replace('a', 'b') | upper }}",
            "{% if params.n is defined and params.n != 'x' %}{{ params.n }}{% else %}y{% endif %}",
            "{{ params.list | join(',') }}",
            "{% for item in params.list %}{{ item }}-{{ loop.index }},{% endfor %}",
            "{{ (params.n | split('/'))[0] if params.n else params.n | split('/') | last }}",
            "{{ '-' * 3 ~ params.n }}",
            "{{ '%05d' | format(7) }}",
        ] {
            assert!(bound(source) < 500_000.0, "{source}: {}", bound(source));
        }
    }

    #[test]
    fn templates_that_multiply_are_not_small() {
        for source in [
            "{{ params.b | replace('x', params.b) }}",
            "{{ params.list | join(params.b) | replace('x', params.b) }}",
            "{{ params.n | replace('a', params.b) | replace('x', params.b) }}",
            "{{ range(99999) | join('x' * 100000) }}",
            "{{ 'x' * 100000000 }}",
            "{{ params.b * params.list | length }}",
            "{% set x = params.b ~ params.b %}{{ x }}",
            "{% for a in params.list %}{% for b in params.list %}{{ params.b }}{% endfor %}{% endfor %}",
            "{% for a in params.list recursive %}{{ loop(a) }}{% endfor %}",
            "{{ params.list | sort(attribute='x') }}",
            "{{ params.b | format(params.b) }}",
        ] {
            assert!(bound(source) > 4_000_000.0, "{source}: {}", bound(source));
        }
    }

    #[test]
    fn constants_are_counted() {
        for source in
            ["{{ 'x' * 100000000 }}", "{{ range(9) | join('x' * 100000000) }}", "{% set x = 'x' * 50000000 %}{{ x }}"]
        {
            assert!(super::of(source).constant() > 16e6, "{source}");
        }
        assert!(super::of("{{ params.b * 100000000 }}{{ range(9) | join('x' * 100000) }}").constant() < 16e6);
    }
}
