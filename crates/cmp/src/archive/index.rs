//! What is in an archive: the result of the first reading.

use std::collections::{BTreeMap, btree_map};

use sha2::{Digest as _, Sha256};

use super::{ArchiveError, walk::Visitor};

/// The entries by their paths, which have neither `.` nor `..`. All folders above an entry are there.
pub(crate) type Entries = BTreeMap<Vec<u8>, Entry>;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// Whether somebody may execute it.
        is_executable: bool,
        /// The SHA-256 of its content. Zeros if contents are not hashed.
        content: [u8; 32],
    },
    /// A symbolic link to this relative path.
    Link(Vec<u8>),
}

/// Collects entries.
#[derive(Debug)]
pub(super) struct Indexer {
    entries: Entries,
    file: Option<(Vec<u8>, bool)>,
    hash: Option<Sha256>,
    has_contents: bool,
    size: u64,
    max: usize,
}

impl Indexer {
    /// Nothing yet, and at most `max` entries, with the folders above them. Contents are hashed if `has_contents`.
    pub(super) fn new(has_contents: bool, max: usize) -> Self {
        Self { entries: Entries::new(), file: None, hash: None, has_contents, size: 0, max }
    }

    /// All entries, and the bytes of all files. Where links lead is not checked yet.
    pub(super) fn finish(self) -> (Entries, u64) {
        (self.entries, self.size)
    }

    /// Notes `entry`, and the folders above it.
    fn add(&mut self, path: &[u8], entry: Entry) -> Result<(), ArchiveError> {
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            match self.entries.entry(path[..at].to_vec()) {
                btree_map::Entry::Vacant(free) => _ = free.insert(Entry::Folder),
                btree_map::Entry::Occupied(taken) if *taken.get() == Entry::Folder => {}
                btree_map::Entry::Occupied(_) => {
                    return Err(ArchiveError::entry(path, "is below a file or a link"));
                }
            }
        }
        match self.entries.entry(path.to_vec()) {
            btree_map::Entry::Vacant(free) => _ = free.insert(entry),
            btree_map::Entry::Occupied(taken) if *taken.get() == Entry::Folder && entry == Entry::Folder => {}
            btree_map::Entry::Occupied(_) => return Err(ArchiveError::entry(path, "is there twice")),
        }
        if self.entries.len() > self.max {
            let what = format!("more than {} files and folders", self.max);
            return Err(ArchiveError::TooLarge { what, limit: "archive.files" });
        }
        Ok(())
    }
}

impl Visitor for Indexer {
    fn folder(&mut self, path: &[u8]) -> Result<(), ArchiveError> {
        self.add(path, Entry::Folder)
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveError> {
        self.add(path, Entry::Link(target.to_vec()))
    }

    fn file(&mut self, path: &[u8], is_executable: bool, _: u64) -> Result<(), ArchiveError> {
        self.file = Some((path.to_vec(), is_executable));
        self.hash = self.has_contents.then(Sha256::new);
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.size += bytes.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        let content = self.hash.take().map(|hash| hash.finalize().into()).unwrap_or_default();
        match self.file.take() {
            Some((path, is_executable)) => self.add(&path, Entry::File { is_executable, content }),
            None => Ok(()),
        }
    }
}
