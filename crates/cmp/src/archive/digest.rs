//! A tree's digest: equal for equal files, whatever their times, owners and order in the archive.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::index::{Entries, Entry};

/// The SHA-256 over all paths, kinds and contents of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TreeDigest([u8; 32]);

impl TreeDigest {
    /// The bytes.
    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest that another process has computed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for TreeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        f.write_str(base16ct::lower::encode_str(&self.0, &mut text).map_err(|_| fmt::Error)?)
    }
}

/// The digest of `entries`. Whether a file is executable counts only if `has_modes`: otherwise no written file is.
pub(crate) fn digest(entries: &Entries, has_modes: bool) -> TreeDigest {
    of_entries(entries.iter(), has_modes)
}

/// As [`digest`], without `.git`, which each checkout has anew.
pub(crate) fn digest_without_git(entries: &Entries, has_modes: bool) -> TreeDigest {
    of_entries(entries.iter().filter(|(path, _)| *path != b".git" && !path.starts_with(b".git/")), has_modes)
}

fn of_entries<'a>(entries: impl Iterator<Item = (&'a Vec<u8>, &'a Entry)>, has_modes: bool) -> TreeDigest {
    let mut hash = Sha256::new();
    hash.update([b'1', u8::from(has_modes)]);
    for (path, entry) in entries {
        hash.update((path.len() as u64).to_le_bytes());
        hash.update(path);
        match entry {
            Entry::Folder => hash.update(b"d"),
            Entry::File { is_executable, content } => {
                hash.update(if has_modes && *is_executable { b"x" } else { b"f" });
                hash.update(content);
            }
            Entry::Link(target) => {
                hash.update(b"l");
                hash.update(Sha256::digest(target));
            }
        }
    }
    TreeDigest(hash.finalize().into())
}
