//! Strings with `{{ … }}` (minijinja). Undefined names are errors, and fuel limits the work. The value of a parameter is
//! *data*: it is encoded or refused as its context demands, so a branch called `../../x` stays one path segment.

mod arguments;
mod bound;
mod check;
mod error;
mod known;
mod mistakes;
mod names;
mod number;
mod plain;
mod refusal;
mod width;

use std::{collections::BTreeSet, fmt::Write as _, sync::LazyLock};

use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::Semaphore;

use self::{bound::Formula, check::Checking, plain::PlainTemplate};
pub use self::{
    error::{JsonError, TemplateError},
    number::{json_of, value_of},
    plain::JsonVariable,
    refusal::{Misfit, Refusal},
};
use crate::{
    functions::{base64, label, name_error::NameError, time},
    scope::NameScope,
};
use domain::{
    generator::{Parameters, Query},
    problem::{Path, Problems},
    spelling::near,
    units::in_kib,
    visible,
};

/// The most work of one rendering, in minijinja's instructions.
const FUEL: u64 = 50_000;
/// How much a template may make in the gateway's own process, in bytes. An evaluator makes more.
const MAX_HERE: f64 = 1024.0 * 1024.0;
/// The most that all templates that are rendered in this process at a time may make, in KiB.
static ROOM: Semaphore = Semaphore::const_new(4 * 1024);
/// The largest text of a template, in bytes.
pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// The most that a template may make without its variables, in bytes. The parser evaluates constants.
const MAX_CONSTANT: f64 = 16.0 * 1024.0 * 1024.0;

/// The unreserved characters of RFC 3986, section 2.3. All others are percent-encoded in a URL.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The place of a template's values. It decides which characters they may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueContext {
    /// Free text.
    Text,
    /// A URL: values are percent-encoded.
    Url,
    /// An image reference: values contain only characters of names and tags, never `:` or `@`.
    Reference,
}

/// A template, parsed once.
#[derive(Debug)]
pub struct Template {
    source: String,
    /// Holds the parsed template as [`ONLY`]: minijinja's templates live in an environment.
    environment: Box<Environment<'static>>,
    names: BTreeSet<String>,
    place: ValueContext,
    /// A faster form, if the template is plain.
    plain: Option<PlainTemplate>,
    /// Whether it compares or calculates.
    computes: bool,
    /// How much rendering makes, at most.
    bound: Formula,
}

/// The name of the one template in a [`Template`]'s environment.
const ONLY: &str = "only";

impl Template {
    /// Parses `source`. Only the top-level names of `scope` are known.
    ///
    /// # Errors
    /// On a syntax error, or a name that is not in `scope`.
    pub fn parse(source: &str, place: ValueContext, scope: &NameScope) -> Result<Self, TemplateError> {
        let template = Self::compile(source, place, Some(scope))?;
        let is_known =
            |name: &str| scope.get(name).is_some() || template.environment.globals().any(|(global, _)| global == name);
        let tops: BTreeSet<&str> = template.names.iter().filter_map(|name| name.split('.').next()).collect();
        let unknown: Vec<&str> = tops.into_iter().filter(|name| !is_known(name)).collect();
        let names = scope.names();
        let callable = [&names[..], known::FUNCTIONS].concat();
        let meant = mistakes::of_unknown(&unknown, template.names(), scope);
        let help = match (&unknown[..], meant) {
            ([], _) => return Ok(template),
            ([_], Some(meant)) => format!("write `{{{{ {meant} }}}}`"),
            ([name], _) if near(name, &callable).is_some() => {
                format!("did you mean `{}`?", near(name, &callable).unwrap_or_default())
            }
            _ => format!("known here: {}", names.join(", ")),
        };
        Err(TemplateError::UnknownName { name: unknown.join("`, `"), help })
    }

    /// Parses `source`, and notes at `path` everything that is wrong with it.
    pub fn build(
        source: &str,
        place: ValueContext,
        scope: &NameScope,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let template = problems.note(path, Self::parse(source, place, scope))?;
        template.check(scope, path, problems);
        Some(template)
    }

    /// Notes at `path` the names, filters, tests and functions that it uses, and that do not exist in `scope`.
    pub fn check(&self, scope: &NameScope, path: &Path, problems: &mut Problems) {
        let checking = Checking { source: &self.source, place: self.place, scope, path, problems };
        checking.check(self.names());
        // Without a name it always makes the same text.
        if self.names.is_empty()
            && let Some(Err(refusal)) = self.render_small(&Value::UNDEFINED)
        {
            problems.mistake(path, refusal.message, "correct it: it fails for all calls");
        }
    }

    /// Parses without a fixed scope: the names are those of a backend's items.
    ///
    /// # Errors
    /// On a syntax error.
    pub fn parse_open(source: &str) -> Result<Self, TemplateError> {
        Self::compile(source, ValueContext::Text, None)
    }

    fn compile(source: &str, place: ValueContext, scope: Option<&NameScope>) -> Result<Self, TemplateError> {
        let bound = bound::of(source);
        if bound.constant() > MAX_CONSTANT {
            return Err(TemplateError::TooLong);
        }
        let mut environment = Box::new(environment(place).clone());
        let added = environment.add_template_owned(ONLY, source.to_owned());
        let wrong = |error| TemplateError::of_syntax(error, source, scope);
        let template = added.and_then(|()| environment.get_template(ONLY)).map_err(wrong)?;
        let names: BTreeSet<String> = template.undeclared_variables(true).into_iter().collect();
        let plain = PlainTemplate::parse(source, |name| names.contains(name));
        let computes = number::computes(source);
        Ok(Self { source: source.to_owned(), environment, names, place, plain, computes, bound })
    }

    /// Parses a source that another process parsed before, for [`Self::render`] there.
    ///
    /// # Errors
    /// On a syntax error.
    pub(crate) fn parse_again(source: &str, place: ValueContext) -> Result<Self, TemplateError> {
        Self::compile(source, place, None)
    }

    /// The place of its values.
    #[must_use]
    pub const fn place(&self) -> ValueContext {
        self.place
    }

    /// Renders if that is provably cheap. `None` if it may take long or much memory, or if too much is rendered in this process
    /// already.
    #[must_use]
    pub fn render_small(&self, context: &Value) -> Option<Result<String, Refusal>> {
        if let Some(text) = self.plain.as_ref().and_then(|plain| plain.render(context, self.place)) {
            return Some(Ok(text));
        }
        let size = in_kib(self.bound.with(context), MAX_HERE)?;
        let _room = ROOM.try_acquire_many(size).ok()?;
        Some(self.render(context))
    }

    /// Renders with the variables that `find` finds by their names, if the template is plain and all its names are texts there. Otherwise
    /// `None`, and [`Self::render_small`] may still render it.
    #[must_use]
    pub fn render_json<'a>(&self, find: impl Fn(&str) -> Option<JsonVariable<'a>>) -> Option<String> {
        self.plain.as_ref()?.render_json(find, self.place)
    }

    /// Renders without a limit of memory. For evaluators, which are limited from outside.
    ///
    /// # Errors
    /// When a name is undefined, a value is not allowed in this context, or the text is longer than [`MAX_TEXT_BYTES`].
    pub fn render(&self, context: &Value) -> Result<String, Refusal> {
        if let Some(text) = self.plain.as_ref().and_then(|plain| plain.render(context, self.place)) {
            return Ok(text);
        }
        let template = self.environment.get_template(ONLY);
        let rendered = template.and_then(|template| {
            if self.computes {
                number::with_floats(context, |context| template.render(context))
            } else {
                template.render(context)
            }
        });
        // In one line, although the source may have several.
        let refusal = |why: String, misfit| Refusal { message: visible::one_line(&why), misfit };
        if rendered.as_ref().is_ok_and(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(refusal(format!("`{}` makes a text of more than 4 MiB", self.source.trim()), None));
        }
        rendered.map_err(|error| {
            if error.kind() == ErrorKind::UndefinedError {
                let missing: Vec<&str> = self
                    .names()
                    .filter(|name| !known::FUNCTIONS.contains(name) && !is_defined(context, name))
                    .collect();
                if !missing.is_empty() {
                    let (missing, source) = (missing.join("`, `"), self.source.trim());
                    return refusal(format!("`{missing}` is not there, and `{source}` needs it"), None);
                }
            }
            refusal(format!("`{}`: {}", self.source.trim(), one_line(&error)), Misfit::of(&error))
        })
    }

    /// The text before the first `{{` or `{%`, which no parameter can change.
    #[must_use]
    pub fn fixed_prefix(&self) -> &str {
        let end = ["{{", "{%", "{#"].iter().filter_map(|mark| self.source.find(mark)).min();
        &self.source[..end.unwrap_or(self.source.len())]
    }

    /// The text as written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The names that it uses, such as `params.branch`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Whether it makes a name that is cut, by the filter `name`.
    #[must_use]
    pub fn makes_name(&self) -> bool {
        check::uses_filter(&self.source, "name")
    }

    /// Whether the template uses the ApplicationSet's name.
    #[must_use]
    pub fn reads_application_set(&self) -> bool {
        self.reads("applicationSet")
    }

    /// Whether the template uses the top-level name `top`.
    #[must_use]
    pub fn reads(&self, top: &str) -> bool {
        self.names.iter().any(|name| name.split('.').next() == Some(top))
    }
}

/// The variables `params` and `applicationSet` of a query, and `items` and `item` if it has them.
#[must_use]
pub fn input_context(query: &Query) -> Value {
    let parts = [("items", query.items.as_deref()), ("item", query.item().map(|item| &**item))];
    input_values(&query.parameters, &query.application_set, parts)
}

/// The variables `params` and `applicationSet`, and `others` that are there.
#[must_use]
pub(crate) fn input_values(
    parameters: &Parameters,
    application_set: &str,
    others: [(&'static str, Option<&Json>); 2],
) -> Value {
    let input = minijinja::context! { params => number::object_of(parameters), applicationSet => application_set };
    let others = others.into_iter().filter_map(|(name, value)| Some((name, value_of(value?))));
    let others: Vec<_> = others.collect();
    if others.is_empty() {
        input
    } else {
        minijinja::context! { ..Value::from_pairs(others), ..input }
    }
}

fn environment(place: ValueContext) -> &'static Environment<'static> {
    static TEXT: LazyLock<Environment<'static>> = LazyLock::new(|| new_environment(ValueContext::Text));
    static URL: LazyLock<Environment<'static>> = LazyLock::new(|| new_environment(ValueContext::Url));
    static REFERENCE: LazyLock<Environment<'static>> = LazyLock::new(|| new_environment(ValueContext::Reference));
    match place {
        ValueContext::Text => &TEXT,
        ValueContext::Url => &URL,
        ValueContext::Reference => &REFERENCE,
    }
}

fn new_environment(place: ValueContext) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // It prints all variables, including those that the template does not name.
    environment.remove_global("debug");
    environment.add_filter("format", width::format);
    environment.add_filter("indent", width::indent);
    environment.add_filter("tojson", number::tojson);
    environment
        .add_filter("tag", |name: &str| names::tag(name).map_err(|why| Misfit::NoTag.error(name, why.to_string())));
    let no_slug = |name: &str, why: NameError| Misfit::NotInReference.error(name, why.to_string());
    environment.add_filter("slug", move |name: &str| names::slug(name).map_err(|why| no_slug(name, why)));
    environment.add_filter("ref_slug", move |name: &str| names::ref_slug(name).map_err(|why| no_slug(name, why)));
    environment.add_filter("sha8", |commit: &str| names::sha8(commit).map_err(|why| refused(why.to_string())));
    environment.add_filter("name", |text: &str, max: Option<usize>| {
        label::label(text, max.unwrap_or(label::MAX_CHARS)).map_err(|why| refused(why.to_string()))
    });
    environment.add_filter("b64encode", base64::encode);
    environment.add_filter("b64decode", |text: &str| base64::decode(text).map_err(|why| refused(why.to_string())));
    environment.add_filter("date", |seconds: i64| time::date(seconds).map_err(|why| refused(why.to_string())));
    environment.add_function("timestamp", |time: Value| match time.as_str() {
        None if time.is_undefined() => Err(Error::from(ErrorKind::UndefinedError)),
        Some(text) => time::timestamp(text).map_err(|why| refused(why.to_string())),
        None => time.as_i64().ok_or_else(|| refused("`timestamp` takes a text, or a whole number of seconds")),
    });
    environment.add_function("duration", |text: &str| time::duration(text).map_err(|why| refused(why.to_string())));
    environment.set_formatter(move |out: &mut Output, _: &mut State, value: &Value| plain::write(out, value, place));
    environment
}

fn reference_part(text: &str) -> Result<&str, Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if text.is_empty() || !text.chars().all(fits) {
        let message = format!(
            "the value `{}` cannot be in an image reference; `| tag` makes a tag from a branch",
            text.chars().take(80).collect::<String>().escape_debug()
        );
        return Err(Misfit::NotInReference.error(text, message));
    }
    Ok(text)
}

fn refused(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Whether the dotted name exists in `context`.
fn is_defined(context: &Value, dotted: &str) -> bool {
    let mut value = context.clone();
    for part in dotted.split('.') {
        match value.get_attr(part) {
            Ok(next) if !next.is_undefined() => value = next,
            _ => return false,
        }
    }
    true
}

/// minijinja's message without its `(in <string>:1)`, which names a file that does not exist.
fn one_line(error: &Error) -> String {
    let text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let mut text = text.replace("end of variable block", "`}}`").replace("end of block", "`%}`");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        // The message before it says the same about the value.
        if !cause.is::<Misfit>() {
            let _ = write!(text, ": {cause}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
