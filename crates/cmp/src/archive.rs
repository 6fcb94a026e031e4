//! The archives that Argo CD sends: gzip and tar. Each is read twice.
//!
//! The first reading checks everything and computes the tree's digest, while the archive arrives; nothing but the compressed bytes is
//! kept. Only an archive that is sound as a whole, and whose tree is not there yet, is read again and written to a folder.

pub(crate) mod digest;
mod error;
pub(crate) mod extract;
pub(crate) mod index;
pub(crate) mod intake;
pub(crate) mod links;
mod spool;
mod tar;
#[cfg(test)]
mod tests;
mod walk;
pub(crate) mod write;

pub(crate) use self::{error::ArchiveError, walk::ArchiveLimits};
