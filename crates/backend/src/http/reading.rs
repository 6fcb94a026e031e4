//! Reads one page of a JSON API's answer: its document, and what the expressions make of it.

use bytes::Bytes;
use serde_json::Value;

use super::{
    format::Documents,
    item_query::ItemQuery,
    page::{self, Counted},
    paging::Paging,
};
use crate::{ITEM, ITEMS, mapping::query_variables, now::NOW, request::headers_of};
use domain::{
    document::{self, Document},
    error::BackendError,
    generator::Query,
};
use lang::{
    evaluator::Variables,
    expression::{Expression, ExpressionError},
};
use outbound::Reply;

/// The variable that holds the current item of `forEach`.
pub(super) const EACH: &str = "each";

/// How to read a page.
#[derive(Debug)]
pub(super) struct Mapping {
    /// How documents are read.
    pub documents: Documents,
    /// `parameters`.
    pub parameters: Expression,
    /// How to find the next page, if the list comes in pages.
    pub paging: Option<Paging>,
    /// Whether a document with `error` or `errors` at its top level is accepted (`allowErrors`).
    pub allows_errors: bool,
}

/// A page, and the query that it answers.
pub(super) struct FetchedPage {
    /// The upstream's reply.
    pub reply: Reply,
    /// Its document as JSON.
    pub document: Bytes,
    /// The query.
    pub query: Query,
    /// The item of `forEach`.
    pub each: Option<Value>,
    /// The time of the call.
    pub now: u64,
    /// The page's number, from 1.
    pub number: usize,
}

impl FetchedPage {
    /// The first page of `query`, with a copy of `reply`.
    pub(super) fn first(reply: &Reply, query: ItemQuery<'_>) -> Self {
        let ItemQuery { query, each, now, .. } = query;
        Self { reply: reply.clone(), document: Bytes::new(), query: query.clone(), each: each.cloned(), now, number: 1 }
    }

    /// The variables that `expression` uses, for an evaluator.
    pub(super) fn variables(&self, expression: &Expression) -> Variables {
        self.variables_with(expression, self.document.clone())
    }

    /// The same with another document as `body`.
    pub(super) fn variables_with(&self, expression: &Expression, body: Bytes) -> Variables {
        let mut variables = call_variables(&self.query, self.now, expression).json("body", body);
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

/// `now`, `items` and `item`, and `params` if `expression` mentions it.
pub(super) fn call_variables(query: &Query, now: u64, expression: &Expression) -> Variables {
    query_variables(query, expression).value(NOW, Value::from(now))
}

/// The results of a page that were computed in this process. An expression that is not cheap has no result yet (`None`).
pub(super) struct LocalResults {
    /// The value of `parameters`.
    pub parameters: Option<Result<Value, ExpressionError>>,
    /// The value of `paging.next`.
    pub next: Option<Result<Value, ExpressionError>>,
    /// Whether the page can be the last one.
    pub is_last: Result<(), BackendError>,
    /// The total that it names.
    pub counted: Result<Option<Counted>, BackendError>,
}

impl Mapping {
    /// Reads `page` in this process, as far as that is cheap.
    ///
    /// # Errors
    /// When it is not one document, or reports an error.
    pub(super) fn read_locally(&self, page: &FetchedPage) -> Result<LocalResults, BackendError> {
        let FetchedPage { reply, document, query, each, now, number } = page;
        let body = document::read(document).map_err(|error| {
            BackendError::invalid_output(format!(
                "not one JSON document: {error} (it begins with `{}`)",
                reply.excerpt(120)
            ))
        })?;
        if !self.allows_errors {
            refuse_errors(&body, reply)?;
        }
        let (status, number) = (Document::Number(reply.status.as_u16().into()), Document::Number((*number).into()));
        let now = Document::Number((*now).into());
        let next = self.paging.as_ref().and_then(Paging::expression);
        let mentions = |name| self.parameters.mentions(name) || next.is_some_and(|next| next.mentions(name));
        // Headers, parameters and items are converted only if an expression mentions them.
        let headers = if mentions("headers") { headers_of(reply) } else { Document::Null };
        let parameters = if mentions("params") { (&*query.parameters).into() } else { Document::Null };
        let items = query.items.as_deref().filter(|_| mentions(ITEMS)).map(Document::from);
        let item = query.item().filter(|_| mentions(ITEM)).map(|item| Document::from(&**item));
        let each = each.as_ref().map(Document::from);
        let mut variables =
            vec![("body", &body), ("status", &status), ("headers", &headers), ("params", &parameters), (NOW, &now)];
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
pub(super) fn refuse_errors(body: &Document<'_>, reply: &Reply) -> Result<(), BackendError> {
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
