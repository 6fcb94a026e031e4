//! One query to the upstream: the query of the call, with the item of `forEach` that it is about.

use serde_json::Value;
use tokio::time::Instant;

use domain::generator::Query;

/// A query, or its part for one item of `forEach`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemQuery<'a> {
    /// The query of the call.
    pub query: &'a Query,
    /// The item of `forEach`, which templates and expressions see as `each`.
    pub each: Option<&'a Value>,
    /// The time of the call, which templates and expressions see as `now`.
    pub now: u64,
    /// When the answer must be complete.
    pub deadline: Instant,
}
