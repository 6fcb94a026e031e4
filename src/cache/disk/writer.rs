//! Who writes to the file: a thread of its own, off every answer's path.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use redb::{Database, ReadableTable, Table};

use super::{
    ANSWERS, BASELINES, HELD,
    file::File,
    record::{Head, open, seal},
    records,
};
use crate::{
    cache::Key,
    generator::{Question, Selector},
    telemetry::metrics::DiskMetrics,
};

/// How many orders are carried out in one transaction.
const BATCH: usize = 256;
/// How often trouble is told, which goes on.
const TOLD_EVERY: Duration = Duration::from_mins(1);

/// What the writer is told to do.
#[derive(Debug)]
pub enum Order {
    /// Keep the record of an answer.
    Put(Key, Vec<u8>),
    /// Keep the record of what is held, or forget it.
    Hold(Key, Option<Vec<u8>>),
    /// Keep the record of what the next answer is compared with.
    Baseline(Key, Vec<u8>),
    /// Somebody read it: it is not the one that leaves next.
    Used(Key),
    /// No answer that is selected may be served before its backend was asked; tells which those are.
    Expire(Selector, SyncSender<Vec<(Key, Question)>>),
    /// Somebody waits until all before it is written.
    Flush(SyncSender<()>),
}

/// Which records there are, by the time at which they were written or read last.
#[derive(Default)]
struct Sizes {
    by_key: HashMap<[u8; 32], (u64, u64)>,
    by_turn: BTreeMap<u64, [u8; 32]>,
    turn: u64,
    total: u64,
}

impl Sizes {
    fn note(&mut self, key: [u8; 32], size: u64) {
        self.forget(&key);
        self.turn += 1;
        self.by_key.insert(key, (self.turn, size));
        self.by_turn.insert(self.turn, key);
        self.total += size;
    }

    fn forget(&mut self, key: &[u8; 32]) {
        if let Some((turn, size)) = self.by_key.remove(key) {
            self.by_turn.remove(&turn);
            self.total -= size;
        }
    }

    fn used(&mut self, key: [u8; 32]) {
        if let Some((_, size)) = self.by_key.get(&key) {
            self.note(key, *size);
        }
    }

    fn oldest(&self) -> Option<[u8; 32]> {
        self.by_turn.values().next().copied()
    }
}

type Records<'a> = Table<'a, &'static [u8; 32], &'static [u8]>;

/// The one who writes.
pub struct Writer {
    file: Arc<File>,
    most: u64,
    metrics: DiskMetrics,
    sizes: Sizes,
    told_at: Option<Instant>,
}

/// What is told once all is written.
enum Reply {
    Expired(SyncSender<Vec<(Key, Question)>>, Vec<(Key, Question)>),
    Flushed(SyncSender<()>),
}

impl Writer {
    /// Keeps about `most` bytes in `file`.
    pub fn new(file: Arc<File>, most: u64, metrics: DiskMetrics) -> Self {
        Self { file, most, metrics, sizes: Sizes::default(), told_at: None }
    }

    /// Does what comes, several orders at once when several wait, until nobody is left to send.
    pub fn run(mut self, orders: &Receiver<Order>) {
        let file = Arc::clone(&self.file);
        if let Err(error) = file.with(|database| self.count(database)) {
            self.trouble(&error);
        }
        while let Ok(first) = orders.recv() {
            let batch: Vec<Order> = std::iter::once(first).chain(orders.try_iter().take(BATCH)).collect();
            let mut replies = Vec::new();
            if let Err(error) = file.with(|database| self.carry_out(database, batch, &mut replies)) {
                self.trouble(&error);
            }
            for reply in replies {
                match reply {
                    Reply::Expired(told, keys) => _ = told.send(keys),
                    Reply::Flushed(told) => _ = told.send(()),
                }
            }
        }
    }

    /// Takes stock of a file that was there before.
    fn count(&mut self, database: &Database) -> Result<(), redb::Error> {
        let Some(table) = records(database, ANSWERS)? else { return Ok(()) };
        let mut found = Vec::new();
        for row in table.iter()? {
            let (key, record) = row?;
            let stored_at = open::<Head>(record.value()).map(|(head, _)| head.stored_at);
            found.push((stored_at, *key.value(), record.value().len() as u64));
        }
        found.sort_unstable();
        for (_, key, size) in found {
            self.sizes.note(key, size);
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        database: &Database,
        batch: Vec<Order>,
        replies: &mut Vec<Reply>,
    ) -> Result<(), redb::Error> {
        let changes = |order: &Order| !matches!(order, Order::Used(_) | Order::Flush(_));
        if !batch.iter().any(changes) {
            for order in batch {
                match order {
                    Order::Used(key) => self.sizes.used(*key.as_bytes()),
                    Order::Flush(told) => replies.push(Reply::Flushed(told)),
                    Order::Put(..) | Order::Hold(..) | Order::Baseline(..) | Order::Expire(..) => {}
                }
            }
            return Ok(());
        }
        let mut puts = 0;
        let transaction = database.begin_write()?;
        {
            let (mut answers, mut held) = (transaction.open_table(ANSWERS)?, transaction.open_table(HELD)?);
            let mut baselines = transaction.open_table(BASELINES)?;
            for order in batch {
                match order {
                    Order::Put(key, record) => {
                        answers.insert(key.as_bytes(), record.as_slice())?;
                        self.sizes.note(*key.as_bytes(), record.len() as u64);
                        puts += 1;
                    }
                    Order::Hold(key, Some(record)) => _ = held.insert(key.as_bytes(), record.as_slice())?,
                    Order::Hold(key, None) => _ = held.remove(key.as_bytes())?,
                    Order::Baseline(key, record) => _ = baselines.insert(key.as_bytes(), record.as_slice())?,
                    Order::Used(key) => self.sizes.used(*key.as_bytes()),
                    Order::Expire(selector, told) => {
                        replies.push(Reply::Expired(told, expire(&mut answers, &selector)?));
                    }
                    Order::Flush(told) => replies.push(Reply::Flushed(told)),
                }
            }
            while self.sizes.total > self.most
                && let Some(oldest) = self.sizes.oldest()
            {
                answers.remove(&oldest)?;
                self.sizes.forget(&oldest);
            }
        }
        transaction.commit()?;
        self.metrics.writes.inc_by(puts);
        Ok(())
    }

    /// Tells it, at most once a minute, and opens the file again: what was to be written is lost to it, what comes need
    /// not be.
    fn trouble(&mut self, error: &redb::Error) {
        self.metrics.errors.inc();
        let reopened = self.file.reopen();
        if self.told_at.is_some_and(|told_at| told_at.elapsed() < TOLD_EVERY) {
            return;
        }
        self.told_at = Some(Instant::now());
        tracing::error!(%error, "the last good answers cannot be kept on disk; they stay in memory");
        if let Err(why) = reopened {
            tracing::error!(why, "the file of last good answers cannot be opened again");
        }
    }
}

fn expire(answers: &mut Records<'_>, selector: &Selector) -> Result<Vec<(Key, Question)>, redb::Error> {
    let mut expired = Vec::new();
    for row in answers.iter()? {
        let (key, record) = row?;
        let Some((head, body)) = open::<Head>(record.value()) else { continue };
        let question = head.question.clone();
        if selector.selects(&question)
            && let Some(record) = seal(&Head { is_over: true, ..head }, body)
        {
            expired.push((Key::of_bytes(*key.value()), question, record));
        }
    }
    for (key, _, record) in &expired {
        answers.insert(key.as_bytes(), record.as_slice())?;
    }
    Ok(expired.into_iter().map(|(key, question, _)| (key, question)).collect())
}
