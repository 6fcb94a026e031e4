//! Waits for a shared flight, each caller until its own deadline.

use tokio::time::{Instant, timeout_at};

use crate::FlightJoin;
use domain::error::{BackendError, ErrorKind};

/// The result of the flight that `join` joins or starts, by `deadline`. If the flight's own, earlier deadline passed, joins
/// again.
///
/// # Errors
/// The flight's error, or a timeout.
pub async fn wait<T: Clone>(
    join: impl Fn() -> FlightJoin<Result<T, BackendError>>,
    deadline: Instant,
) -> Result<T, BackendError> {
    let failed = || Err(BackendError::unavailable("asking it failed"));
    loop {
        let result = match join() {
            FlightJoin::Landed(value) => return value,
            // The work has this caller's deadline, and its error says what was not done in time.
            FlightJoin::Started(result) => return result.await.unwrap_or_else(failed),
            FlightJoin::Joined(result) => result,
        };
        match timeout_at(deadline, result).await {
            Ok(Some(Err(error))) if error.kind == ErrorKind::Timeout && Instant::now() < deadline => {}
            Ok(value) => return value.unwrap_or_else(failed),
            Err(_) => return Err(BackendError::timeout("it was asked, but no whole answer came in time")),
        }
    }
}
