//! Why an archive is refused.

use std::io;

use domain::visible::one_line;

/// Why an archive is refused, or cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// It is not gzip, is cut off, or cannot be read.
    #[error("the archive cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// It is not as Go's `archive/tar` writes it.
    #[error("the archive is malformed: {0}")]
    Malformed(&'static str),
    /// An entry is refused.
    #[error("the archive's entry `{path}` {why}")]
    Entry {
        /// The entry, as text.
        path: String,
        /// The reason, as the end of a sentence.
        why: String,
    },
    /// It is larger than a limit.
    #[error("the archive has {what} (`{limit}`)")]
    TooLarge {
        /// The excess, in words.
        what: String,
        /// The key of the limit.
        limit: &'static str,
    },
    /// A file of this machine cannot be written.
    #[error("cannot store the archive's {what}: {cause}")]
    Store {
        /// The part of the archive.
        what: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The sender named another checksum.
    #[error("the archive's checksum is not the one that was announced: it was damaged on its way")]
    Checksum,
    /// The sender stopped.
    #[error("the client went away")]
    Gone,
}

impl ArchiveError {
    /// The entry at `path` is refused: `why` ends the sentence.
    pub(super) fn entry(path: &[u8], why: impl Into<String>) -> Self {
        Self::Entry { path: one_line(&String::from_utf8_lossy(path)), why: why.into() }
    }

    /// The entry at `path` cannot be written.
    pub(super) fn store(path: &[u8]) -> impl FnOnce(io::Error) -> Self {
        let what = format!("`{}`", one_line(&String::from_utf8_lossy(path)));
        move |cause| Self::Store { what, cause }
    }
}
