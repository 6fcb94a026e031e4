//! What the gateway tells of itself: log lines and metrics. Never a token, never a body.

pub mod log;
pub mod metrics;
