//! The meaning of a program's exit status. Follows sysexits.h if that names the status.

use nix::sys::signal::Signal;

use super::run::Run;
use domain::{error::BackendError, secret::Secrets};
use launcher::ExitKind;

/// The program does not understand its arguments (`EX_USAGE`).
const USAGE: i32 = 64;
/// The program's input is bad (`EX_DATAERR`).
const DATA: i32 = 65;
/// The program has no answer now (`EX_TEMPFAIL`).
const TEMPORARY: i32 = 75;

/// Advice for a script that was denied a file.
const PERMISSION_HINT: &str = "; a script may use the system's files, the folder of its program, its own folder (TMPDIR), and the \
                               files of `allow`";

/// The messages of interpreters that cannot find or read a module.
const MISSING_MODULE: [&str; 7] = [
    "No module named",
    "init_fs_encoding",
    "pyvenv.cfg",
    "Cannot find module",
    "ERR_MODULE_NOT_FOUND",
    "Can't locate ",
    "cannot load such file",
];
/// Advice for a missing module.
const MODULE_HINT: &str = "; if it is there, the script may not read it: name its folder in `allow`, or put both in a folder of \
                       their own (docs/scripts.md, Use modules beside the script)";

/// A reason for `SIGSYS`: scripts may only use system calls of the gateway's own architecture.
const ARCHITECTURE_HINT: &str = "; 32-bit programs, or programs of another architecture, cannot run as scripts";

/// Checks that a run ended well.
///
/// # Errors
/// When the run failed. The text has the reason, and shows the end of stderr.
pub(super) fn check(run: &Run, secrets: &Secrets) -> Result<(), BackendError> {
    if run.ended.how == ExitKind::Code(0) {
        return Ok(());
    }
    let stderr = run.stderr.tail(secrets);
    Err(match run.ended.how {
        ExitKind::Code(code @ (USAGE | DATA)) => BackendError::invalid_input(
            run.stderr
                .last_line(secrets)
                .unwrap_or_else(|| format!("it refuses its input (exit status: {code}) and names no reason on stderr")),
        ),
        ExitKind::Code(TEMPORARY) => BackendError::unavailable(format!(
            "it has no answer now and asks for the last good answer (exit status: {TEMPORARY}){stderr}"
        )),
        ExitKind::Code(code) => {
            let text = run.stderr.whole(secrets);
            let hint = if run.stderr.is_about_permission() {
                PERMISSION_HINT
            } else if MISSING_MODULE.iter().any(|words| text.contains(words)) {
                MODULE_HINT
            } else {
                ""
            };
            BackendError::unavailable(format!("exit status: {code}{stderr}{hint}"))
        }
        ExitKind::Signal(signal) => {
            let hint = if signal == Signal::SIGSYS as i32 { ARCHITECTURE_HINT } else { "" };
            BackendError::unavailable(format!("signal: {signal}{stderr}{hint}"))
        }
        ExitKind::Unknown => BackendError::unavailable(format!("it ended, and the system did not say how{stderr}")),
    })
}
