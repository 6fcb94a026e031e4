//! What the gateway tells of itself: log lines and metrics. Never a token, never a body.

mod json;
pub mod log;
pub mod metrics;
