//! What the gateway tells of itself: log lines and metrics. Never a token, never a body.

pub(crate) mod answered;
pub(crate) mod crash;
mod json;
pub mod log;
pub mod metrics;
mod sink;
mod stamp;
pub(crate) mod trace;
