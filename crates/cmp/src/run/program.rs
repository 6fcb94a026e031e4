//! Finds programs, as Go's `exec.Command` does.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// A program that is not there.
#[derive(Debug, thiserror::Error)]
#[error("exec: \"{0}\": executable file not found in $PATH")]
pub(crate) struct NoProgram(String);

/// The program `name`: a path as it is, which may be relative to the Application's folder, and anything else as found in `path`.
///
/// # Errors
/// When it is not found.
pub(crate) fn find(name: &str, path: &OsStr) -> Result<PathBuf, NoProgram> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let is_program = |file: &PathBuf| {
        file.is_absolute() && file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(path).map(|folder| folder.join(name)).find(is_program);
    found.ok_or_else(|| NoProgram(name.to_owned()))
}

/// A path of an archive.
pub(super) fn relative(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}
