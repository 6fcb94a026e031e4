//! Conditions and mappings over documents (CEL). An expression terminates, sees only its variables, and turns one JSON value
//! into another.

mod bound;
mod build;
mod check;
mod constant;
mod error;
mod functions;
mod json;
mod known;
mod number;
mod plain;
mod structure;
mod syntax;

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, IdedExpr, Program,
    common::{
        ast::Expr,
        types::{CelBool, CelList, CelMap, CelMapKey, CelNull, CelString, Kind},
        value::{CowVal, Val},
    },
    extensions,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::{
    error::ExpressionCause,
    json::Written,
    plain::PlainExpression,
    structure::{depth, nests, parts},
};
pub use self::{error::ExpressionError, syntax::SyntaxError};
use domain::document::{self, Document};

/// The longest expression, in bytes. The parser's stack grows with its length.
const MAX_SOURCE_BYTES: usize = 2048;
/// The most levels of an expression. In a debug build, one level takes 31 KiB of a thread's stack of 2 MiB.
const MAX_LEVELS: usize = 40;

/// The most memory for all expressions that are evaluated in this process at a time, in KiB.
static ROOM: Semaphore = Semaphore::const_new(4 * 1024);

/// A compiled expression.
pub struct Expression {
    source: String,
    program: Program,
    plain: Option<PlainExpression>,
    is_nested: bool,
}

impl Expression {
    /// Compiles `source`.
    ///
    /// # Errors
    /// On a syntax error, a source longer than 2 KiB or more than 40 levels.
    pub fn compile(source: &str) -> Result<Self, SyntaxError> {
        if source.len() > MAX_SOURCE_BYTES {
            let message = format!("an expression has at most {MAX_SOURCE_BYTES} bytes; this one has {}", source.len());
            return Err(SyntaxError::whole(message));
        }
        let program = environment().compile(source).map_err(|errors| {
            if errors.errors.iter().any(|error| error.msg.contains("Recursion limit")) {
                return SyntaxError::whole("its parentheses, lists or calls are nested too deeply".to_owned());
            }
            let errors: Vec<_> = errors.errors.iter().map(|error| (error.pos, error.msg.as_str())).collect();
            syntax::explain(source, &errors)
        })?;
        let depth = depth(program.expression());
        if depth > MAX_LEVELS {
            return Err(SyntaxError::whole(format!(
                "an expression has at most {MAX_LEVELS} levels, and this one {depth}: each operator adds one; a \
                 long sum of texts is shorter as `[a, b, c].join('')`"
            )));
        }
        let is_nested = nests(program.expression(), false);
        Ok(Self { source: source.to_owned(), plain: PlainExpression::of(program.expression()), program, is_nested })
    }

    /// Whether the source contains `name`. If not, the expression cannot use the variable of that name.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// Whether one list is iterated for each item of another list, or of itself. Then a short document may take long.
    #[must_use]
    pub const fn is_nested(&self) -> bool {
        self.is_nested
    }

    /// Evaluates if that is provably cheap. `None` if it may take long or much memory, or if too much is evaluated in this
    /// process already.
    #[must_use]
    pub fn evaluate_small(&self, variables: &[(&str, &Document<'_>)]) -> Option<Result<Value, ExpressionError>> {
        self.evaluate_within(&ROOM, variables)
    }

    /// Evaluates if that is cheap, independent of all other evaluations. For callers without an evaluator.
    #[must_use]
    pub fn evaluate_at_once(&self, variables: &[(&str, &Document<'_>)]) -> Option<Result<Value, ExpressionError>> {
        self.evaluate_within(&Semaphore::new(Semaphore::MAX_PERMITS), variables)
    }

    fn evaluate_within(
        &self,
        room: &Semaphore,
        variables: &[(&str, &Document<'_>)],
    ) -> Option<Result<Value, ExpressionError>> {
        if let Some(picked) = self.plain.as_ref().and_then(|plain| plain.pick(variables)) {
            return Some(Ok(picked));
        }
        let mentioned: Vec<_> = variables.iter().filter(|(name, _)| self.mentions(name)).copied().collect();
        let size = bound::of(self.program.expression(), &mentioned)?;
        let _room = room.try_acquire_many(size).ok()?;
        Some(self.execute(&mentioned))
    }

    /// Whether it puts texts together for the value of `key` in the object that it makes: from parts of the variables and other texts.
    #[must_use]
    pub fn composes(&self, key: &str) -> bool {
        structure::composes(structure::value_of(self.program.expression(), key))
    }

    /// The text as written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates with JSON variables to JSON, without a limit of time: evaluators are limited from outside. `None` if the
    /// result takes more than `max` bytes of memory.
    ///
    /// # Errors
    /// The text of an [`ExpressionError`], which an evaluator sends to the gateway.
    pub fn evaluate_json(&self, variables: &[(&str, &[u8])], max: usize) -> Result<Option<String>, String> {
        self.execute_json(variables, max).map_err(|cause| cause.of(&self.source).to_string())
    }

    fn execute_json(&self, variables: &[(&str, &[u8])], max: usize) -> Result<Option<String>, ExpressionCause> {
        let mut context = Context::with_env(Arc::clone(environment()));
        for (name, json) in variables.iter().filter(|(name, _)| self.mentions(name)) {
            context.add_variable_as_val(*name, json::read(json)?);
        }
        let result = self.resolve(&context)?;
        let left = Cell::new(max);
        match serde_json::to_string(&Written { value: result.as_ref(), left: &left }) {
            Ok(json) => Ok(Some(json)),
            Err(_) if left.get() == 0 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Evaluates without limits of time and memory. The map keys of the result are in alphabetical order, since CEL's maps have
    /// no order.
    ///
    /// # Errors
    /// When the expression does not fit the document. The text names the place.
    pub fn evaluate(&self, variables: &[(&str, &Document<'_>)]) -> Result<Value, ExpressionError> {
        let picked = self.plain.as_ref().and_then(|plain| plain.pick(variables));
        picked.map_or_else(|| self.execute(variables), Ok)
    }

    /// Evaluates with CEL.
    fn execute(&self, variables: &[(&str, &Document<'_>)]) -> Result<Value, ExpressionError> {
        let mut context = Context::with_env(Arc::clone(environment()));
        for (name, value) in variables.iter().filter(|(name, _)| self.mentions(name)) {
            context.add_variable_as_val(*name, to_cel(value));
        }
        let result = self.resolve(&context).and_then(|result| from_cel(result.as_ref()));
        result.map_err(|cause| cause.of(&self.source))
    }

    fn resolve<'e, 'v>(&'e self, context: &'e Context<'_, 'v>) -> Result<CowVal<'e, 'v>, ExpressionCause> {
        check_ranges(self.program.expression(), context)?;
        Ok(cel::Value::resolve_val(self.program.expression(), context)?)
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// Refuses `map`, `filter` and so on over an object. CEL would iterate its keys, and turn an error document such as `{}` into
/// an empty list. The range of a comprehension within another one is not known here.
fn check_ranges(expression: &IdedExpr, context: &Context<'_, '_>) -> Result<(), ExpressionCause> {
    if let Expr::Comprehension(inner) = &expression.expr
        && cel::Value::resolve_val(&inner.iter_range, context).is_ok_and(|range| range.get_type().kind() == Kind::Map)
    {
        return Err(ExpressionCause::Object);
    }
    parts(expression).into_iter().try_for_each(|part| check_ranges(part, context))
}

fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut environment = Env::stdlib();
        let extended =
            environment.add_extension(extensions::strings).and_then(|()| environment.add_extension(extensions::lists));
        let extended = extended.and_then(|()| number::add_to(&mut environment));
        let extended = extended.and_then(|()| functions::add_to(&mut environment));
        debug_assert!(extended.is_ok(), "the extensions declare what the standard library does not: {extended:?}");
        Arc::new(environment)
    });
    &ENVIRONMENT
}

/// JSON as a CEL value that borrows its texts.
fn to_cel<'a>(value: &'a Document<'_>) -> Box<dyn Val + 'a> {
    match value {
        Document::Null => Box::new(CelNull),
        Document::Bool(value) => Box::new(CelBool::from(*value)),
        Document::Number(number) => number::to_cel(number),
        Document::Text(text) => Box::new(CelString::from(&**text)),
        Document::List(items) => Box::new(CelList::from(items.iter().map(to_cel).collect::<Vec<_>>())),
        Document::Object(object) => {
            let entries = object.iter().map(|(key, value)| (CelMapKey::from(key), to_cel(value)));
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
    }
}

fn from_cel(value: &dyn Val) -> Result<Value, ExpressionCause> {
    let written = Written { value, left: &Cell::new(usize::MAX) };
    Ok(document::read_back(&serde_json::to_vec(&written)?)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evaluate(source: &str, body: &Value) -> Result<Value, String> {
        let expression = Expression::compile(source).map_err(|error| error.to_string())?;
        expression.evaluate(&[("body", &body.into())]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_nested_expression_is_refused_in_plain_words() {
        let deep = format!("{}1{}", "(".repeat(300), ")".repeat(300));
        let Err(why) = Expression::compile(&deep) else { panic!("it is not") };
        assert_eq!(why.to_string(), "its parentheses, lists or calls are nested too deeply");
    }

    #[test]
    fn nested_iterations_are_found() {
        for (source, is_nested) in [
            ("items", false),
            ("items.map(i, {'name': i.name, 'n': size(i.list)})", false),
            ("items.filter(i, i.ok).map(i, {'name': i.name})", false),
            ("items.filter(i, items.exists_one(j, j.n == i.n))", true),
            ("items.map(i, {'all': i.list.map(l, l.name)})", true),
            ("[items.map(i, i), items.map(i, [i.all(j, j)])]", true),
        ] {
            assert_eq!(Expression::compile(source).unwrap().is_nested(), is_nested, "{source}");
        }
    }

    #[test]
    fn a_document_becomes_a_list_of_maps() {
        let body = json!({"items": [{"id": "b", "cluster": "c1", "n": 1}, {"id": "a", "cluster": "c2", "n": 2}]});
        let mapped =
            evaluate("body.items.map(t, {'name': t.id, 'cluster': t.cluster, 'next': t.n + 1})", &body).unwrap();
        assert_eq!(
            mapped.to_string(),
            r#"[{"cluster":"c1","name":"b","next":2},{"cluster":"c2","name":"a","next":3}]"#
        );
        let kept = evaluate("body.items.filter(t, t.id.startsWith('a')).map(t, t.id.upperAscii())", &body).unwrap();
        assert_eq!(kept, json!(["A"]));
    }

    #[test]
    fn an_error_shows_the_expression() {
        let error = evaluate("body.items.map(t, t)", &json!({"rows": []})).unwrap_err();
        assert!(error.starts_with("`body.items.map(t, t)`: ") && error.contains("items"), "{error}");
        assert!(evaluate("body.items.map(t, t)", &json!({"items": {}})).unwrap_err().contains("an object"));
        let lines = "\nbody.items\n  .map(t, t)\n";
        assert!(evaluate(lines, &json!({})).unwrap_err().starts_with("`body.items   .map(t, t)`: "));
        assert!(evaluate("body.", &json!({})).unwrap_err().contains("column"));
        assert!(Expression::compile(&"1+".repeat(2000)).unwrap_err().to_string().contains("2048"));
        assert!(evaluate("getenv('HOME')", &json!({})).is_err());
    }

    #[test]
    fn the_number_of_levels_is_limited() {
        let sum = |terms: usize| vec!["1"; terms].join(" + ");
        assert_eq!(evaluate(&sum(40), &json!({})), Ok(json!(40)));
        for deep in [
            sum(41),
            format!("body{}", "[0]".repeat(60)),
            format!("{}1{}", "[".repeat(60), "]".repeat(60)),
            format!("{{{}1{}: 1}}", "[".repeat(40), "]".repeat(40)),
            format!("body.map(b, {})", sum(39)),
        ] {
            let error = Expression::compile(&deep).unwrap_err().to_string();
            assert!(error.contains("at most 40 levels"), "{deep}: {error}");
        }
        assert!(Expression::compile(&"(".repeat(2000)).is_err());
    }

    #[test]
    fn plain_expressions_give_the_same_as_cel() {
        let documents = [
            json!({"items": [{"id": "b", "o": {"z": [{"y": 1, "x": 2}], "a": null}}, {"id": 2.5, "o": {}}], "t": {"id": 7}}),
            json!({"items": [{"id": u64::MAX, "o": -1, "t": true}, {"o": 1}]}),
            json!({"items": {"id": {"id": 1}}}),
            json!({"items": []}),
            json!([{"id": 1}]),
            json!(null),
        ];
        for (source, is_plain) in [
            ("body", true),
            ("body.items", true),
            ("items", true),
            (".body", true),
            ("int", true),
            ("body.items.map(t, {'o': t.o, 'id': t.id})", true),
            ("body.items.map(t, {'all': body.t, 't': t})", true),
            ("body.items.map(body, {'id': body.id})", true),
            ("body.items.map(t, {})", true),
            ("body.map(t, {'id': t.id.id})", true),
            ("body.items.map(t, {'id': t.id, 'id': t.o})", false),
            ("body.items.map(t, {'id': t.id, 'n': 1})", false),
            ("body.items.map(t, {t.id: t.id})", false),
            ("body.items.map(t, has(t.id), {'id': t.id})", false),
            ("body.items.map(t, t.id)", false),
            ("body.items.filter(t, has(t.id))", false),
            ("body.items.exists(t, t.id == 'b')", false),
            ("has(body.items)", false),
        ] {
            let expression = Expression::compile(source).unwrap();
            assert_eq!(expression.plain.is_some(), is_plain, "{source}");
            for document in &documents {
                let variables =
                    [("body", &document.into()), ("params", &Document::Object(domain::document::Object::default()))];
                let (evaluated, expected) = (expression.evaluate(&variables), expression.execute(&variables));
                let text = |evaluated: Result<Value, ExpressionError>| {
                    evaluated.map(|value| value.to_string()).map_err(|error| error.to_string())
                };
                assert_eq!(text(evaluated), text(expected), "{source} {document}");
            }
        }
    }

    /// The functions that docs/http.md names.
    #[test]
    fn texts_can_be_taken_apart_and_put_together() {
        let body = json!({"text": " Team-A,Team-B ", "list": ["a", "b"]});
        for (source, expected) in [
            ("body.text.trim().split(',')", json!(["Team-A", "Team-B"])),
            ("body.list.join('-')", json!("a-b")),
            ("body.text.replace('Team', 'T')", json!(" T-A,T-B ")),
            ("body.text.trim().substring(5)", json!("A,Team-B")),
            ("body.text.trim().substring(0, 4)", json!("Team")),
            ("body.text.lowerAscii()", json!(" team-a,team-b ")),
            ("body.text.upperAscii()", json!(" TEAM-A,TEAM-B ")),
            ("body.text.trim().startsWith('Team')", json!(true)),
            ("body.text.endsWith('B ')", json!(true)),
            ("body.text.contains('m-A')", json!(true)),
            ("body.text.matches('^ [A-Z]')", json!(true)),
            ("body.text.trim().charAt(5)", json!("A")),
            ("body.text.indexOf('B')", json!(13)),
            ("size(body.text)", json!(15)),
            ("body.list.exists(l, l == 'b') && body.list.all(l, l != 'c')", json!(true)),
            ("body.list.map(l, 'x-' + l)", json!(["x-a", "x-b"])),
            ("has(body.none) ? body.none : 'nothing'", json!("nothing")),
        ] {
            assert_eq!(evaluate(source, &body), Ok(expected), "{source}");
        }
    }

    #[test]
    fn json_is_not_changed() {
        let body = json!({"a": [null, true, 1, -1, 1.5, "x", {"y": {}}], "big": u64::MAX});
        assert_eq!(evaluate("body", &body).unwrap(), body);
    }
}
