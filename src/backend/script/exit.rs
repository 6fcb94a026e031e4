//! What a program's exit status means (sysexits.h where it has a word for it).

use super::run::Run;
use crate::{error::BackendError, launcher::How, secret::Secrets};

/// The program was called in a way that it does not understand (`EX_USAGE`).
const USAGE: i32 = 64;
/// The program's input is bad (`EX_DATAERR`).
const DATA: i32 = 65;
/// The program cannot tell now (`EX_TEMPFAIL`).
const TEMPORARY: i32 = 75;

/// What may help a script that was denied something.
const HINT: &str = "; a script may use the system's files, its program's and its own folder (TMPDIR), and what `allow` \
                    names besides";

/// That a run ended well.
///
/// # Errors
/// When it did not; the text says how, and what stood on stderr.
pub fn check(run: &Run, secrets: &Secrets) -> Result<(), BackendError> {
    let said = run.told.tail(secrets);
    Err(match run.ended.how {
        How::Code(0) => return Ok(()),
        How::Code(code @ (USAGE | DATA)) => {
            BackendError::invalid_input(run.told.last_line(secrets).unwrap_or_else(|| {
                format!("it refuses its input (exit status: {code}) and does not say why on stderr")
            }))
        }
        How::Code(TEMPORARY) => BackendError::unavailable(format!(
            "it does not know now, and asks to serve the last good answer (exit status: {TEMPORARY}){said}"
        )),
        How::Code(code) => {
            let hint = if run.told.is_about_permission() { HINT } else { "" };
            BackendError::unavailable(format!("exit status: {code}{said}{hint}"))
        }
        How::Signal(signal) => BackendError::unavailable(format!("signal: {signal}{said}")),
        How::Unknown => BackendError::unavailable(format!("it ended, and nobody knows how{said}")),
    })
}
