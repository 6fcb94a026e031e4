//! Reads the file of `serve` or `relay`.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use domain::file::{self, FileError, base_dir::BaseDir};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] FileError),
    /// It is not YAML, or has a wrong key or type. The text has the line.
    #[error("{}: {cause}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The mistake.
        #[source]
        cause: Box<serde_saphyr::Error>,
    },
    /// Values that cannot be used, one a line.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
}

/// A value that cannot be used.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// The file.
    pub(crate) file: PathBuf,
    /// The line.
    pub(crate) line: u64,
    /// The key, from the root.
    pub(crate) path: String,
    /// What is wrong.
    pub(crate) why: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file.display(), self.line, self.path, self.why)
    }
}

/// The folder from which the relative paths of a configuration start.
#[derive(Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// `path`, from the folder.
    pub(crate) fn join(&self, path: &Path) -> PathBuf {
        self.0.join(path)
    }

    /// For what is read later.
    pub(crate) fn base(&self) -> BaseDir {
        BaseDir::new(&self.0)
    }
}

/// Reads `file`, whose relative paths start from its folder.
///
/// # Errors
/// When it cannot be read, or is not a configuration.
pub(crate) fn read<C: DeserializeOwned>(file: &Path) -> Result<(C, Root), ConfigError> {
    let text = file::read(file)?;
    let options = serde_saphyr::options! { with_snippet: false };
    let config = serde_saphyr::from_str_with_options(&text, options);
    let config = config.map_err(|cause| ConfigError::Invalid { file: file.to_owned(), cause: Box::new(cause) })?;
    // Absolute, since launchers run elsewhere.
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    Ok((config, Root(absolute.parent().unwrap_or(Path::new("/")).to_owned())))
}
