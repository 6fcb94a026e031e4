//! A JSON API. Templates make the request, and a CEL expression makes the list from the answer.

use std::sync::Arc;

use http::{HeaderValue, header};
use serde_json::Value;
use tokio::time::timeout_at;

use super::{
    absent::Absent,
    config::Config,
    format::Documents,
    item_query::ItemQuery,
    page::Page,
    paging::Paging,
    reading::{EACH, FetchedPage, Mapping, call_variables},
    redirect::Redirects,
};
use crate::{
    Building, ITEM, ITEMS,
    credential::Credential,
    mapping::{self, Inputs},
    now::NOW,
    request::{Method, Parts, Request},
};
use domain::{document::found, error::BackendError, secret::Secrets};
use lang::{
    evaluator::{Context, Evaluator},
    expression::Expression,
    scope::{NameScope, UnfitValue, ValueType},
    template::value_of,
};
use outbound::{Call, HttpClient, Reply};
use source::{Load, work_on};

/// The `parameters` expression unless the configuration sets one.
const DEFAULT_PARAMETERS: &str = "body";
/// The most requests that `forEach` may make of one query.
const MAX_REQUESTS: usize = 1000;

/// A JSON API with its parsed templates and expressions.
#[derive(Debug)]
pub(super) struct Json {
    request: Request,
    /// The header `Accept`, unless the configuration sets one.
    accept: Option<HeaderValue>,
    credential: Option<Credential>,
    for_each: Option<Arc<Expression>>,
    evaluator: Evaluator,
    absent: Option<Absent>,
    mapping: Arc<Mapping>,
    /// The result of one item.
    pub item: ValueType,
    /// The treatment of a redirect.
    pub redirects: Redirects,
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
        let templates = templates.with(NOW, ValueType::Plain("a number"));
        let page = templates.only(&["params", ITEMS, ITEM, EACH, NOW]).with_all(&["body", "status", "headers"]);
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
        let documents = Documents::build(config.format, config.content_type.as_ref(), &config.xml_lists, building);
        let at = path.key("paging");
        let paging = config.paging.as_ref().map(|paging| Paging::build(paging, &names.page, &at, building.problems));
        let absent = config.absent.as_deref();
        let absent = absent.map(|absent| Absent::build(absent, &names.page, &mut building.key("absent")));
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
        let absent = match absent {
            Some(absent) => Some(absent?),
            None => None,
        };
        let (parameters, item) = parameters?;
        let accept =
            (!config.headers.keys().any(|name| name.eq_ignore_ascii_case("accept"))).then(|| documents.accept());
        Some(Self {
            request: request?,
            accept,
            credential,
            for_each,
            evaluator: context.evaluator.clone(),
            item,
            absent,
            mapping: Arc::new(Mapping { documents, parameters, paging, allows_errors: config.allow_errors }),
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
    pub(super) async fn each(&self, query: ItemQuery<'_>) -> Result<Option<Vec<Value>>, BackendError> {
        let Some(expression) = &self.for_each else { return Ok(None) };
        let inputs = Inputs { variables: call_variables(query.query, query.now, expression), load: Load::Bytes(0) };
        let invalid = |why: String| BackendError::invalid_input(format!("forEach: {why}"));
        let value = mapping::evaluate(&self.evaluator, expression, inputs, query.deadline, invalid);
        match value.await? {
            Value::Array(list) if list.len() > MAX_REQUESTS => {
                Err(invalid(format!("it gives {} items, more than {MAX_REQUESTS}", list.len())))
            }
            Value::Array(list) => Ok(Some(list)),
            other => Err(invalid(format!("it gives {}, not a list", found(&other)))),
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
        if self.request.reads(NOW) {
            context = context.map(|input| minijinja::context! { now => query.now, ..input });
        }
        let mut call = self.request.call(&context, max_bytes, query.deadline).await?;
        if let Some(accept) = &self.accept {
            call.headers.insert(header::ACCEPT, accept.clone());
        }
        Ok(call)
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
        let ItemQuery { query, each, now, deadline } = query;
        self.mapping.documents.check_type(&reply)?;
        let mapping = Arc::clone(&self.mapping);
        let load = Load::Bytes(reply.body.len());
        let (query, each) = (query.clone(), each.cloned());
        let reading = work_on(load, move || {
            let document = mapping.documents.to_json(&reply)?;
            let page = FetchedPage { reply, document, query, each, now, number };
            Ok((mapping.read_locally(&page)?, page))
        });
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
        Ok(Page { sets, next, counted: found.counted?, is_absent: false })
    }

    /// Whether `absent` proves by the first reply that there is nothing.
    ///
    /// # Errors
    /// When the expression does not fit the reply.
    pub(super) async fn is_absent(&self, reply: &Reply, query: ItemQuery<'_>) -> Result<bool, BackendError> {
        match &self.absent {
            Some(absent) => absent.holds(reply, query, &self.mapping, &self.evaluator).await,
            None => Ok(false),
        }
    }

    /// Whether the answer depends on the time.
    pub(super) fn uses_now(&self) -> bool {
        let next = self.mapping.paging.as_ref().and_then(Paging::expression);
        let absent = self.absent.as_ref().map(Absent::expression);
        let expressions = [Some(&self.mapping.parameters), next, absent, self.for_each.as_deref()];
        self.request.reads(NOW) || expressions.into_iter().flatten().any(|expression| expression.uses(NOW))
    }

    /// Whether `absent` is set.
    pub(super) const fn has_absent(&self) -> bool {
        self.absent.is_some()
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
    let scope = building.context.scope.only(&["params", ITEMS, ITEM]).with(NOW, ValueType::Plain("a number"));
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
