//! What the gateway tells of itself: log lines and metrics. Never a token, never a body.

pub(crate) mod crash;
pub(crate) mod json;
pub mod log;
pub mod metrics;
pub(crate) mod trace;
