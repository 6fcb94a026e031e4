//! The thread that writes to the database, so that no answer waits for it.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender},
};

use parking_lot::Mutex;
use redb::{Database, ReadableTable, Table, WriteTransaction};

use super::{
    file::File,
    journal::Journal,
    kind::{Change, RecordKind},
    marks::Marks,
    record::{self, Head, draft, open, seal},
    records,
    sizes::Sizes,
    start::{META, STAMP},
    throttle::Throttle,
};
use crate::{
    domain::generator::{Question, Selector},
    engine::cache::Key,
    telemetry::metrics::DiskMetrics,
};

/// How long a baseline is kept without use, in milliseconds.
const UNUSED: u64 = 90 * 24 * 60 * 60 * 1000;

/// An order to the writer.
#[derive(Debug)]
pub(super) enum Order {
    /// Make a change, which is in the journal already.
    Change(Change),
    /// The answer was read, so it is not evicted next.
    Used(Key),
    /// No selected answer may be served before its backend was asked. Sends back which answers those are.
    Expire(Selector, SyncSender<Vec<(Key, Question)>>),
    /// Answer when all earlier orders are written.
    Flush(SyncSender<()>),
}

type Records<'a> = Table<'a, &'static [u8; 32], &'static [u8]>;
type Expired = (SyncSender<Vec<(Key, Question)>>, Vec<(Key, Question)>);

/// The writer.
pub(super) struct Writer {
    pub(crate) file: Arc<File>,
    pub(crate) journal: Arc<Mutex<Journal>>,
    pub(crate) marks: Arc<Marks>,
    /// The latest stamp that an earlier process gave.
    pub(crate) last: u64,
    /// About how many bytes of answers are kept.
    pub(crate) max_bytes: u64,
    pub(crate) metrics: DiskMetrics,
    pub(crate) sizes: Sizes,
    pub(crate) throttle: Throttle,
}

impl Writer {
    /// Carries out orders, all that wait in one transaction, until no sender is left.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let file = Arc::clone(&self.file);
        let ready = file.with(|database| self.count(database).and_then(|()| drop_unused(database, self.last)));
        if let Err(error) = ready {
            self.trouble(&error);
        }
        let segments = self.journal.lock().segments();
        while let Ok(first) = orders.recv() {
            let (batch, full) = {
                // A sender that appends to the journal sends its order before it releases the lock, so that all changes of the segment
                // are in this batch or in an earlier one.
                let mut journal = self.journal.lock();
                let batch: Vec<Order> = std::iter::once(first).chain(orders.try_iter()).collect();
                (batch, journal.switch())
            };
            if self.carry_out(batch)
                && let Some(full) = full
                && let Err(error) = segments[full].set_len(0)
            {
                self.trouble(&error.into());
            }
        }
    }

    /// Reads the sizes of the records in an existing file.
    fn count(&mut self, database: &Database) -> Result<(), redb::Error> {
        let Some(table) = records(database, RecordKind::Answer)? else { return Ok(()) };
        let mut found = Vec::new();
        for row in table.iter()? {
            let (key, record) = row?;
            found.push((record::stamp(record.value()), *key.value(), record.value().len() as u64));
        }
        found.sort_unstable();
        for (_, key, size) in found {
            self.sizes.note(key, size);
        }
        Ok(())
    }

    /// Carries out `batch` and answers those who wait for it. Returns whether all of it is written or marked as lost.
    fn carry_out(&mut self, batch: Vec<Order>) -> bool {
        for order in &batch {
            if let Order::Used(key) = order {
                self.sizes.used(*key.as_bytes());
            }
        }
        let mut is_settled = true;
        let mut expired = Vec::new();
        if batch.iter().any(|order| matches!(order, Order::Change(_) | Order::Expire(..))) {
            let file = Arc::clone(&self.file);
            if let Err(error) = file.with(|database| self.commit(database, &batch, &mut expired)) {
                is_settled = self.lose(&batch);
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
        is_settled
    }

    fn commit(&mut self, database: &Database, batch: &[Order], expired: &mut Vec<Expired>) -> Result<(), redb::Error> {
        let puts: Vec<([u8; 32], u64)> = batch.iter().filter_map(answer).collect();
        let victims = self.sizes.victims(&puts, self.max_bytes);
        let transaction = database.begin_write()?;
        for kind in RecordKind::ALL {
            let mut table = transaction.open_table(kind.table())?;
            for order in batch {
                match order {
                    Order::Change(Change { kind: of, key, record, .. }) if *of == kind => match record {
                        Some(record) => _ = table.insert(key.as_bytes(), record.as_slice())?,
                        None => _ = table.remove(key.as_bytes())?,
                    },
                    Order::Expire(selector, reply) if kind == RecordKind::Answer => {
                        expired.push((reply.clone(), expire(&mut table, selector)?));
                    }
                    Order::Change(_) | Order::Expire(..) | Order::Used(_) | Order::Flush(_) => {}
                }
            }
        }
        self.evict(&transaction, &victims)?;
        transaction.open_table(META)?.insert(STAMP, self.marks.last())?;
        // The mark must be on disk before the record is removed.
        self.marks.sync().map_err(redb::Error::Io)?;
        transaction.commit()?;
        for (key, size) in &puts {
            self.sizes.note(*key, *size);
        }
        for key in &victims {
            self.sizes.forget(key);
        }
        self.metrics.writes.inc_by(puts.len() as u64);
        Ok(())
    }

    /// Removes the answers for which there is no room, and marks them as lost.
    fn evict(&self, transaction: &WriteTransaction, victims: &[[u8; 32]]) -> Result<(), redb::Error> {
        let mut answers = transaction.open_table(RecordKind::Answer.table())?;
        for key in victims {
            self.marks.set(RecordKind::Answer, &Key::of_bytes(*key), false).map_err(redb::Error::Io)?;
            answers.remove(key)?;
        }
        self.metrics.lost.inc_by(victims.len() as u64);
        Ok(())
    }

    /// Marks the changes of `batch` as lost. Returns whether the marks are written.
    fn lose(&self, batch: &[Order]) -> bool {
        let changed = batch.iter().filter_map(|order| match order {
            Order::Change(change) => Some((change.kind, change.key)),
            Order::Used(_) | Order::Expire(..) | Order::Flush(_) => None,
        });
        let changed: Vec<(RecordKind, Key)> = changed.collect();
        self.metrics.lost.inc_by(changed.len() as u64);
        self.marks.set_all(&changed).and_then(|()| self.marks.sync()).is_ok()
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
            tracing::error!(why, "the file of last good answers cannot be opened again");
        }
    }
}

/// Drops the baselines of lineages that were not asked for in the 90 days before `last`, a stamp in milliseconds. A baseline is written anew
/// with each accepted answer. The clock is not used, because it may be wrong at a start, and the gateway may have been off for long.
fn drop_unused(database: &Database, last: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    let mut baselines = transaction.open_table(RecordKind::Baseline.table())?;
    baselines.retain(|_, record| record::stamp(record).is_none_or(|stamp| stamp.saturating_add(UNUSED) >= last))?;
    drop(baselines);
    transaction.commit()?;
    Ok(())
}

/// The key and the size of the answer to keep.
fn answer(order: &Order) -> Option<([u8; 32], u64)> {
    match order {
        Order::Change(Change { kind: RecordKind::Answer, key, record: Some(record), .. }) => {
            Some((*key.as_bytes(), record.len() as u64))
        }
        _ => None,
    }
}

/// An expired record keeps its age: only its head changes.
fn expire(answers: &mut Records<'_>, selector: &Selector) -> Result<Vec<(Key, Question)>, redb::Error> {
    let mut expired = Vec::new();
    for row in answers.iter()? {
        let (key, record) = row?;
        let Some((stamp, head, body)) = open::<Head>(record.value()) else { continue };
        let question = head.question.clone();
        if selector.selects(&question)
            && let Some(mut record) = draft(&Head { is_over: true, ..head }, body)
        {
            seal(&mut record, stamp);
            expired.push((Key::of_bytes(*key.value()), question, record));
        }
    }
    for (key, _, record) in &expired {
        answers.insert(key.as_bytes(), record.as_slice())?;
    }
    Ok(expired.into_iter().map(|(key, question, _)| (key, question)).collect())
}
