//! Log lines, metrics and spans. They never contain a token or a body.
//!
//! Start at [`metrics::Metrics`], [`log`] and [`trace::Span`].
//!
//! - A metric is a field in `metrics/<topic>.rs`. [`count`] is an RAII gauge: it counts the values that exist now.
//! - [`log`] writes lines by `tracing`. `json` and `text` are the formats, `stamp` the time of a line, and `sink` the buffer.
//!   [`answered`] is the fast path for the log line of a request.
//! - [`crash`] logs panics without their values.
//! - `otlp`, a feature, encodes spans for a collector.

pub mod answered;
pub mod count;
pub mod crash;
mod json;
pub mod log;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod sink;
mod stamp;
mod text;
pub mod trace;
