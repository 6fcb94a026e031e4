//! The limit of open files: a server raises its own, since each connection is an open file, and its programs keep the one that the server was
//! started with. Some older programs close all numbers up to their limit before they do anything else.

use std::{io, sync::OnceLock};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit of this process before it was raised.
static STARTED_WITH: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of this process to `most`, as far as the system allows. Programs get the former one.
///
/// # Errors
/// When the system refuses it.
pub fn raise_open_files(most: u64) -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    STARTED_WITH.get_or_init(|| soft);
    Ok(setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(most)), hard)?)
}

/// The soft limit for programs, if this process has raised its own.
pub(crate) fn for_programs() -> Option<u64> {
    STARTED_WITH.get().copied()
}

/// Gives this process the soft limit `soft`.
///
/// # Errors
/// When the system refuses it.
pub(crate) fn restore(soft: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard)?)
}
