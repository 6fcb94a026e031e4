//! Writes an archive to a folder: the second reading. Nothing outside of the folder is touched, whatever the archive holds.
//!
//! Each folder is opened relative to the one above it, without following links, and files are only made, never opened. So the writing is
//! safe by itself, though the first reading has refused all that could be unsafe.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat},
    io::Errno,
};

use super::{
    ArchiveError,
    intake::Archive,
    walk::{Visitor, walk},
};

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Writes `archive` to the new folder `to`. Files are executable only if `has_modes`, and the archive says so. Blocks.
///
/// # Errors
/// When the folder is there already, or something cannot be written.
pub(crate) fn extract(archive: Archive, to: &Path, has_modes: bool) -> Result<(), ArchiveError> {
    let failed = |cause| ArchiveError::Store { what: format!("folder {}", to.display()), cause };
    std::fs::create_dir(to).map_err(failed)?;
    let root = openat(CWD, to, FOLDER, Mode::empty()).map_err(|error| failed(error.into()))?;
    let Archive { spool, wanted, packing, .. } = archive;
    let mut writer = Writer { root, parent: None, file: None, has_modes };
    walk(spool.reader(), packing, &wanted.limits, wanted.has_git, &mut writer).map(drop)
}

struct Writer {
    root: OwnedFd,
    /// The folder of the last entry: archives have the files of a folder one after the other.
    parent: Option<(Vec<u8>, OwnedFd)>,
    file: Option<(Vec<u8>, File)>,
    has_modes: bool,
}

impl Writer {
    /// Makes an entry at `path` by `make`, which gets the folder and the name.
    fn make<T>(
        &mut self,
        path: &[u8],
        make: impl FnOnce(&OwnedFd, &[u8]) -> rustix::io::Result<T>,
    ) -> Result<T, ArchiveError> {
        let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let result = if folder.is_empty() {
            make(&self.root, name)
        } else {
            if self.parent.as_ref().is_none_or(|(path, _)| path != folder) {
                let opened = open(&self.root, folder).map_err(ArchiveError::store(folder))?;
                self.parent = Some((folder.to_vec(), opened));
            }
            self.parent.as_ref().map_or(Err(Errno::NOENT), |(_, parent)| make(parent, name))
        };
        result.map_err(|error| ArchiveError::store(path)(error.into()))
    }
}

/// Opens `folder` below `root`, and makes what is missing of it.
fn open(root: &OwnedFd, folder: &[u8]) -> io::Result<OwnedFd> {
    let mut here = root.try_clone()?;
    for part in folder.split(|byte| *byte == b'/') {
        make_folder(&here, part)?;
        here = openat(&here, part, FOLDER, Mode::empty())?;
    }
    Ok(here)
}

/// Makes a folder, unless it is there.
fn make_folder(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => openat(parent, name, FOLDER, Mode::empty()).map(drop),
        made => made,
    }
}

impl Visitor for Writer {
    fn folder(&mut self, path: &[u8]) -> Result<(), ArchiveError> {
        self.make(path, make_folder)
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveError> {
        self.make(path, |parent, name| symlinkat(target, parent, name))
    }

    fn file(&mut self, path: &[u8], is_executable: bool, _: u64) -> Result<(), ArchiveError> {
        let mode = Mode::from_raw_mode(if is_executable && self.has_modes { 0o755 } else { 0o644 });
        let file = self.make(path, |parent, name| openat(parent, name, NEW, mode))?;
        self.file = Some((path.to_vec(), file.into()));
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        match &mut self.file {
            Some((path, file)) => file.write_all(bytes).map_err(ArchiveError::store(path)),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        self.file = None;
        Ok(())
    }
}
