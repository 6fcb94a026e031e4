//! Finds executable files.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The first program of this name in `PATH`.
pub(super) fn in_search_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_absolute() && is_executable(candidate))
}

/// Whether `path` is a file that some user may execute.
pub(super) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
