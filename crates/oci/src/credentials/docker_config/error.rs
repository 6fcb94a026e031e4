//! Why a Docker `config.json` cannot be used.

use domain::file::FileError;

/// Why a file is not a Docker `config.json`. It quotes nothing of the file, which holds secrets.
#[derive(Debug, thiserror::Error)]
pub enum DockerConfigError {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] FileError),
    /// It is not JSON from this line on. Without serde's error, which may quote a part of the file.
    #[error("line {0}: not a Docker config.json")]
    Syntax(usize),
    /// A field has another form.
    #[error("not a Docker config.json: {0}")]
    Form(String),
}

impl From<DockerConfigError> for String {
    fn from(error: DockerConfigError) -> Self {
        error.to_string()
    }
}
