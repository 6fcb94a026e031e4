//! The volume of a machine, with the cache file. It outlives the processes, and is damaged between two of them; `disk` fails below them. Each process gets a copy of
//! what the one before left, so that nothing that an ended process still writes counts.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use fastrand::Rng;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError, TableHandle as _};
use tempfile::TempDir;

use crate::disk::{SimulatedDisk, WRITTEN_WITHIN};
use domain::{clock::Clock, units::ByteSize};
use engine::cache::{Disk, Medium, Part, Place, Trouble};
use telemetry::metrics::DiskMetrics;

/// The name of the cache file.
const FILE: &str = "cache";
/// How much the file may take.
const LIMIT: ByteSize = ByteSize::mib(16);
/// The size of a page of the file, in bytes.
const PAGE: u64 = 4096;

/// The damage to a volume between two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Damage {
    /// Nothing: all that was written is there.
    None,
    /// A page of the file was written in half.
    TornPage,
    /// The file ends early.
    Cut,
    /// The file is gone, and the files beside it are there.
    FileGone,
    /// The marks of loss are gone.
    MarksGone,
    /// The journal ends with half a record.
    TornJournal,
    /// The machine had no power, and what was not synced is lost in part.
    PowerCut,
}

/// The volume of a machine.
#[derive(Debug)]
pub struct Volume {
    folder: TempDir,
    lives: u32,
    /// The disk on which it is.
    pub disk: Arc<SimulatedDisk>,
}

impl Volume {
    /// An empty one.
    ///
    /// # Errors
    /// When no folder can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, lives: 0, disk: Arc::default() })
    }

    fn of_life(&self, life: u32) -> PathBuf {
        self.folder.path().join(life.to_string())
    }

    /// Opens the file for the next process.
    ///
    /// # Errors
    /// When there can be no file.
    pub fn open(&self, metrics: DiskMetrics, clock: &Arc<dyn Clock>) -> Result<Disk, Trouble> {
        let place = Place::of(&self.of_life(self.lives).join(FILE)).on(Arc::clone(&self.disk) as Arc<dyn Medium>);
        Disk::open(&place, LIMIT, metrics, clock)
    }

    /// How much it takes, in bytes.
    pub fn size(&self) -> u64 {
        let Ok(files) = fs::read_dir(self.of_life(self.lives)) else { return 0 };
        files.flatten().filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum()
    }

    /// Leaves the files of the process with `disk` to the next one, and damages them. The disk sees no more of that process.
    ///
    /// # Errors
    /// When the files cannot be copied.
    pub fn next(&mut self, disk: &Disk, damage: Damage, dice: &mut Rng) -> io::Result<()> {
        disk.flush(WRITTEN_WITHIN);
        let next = Arc::new(self.disk.next());
        let simulated = std::mem::replace(&mut self.disk, next);
        let (before, after) = (self.of_life(self.lives), self.of_life(self.lives + 1));
        fs::create_dir_all(&after)?;
        for file in fs::read_dir(&before)?.flatten() {
            fs::copy(file.path(), after.join(file.file_name()))?;
        }
        fs::remove_dir_all(&before)?;
        self.lives += 1;
        let file = after.join(FILE);
        let beside = |suffix: &str| after.join(format!("{FILE}{suffix}"));
        if matches!(damage, Damage::TornPage | Damage::Cut) {
            lay_out(&file).map_err(io::Error::other)?;
        }
        match damage {
            Damage::None => {}
            Damage::TornPage => {
                let pages = fs::metadata(&file)?.len() / PAGE;
                let page = dice.u64(..pages.max(1));
                let half = vec![0; usize::try_from(PAGE / 2).unwrap_or_default()];
                fs::OpenOptions::new().write(true).open(&file)?.write_all_at(&half, page * PAGE + PAGE / 2)?;
            }
            Damage::Cut => {
                let length = fs::metadata(&file)?.len();
                fs::OpenOptions::new().write(true).open(&file)?.set_len(dice.u64(..length.max(1)))?;
            }
            Damage::FileGone => fs::remove_file(&file)?,
            Damage::MarksGone => fs::remove_file(beside(".lost"))?,
            Damage::TornJournal => {
                let mut journal = fs::OpenOptions::new().append(true).open(beside(".journal"))?;
                journal.write_all(&vec![2; dice.usize(1..100)])?;
            }
            Damage::PowerCut => {
                let parts = [
                    (Part::Database, ""),
                    (Part::Journal, ".journal"),
                    (Part::SecondJournal, ".journal-2"),
                    (Part::Marks, ".lost"),
                ];
                for (part, suffix) in parts {
                    let file = fs::OpenOptions::new().read(true).write(true).open(beside(suffix))?;
                    simulated.cut_power(part, &file, dice)?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the database in `file` anew, in the order of its keys, as a process leaves it that is killed after the write. On which page a record is
/// depends on which changes the process wrote together, so on real time; which one a damage hits is to follow from the seed.
fn lay_out(file: &Path) -> Result<(), redb::Error> {
    let new = file.with_extension("new");
    let (database, after) = (Database::open(file)?, Database::create(&new)?);
    let before = database.begin_read()?;
    let mut names: Vec<String> = before.list_tables()?.map(|table| table.name().to_owned()).collect();
    names.sort_unstable();
    let writing = after.begin_write()?;
    for name in &names {
        let records = TableDefinition::<&[u8; 32], &[u8]>::new(name);
        match before.open_table(records) {
            Ok(table) => {
                let mut copied = writing.open_table(records)?;
                for row in table.iter()? {
                    let (key, record) = row?;
                    copied.insert(key.value(), record.value())?;
                }
            }
            Err(TableError::TableTypeMismatch { .. }) => {
                let numbers = TableDefinition::<&str, u64>::new(name);
                let mut copied = writing.open_table(numbers)?;
                for row in before.open_table(numbers)?.iter()? {
                    let (key, number) = row?;
                    copied.insert(key.value(), number.value())?;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    writing.commit()?;
    // While it is open: a file that was closed in order is not looked through at the next start.
    fs::copy(&new, file)?;
    fs::remove_file(&new)?;
    Ok(())
}
