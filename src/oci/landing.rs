//! Waiting for an answer that is asked for once, however many want it, each for as long as they can.

use tokio::time::{Instant, timeout_at};

use crate::{
    error::{BackendError, ErrorKind},
    flight::Boarding,
};

/// The answer that `boarding` leads to. `None` when it was asked for by somebody with less time than is left until
/// `deadline`, and theirs ran out: it must be asked for again.
pub(super) async fn landed<T: Clone>(
    boarding: Boarding<Result<T, BackendError>>,
    deadline: Instant,
) -> Option<Result<T, BackendError>> {
    let failed = || Err(BackendError::unavailable("asking it failed"));
    let landing = match boarding {
        Boarding::Landed(landed) => return Some(landed),
        // What it asks has our own deadline, and says what was not done in time.
        Boarding::Started(landing) => return Some(landing.await.unwrap_or_else(failed)),
        Boarding::Joined(landing) => landing,
    };
    match timeout_at(deadline, landing).await {
        Ok(Some(Err(error))) if error.kind == ErrorKind::Timeout && Instant::now() < deadline => None,
        Ok(landed) => Some(landed.unwrap_or_else(failed)),
        Err(_) => Some(Err(BackendError::timeout("it was asked, but no whole answer came in time"))),
    }
}
