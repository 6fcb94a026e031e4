//! Finds the mistakes of an expression before it is evaluated, which CEL reports only then: names and fields that cannot be
//! there, and functions that do not exist. Also infers the type of the result.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators},
};

use super::{
    constant,
    known::{FUNCTIONS, MACROS, METHODS, QUALIFIED, TYPES},
};
use crate::scope::{NameScope, UnknownName, ValueType};
use domain::{
    problem::{Path, Problems},
    spelling::{advice, near},
};

/// A walk through an expression.
struct Walk<'s> {
    scope: &'s NameScope,
    /// The variables of the comprehensions around the current part.
    variables: Vec<(String, ValueType)>,
    found: Vec<UnknownName>,
}

/// Notes at `path` the mistakes of `expression` in `scope`. Returns the type of its result.
pub(super) fn check(expression: &IdedExpr, scope: &NameScope, path: &Path, problems: &mut Problems) -> ValueType {
    let mut walk = Walk { scope, variables: Vec::new(), found: Vec::new() };
    let result = walk.infer(expression);
    if walk.found.is_empty() {
        constant::check(expression, path, problems);
    }
    for UnknownName { message, help } in walk.found {
        problems.mistake(path, message, help);
    }
    result
}

impl Walk<'_> {
    /// The type of `expression`, as far as it is known.
    fn infer(&mut self, expression: &IdedExpr) -> ValueType {
        match &expression.expr {
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) if is_operator(&call.func_name) => self.operator(call),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<_> = list.elements.iter().map(|each| self.infer(each)).collect();
                list_of(items)
            }
            Expr::Map(map) => self.map(map),
            Expr::Struct(fields) => {
                for field in &fields.entries {
                    if let EntryExpr::StructField(field) = &field.expr {
                        self.infer(&field.value);
                    }
                }
                ValueType::Anything
            }
            Expr::Comprehension(inner) => self.comprehension(inner),
            Expr::Literal(literal) => ValueType::Plain(kind_of(literal)),
            Expr::Unspecified => ValueType::Anything,
        }
    }

    fn variable(&self, name: &str) -> Option<ValueType> {
        let local = self.variables.iter().rev().find(|(local, _)| local == name);
        local.map(|(_, value)| value.clone()).or_else(|| self.scope.get(name))
    }

    fn name(&mut self, name: &str) -> ValueType {
        self.variable(name).unwrap_or_else(|| {
            if !TYPES.contains(&name) {
                let locals = self.variables.iter().map(|(local, _)| &**local).filter(|local| !local.contains('@'));
                let known: Vec<&str> = locals.chain(self.scope.names()).collect();
                self.found.push(UnknownName { message: format!("unknown name `{name}`"), help: advice(name, &known) });
            }
            ValueType::Anything
        })
    }

    fn select(&mut self, select: &SelectExpr) -> ValueType {
        let of = self.infer(&select.operand);
        self.field(&of, &select.operand, &select.field)
    }

    /// The type of the field `name` of `operand`, which has the type `of`.
    fn field(&mut self, of: &ValueType, operand: &IdedExpr, name: &str) -> ValueType {
        let path = dotted(operand).unwrap_or_else(|| "the object".to_owned());
        if matches!(of, ValueType::List(_)) {
            let help = format!("take it from each item: `{path}.map(item, item.{name})`");
            self.found.push(UnknownName { message: format!("`{path}` is a list and has no field `{name}`"), help });
            return ValueType::Anything;
        }
        of.field(name).unwrap_or_else(|known| {
            self.found.push(UnknownName::field(&path, name, &known));
            ValueType::Anything
        })
    }

    fn operator(&mut self, call: &CallExpr) -> ValueType {
        let values: Vec<ValueType> =
            call.target.as_deref().into_iter().chain(&call.args).map(|part| self.infer(part)).collect();
        match (&*call.func_name, &call.args[..], &values[..]) {
            (operators::INDEX, [object, key], [of, _]) => match (&key.expr, of) {
                (Expr::Literal(LiteralValue::String(key)), ValueType::Object(_)) => self.field(of, object, key.inner()),
                _ => of.item(),
            },
            (operators::CONDITIONAL, _, [_, one, two]) | (operators::ADD, _, [one, two]) => one.join(two),
            _ => ValueType::Anything,
        }
    }

    fn call(&mut self, call: &CallExpr) -> ValueType {
        let name = &*call.func_name;
        let Some(target) = call.target.as_deref() else {
            return self.known_call(name, FUNCTIONS, call, ValueType::Anything);
        };
        if let Expr::Ident(space) = &target.expr
            && self.variable(space).is_none()
            && QUALIFIED.iter().any(|known| known.split('.').next() == Some(space))
        {
            return self.known_call(&format!("{space}.{name}"), QUALIFIED, call, ValueType::Anything);
        }
        let of = self.infer(target);
        let result = match name {
            "distinct" | "reverse" | "slice" | "sort" => of,
            "flatten" if call.args.is_empty() => of.item(),
            _ => ValueType::Anything,
        };
        self.known_call(name, METHODS, call, result)
    }

    /// Notes that `call` of a macro has another form than the macro, with the right form.
    fn wrong_macro(&mut self, name: &str, call: &CallExpr) -> ValueType {
        let mut parts: Vec<String> = call.target.as_deref().into_iter().chain(&call.args).filter_map(dotted).collect();
        parts.extend(["body.items".to_owned(), "item".to_owned()].into_iter().skip(parts.len()));
        let (of, variable) = (&parts[0], parts[1].split('.').next().unwrap_or_default());
        let variable = if parts[1].contains('.') || variable == of { "item" } else { variable };
        let message = format!("`{name}` is written after a list, with a variable and an expression");
        self.found.push(UnknownName { message, help: format!("write `{of}.{name}({variable}, …)`") });
        ValueType::Anything
    }

    /// Checks that `name` is one of `known`, and then the arguments of `call`.
    fn known_call(&mut self, name: &str, known: &[&str], call: &CallExpr, result: ValueType) -> ValueType {
        if known.contains(&name) {
            call.args.iter().for_each(|argument| _ = self.infer(argument));
            return result;
        }
        if MACROS.contains(&name) {
            return self.wrong_macro(name, call);
        }
        // The variable of a misspelt macro is not a name, so the arguments are not checked.
        let all: Vec<&str> = [known, MACROS, METHODS, FUNCTIONS, QUALIFIED].concat();
        let help = match (near(name, &all), known.contains(&name)) {
            (Some(meant), _) if METHODS.contains(&meant) && call.target.is_none() => {
                format!("did you mean `value.{meant}(…)`?")
            }
            (Some(meant), _) if known != METHODS || meant != name => format!("did you mean `{meant}`?"),
            (Some(meant), _) => {
                let of = call.target.as_deref().and_then(dotted).unwrap_or_else(|| "…".to_owned());
                format!("write it without a target: `{meant}({of})`")
            }
            (None, _) => format!("known: {}", [FUNCTIONS, METHODS, MACROS, QUALIFIED].concat().join(", ")),
        };
        self.found.push(UnknownName { message: format!("there is no function `{name}`"), help });
        ValueType::Anything
    }

    fn map(&mut self, map: &MapExpr) -> ValueType {
        let mut fields = Some(std::collections::BTreeMap::new());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let value = match self.infer(&entry.value) {
                ValueType::Plain(_) => ValueType::Anything,
                known => known,
            };
            if let Expr::Literal(LiteralValue::String(key)) = &entry.key.expr {
                fields.as_mut().map(|fields| fields.insert(key.inner().to_owned(), value));
            } else {
                self.infer(&entry.key);
                fields = None;
            }
        }
        fields.map_or(ValueType::Anything, ValueType::Object)
    }

    fn comprehension(&mut self, inner: &ComprehensionExpr) -> ValueType {
        let range = self.infer(&inner.iter_range);
        let start = self.infer(&inner.accu_init);
        // With two variables, the first one is the index.
        let (first, second) = if inner.iter_var2.is_some() {
            (ValueType::Anything, range.item())
        } else {
            (range.item(), ValueType::Anything)
        };
        let before = self.variables.len();
        self.variables.push((inner.iter_var.clone(), first));
        self.variables.extend(inner.iter_var2.clone().map(|name| (name, second)));
        self.variables.push((inner.accu_var.clone(), start));
        self.infer(&inner.loop_cond);
        let found = self.infer(&inner.loop_step);
        self.variables.truncate(before);
        self.variables.push((inner.accu_var.clone(), found));
        let result = self.infer(&inner.result);
        self.variables.truncate(before);
        result
    }
}

/// A list of values of this type. An empty list can become a list of anything by `+`.
fn list_of(items: Vec<ValueType>) -> ValueType {
    let item = items.into_iter().reduce(|one, two| one.join(&two));
    ValueType::List(Box::new(item.unwrap_or_else(|| ValueType::object([]))))
}

/// The kind of a constant, for a message.
fn kind_of(literal: &LiteralValue) -> &'static str {
    match literal {
        LiteralValue::Boolean(_) => "a boolean",
        LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => "a number",
        LiteralValue::Null => "null",
        LiteralValue::Bytes(_) | LiteralValue::String(_) => "a text",
    }
}

/// Whether `function` is an operator such as `_+_`, or made by the parser.
fn is_operator(function: &str) -> bool {
    function.chars().any(|c| !c.is_alphanumeric() && c != '_') || function.starts_with('_') || function.ends_with('_')
}

/// The text of a name and its fields, such as `body.items`.
fn dotted(expression: &IdedExpr) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", dotted(&select.operand)?, select.field)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;
    use domain::document::Document;

    fn scope() -> NameScope {
        let item = ValueType::object(["name", "cluster"]);
        NameScope::of(&["body"])
            .with("params", ValueType::object(["branch"]))
            .with("items", ValueType::List(Box::new(item)))
    }

    fn check(source: &str) -> (ValueType, Vec<String>) {
        let mut problems = Problems::default();
        let result = Expression::compile(source).unwrap().check(&scope(), &Path::root(), &mut problems);
        let line = |help: Option<String>| help.unwrap_or_default();
        let problems = problems.into_vec().into_iter();
        (result, problems.map(|problem| format!("{}: {}", problem.message, line(problem.help))).collect())
    }

    #[test]
    fn what_cannot_be_there_is_found_with_the_nearest_name() {
        for (source, found) in [
            ("bdy.items", "unknown name `bdy`: did you mean `body`?"),
            ("items.fliter(i, i.ok)", "there is no function `fliter`: did you mean `filter`?"),
            ("items.map(i, {'o': i.owner})", "`i` has no field `owner`: its fields: cluster, name"),
            ("items.filter(i, i.nme == 'a')", "`i` has no field `nme`: did you mean `name`?"),
            ("items.map(i, {'a': j.name})", "unknown name `j`: did you mean `i`?"),
            (
                "items.name",
                "`items` is a list and has no field `name`: take it from each item: `items.map(item, item.name)`",
            ),
            ("params.brnch", "the parameter `brnch` is not declared in `input`: did you mean `branch`?"),
            ("params['brnch']", "the parameter `brnch` is not declared in `input`: did you mean `branch`?"),
            (
                "has(params.owner)",
                "the parameter `owner` is not declared in `input`: declare it in `input`; declared: branch",
            ),
            (
                "startsWith(params.branch, 'a')",
                "there is no function `startsWith`: did you mean `value.startsWith(…)`?",
            ),
            ("body.map(i)", "`map` is written after a list, with a variable and an expression: write `body.map(i, …)`"),
            (
                "map(body, i)",
                "`map` is written after a list, with a variable and an expression: write `body.map(i, …)`",
            ),
            ("body.int()", "there is no function `int`: write it without a target: `int(body)`"),
            ("params.branch.startswith('a')", "there is no function `startswith`: did you mean `startsWith`?"),
            ("items.filter(i, i.name == 'a').map(k, k.owner)", "`k` has no field `owner`: its fields: cluster, name"),
        ] {
            assert!(check(source).1.contains(&found.to_owned()), "{source}: {:?}", check(source).1);
        }
        for good in [
            "body.items.map(t, {'name': t.id, 'n': size(t.list), 'all': t.list.map(l, l.name).join(',')})",
            "items.filter(i, i.name in ['a'] && !i.cluster.endsWith('x')).sortBy(i, i.name)",
            "type(body) == map ? body.items : [body]",
            "lists.range(3).map(n, {'n': string(n), 'b': params.branch})",
            "optional.of(body.x).orValue('y')",
            "strings.quote(params[?'branch'].orValue('a'))",
            "items.exists_one(i, i.name.matches('a')) ? [] : items + [{'name': 'x'}]",
        ] {
            assert_eq!(check(good).1, [""; 0], "{good}");
        }
    }

    #[test]
    fn the_result_is_known_from_the_expression() {
        let list = |keys: &[&str]| ValueType::List(Box::new(ValueType::object(keys.iter().copied())));
        for (source, result) in [
            ("items", list(&["cluster", "name"])),
            ("items.filter(i, i.name != 'a')", list(&["cluster", "name"])),
            ("items.map(i, {'a': 1, 'b': i})[0].a", ValueType::Anything),
            ("body.items.map(t, {'name': t.id})", list(&["name"])),
            ("body.items.map(t, t.ok, {'name': t.id})", list(&["name"])),
            ("body.ok ? [{'a': 1}] : [{'b': 2}]", list(&["a", "b"])),
            ("body.ok ? [] : items.reverse()", list(&["cluster", "name"])),
            ("[{'a': 1}] + items", list(&["a", "cluster", "name"])),
            ("body.items.map(t, {t.key: 1})", ValueType::List(Box::default())),
            ("body", ValueType::Anything),
            ("size(items)", ValueType::Anything),
        ] {
            assert_eq!(check(source).0, result, "{source}");
        }
    }

    /// docs/http.md lists all functions, and no others.
    #[test]
    fn the_documentation_lists_all_functions() {
        let lines = include_str!("../../../../docs/http.md").lines();
        let rows =
            lines.skip_while(|line| *line != "| for | functions |").skip(2).take_while(|line| line.starts_with('|'));
        let shown: std::collections::BTreeSet<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
        let known = [FUNCTIONS, METHODS, MACROS, QUALIFIED, &["has"]].concat().into_iter().collect();
        assert_eq!(shown, known);
    }

    #[test]
    fn the_lists_are_those_of_cel() {
        let document = Document::Text("a".into());
        let is_unknown = |source: &str, name: &str| {
            let error = Expression::compile(source).unwrap().evaluate(&[("body", &document)]).err();
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            error.contains(&format!("Undeclared reference to '{name}'"))
        };
        for name in FUNCTIONS {
            assert!(!is_unknown(&format!("{name}(body)"), name), "{name}");
        }
        for name in METHODS {
            assert!(!is_unknown(&format!("body.{name}(1)"), name), "{name}");
        }
        for name in QUALIFIED {
            let space = name.split('.').next().unwrap();
            assert!(!is_unknown(&format!("{name}(body)"), space), "{name}");
        }
        for name in ["getDate", "getFullYear"] {
            assert!(is_unknown(&format!("{name}(body)"), name), "{name} exists, and should be known");
        }
        for name in TYPES {
            assert!(!is_unknown(name, name), "{name}");
        }
    }
}
