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
    Form(#[source] FormError),
}

/// Why JSON is not a Docker `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// It is not an object.
    #[error("it is not an object")]
    NotObject,
    /// A field is not an object.
    #[error("`{0}` is not an object")]
    NoMap(&'static str),
    /// The store's name is not text.
    #[error("`credsStore` is not text")]
    CredsStore,
}

/// An entry that cannot be read. It concerns its own registry only.
#[derive(Debug, thiserror::Error)]
#[error("the entry `{}`: {cause}", .key.escape_debug())]
pub struct UnreadableEntry {
    /// Its key.
    pub(super) key: String,
    /// What is wrong with it.
    #[source]
    pub(super) cause: EntryError,
}

/// What is wrong with an entry. It quotes nothing of it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EntryError {
    /// It is not an object.
    #[error("it is not an object")]
    NotObject,
    /// A field is not text.
    #[error("its `{0}` is not text")]
    NotText(&'static str),
    /// It is not a user and a password.
    #[error("its `auth` is not base64 of `user:password`")]
    Auth,
    /// Its helper has no name.
    #[error("its helper in `credHelpers` is not text")]
    Helper,
}

impl From<DockerConfigError> for String {
    fn from(error: DockerConfigError) -> Self {
        error.to_string()
    }
}
