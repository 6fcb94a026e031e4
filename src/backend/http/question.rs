//! One question to the upstream: the query, and the item of `forEach` that the question is about.

use serde_json::Value;
use tokio::time::Instant;

use crate::domain::generator::Query;

/// A query, or the part of a query that one item of `forEach` asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemQuery<'a> {
    /// What the caller asked.
    pub(crate) query: &'a Query,
    /// The item of `forEach`, which templates and expressions see as `each`.
    pub(crate) each: Option<&'a Value>,
    /// When the answer must be complete.
    pub(crate) deadline: Instant,
}
