//! Typed views of a running gateway, for the admin listener's JSON, its pages and the command line. Reading one changes nothing: no answer,
//! no failure, nothing that the guard counts. A view has no secret, and its length is bounded.

pub(crate) mod answers;
pub(crate) mod config;
pub(crate) mod elements;
pub(crate) mod events;
pub(crate) mod explain;
mod failure;
pub(crate) mod held;
pub(crate) mod routes;
pub(crate) mod sources;
pub(crate) mod status;
pub(crate) mod steps;

use std::time::{Duration, UNIX_EPOCH};

use domain::clock::Timestamp;

/// A time in the form of RFC 3339, in UTC, to the millisecond.
pub(crate) fn date(time: Timestamp) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(time.0)).to_string()
}

/// `time` in milliseconds.
fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
