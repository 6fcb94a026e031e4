//! The way to the files: all that is written to them goes through a [`Handle`]. The simulation makes writes fail there, and sees what was not synced.

use std::{
    ffi::OsStr,
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use redb::StorageBackend;

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The database.
    Database,
    /// The first segment of the journal.
    Journal,
    /// The second segment of the journal.
    SecondJournal,
    /// The marks of loss.
    Marks,
}

/// What is about to happen to a file.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// These bytes are written at this place.
    Write(u64, &'a [u8]),
    /// It gets this length.
    SetLen(u64),
    /// All that was written is brought to the disk.
    Sync,
}

/// A simulated disk: it sees each operation before it is made.
pub trait Medium: fmt::Debug + Send + Sync {
    /// Called before `operation` on the open `file`.
    ///
    /// # Errors
    /// If the operation is to fail.
    fn before(&self, part: Part, file: &File, operation: Operation<'_>) -> io::Result<()>;
}

/// Where the database is: its path, and the simulated disk on which it is, if it is on one. The other files are beside it.
#[derive(Debug, Clone)]
pub struct Place {
    pub(super) path: PathBuf,
    medium: Option<Arc<dyn Medium>>,
}

impl Place {
    /// The place `path` of the file system.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), medium: None }
    }

    /// The same on a simulated disk.
    #[must_use]
    pub fn on(self, medium: Arc<dyn Medium>) -> Self {
        Self { medium: Some(medium), ..self }
    }

    /// The place of a companion.
    pub(super) fn beside(&self, suffix: &str) -> Self {
        Self { path: beside(&self.path, suffix), medium: self.medium.clone() }
    }

    /// Whether it is on a simulated disk.
    pub(super) const fn is_simulated(&self) -> bool {
        self.medium.is_some()
    }

    /// The way to an open `file`.
    pub(super) fn handle(&self, part: Part, file: File) -> Handle {
        Handle { part, file, medium: self.medium.clone() }
    }
}

/// The path of a companion of `path`.
pub(super) fn beside(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    part: Part,
    file: File,
    medium: Option<Arc<dyn Medium>>,
}

impl Handle {
    /// The file, for reading and locking.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    fn before(&self, operation: Operation<'_>) -> io::Result<()> {
        self.medium.as_ref().map_or(Ok(()), |medium| medium.before(self.part, &self.file, operation))
    }

    pub(super) fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.before(Operation::Write(at, bytes))?;
        self.file.write_all_at(bytes, at)
    }

    pub(super) fn truncate(&self, length: u64) -> io::Result<()> {
        self.before(Operation::SetLen(length))?;
        self.file.set_len(length)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.before(Operation::Sync)?;
        self.file.sync_data()
    }

    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.before(Operation::Sync)?;
        self.file.sync_all()
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { part: self.part, file: self.file.try_clone()?, medium: self.medium.clone() })
    }
}

/// For a database on a simulated disk. Without locks: the journal has one.
impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.truncate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }
}
