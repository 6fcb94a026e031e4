//! The thread that writes to the database, so that no answer waits for it.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, Table, WriteTransaction};

use crate::cache::{
    Key,
    disk::{
        file::File,
        journal::Journal,
        kind::{Change, RecordKind},
        long::{self, KnownChunks},
        marks::Marks,
        record::{self, Head, draft, open},
        records,
        sizes::{Id, Limits, Plan, Sizes, size_of},
        start::{FORM, META, OWN_FORM, STAMP},
        throttle::Throttle,
    },
};
use domain::generator::{Question, Selector};
use telemetry::metrics::DiskMetrics;

/// How often the file is compacted at most while the gateway runs. Reading from it waits meanwhile.
const COMPACTED_EVERY: Duration = Duration::from_mins(10);
/// How long a baseline is kept without use, in milliseconds.
const UNUSED: u64 = 90 * 24 * 60 * 60 * 1000;

/// An order to the writer.
#[derive(Debug)]
pub(super) enum Order {
    /// Make a change, which is in the journal already.
    Change(Change),
    /// The answer was read, so it is not evicted next.
    Used(Key),
    /// No answer that one of these selects may be served before its backend was called. Sends back which answers those are.
    Expire(Vec<Selector>, SyncSender<Vec<(Key, Question)>>),
    /// Answer when all earlier orders are written.
    Flush(SyncSender<()>),
}

impl Order {
    /// The change that it asks for.
    const fn change(&self) -> Option<&Change> {
        match self {
            Self::Change(change) => Some(change),
            Self::Used(_) | Self::Expire(..) | Self::Flush(_) => None,
        }
    }
}

/// The records that `batch` changes.
fn changed(batch: &[Order]) -> impl Iterator<Item = Id> {
    batch.iter().filter_map(Order::change).map(|change| (change.kind, change.key))
}

type Records<'a> = Table<'a, &'static [u8; 32], &'static [u8]>;
type Expired = (SyncSender<Vec<(Key, Question)>>, Vec<(Key, Question)>);

/// The writer.
pub(super) struct Writer {
    pub file: Arc<File>,
    pub journal: Arc<Mutex<Journal>>,
    pub marks: Arc<Marks>,
    /// The latest stamp that an earlier process gave.
    pub last: u64,
    pub limits: Limits,
    pub metrics: DiskMetrics,
    /// Locked for moments only, never during a transaction.
    pub sizes: Arc<Mutex<Sizes>>,
    pub chunks: Arc<KnownChunks>,
    /// When the file was last compacted.
    pub(crate) compacted: Option<Instant>,
    pub(crate) throttle: Throttle,
}

impl Writer {
    /// Reads how large the records in an existing file are, and removes those that are too old or above the limit.
    pub(super) fn prepare(&mut self) {
        let file = Arc::clone(&self.file);
        let ready = file.with(|database| {
            drop_unused(database, self.last)?;
            long::sweep_all(database)?;
            self.count(database)?;
            let mut plan = Plan::default();
            self.sizes.lock().evict(&mut plan);
            self.commit_plan(database, &[], &mut Vec::new(), plan)
        });
        if let Err(error) = ready {
            self.trouble(&error);
        }
        self.compact();
    }

    /// Carries out orders, all that wait in one transaction, until no sender is left.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let segments = self.journal.lock().segments();
        while let Ok(first) = orders.recv() {
            let (batch, full, plan) = {
                // A sender that appends to the journal sends its order before it releases the lock, so that all changes of the segment
                // are in this batch or in an earlier one.
                let mut journal = self.journal.lock();
                let batch: Vec<Order> = std::iter::once(first).chain(orders.try_iter()).collect();
                // Before the next change of a record that leaves is queued, as that must bring all chunks.
                let plan = self.sizes.lock().change(batch.iter().filter_map(Order::change));
                plan.victims.iter().for_each(|victim| self.chunks.forget(victim));
                (batch, journal.switch(), plan)
            };
            if self.carry_out(batch, plan)
                && let Some(full) = full
                && let Err(error) = segments[full].truncate(0)
            {
                self.trouble(&error.into());
            }
            if self.compacted.is_none_or(|at| at.elapsed() >= COMPACTED_EVERY) {
                self.compact();
            }
        }
    }

    /// Reads the sizes of the records in an existing file, and how long ago they were written.
    fn count(&mut self, database: &Database) -> Result<(), redb::Error> {
        let mut found = Vec::new();
        let transaction = database.begin_read()?;
        for kind in RecordKind::ALL {
            let Some(table) = records(&transaction, kind)? else { continue };
            for row in table.iter()? {
                let (key, record) = row?;
                let id = (kind, Key::of_bytes(*key.value()));
                found.push((record::stamp(record.value()), size_of(record.value()), id));
            }
        }
        found.sort_unstable_by_key(|(stamp, ..)| *stamp);
        let mut sizes = self.sizes.lock();
        for (_, size, id) in found {
            sizes.set(id, Some(size));
        }
        Ok(())
    }

    /// Compacts the file if it is too large, as it may be after `cache.disk` was made smaller.
    fn compact(&mut self) {
        let before = self.file.size();
        if before <= self.limits.file {
            return;
        }
        self.compacted = Some(Instant::now());
        if let Err(error) = self.file.compact() {
            self.trouble(&error);
        }
        tracing::info!(
            before,
            after = self.file.size(),
            most = self.limits.file,
            "the file of last good answers was compacted"
        );
    }

    /// Carries out `batch` and answers those who wait for it. Returns whether all of it is written or marked as lost.
    fn carry_out(&mut self, batch: Vec<Order>, plan: Plan) -> bool {
        for order in &batch {
            if let Order::Used(key) = order {
                self.sizes.lock().used(*key);
            }
        }
        let mut is_done = true;
        let mut expired = Vec::new();
        let has_changes = batch.iter().any(|order| matches!(order, Order::Change(_) | Order::Expire(..)));
        if has_changes || !plan.victims.is_empty() {
            let file = Arc::clone(&self.file);
            let mut plan = Some(plan);
            let written =
                file.with(|database| self.commit_plan(database, &batch, &mut expired, plan.take().unwrap_or_default()));
            if let Err(error) = written {
                // The file was not even open.
                if let Some(plan) = plan {
                    self.sizes.lock().take_back(plan);
                }
                is_done = self.lose(&batch);
                self.trouble(&error);
            }
        }
        for (reply, keys) in expired {
            let _ = reply.send(keys);
        }
        for order in batch {
            if let Order::Flush(reply) = order {
                let _ = reply.send(());
            }
        }
        is_done
    }

    /// Writes `batch`, and removes the records that leave by `plan`.
    fn commit_plan(
        &self,
        database: &Database,
        batch: &[Order],
        expired: &mut Vec<Expired>,
        plan: Plan,
    ) -> Result<(), redb::Error> {
        let written = self.write(database, batch, expired, &plan.victims);
        match &written {
            Ok(()) => {
                let answers = batch.iter().filter_map(Order::change);
                let answers = answers.filter(|change| change.kind == RecordKind::Answer && change.record.is_some());
                self.metrics.writes.inc_by(answers.count() as u64);
                self.metrics.lost.inc_by(plan.victims.len() as u64);
            }
            Err(_) => self.sizes.lock().take_back(plan),
        }
        written
    }

    fn write(
        &self,
        database: &Database,
        batch: &[Order],
        expired: &mut Vec<Expired>,
        victims: &[Id],
    ) -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        for kind in RecordKind::ALL {
            let mut table = transaction.open_table(kind.table())?;
            for order in batch {
                match order {
                    Order::Change(Change { kind: of, key, record, .. }) if *of == kind => match record {
                        Some(record) => _ = table.insert(key.as_bytes(), record.as_slice())?,
                        None => _ = table.remove(key.as_bytes())?,
                    },
                    Order::Expire(selectors, reply) if kind == RecordKind::Answer => {
                        expired.push((reply.clone(), expire(&transaction, &mut table, selectors)?));
                    }
                    Order::Change(_) | Order::Expire(..) | Order::Used(_) | Order::Flush(_) => {}
                }
            }
        }
        self.evict(&transaction, victims)?;
        // After an expiry the file has another first chunk than the one that counts as known. Both stay until the next change.
        let has_expired = batch.iter().any(|order| matches!(order, Order::Expire(..)));
        let records = changed(batch).filter(|(kind, _)| *kind != RecordKind::Chunk && !has_expired);
        long::sweep(&transaction, &records.chain(victims.iter().copied()).collect())?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(STAMP, self.marks.last())?;
            meta.insert(FORM, OWN_FORM)?;
        }
        // The mark must be on disk before the record is removed.
        self.marks.sync().map_err(redb::Error::Io)?;
        transaction.commit()?;
        Ok(())
    }

    /// Removes evicted records, and marks them as lost.
    fn evict(&self, transaction: &WriteTransaction, victims: &[Id]) -> Result<(), redb::Error> {
        for kind in RecordKind::ALL {
            let mut table = transaction.open_table(kind.table())?;
            for (_, key) in victims.iter().filter(|(of, _)| *of == kind) {
                if kind.has_marks() {
                    self.marks.set(kind, key, false).map_err(redb::Error::Io)?;
                }
                table.remove(key.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Marks the changes of `batch` as lost. Returns whether the marks are written.
    fn lose(&self, batch: &[Order]) -> bool {
        self.chunks.forget_all();
        let lost: Vec<Id> = changed(batch).filter(|(kind, _)| kind.has_marks()).collect();
        self.metrics.lost.inc_by(lost.len() as u64);
        self.marks.set_all(&lost).and_then(|()| self.marks.sync()).is_ok()
    }

    /// Logs the error, at most once a minute, and opens the file again, so that later changes may be written.
    fn trouble(&self, error: &redb::Error) {
        self.metrics.errors.inc();
        let reopened = self.file.reopen();
        if !self.throttle.is_due() {
            return;
        }
        tracing::error!(%error, "the last good answers cannot be kept on disk; they stay in memory");
        if let Err(why) = reopened {
            tracing::error!(%why, "the file of last good answers cannot be opened again");
        }
    }
}

/// Drops the baselines of lineages that no caller used in the 90 days before `last`, a stamp in milliseconds. A baseline is rewritten
/// with each accepted answer. The clock is not used, because it may be wrong at a start, and the gateway may have been off for long.
fn drop_unused(database: &Database, last: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    let mut baselines = transaction.open_table(RecordKind::Baseline.table())?;
    baselines.retain(|_, record| record::stamp(record).is_none_or(|stamp| stamp.saturating_add(UNUSED) >= last))?;
    drop(baselines);
    transaction.commit()?;
    Ok(())
}

/// An expired record keeps its age: only its head changes.
fn expire(
    transaction: &WriteTransaction,
    answers: &mut Records<'_>,
    selectors: &[Selector],
) -> Result<Vec<(Key, Question)>, redb::Error> {
    let mut expired = Vec::new();
    {
        let chunks = transaction.open_table(RecordKind::Chunk.table())?;
        for row in answers.iter()? {
            let (key, record) = row?;
            let key = Key::of_bytes(*key.value());
            let Some(record) = long::whole((RecordKind::Answer, key), record.value(), Some(&chunks))? else { continue };
            let Some((stamp, head, body)) = open::<Head>(&record) else { continue };
            let question = head.question.clone();
            if selectors.iter().any(|selector| selector.selects(&question))
                && let Some(draft) = draft(&Head { is_over: true, ..head }, body)
            {
                expired.push((key, question, draft, stamp));
            }
        }
    }
    for (key, _, draft, stamp) in &mut expired {
        let record = long::rewrite(transaction, (RecordKind::Answer, *key), std::mem::take(draft), *stamp)?;
        answers.insert(key.as_bytes(), record.as_slice())?;
    }
    Ok(expired.into_iter().map(|(key, question, ..)| (key, question)).collect())
}
