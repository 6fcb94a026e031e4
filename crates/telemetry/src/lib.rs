//! Log lines, metrics and spans. They never hold a token or a body.
//!
//! Start at [`metrics::Metrics`], [`log`] and [`trace::Span`]. [`crash`] logs panics without their values.

pub mod answered;
pub mod count;
pub mod crash;
mod json;
pub mod log;
pub mod metrics;
mod sink;
mod stamp;
mod text;
pub mod trace;
