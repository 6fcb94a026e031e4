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
    let failed = || Err(BackendError::unavailable("the call to it failed"));
    loop {
        let result = match join() {
            FlightJoin::Finished(value) => return value,
            // The work has this caller's deadline, so its own error is the better one: it names the step that was late.
            FlightJoin::Started(result) => return result.await.unwrap_or_else(failed),
            FlightJoin::Joined(result) => result,
        };
        match timeout_at(deadline, result).await {
            Ok(Some(Err(error))) if error.kind == ErrorKind::Timeout && Instant::now() < deadline => {}
            Ok(value) => return value.unwrap_or_else(failed),
            Err(_) => return Err(BackendError::timeout("it was called, but no whole answer came in time")),
        }
    }
}
