//! The folder to which paths of a configuration are relative: the folder of its file.

use std::path::{Path, PathBuf};

/// The folder to which paths are relative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseDir(PathBuf);

impl BaseDir {
    /// Paths relative to `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// The folder of the configuration file `file`.
    #[must_use]
    pub(crate) fn of_file(file: &Path) -> Self {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self(std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()))
    }

    /// `path` itself if it is absolute, else `path` below this folder.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The folder itself.
    #[must_use]
    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}
