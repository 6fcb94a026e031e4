//! Finds the mistakes of a template before it is rendered: names that cannot be there, and filters, tests, functions and
//! methods that do not exist. minijinja reports these only when it renders.

use std::collections::BTreeSet;

use minijinja::machinery::{
    ast::{Call, CallArg, Expr, Stmt},
    parse,
};

use super::{
    ValueContext,
    arguments::{self, Argument, arguments},
    environment,
    known::{FILTERS, FUNCTIONS, TESTS},
    mistakes,
};

use crate::scope::NameScope;
use domain::{
    problem::{Path, Problems},
    spelling::{advice, near},
};

/// The variable of a loop, which is also a function and has methods.
const LOOP: &str = "loop";

/// The kinds of callables that a template names.
#[derive(Debug, Default)]
struct Calls<'a> {
    filters: BTreeSet<&'a str>,
    tests: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
    methods: BTreeSet<&'a str>,
    /// The variables that it sets. One that is set within an `if` is there after it.
    set: BTreeSet<&'a str>,
    /// All other variables that it makes, such as those of loops.
    local: BTreeSet<&'a str>,
    /// The parts of names that are written with brackets, such as `params['branch']`.
    paths: BTreeSet<Vec<String>>,
    /// The filters and tests with their arguments.
    called: Vec<(Callable, &'a str, Vec<Argument>)>,
}

/// The kinds of callables that take arguments after a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callable {
    Filter,
    Test,
}

/// A template that is checked, and where its mistakes are noted.
pub(super) struct Checking<'a> {
    /// Its text.
    pub(super) source: &'a str,
    /// Where its result is used.
    pub(super) place: ValueContext,
    /// The names that it can use.
    pub(super) scope: &'a NameScope,
    /// Where it stands in the configuration.
    pub(super) path: &'a Path,
    /// The problems of all parts.
    pub(super) problems: &'a mut Problems,
}

impl Checking<'_> {
    /// Notes its mistakes. It uses `names`.
    pub(super) fn check<'n>(mut self, names: impl Iterator<Item = &'n str>) {
        let (source, scope) = (self.source, self.scope);
        let Ok(parsed) = parse(source, "", minijinja::syntax::SyntaxConfig::default()) else { return };
        let mut calls = Calls::default();
        calls.statement(&parsed);
        // A function is a name too, and is checked below.
        let is_own = |name: &str| calls.set.contains(name.split('.').next().unwrap_or_default());
        for name in names.filter(|name| !calls.functions.contains(name) && !is_own(name)) {
            match scope.follow(name) {
                Err(unknown) => {
                    let is_top = scope.get(name.split('.').next().unwrap_or_default()).is_none();
                    let in_brackets = calls.paths.iter().find(|parts| parts.first().is_some_and(|first| first == name));
                    let whole = in_brackets.map_or_else(|| name.to_owned(), |parts| parts.join("."));
                    let meant = mistakes::instead(&whole, scope).filter(|_| is_top);
                    let help = meant.map_or(unknown.help, |meant| format!("write `{{{{ {meant} }}}}`"));
                    self.mistake(unknown.message, help);
                }
                Ok(_) => self.check_open(name),
            }
        }
        let is_local = |name: &str| calls.set.contains(name) || calls.local.contains(name) || name == LOOP;
        for parts in calls.paths.iter().filter(|parts| !parts.first().is_some_and(|first| is_local(first))) {
            if let Err(unknown) = scope.follow_parts(parts.iter().map(String::as_str)) {
                // The top-level name has been checked above.
                if parts.first().is_some_and(|first| scope.get(first).is_some()) {
                    self.mistake(unknown.message, unknown.help);
                }
            }
        }
        if let Some((written, help)) = mistakes::shell_variable(source, scope) {
            self.problems.warning(self.path, format!("`{written}` is plain text here"), help);
        }
        self.check_arguments(&calls.called);
        for name in calls.filters.iter().filter(|name| !FILTERS.contains(name)) {
            self.mistake(format!("there is no filter `{name}`"), advice(name, FILTERS));
        }
        for name in calls.tests.iter().filter(|name| name.chars().all(char::is_alphanumeric) && !TESTS.contains(name)) {
            self.mistake(format!("there is no test `{name}`"), advice(name, TESTS));
        }
        for name in calls.functions.iter().filter(|name| !FUNCTIONS.contains(name) && **name != LOOP) {
            self.mistake(format!("there is no function `{name}`"), instead_of_call(name, FUNCTIONS));
        }
        for name in calls.methods {
            self.mistake(format!("values have no method `{name}`"), instead_of_call(name, &[]));
        }
    }

    /// Notes the filters and tests that are called with too few or too many arguments.
    fn check_arguments(&mut self, called: &[(Callable, &str, Vec<Argument>)]) {
        for (callable, name, passed) in called {
            let (what, wrong) = match callable {
                Callable::Filter => ("filter", arguments::of_filter(environment(self.place), name, passed)),
                Callable::Test => ("test", arguments::of_test(environment(self.place), name, passed)),
            };
            let Some(wrong) = wrong else { continue };
            let help = match *name {
                "replace" => "write `replace('old', 'new')`".to_owned(),
                _ if wrong.contains("more") => format!("write them after its name: `{name}(…)`"),
                _ => format!("write it with fewer, such as `{name}`"),
            };
            self.mistake(format!("the {what} `{name}` {wrong}"), help);
        }
    }

    /// Warns of a dotted name that is taken for a key of the items, and is nearly one of the names that are surely known.
    fn check_open(&mut self, dotted: &str) {
        let scope = self.scope;
        let Some((name, _)) = dotted.split_once('.') else { return };
        if scope.is_open()
            && !scope.has(name)
            && let Some(meant) = scope.near(name)
        {
            self.problems.warning(
                self.path,
                format!("`{name}` is taken for a key of the items"),
                format!("did you mean `{meant}`?"),
            );
        }
    }

    fn mistake(&mut self, message: impl Into<String>, help: impl Into<String>) {
        self.problems.mistake(self.path, message, help);
    }
}

/// Whether the template `source` uses the filter `name`.
pub(super) fn uses_filter(source: &str, name: &str) -> bool {
    let Ok(parsed) = parse(source, "", minijinja::syntax::SyntaxConfig::default()) else { return false };
    let mut calls = Calls::default();
    calls.statement(&parsed);
    calls.filters.contains(name)
}

/// The text to write in place of a call of `name`.
fn instead_of_call(name: &str, known: &[&str]) -> String {
    match (near(name, known), near(&name.to_lowercase(), FILTERS)) {
        (Some(function), _) => format!("did you mean `{function}`?"),
        (None, Some(filter)) => format!("write it as a filter: `{{{{ value | {filter} }}}}`"),
        (None, None) => format!("use a filter: {}", FILTERS.join(", ")),
    }
}

impl<'a> Calls<'a> {
    fn statements(&mut self, all: &[Stmt<'a>]) {
        for statement in all {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Stmt<'a>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitRaw(_) => {}
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::IfCond(either) => {
                self.expression(&either.expr);
                self.statements(&either.true_body);
                self.statements(&either.false_body);
            }
            Stmt::ForLoop(each) => {
                Self::targets(&each.target, &mut self.local);
                self.expressions([&each.iter].into_iter().chain(&each.filter_expr));
                self.statements(&each.body);
                self.statements(&each.else_body);
            }
            Stmt::Set(set) => {
                Self::targets(&set.target, &mut self.set);
                self.expression(&set.expr);
            }
            Stmt::SetBlock(set) => {
                Self::targets(&set.target, &mut self.set);
                self.expressions(&set.filter);
                self.statements(&set.body);
            }
            Stmt::WithBlock(with) => {
                with.assignments.iter().for_each(|(target, _)| Self::targets(target, &mut self.local));
                self.expressions(with.assignments.iter().map(|(_, value)| value));
                self.statements(&with.body);
            }
            Stmt::AutoEscape(block) => {
                self.expression(&block.enabled);
                self.statements(&block.body);
            }
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter);
                self.statements(&block.body);
            }
            Stmt::Do(call) => self.call(&call.call),
        }
    }

    /// Adds the variables in `target` to `names`.
    fn targets(target: &Expr<'a>, names: &mut BTreeSet<&'a str>) {
        match target {
            Expr::Var(variable) => _ = names.insert(variable.id),
            Expr::List(list) => list.items.iter().for_each(|each| Self::targets(each, names)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|each| Self::targets(each, names)),
            _ => {}
        }
    }

    fn expressions<'e>(&mut self, all: impl IntoIterator<Item = &'e Expr<'a>>)
    where
        'a: 'e,
    {
        all.into_iter().for_each(|each| self.expression(each));
    }

    fn expression(&mut self, expr: &Expr<'a>) {
        match expr {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::UnaryOp(unary) => self.expression(&unary.expr),
            Expr::BinOp(binary) => self.expressions([&binary.left, &binary.right]),
            Expr::Compare(compare) => {
                self.expressions([&compare.expr].into_iter().chain(compare.ops.iter().map(|op| &op.expr)));
            }
            Expr::IfExpr(either) => {
                self.expressions([&either.test_expr, &either.true_expr].into_iter().chain(&either.false_expr));
            }
            Expr::GetAttr(_) | Expr::GetItem(_) if self.is_path(expr) => {}
            Expr::GetAttr(get) => self.expression(&get.expr),
            Expr::GetItem(get) => self.expressions([&get.expr, &get.subscript_expr]),
            Expr::Slice(slice) => {
                let bounds = [&slice.start, &slice.stop, &slice.step].into_iter().flatten();
                self.expressions([&slice.expr].into_iter().chain(bounds));
            }
            Expr::List(list) => self.expressions(&list.items),
            Expr::Tuple(tuple) => self.expressions(&tuple.items),
            Expr::Map(map) => self.expressions(map.keys.iter().chain(&map.values)),
            Expr::Test(test) => {
                self.tests.insert(test.name);
                self.called.extend(arguments(&test.args).map(|passed| (Callable::Test, test.name, passed)));
                self.expression(&test.expr);
                self.arguments(&test.args);
            }
            Expr::Filter(filter) => {
                self.filters.insert(filter.name);
                self.called.extend(arguments(&filter.args).map(|passed| (Callable::Filter, filter.name, passed)));
                self.expressions(&filter.expr);
                self.arguments(&filter.args);
            }
            Expr::Call(call) => self.call(call),
        }
    }

    /// Whether `expr` is a name with parts. Notes it if it has brackets: the others are known from [`Template::names`](super::Template).
    fn is_path(&mut self, expr: &Expr<'a>) -> bool {
        let Some((parts, has_brackets)) = path_of(expr) else { return false };
        if has_brackets {
            self.paths.insert(parts);
        }
        true
    }

    fn call(&mut self, call: &Call<'a>) {
        match &call.expr {
            Expr::Var(function) => _ = self.functions.insert(function.id),
            Expr::GetAttr(get) if !matches!(&get.expr, Expr::Var(of) if of.id == LOOP) => {
                self.methods.insert(get.name);
                self.expression(&get.expr);
            }
            other => self.expression(other),
        }
        self.arguments(&call.args);
    }

    fn arguments(&mut self, args: &[CallArg<'a>]) {
        self.expressions(args.iter().map(|arg| match arg {
            CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
                value
            }
        }));
    }
}

/// The parts of a name such as `params.branch` or `params['branch']`, and whether it has brackets.
fn path_of(expr: &Expr<'_>) -> Option<(Vec<String>, bool)> {
    let (of, last, in_brackets) = match expr {
        Expr::Var(variable) => return Some((vec![variable.id.to_owned()], false)),
        Expr::GetAttr(get) => (&get.expr, get.name.to_owned(), false),
        Expr::GetItem(get) => (&get.expr, get.subscript_expr.as_const()?.as_str()?.to_owned(), true),
        _ => return None,
    };
    let (mut parts, has_brackets) = path_of(of)?;
    parts.push(last);
    Some((parts, has_brackets || in_brackets))
}

#[cfg(test)]
mod tests;
