//! One question to the upstream: the query, and the item of `forEach` that the question is about.

use serde_json::Value;
use tokio::time::Instant;

use domain::generator::Query;

/// A query, or the part of a query that one item of `forEach` asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemQuery<'a> {
    /// What the caller asked.
    pub query: &'a Query,
    /// The item of `forEach`, which templates and expressions see as `each`.
    pub each: Option<&'a Value>,
    /// When the answer must be complete.
    pub deadline: Instant,
}
