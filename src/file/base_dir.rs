//! The folder to which paths of a configuration are relative: the folder of its file.

use std::path::{Path, PathBuf};

/// The folder to which paths are relative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseDir {
    path: PathBuf,
    is_offline: bool,
}

impl BaseDir {
    /// Paths relative to `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { path: dir.into(), is_offline: false }
    }

    /// The folder of the configuration file `file`.
    #[must_use]
    pub(crate) fn of_file(file: &Path) -> Self {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::new(std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()))
    }

    /// The same folder, for a configuration that never meets its sources: secrets and credentials are not read.
    #[must_use]
    pub(crate) fn offline(self) -> Self {
        Self { is_offline: true, ..self }
    }

    /// Whether secrets and credentials are not to be read.
    pub(crate) const fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// `path` itself if it is absolute, else `path` below this folder.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }

    /// The folder itself.
    #[must_use]
    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }
}
