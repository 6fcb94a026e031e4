//! What the gateway tells of itself: log lines and metrics. Never a token, never a body.

pub mod crash;
mod json;
pub mod log;
pub mod metrics;
pub mod trace;
