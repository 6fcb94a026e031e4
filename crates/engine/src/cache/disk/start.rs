//! The start: the file of last good answers and its companions (the journal and the marks of loss) are
//! opened, and what was lost is marked before anything is read. What is there decides:
//!
//! | database | marks of loss | |
//! |---|---|---|
//! | none | none or unfinished, and nothing in the journal | a first start: nothing was lost |
//! | none | otherwise | the file is gone: everything is lost |
//! | empty or damaged | any | everything is lost; the file is set aside |
//! | with a stamp | finished | nothing was lost, except for the marked records |
//! | with a stamp | unfinished | a first start was killed: nothing was lost |
//! | with a stamp | none or damaged | everything is lost |
//! | without a stamp | none or unfinished | a first start was killed: nothing was lost |
//! | without a stamp | finished or damaged | everything is lost |
//! | of an earlier version | any | everything is lost; the file is set aside |
//!
//! The *stamp* is in the table `meta`. It is at least that of every record in the database, and it is written before the marks
//! are *finished*. Everything is lost too when the journal is damaged so that a key can no longer be read. What
//! the journal holds is then taken over into the database, unless the database has the same change or a later one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use crate::cache::disk::{
    file::{self, File, Trouble},
    journal::{Journal, Recovered},
    kind::{Change, RecordKind},
    marks::{Absent, Marks},
    medium::{Place, beside},
    record, records,
};
use domain::clock::Clock;
use telemetry::metrics::DiskMetrics;

/// How long a lock may be held by a process that has ended.
const MOMENT: Duration = Duration::from_millis(250);

/// The table about the database as a whole.
pub(super) const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");
/// The key of the database's stamp.
pub(super) const STAMP: &str = "stamp";
/// The key of the number of the database's form.
pub(super) const FORM: &str = "form";
/// It changes when earlier records cannot be found any more. 2: a key contains its route. Before that there was no number.
pub(super) const OWN_FORM: u64 = 2;

/// The parts of a store, ready for use.
pub(super) struct Parts {
    pub file: File,
    pub journal: Journal,
    pub marks: Marks,
}

/// Opens or creates everything at `place`.
///
/// # Errors
/// When there can be no file.
pub(super) fn start(place: &Place, clock: &Arc<dyn Clock>, metrics: &DiskMetrics) -> Result<Parts, Trouble> {
    let path = &*place.path;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Trouble::Other(error.to_string()).within(folder))?;
    }
    let until = Instant::now() + MOMENT;
    loop {
        match attempt(place, clock, metrics) {
            // A process that a killed gateway was about to start holds the locks until it runs.
            Err(Trouble::Locked(_)) if Instant::now() < until => thread::sleep(MOMENT / 25),
            started => return started.map_err(|trouble| trouble.within(path)),
        }
    }
}

fn attempt(place: &Place, clock: &Arc<dyn Clock>, metrics: &DiskMetrics) -> Result<Parts, Trouble> {
    let path = &*place.path;
    // The journal's lock comes first: only one process may decide what was lost.
    let (journal, recovered) = Journal::open(place)?;
    let found = find(place)?;
    let stamp = if let Found::Whole(_, stamp) = &found { *stamp } else { None };
    let floor = stamp.unwrap_or(0).max(recovered.stamp());
    let lost = place.beside(".lost");
    let trouble =
        |error: std::io::Error| Trouble::Other(format!("its marks of loss ({}): {error}", lost.path.display()));
    let marks = Marks::read(&lost, Arc::clone(clock), floor).map_err(trouble)?;
    let why = what_was_lost(&found, &marks, &recovered);
    if let Some(why) = &why {
        tracing::error!(file = %path.display(), why, "the last good answers are lost; what they were counts as unknown");
        metrics.errors.inc();
    }
    // Before anything is moved: if the process is killed meanwhile, the next start must not be taken for a first start.
    let marks = match marks {
        Err(_) => Marks::make(&lost, Arc::clone(clock), floor, why.is_some()).map_err(trouble)?,
        Ok(marks) => {
            if why.is_some() {
                marks.set_everything().and_then(|()| marks.sync()).map_err(trouble)?;
            }
            marks
        }
    };
    let file = match found {
        Found::Whole(file, _) => file,
        Found::Nothing => File::new(place, file::make(place)?),
        Found::Damaged(why) => {
            set_aside(path).map_err(|error| Trouble::Damaged(format!("{why}, and cannot be moved: {error}")))?;
            File::new(place, file::make(place)?)
        }
    };
    let mut parts = Parts { file, journal, marks };
    if stamp.is_none() || recovered.is_used {
        parts.recover(&recovered, metrics);
    }
    parts.marks.finish().map_err(trouble)?;
    Ok(parts)
}

/// Why everything counts as lost; `None` if nothing does.
fn what_was_lost(found: &Found, marks: &Result<Marks, Absent>, recovered: &Recovered) -> Option<String> {
    let has_marks = marks.as_ref().is_ok_and(Marks::is_finished);
    let are_damaged = matches!(marks, Err(Absent::Damaged));
    let why = match found {
        Found::Damaged(why) => why,
        Found::Nothing if has_marks || are_damaged || recovered.is_used => "the file is gone",
        Found::Whole(..) if are_damaged => "the marks of loss are damaged",
        Found::Whole(_, Some(_)) if marks.is_err() => "the marks of loss are gone",
        Found::Whole(_, None) if has_marks => "the file has no stamp",
        Found::Whole(..) if recovered.has_gap => "the journal is damaged",
        Found::Nothing | Found::Whole(..) => return None,
    };
    Some(why.to_owned())
}

/// The file at a path.
enum Found {
    Nothing,
    /// A database, with its stamp if it has one.
    Whole(File, Option<u64>),
    /// Something else, and the reason.
    Damaged(String),
}

fn find(place: &Place) -> Result<Found, Trouble> {
    if !place.path.try_exists().map_err(|error| Trouble::Other(error.to_string()))? {
        return Ok(Found::Nothing);
    }
    let database = match file::open(place) {
        Ok(database) => database,
        Err(Trouble::Damaged(why)) => return Ok(Found::Damaged(why)),
        Err(trouble) => return Err(trouble),
    };
    let file = File::new(place, database);
    match file.with(read_stamp) {
        Ok(stamp) if file.with(is_of_own_form).unwrap_or_default() => Ok(Found::Whole(file, stamp)),
        Ok(_) => Ok(Found::Damaged("an earlier version of the gateway wrote the file".to_owned())),
        Err(redb::Error::Io(error)) => Err(Trouble::Other(error.to_string())),
        Err(error) => Ok(Found::Damaged(error.to_string())),
    }
}

fn read_stamp(database: &Database) -> Result<Option<u64>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(META) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        table => table?,
    };
    // The stamp's writer created this table too.
    transaction.open_table(RecordKind::Answer.table())?;
    Ok(table.get(STAMP)?.map(|stamp| stamp.value()))
}

/// Whether this version can find the records in the database. One without records is of any form.
fn is_of_own_form(database: &Database) -> Result<bool, redb::Error> {
    let transaction = database.begin_read()?;
    let form = match transaction.open_table(META) {
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        table => table?.get(FORM)?.map(|form| form.value()),
    };
    if form == Some(OWN_FORM) {
        return Ok(true);
    }
    for kind in RecordKind::ALL {
        if records(&transaction, kind)?.is_some_and(|table| !table.is_empty().unwrap_or_default()) {
            return Ok(false);
        }
    }
    Ok(form.is_none())
}

/// Renames the file at `path`, so that its name has the reason. An empty file is not kept.
fn set_aside(path: &Path) -> std::io::Result<()> {
    if std::fs::metadata(path)?.len() == 0 {
        return Ok(());
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let aside: PathBuf = beside(path, format!(".damaged-{seconds}"));
    std::fs::rename(path, &aside)?;
    tracing::error!(damaged = %aside.display(), "the damaged file of last good answers is set aside");
    Ok(())
}

impl Parts {
    /// Writes the journal's changes to the database. A change that cannot be written is marked as lost.
    fn recover(&mut self, recovered: &Recovered, metrics: &DiskMetrics) {
        let mut lost = recovered.damaged.clone();
        let stamp = self.marks.last();
        if let Err(error) = self.file.with(|database| apply(database, &recovered.changes, stamp)) {
            metrics.errors.inc();
            tracing::error!(%error, "the journal of last good answers cannot be taken over; what is in it counts as lost");
            let _ = self.file.reopen();
            lost.extend(recovered.changes.iter().map(|change| (change.kind, change.key)));
        }
        lost.retain(|(kind, _)| kind.has_marks());
        let marked = self.marks.set_all(&lost);
        metrics.lost.inc_by(lost.len() as u64);
        let cleared = marked.and_then(|()| self.marks.sync()).and_then(|()| self.journal.clear());
        if let Err(error) = cleared {
            metrics.errors.inc();
            tracing::error!(%error, "the journal of last good answers cannot be emptied");
        }
    }
}

fn apply(database: &Database, changes: &[Change], stamp: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for kind in RecordKind::ALL {
        let mut table = transaction.open_table(kind.table())?;
        for change in changes.iter().filter(|change| change.kind == kind) {
            let there = table.get(change.key.as_bytes())?.and_then(|record| record::stamp(record.value()));
            if there.is_some_and(|there| there >= change.stamp) {
                continue;
            }
            match &change.record {
                Some(record) => _ = table.insert(change.key.as_bytes(), record.as_slice())?,
                None => _ = table.remove(change.key.as_bytes())?,
            }
        }
    }
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(STAMP, stamp)?;
        meta.insert(FORM, OWN_FORM)?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests;
