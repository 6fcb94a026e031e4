//! `absent`: a reply that proves that there is nothing. Which replies it sees is decided by [`judging`], whatever the expression says.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::{
    item_query::ItemQuery,
    reading::{FetchedPage, Mapping, refuse_errors},
};
use crate::{
    Building, judging,
    mapping::{self, Inputs},
};
use domain::{
    document::{self, kind_of},
    error::BackendError,
};
use lang::{evaluator::Evaluator, expression::Expression, scope::NameScope};
use outbound::Reply;
use source::{Load, work_on};

/// The expression, compiled.
#[derive(Debug)]
pub(super) struct Absent(Arc<Expression>);

impl Absent {
    /// Compiles `source` over the names of a page. Notes a status that it can never see, and that it would take any reply for a proof.
    pub(super) fn build(source: &str, page: &NameScope, building: &mut Building<'_>) -> Option<Self> {
        let (expression, _) = Expression::build(source, page, &building.path, building.problems)?;
        if let Some(never) = expression.expected_of("status").into_iter().find(|status| !judging::is_judged(*status)) {
            building.mistake(
                format!("a reply with the status {never} never proves that there is nothing"),
                "leave it out: `absent` sees 200, 201 and the 4xx but 401, 403, 407, 408 and 429",
            );
        }
        if !expression.mentions("body") && !expression.mentions("headers") {
            building.warning(
                "it looks neither at `body` nor at `headers`: a wrong path, or another server behind the same name, replies alike",
                "add what only this API says of a thing that is not there: `status == 404 && has(body.code) && body.code == 'not_found'`",
            );
        }
        Some(Self(Arc::new(expression)))
    }

    /// The expression.
    pub(super) fn expression(&self) -> &Expression {
        &self.0
    }

    /// Whether `reply`, the first of `query`, is the proof.
    ///
    /// # Errors
    /// When the expression does not fit the reply, or gives no truth value.
    pub(super) async fn holds(
        &self,
        reply: &Reply,
        query: ItemQuery<'_>,
        mapping: &Arc<Mapping>,
        evaluator: &Evaluator,
    ) -> Result<bool, BackendError> {
        // Any other reply is an error, which is worded where replies are read.
        if judging::check_status(reply, self.0.mentions("status")).is_err()
            || mapping.documents.check_type(reply).is_err()
        {
            return Ok(false);
        }
        let load = Load::Bytes(reply.body.len());
        let page = FetchedPage::first(reply, query);
        let rules = Arc::clone(mapping);
        let (body, page) = work_on(load, move || Ok((body_of(&page.reply, &rules), page))).await?;
        let Some(body) = body else { return Ok(false) };
        let variables = page.variables_with(&self.0, body);
        let invalid = |why: String| BackendError::invalid_output(format!("absent: {why}"));
        let inputs = Inputs { variables, load };
        match mapping::evaluate(evaluator, &self.0, inputs, query.deadline, invalid).await? {
            Value::Bool(holds) => Ok(holds),
            other => Err(invalid(format!("it gives {}, neither true nor false", kind_of(&other)))),
        }
    }
}

/// The `body` of `reply` as JSON. A 4xx without a document has a null body. `None` for a 200 without a document that counts.
fn body_of(reply: &Reply, mapping: &Mapping) -> Option<Bytes> {
    let is_whole = |json: &Bytes| {
        let body = document::read(json).ok()?;
        let may_be_incomplete =
            reply.status.is_success() && !mapping.allows_errors && refuse_errors(&body, reply).is_err();
        (!may_be_incomplete).then_some(())
    };
    match mapping.documents.to_json(reply) {
        Ok(json) if is_whole(&json).is_some() => Some(json),
        _ if reply.status.is_success() => None,
        _ => Some(Bytes::from_static(b"null")),
    }
}
