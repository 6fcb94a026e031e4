//! Waiting for an answer that is asked for once, however many want it, each for as long as they can.

use tokio::time::{Instant, timeout_at};

use crate::{
    domain::error::{BackendError, ErrorKind},
    flight::Join,
};

/// The answer of the flight that `board` joins or starts, by `deadline`. One that was started by somebody with less time,
/// and whose time ran out, is boarded again.
///
/// # Errors
/// Those of the flight, and when it does not land in time.
pub(crate) async fn wait<T: Clone>(
    join: impl Fn() -> Join<Result<T, BackendError>>,
    deadline: Instant,
) -> Result<T, BackendError> {
    let failed = || Err(BackendError::unavailable("asking it failed"));
    loop {
        let landing = match join() {
            Join::Landed(wait) => return wait,
            // What it asks has our own deadline, and says what was not done in time.
            Join::Started(landing) => return landing.await.unwrap_or_else(failed),
            Join::Joined(landing) => landing,
        };
        match timeout_at(deadline, landing).await {
            Ok(Some(Err(error))) if error.kind == ErrorKind::Timeout && Instant::now() < deadline => {}
            Ok(wait) => return wait.unwrap_or_else(failed),
            Err(_) => return Err(BackendError::timeout("it was asked, but no whole answer came in time")),
        }
    }
}
