//! A JSON API. Templates make the request, and a CEL expression makes the list from the answer.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{
    config::Config,
    item_query::ItemQuery,
    page::{self, Counted, Page},
    paging::Paging,
    redirect::Redirects,
};
use crate::{
    Building, ITEM, ITEMS,
    credential::Credential,
    mapping::{self, Inputs},
    request::{Method, Parts, Request, headers_of},
};
use domain::{
    document::{self, Document, kind_of},
    error::BackendError,
    generator::Query,
    secret::Secrets,
};
use lang::{
    evaluator::{Context, Evaluator, Variables},
    expression::{Expression, ExpressionError},
    scope::{NameScope, UnfitValue, ValueType},
    template::value_of,
};
use outbound::{Call, HttpClient, Reply};
use source::{Load, work_on};

/// The `parameters` expression unless the configuration sets one.
const DEFAULT_PARAMETERS: &str = "body";
/// The variable that holds the current item of `forEach`.
const EACH: &str = "each";
/// The most requests that `forEach` may make of one query.
const MAX_REQUESTS: usize = 1000;

/// A JSON API with its parsed templates and expressions.
#[derive(Debug)]
pub(super) struct Json {
    request: Request,
    credential: Option<Credential>,
    for_each: Option<Arc<Expression>>,
    evaluator: Evaluator,
    mapping: Arc<Mapping>,
    /// The result of one item.
    pub item: ValueType,
    /// The treatment of a redirect.
    pub redirects: Redirects,
}

/// How to read a page.
#[derive(Debug)]
struct Mapping {
    parameters: Expression,
    paging: Option<Paging>,
    /// Whether a document with `error` or `errors` at its top level is accepted (`allowErrors`).
    allows_errors: bool,
}

/// The names that templates and expressions can use, and `forEach`, which adds one.
struct Names {
    /// Those of the request's templates.
    templates: NameScope,
    /// Those of expressions over a page.
    page: NameScope,
}

impl Names {
    fn of(scope: &NameScope, each: Option<ValueType>) -> Self {
        let templates = match each {
            Some(each) => scope.with(EACH, each),
            None => scope.clone(),
        };
        let page = templates.only(&["params", ITEMS, ITEM, EACH]).with_all(&["body", "status", "headers"]);
        Self { templates, page }
    }
}

impl Json {
    /// Parses all templates and expressions of `config`. `url` is the `url` of `config`.
    pub(super) fn build(
        config: &Config,
        url: &str,
        client: Option<&Arc<HttpClient>>,
        building: &mut Building<'_>,
    ) -> Option<Self> {
        let context = building.context;
        let for_each = config.for_each.as_deref().map(|source| build_for_each(source, &mut building.key("forEach")));
        let each = for_each.as_ref().map(|built| built.as_ref().map(|(_, list)| list.item()).unwrap_or_default());
        let names = Names::of(context.scope, each);
        let scope = &names.templates;
        let parts = Parts {
            method: config.method.unwrap_or_default(),
            url,
            allowed_hosts: &config.allowed_hosts,
            headers: &config.headers,
            body: config.body.as_ref(),
            scope,
        };
        let path = building.path.clone();
        let request = Request::build(parts, context.base, &path, building.problems);
        building.note_reads(request.as_ref().is_some_and(Request::reads_application_set));
        let fixed = request.as_ref().and_then(Request::fixed_destination);
        context.outbound.name_destination(fixed.as_ref());
        let source = config.parameters.as_deref().unwrap_or(DEFAULT_PARAMETERS);
        let parameters = Expression::build_objects(source, &names.page, &path.key("parameters"), building.problems);
        let at = path.key("paging");
        let paging = config.paging.as_ref().map(|paging| Paging::build(paging, &names.page, &at, building.problems));
        if let Some((expression, _)) = &parameters {
            check_status(expression, &mut building.key("parameters"));
        }
        if let Some(next) = paging.as_ref().and_then(|paging| paging.as_ref()?.expression()) {
            check_status(next, &mut building.key("paging").key("next"));
        }
        if config.method == Some(Method::Post) {
            if config.paging.is_some() {
                building.key("paging").error("only what is read by GET comes in pages");
            }
            if config.redirects == Redirects::SameOrigin {
                building.key("redirects").error("only what is read by GET is followed");
            }
        }
        let mut at = building.key("credential");
        let credential =
            config.credential.as_ref().map(|credential| Credential::build(credential, client, fixed.as_ref(), &mut at));
        if config.credential.is_some() && config.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            let help = "keep one of them";
            at.error_with_help("it is sent as `Authorization`, which stands among `headers` too", help);
        }
        if let Some(request) = &request {
            request.warn_of_cleartext(config.credential.is_some(), &path, building.problems);
        }
        // `None` in the outer option: the key is not set. `None` in the inner option: the value is wrong, and the problem is noted.
        let credential = match credential {
            Some(credential) => Some(credential?),
            None => None,
        };
        let paging = match paging {
            Some(paging) => Some(paging?),
            None => None,
        };
        let for_each = match for_each {
            Some(built) => Some(Arc::new(built?.0)),
            None => None,
        };
        let (parameters, item) = parameters?;
        Some(Self {
            request: request?,
            credential,
            for_each,
            evaluator: context.evaluator.clone(),
            item,
            mapping: Arc::new(Mapping { parameters, paging, allows_errors: config.allow_errors }),
            redirects: config.redirects,
        })
    }

    /// The beginning of the URL; `None` if a value can change the host.
    pub(crate) fn fixed_destination(&self) -> Option<reqwest::Url> {
        self.request.fixed_destination()
    }

    /// The list that `forEach` gives for `query`. Each item becomes one request. `None` without a `forEach`.
    ///
    /// # Errors
    /// When the value is not a list, or has more than [`MAX_REQUESTS`] items.
    pub(super) async fn each(&self, query: &Query, deadline: Instant) -> Result<Option<Vec<Value>>, BackendError> {
        let Some(expression) = &self.for_each else { return Ok(None) };
        let inputs = Inputs { variables: call_variables(query, expression), load: Load::Bytes(0) };
        let invalid = |why: String| BackendError::invalid_input(format!("forEach: {why}"));
        let value = mapping::evaluate(&self.evaluator, expression, inputs, deadline, invalid);
        match value.await? {
            Value::Array(list) if list.len() > MAX_REQUESTS => {
                Err(invalid(format!("it gives {} items, more than {MAX_REQUESTS}", list.len())))
            }
            Value::Array(list) => Ok(Some(list)),
            other => Err(invalid(format!("it gives {}, not a list", kind_of(&other)))),
        }
    }

    /// The request for the first page of `query`.
    ///
    /// # Errors
    /// When a value is missing or not allowed at its place, or a secret cannot be read.
    pub(super) async fn call(&self, query: ItemQuery<'_>, max_bytes: usize) -> Result<Call, BackendError> {
        let mut context = Context::of_input(query.query, &self.evaluator).until(query.deadline);
        if let Some(each) = query.each {
            context = context.map(|input| minijinja::context! { each => value_of(each), ..input });
        }
        self.request.call(&context, max_bytes, query.deadline).await
    }

    /// Sends `call` with the credential.
    ///
    /// # Errors
    /// When no complete answer arrives, or there is no credential.
    pub(super) async fn send(&self, client: &HttpClient, call: Call) -> Result<Reply, BackendError> {
        match &self.credential {
            None => client.fetch(call).await,
            Some(credential) => credential.send(client, call).await,
        }
    }

    /// Reads page `number`. Cheap expressions run in this process, all others in an evaluator.
    ///
    /// # Errors
    /// When the expressions do not fit the page, or the page contradicts itself about the end of the list.
    pub(super) async fn read(&self, reply: Reply, query: ItemQuery<'_>, number: usize) -> Result<Page, BackendError> {
        let ItemQuery { query, each, deadline } = query;
        reply.check_json()?;
        let mapping = Arc::clone(&self.mapping);
        let page = FetchedPage { reply, query: query.clone(), each: each.cloned(), number };
        let load = Load::Bytes(page.reply.body.len());
        let reading = work_on(load, move || Ok((mapping.read_locally(&page)?, page)));
        let reading = timeout_at(deadline, reading).await;
        let (found, page) = reading.map_err(|_| BackendError::timeout("there was no time left to read it"))??;
        let (mapping, invalid) = (&self.mapping, BackendError::invalid_output);
        let parameters = if let Some(value) = found.parameters {
            value.map_err(|error| invalid(error.to_string()))
        } else {
            let variables = page.variables(&mapping.parameters);
            let value = self.evaluator.evaluate(&mapping.parameters, &variables, deadline).await;
            value.map_err(|error| error.into_backend_error(invalid))
        };
        let sets = mapping::mapped(parameters)?;
        let next = match &mapping.paging {
            None => None,
            Some(paging) => {
                let value = match (paging.expression(), found.next) {
                    (None, _) => None,
                    (Some(_), Some(value)) => Some(value.map_err(|error| invalid(error.to_string()))),
                    (Some(next), None) => {
                        let variables = page.variables(next).value("page", Value::from(number));
                        let value = self.evaluator.evaluate(next, &variables, deadline).await;
                        Some(value.map_err(|error| error.into_backend_error(invalid)))
                    }
                };
                Paging::next_page(&page.reply, value)?
            }
        };
        if next.is_none() {
            found.is_last?;
        }
        Ok(Page { sets, next, counted: found.counted? })
    }

    /// How to find the next page, if the list comes in pages.
    #[must_use]
    pub(super) fn paging(&self) -> Option<&Paging> {
        self.mapping.paging.as_ref()
    }

    /// The secrets that are sent, which an answer could repeat.
    #[must_use]
    pub(super) fn secrets(&self) -> Secrets {
        let mut secrets = self.request.secrets();
        if let Some(credential) = &self.credential {
            secrets.extend(credential.secrets());
        }
        secrets
    }
}

/// The expression `forEach`, with the type of its value. Notes if that is not a list.
fn build_for_each(source: &str, building: &mut Building<'_>) -> Option<(Expression, ValueType)> {
    let scope = building.context.scope.only(&["params", ITEMS, ITEM]);
    let (expression, list) = Expression::build(source, &scope, &building.path, building.problems)?;
    if let Some(UnfitValue { message, help }) = list.is_no_list() {
        building.mistake(message, help);
    }
    Some((expression, list))
}

/// Warns if `expression`, which reads a page, compares the page's status with one that no page has.
fn check_status(expression: &Expression, building: &mut Building<'_>) {
    let other = expression.compared_with("status").into_iter().find(|status| ![200, 201].contains(status));
    if let Some(other) = other {
        building.warning(
            format!("it compares `status` with {other}, and `status` is always 200 or 201 here"),
            "leave it out: a reply with any other status is an error before the expression is evaluated, so that no 404 becomes an empty list",
        );
    }
}

/// A page, and the query that it answers.
struct FetchedPage {
    reply: Reply,
    query: Query,
    each: Option<Value>,
    number: usize,
}

impl FetchedPage {
    /// The variables that `expression` uses, for an evaluator.
    fn variables(&self, expression: &Expression) -> Variables {
        let mut variables = call_variables(&self.query, expression).json("body", self.reply.body.clone());
        variables = variables.value("status", Value::from(self.reply.status.as_u16()));
        if expression.mentions("headers") {
            variables = variables.value("headers", Value::from(headers_of(&self.reply)));
        }
        match &self.each {
            Some(each) => variables.value(EACH, each.clone()),
            None => variables,
        }
    }
}

/// `items` and `item`, and `params` if `expression` mentions it.
fn call_variables(query: &Query, expression: &Expression) -> Variables {
    let mut variables = Variables::default();
    if expression.mentions("params") {
        variables = variables.value("params", Value::Object((*query.parameters).clone()));
    }
    if let Some(item) = query.item() {
        variables = variables.value(ITEM, Arc::clone(item));
    }
    match &query.items {
        Some(items) => variables.value(ITEMS, Arc::clone(items)),
        None => variables,
    }
}

/// The results of a page that were computed in this process. An expression that is not cheap has no result yet (`None`).
struct LocalResults {
    parameters: Option<Result<Value, ExpressionError>>,
    next: Option<Result<Value, ExpressionError>>,
    /// Whether the page can be the last one.
    is_last: Result<(), BackendError>,
    counted: Result<Option<Counted>, BackendError>,
}

impl Mapping {
    fn read_locally(&self, page: &FetchedPage) -> Result<LocalResults, BackendError> {
        let FetchedPage { reply, query, each, number } = page;
        let body = document::read(&reply.body).map_err(|error| {
            BackendError::invalid_output(format!(
                "not one JSON document: {error} (it begins with `{}`)",
                reply.excerpt(120)
            ))
        })?;
        if !self.allows_errors {
            refuse_errors(&body, reply)?;
        }
        let (status, number) = (Document::Number(reply.status.as_u16().into()), Document::Number((*number).into()));
        let next = self.paging.as_ref().and_then(Paging::expression);
        let mentions = |name| self.parameters.mentions(name) || next.is_some_and(|next| next.mentions(name));
        // Headers, parameters and items are converted only if an expression mentions them.
        let headers = if mentions("headers") { headers_of(reply) } else { Document::Null };
        let parameters = if mentions("params") { (&*query.parameters).into() } else { Document::Null };
        let items = query.items.as_deref().filter(|_| mentions(ITEMS)).map(Document::from);
        let item = query.item().filter(|_| mentions(ITEM)).map(|item| Document::from(&**item));
        let each = each.as_ref().map(Document::from);
        let mut variables = vec![("body", &body), ("status", &status), ("headers", &headers), ("params", &parameters)];
        variables.extend(items.as_ref().map(|items| (ITEMS, items)));
        variables.extend(item.as_ref().map(|item| (ITEM, item)));
        variables.extend(each.as_ref().map(|each| (EACH, each)));
        let parameters = self.parameters.evaluate_small(&variables);
        variables.push(("page", &number));
        Ok(LocalResults {
            parameters,
            next: next.and_then(|next| next.evaluate_small(&variables)),
            is_last: page::check_last(reply, &body, self.paging.as_ref()),
            counted: page::counted(&reply.headers, &body),
        })
    }
}

/// Refuses a document that reports an error, whatever else it holds. Part of the data may be missing, as with GraphQL.
fn refuse_errors(body: &Document<'_>, reply: &Reply) -> Result<(), BackendError> {
    document::reported_error(body).map_or(Ok(()), |(key, value)| {
        let text = reply.secrets.excerpt(error_text(value).as_bytes(), 200);
        Err(BackendError::invalid_output(format!(
            "it holds `{key}` ({text}), so the other keys may hold only a part; if that is not an error of this API, set \
             `allowErrors: true`"
        )))
    })
}

/// The error text in `value`: the text itself, or the `message` of the first error of a list. Any other value is
/// shown as JSON.
fn error_text(value: &Document<'_>) -> String {
    let first = value.as_list().and_then(|list| list.first()).unwrap_or(value);
    let message = first.get("message").unwrap_or(first);
    let shown = if message.as_text().is_some() { message } else { value };
    Value::from(shown.clone()).to_string()
}
