//! The database file. It is opened again after an I/O error, because redb refuses to work with a file that failed
//! once. [`mod@super::start`] is the start.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use parking_lot::RwLock;
use redb::{Database, DatabaseError, StorageError};

use crate::cache::disk::medium::{Part, Place, beside};

/// How much of the file redb keeps in memory, in bytes; its default is 1 GiB. Frequent answers are in the gateway's own memory.
const PAGES: usize = 16 * 1024 * 1024;

/// A file that may have to be opened again.
#[derive(Debug)]
pub(super) struct File {
    place: Place,
    database: RwLock<Option<Database>>,
}

impl File {
    /// The open `database` at `place`.
    pub(super) fn new(place: &Place, database: Database) -> Self {
        Self { place: place.clone(), database: RwLock::new(Some(database)) }
    }

    /// Works with the file. redb may panic on a damaged page; the panic becomes an error.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        let database = self.database.read();
        let Some(database) = database.as_ref() else { return Err(redb::Error::PreviousIo) };
        catch_unwind(AssertUnwindSafe(|| work(database)))
            .unwrap_or_else(|_| Err(redb::Error::Corrupted("it panicked".into())))
    }

    /// Reads from the file. If an error closed the file just now, this opens it again and reads once more: a failed write proves
    /// nothing about the records that were stored before.
    pub(super) fn read<T>(&self, work: impl Fn(&Database) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        match self.with(&work) {
            Err(redb::Error::PreviousIo) if self.reopen().is_ok() => self.with(&work),
            result => result,
        }
    }

    /// Closes the file and opens it again. A file that is damaged or gone by now stays closed: a new file would read as if
    /// nothing had ever been stored.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn reopen(&self) -> Result<(), Trouble> {
        let mut database = self.database.write();
        *database = None;
        *database = Some(open(&self.place)?);
        Ok(())
    }

    /// How large the file is, in bytes. 0 if that cannot be found out.
    pub(super) fn size(&self) -> u64 {
        std::fs::metadata(&self.place.path).map_or(0, |found| found.len())
    }

    /// Makes the file as small as its content allows. No other thread can use it meanwhile.
    pub(super) fn compact(&self) -> Result<(), redb::Error> {
        let mut database = self.database.write();
        let Some(database) = database.as_mut() else { return Err(redb::Error::PreviousIo) };
        catch_unwind(AssertUnwindSafe(|| database.compact().map(drop).map_err(redb::Error::from)))
            .unwrap_or_else(|_| Err(redb::Error::Corrupted("it panicked".into())))
    }

    /// A database in memory, without a file.
    #[cfg(test)]
    pub(super) fn in_memory() -> Self {
        let database = Database::builder().create_with_backend(redb::backends::InMemoryBackend::new()).unwrap();
        Self::new(&Place::of(Path::new("")), database)
    }
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Another process has it open.
    #[error("{0}")]
    Locked(String),
    /// Its content is not a database.
    #[error("{0}")]
    Damaged(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Trouble {
    /// The same reason, with the path.
    pub(super) fn within(self, path: &Path) -> Self {
        let shown = path.display();
        match self {
            Self::Locked(why) => Self::Locked(format!("{shown}: {why}")),
            Self::Damaged(why) => Self::Damaged(format!("{shown} is damaged: {why}")),
            Self::Other(why) => Self::Other(format!("{shown}: {why}")),
        }
    }
}

/// Opens the existing file at `place`. An empty file counts as damaged.
pub(super) fn open(place: &Place) -> Result<Database, Trouble> {
    let found = std::fs::metadata(&place.path).map_err(|error| Trouble::Other(error.to_string()))?;
    if found.len() == 0 {
        return Err(Trouble::Damaged("it is empty".to_owned()));
    }
    open_with(place, &place.path, false)
}

/// Creates a new file at `place`, instead of an existing one. It is created under another name and renamed when it is whole, so
/// that a process that is killed meanwhile leaves no file that seems damaged.
pub(super) fn make(place: &Place) -> Result<Database, Trouble> {
    let (path, new) = (&place.path, replace(&place.path));
    let trouble = |error: std::io::Error| Trouble::Other(format!("a new file cannot be made: {error}"));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(trouble(error)),
        _ => {}
    }
    let database = open_with(place, &new, true)?;
    std::fs::rename(&new, path).and_then(|()| sync_folder(path)).map_err(trouble)?;
    Ok(database)
}

/// Opens a file that only the gateway's user can read, because questions and answers are confidential.
fn open_with(place: &Place, path: &Path, is_new: bool) -> Result<Database, Trouble> {
    let open = || {
        let mut options = OpenOptions::new();
        let file = domain::file::open(path, options.read(true).write(true).create_new(is_new).mode(0o600));
        let file = file.map_err(|error| DatabaseError::Storage(StorageError::Io(error)))?;
        let mut builder = Database::builder();
        builder.set_cache_size(PAGES);
        if place.is_simulated() {
            return builder.create_with_backend(place.handle(Part::Database, file));
        }
        builder.create_file(file)
    };
    let opened = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| Err(DatabaseError::RepairAborted));
    opened.map_err(|error| match &error {
        DatabaseError::DatabaseAlreadyOpen => Trouble::Locked("another process holds it".to_owned()),
        DatabaseError::Storage(StorageError::Io(io))
            if io.kind() != std::io::ErrorKind::InvalidData && io.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            Trouble::Other(error.to_string())
        }
        _ => Trouble::Damaged(error.to_string()),
    })
}

/// The path under which the file for `path` is created.
pub(super) fn replace(path: &Path) -> PathBuf {
    beside(path, ".new")
}

/// Waits until the names in the folder of `path` are on disk.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
