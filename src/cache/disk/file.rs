//! The file: opened, set aside when it is damaged, and opened again after an I/O error, since redb does nothing more
//! with a file that failed once.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redb::{Database, DatabaseError, StorageError};

use crate::telemetry::metrics::DiskMetrics;

/// How long a lock may be a leftover.
const MOMENT: Duration = Duration::from_millis(250);

/// How much of the file redb keeps in memory, in bytes; its own choice would be 1 GiB. What is asked often is in our memory.
const PAGES: usize = 16 * 1024 * 1024;

/// A file that may have to be opened again.
#[derive(Debug)]
pub(super) struct File {
    /// Whether it took the place of one that was damaged: whatever was in that is lost.
    pub(super) is_anew: bool,
    path: PathBuf,
    database: RwLock<Option<Database>>,
}

impl File {
    /// Opens or makes the file at `path`; sets a damaged one aside.
    ///
    /// # Errors
    /// When there can be no file.
    pub(super) fn open(path: &Path, metrics: &DiskMetrics) -> Result<Self, Trouble> {
        let within = |trouble: Trouble| trouble.within(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| Trouble::Other(error.to_string()).within(folder))?;
        }
        let (database, is_anew) = match patiently(path) {
            Ok(database) => (database, false),
            Err(Trouble::Damaged(why)) => {
                let aside = set_aside(path)
                    .map_err(|error| within(Trouble::Damaged(format!("{why}, and cannot be moved: {error}"))))?;
                tracing::error!(damaged = %aside.display(), why, "the file of last good answers was damaged and is set aside; a new one begins");
                metrics.errors.inc();
                (create(path).map_err(within)?, true)
            }
            Err(trouble) => return Err(within(trouble)),
        };
        Ok(Self { is_anew, path: path.to_owned(), database: RwLock::new(Some(database)) })
    }

    /// Works with the file. A panic of redb's, which reads a damaged page as far as it makes sense, is an error.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = database.as_ref() else { return Err(redb::Error::PreviousIo) };
        catch_unwind(AssertUnwindSafe(|| work(database)))
            .unwrap_or_else(|_| Err(redb::Error::Corrupted("it panicked".into())))
    }

    /// Closes the file and opens it again; one that is damaged by now stays closed.
    ///
    /// # Errors
    /// When it cannot be opened: the reason, for the log.
    pub(super) fn reopen(&self) -> Result<(), String> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        *database = None;
        *database = Some(create(&self.path).map_err(|trouble| trouble.to_string())?);
        Ok(())
    }

    /// A file that is none.
    #[cfg(test)]
    pub(super) fn in_memory() -> Self {
        let database = Database::builder().create_with_backend(redb::backends::InMemoryBackend::new()).unwrap();
        Self { is_anew: false, path: PathBuf::new(), database: RwLock::new(Some(database)) }
    }
}

/// Why there is no file.
#[derive(Debug)]
pub enum Trouble {
    /// Another process has it open.
    Locked(String),
    /// What is in it makes no sense.
    Damaged(String),
    /// Anything else.
    Other(String),
}

impl Trouble {
    fn within(self, path: &Path) -> Self {
        let shown = path.display();
        match self {
            Self::Locked(why) => Self::Locked(format!("{shown}: {why}")),
            Self::Damaged(why) => Self::Damaged(format!("{shown} is damaged: {why}")),
            Self::Other(why) => Self::Other(format!("{shown}: {why}")),
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locked(why) | Self::Damaged(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

/// Opens a file that may be locked for a moment still: a child that a killed gateway was about to start holds the lock
/// until it runs.
fn patiently(path: &Path) -> Result<Database, Trouble> {
    let until = Instant::now() + MOMENT;
    loop {
        match create(path) {
            Err(Trouble::Locked(_)) if Instant::now() < until => std::thread::sleep(MOMENT / 25),
            created => return created,
        }
    }
}

/// With a file that nobody else can read: questions and answers are nobody else's business.
fn open_or_make(path: &Path) -> Result<Database, DatabaseError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|error| DatabaseError::Storage(StorageError::Io(error)))?;
    Database::builder().set_cache_size(PAGES).create_file(file)
}

pub(super) fn create(path: &Path) -> Result<Database, Trouble> {
    let opened = catch_unwind(|| open_or_make(path)).unwrap_or_else(|_| Err(DatabaseError::RepairAborted));
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

fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{seconds}"));
    let aside = path.with_file_name(name);
    std::fs::rename(path, &aside)?;
    Ok(aside)
}
