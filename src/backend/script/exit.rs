//! What a program's exit status means (sysexits.h where it has a word for it).

use bytes::Bytes;

use super::run::{How, Run};
use crate::{error::BackendError, secret::Secrets};

/// The program was called in a way that it does not understand (`EX_USAGE`).
const USAGE: i32 = 64;
/// The program's input is bad (`EX_DATAERR`).
const DATA: i32 = 65;
/// The program cannot tell now (`EX_TEMPFAIL`).
const TEMPORARY: i32 = 75;

/// The output of a run that ended well.
///
/// # Errors
/// When it did not; the text says how, and what stood on stderr.
pub fn output(run: Run, secrets: &Secrets) -> Result<Bytes, BackendError> {
    let tail = run.told.tail(secrets);
    let said = if tail.is_empty() { String::new() } else { format!("; stderr: {tail}") };
    Err(match run.ended.how {
        How::Code(0) => return Ok(run.output),
        How::Code(code @ (USAGE | DATA)) => {
            BackendError::invalid_input(run.told.last_line(secrets).unwrap_or_else(|| {
                format!("it refuses its input (exit status: {code}) and does not say why on stderr")
            }))
        }
        How::Code(TEMPORARY) => BackendError::unavailable(format!(
            "it does not know now, and asks to serve the last good answer (exit status: {TEMPORARY}){said}"
        )),
        How::Code(code) => BackendError::unavailable(format!("exit status: {code}{said}")),
        How::Signal(signal) => BackendError::unavailable(format!("signal: {signal}{said}")),
        How::Unknown => BackendError::unavailable(format!("it ended, and nobody knows how{said}")),
    })
}
