//! The folder to which paths of a configuration are relative: the folder of its file.

use std::path::{Path, PathBuf};

/// The folder to which paths are relative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseDir {
    path: PathBuf,
    is_offline: bool,
    is_lenient: bool,
}

impl BaseDir {
    /// Paths relative to `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { path: dir.into(), is_offline: false, is_lenient: false }
    }

    /// The folder of the configuration file `file`.
    #[must_use]
    pub fn of_file(file: &Path) -> Self {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::new(std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()))
    }

    /// The same folder, for a configuration that never meets its sources: secrets and credentials are not read.
    #[must_use]
    pub fn offline(self) -> Self {
        Self { is_offline: true, ..self }
    }

    /// The same folder, for a check on a machine that may lack secrets, keys and certificates.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { is_lenient: true, ..self }
    }

    /// Whether secrets, keys and certificates may be missing.
    pub const fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    /// Whether the secret, key or certificate `file` is missing, and may be.
    pub fn may_lack(&self, file: &Path) -> bool {
        self.is_lenient && std::fs::File::open(file).is_err()
    }

    /// Whether secrets and credentials are not to be read.
    pub const fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// `path` itself if it is absolute, else `path` below this folder.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }

    /// The folder itself.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.path
    }
}
