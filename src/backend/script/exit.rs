//! What a program's exit status means (sysexits.h where it has a word for it).

use nix::sys::signal::Signal;

use super::run::Run;
use crate::{
    clients::launcher::ExitKind,
    domain::{error::BackendError, secret::Secrets},
};

/// The program was called in a way that it does not understand (`EX_USAGE`).
const USAGE: i32 = 64;
/// The program's input is bad (`EX_DATAERR`).
const DATA: i32 = 65;
/// The program cannot tell now (`EX_TEMPFAIL`).
const TEMPORARY: i32 = 75;

/// What may help a script that was denied something.
const HINT: &str = "; a script may use the system's files, its program's and its own folder (TMPDIR), and what `allow` \
                    names besides";

/// What interpreters say of a module that they do not find, be it that they may not read it.
const MISSING: [&str; 7] = [
    "No module named",
    "init_fs_encoding",
    "pyvenv.cfg",
    "Cannot find module",
    "ERR_MODULE_NOT_FOUND",
    "Can't locate ",
    "cannot load such file",
];
/// What may help then.
const MODULES: &str = "; if it is there, the script may not read it: name its folder in `allow`, or put both in a folder of \
                       their own (docs/scripts.md, Use modules beside the script)";

/// What may explain `SIGSYS`: the rules for scripts know the calls of the gateway's architecture only.
const FOREIGN: &str = "; 32-bit programs, or programs of another architecture, cannot run as scripts";

/// That a run ended well.
///
/// # Errors
/// When it did not; the text says how, and what stood on stderr.
pub(crate) fn check(run: &Run, secrets: &Secrets) -> Result<(), BackendError> {
    if run.ended.how == ExitKind::Code(0) {
        return Ok(());
    }
    let said = run.told.tail(secrets);
    Err(match run.ended.how {
        ExitKind::Code(code @ (USAGE | DATA)) => {
            BackendError::invalid_input(run.told.last_line(secrets).unwrap_or_else(|| {
                format!("it refuses its input (exit status: {code}) and does not say why on stderr")
            }))
        }
        ExitKind::Code(TEMPORARY) => BackendError::unavailable(format!(
            "it does not know now, and asks to serve the last good answer (exit status: {TEMPORARY}){said}"
        )),
        ExitKind::Code(code) => {
            let text = run.told.whole(secrets);
            let hint = if run.told.is_about_permission() {
                HINT
            } else if MISSING.iter().any(|words| text.contains(words)) {
                MODULES
            } else {
                ""
            };
            BackendError::unavailable(format!("exit status: {code}{said}{hint}"))
        }
        ExitKind::Signal(signal) => {
            let hint = if signal == Signal::SIGSYS as i32 { FOREIGN } else { "" };
            BackendError::unavailable(format!("signal: {signal}{said}{hint}"))
        }
        ExitKind::Unknown => BackendError::unavailable(format!("it ended, and nobody knows how{said}")),
    })
}
