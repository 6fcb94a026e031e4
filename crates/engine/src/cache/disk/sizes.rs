//! The sizes of the records in the file, and the choice of those to evict when the limit is reached. Routes share the limit ([`Shares`]).
//!
//! Answers are evicted before baselines, unless the baselines use more than a third of the limit: without an answer the source is called again,
//! and without a baseline the next answer is held. Held answers stay: the guard bounds them ([`super::Disk::held_limit`]).

use crate::cache::{
    Key, RouteId, Shares, Usage,
    disk::{
        kind::{Change, RecordKind},
        record,
    },
    shares::OfRoute,
};

const MIB: u64 = 1024 * 1024;
/// The database stores records in pages of this size, and a large one in a row of 2, 4, 8, … pages.
const PAGE: u64 = 4096;
/// The size of a record's key, and of the database's own notes about it, in bytes.
const BESIDE: u64 = 32 + 24;

/// The parts of `cache.disk`.
///
/// The database writes a changed page to another place, and doubles its file when that is full. So its records get less than half of
/// `cache.disk`, and the file seldom has to be compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// The limit of all records together, by their [`stored_size`].
    pub records: u64,
    /// How large the database's file may get before it is compacted.
    pub file: u64,
    /// How many bytes may wait in each segment of the journal.
    pub journal: u64,
}

impl Limits {
    /// The limits for files that take about `disk` bytes together.
    pub(super) fn of(disk: u64) -> Self {
        Self { records: disk / 8 * 3, file: (disk / 8 * 7).max(4 * MIB), journal: (disk / 16).clamp(MIB / 16, 8 * MIB) }
    }
}

/// A record in the file.
pub(super) type Id = (RecordKind, Key);

impl OfRoute for Id {
    fn route(&self) -> RouteId {
        self.1.route()
    }
}

/// The stored records.
pub(super) struct Sizes {
    max: u64,
    /// The answers, and their requesters.
    answers: Shares<Id, ()>,
    baselines: Shares<Id, ()>,
    /// The held answers, which only reduce the share of the answers.
    held: Shares<Id, ()>,
}

/// The planned changes of the records, which can be undone.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The records that have to leave.
    pub(super) victims: Vec<Id>,
    /// The earlier size of each changed record.
    before: Vec<(Id, Option<u64>)>,
}

impl Sizes {
    /// Sizes with this limit of all records together, by their [`stored_size`].
    pub(super) fn new(max: u64) -> Self {
        Self { max, answers: Shares::new(max), baselines: Shares::new(max / 3), held: Shares::new(u64::MAX) }
    }

    /// Makes changes, and then evicts records while the limit is exceeded.
    pub(super) fn change<'a>(&mut self, changes: impl Iterator<Item = &'a Change>) -> Plan {
        let mut plan = Plan::default();
        for change in changes {
            let id = (change.kind, change.key);
            let before = self.of_kind(change.kind).and_then(|shares| shares.weight_of(&id));
            plan.before.push((id, before));
            self.set(id, change.record.as_deref().map(size_of));
        }
        self.evict(&mut plan);
        plan
    }

    /// Evicts records while the limit is exceeded.
    pub(super) fn evict(&mut self, plan: &mut Plan) {
        self.evict_some(true, plan);
        self.answers.resize(self.max.saturating_sub(self.held.weight() + self.baselines.weight()));
        self.evict_some(false, plan);
    }

    fn evict_some(&mut self, of_baselines: bool, plan: &mut Plan) {
        let shares = if of_baselines { &mut self.baselines } else { &mut self.answers };
        loop {
            let Some(next) = shares.following() else { return };
            plan.before.push((next, shares.weight_of(&next)));
            plan.victims.push(next);
            shares.leave(&next);
        }
    }

    /// Undoes the changes of `plan`, because they could not be written.
    pub(super) fn take_back(&mut self, plan: Plan) {
        for (id, size) in plan.before.into_iter().rev() {
            self.set(id, size);
        }
    }

    /// Notes the size of a record, or that it is gone. It counts as used.
    pub(super) fn set(&mut self, id: Id, size: Option<u64>) {
        let Some(shares) = self.of_kind(id.0) else { return };
        match size {
            Some(size) => _ = shares.put(id, (), size),
            None => _ = shares.remove(&id),
        }
    }

    /// The records of one kind. `None` for the single record about a shared store, and for chunks, which count with their records.
    fn of_kind(&mut self, kind: RecordKind) -> Option<&mut Shares<Id, ()>> {
        match kind {
            RecordKind::Answer | RecordKind::Requesters => Some(&mut self.answers),
            RecordKind::Baseline => Some(&mut self.baselines),
            RecordKind::Held => Some(&mut self.held),
            RecordKind::Copy | RecordKind::Chunk => None,
        }
    }

    /// The answer under `key` was used, and with it the baseline.
    pub(super) fn used(&mut self, key: Key) {
        self.answers.get(&(RecordKind::Answer, key));
        self.baselines.get(&(RecordKind::Baseline, key));
    }

    /// How much the records of `route` take in the file, and how much they may take before some of them leave.
    pub(super) fn usage(&self, route: RouteId) -> (Usage, u64) {
        let all = [&self.answers, &self.baselines, &self.held].map(|shares| shares.usage(route));
        let usage = Usage {
            records: all.iter().map(|of| of.records).sum(),
            weight: all.iter().map(|of| of.weight).sum(),
            left: all.iter().map(|of| of.left).sum(),
        };
        let [_, baselines, held] = all;
        (usage, self.answers.share(route) + baselines.weight + held.weight)
    }
}

/// About how many bytes the record uses in the database, with its chunks.
pub(super) fn size_of(record: &[u8]) -> u64 {
    let chunks = record::index(record).map_or(0, |(_, index)| {
        // A chunk has a row of pages of its own, of which usually a third is empty.
        index.length + index.length / 2 + BESIDE * index.ids.len() as u64
    });
    stored_size(record.len()) + chunks
}

/// About how many bytes a record of `length` bytes uses in the database. Pages with small records are two thirds full.
fn stored_size(length: usize) -> u64 {
    let size = length as u64 + BESIDE;
    if size > PAGE / 3 { size.div_ceil(PAGE).next_power_of_two() * PAGE } else { size + size / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: RecordKind, route: u8, number: u16) -> Id {
        let mut bytes = [route; 32];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        (kind, Key::of_bytes(bytes))
    }

    fn change(kind: RecordKind, route: u8, number: u16, length: Option<usize>) -> Change {
        let (kind, key) = id(kind, route, number);
        Change { kind, key, stamp: 1, record: length.map(|length| vec![0; length]) }
    }

    fn numbers(plan: &Plan) -> Vec<u8> {
        plan.victims.iter().map(|(_, key)| key.as_bytes()[0]).collect()
    }

    /// A record of this length takes one page.
    const ONE: usize = 2000;

    #[test]
    fn those_of_use_least_recently_leave_first_and_come_back_if_that_cannot_be_written() {
        let a = RecordKind::Answer;
        let mut sizes = Sizes::new(4 * PAGE);
        let puts: Vec<Change> = (1..=4).map(|n| change(a, 1, n, Some(ONE))).collect();
        assert!(sizes.change(puts.iter()).victims.is_empty());
        sizes.used(id(a, 1, 1).1);
        let plan = sizes.change([change(a, 1, 5, Some(ONE)), change(a, 1, 6, Some(ONE))].iter());
        assert_eq!(numbers(&plan), [2, 3]);
        sizes.take_back(plan);
        assert_eq!(sizes.usage(id(a, 1, 1).1.route()).0, Usage { records: 4, weight: 4 * PAGE, left: 2 });
        // A record that is written again replaces the earlier one, and a removed one frees its size.
        assert!(numbers(&sizes.change([change(a, 1, 2, Some(ONE))].iter())).is_empty());
        let changes = [change(a, 1, 3, None), change(a, 1, 7, Some(ONE))];
        assert!(numbers(&sizes.change(changes.iter())).is_empty());
        // A batch above the limit by itself.
        let batch: Vec<Change> = (20..30).map(|n| change(a, 1, n, Some(ONE))).collect();
        assert_eq!(numbers(&sizes.change(batch.iter()))[4..], [20, 21, 22, 23, 24, 25]);
    }

    #[test]
    fn baselines_leave_once_they_take_a_third_and_held_answers_never() {
        let (a, b, h) = (RecordKind::Answer, RecordKind::Baseline, RecordKind::Held);
        let mut sizes = Sizes::new(9 * PAGE);
        for n in 0..20 {
            let plan = sizes.change([change(a, 1, n, Some(ONE)), change(b, 1, n, Some(ONE))].iter());
            assert!(plan.victims.iter().all(|(kind, _)| *kind == a || n >= 3), "{n}: {plan:?}");
        }
        let route = id(a, 1, 0).1.route();
        let left = |sizes: &Sizes| (sizes.answers.usage(route).records, sizes.baselines.usage(route).records);
        assert_eq!(left(&sizes), (6, 3));
        for n in 0..5 {
            sizes.change([change(h, 2, n, Some(ONE))].iter());
        }
        assert_eq!((left(&sizes), sizes.held.weight()), ((1, 3), 5 * PAGE));
        sizes.change([change(h, 2, 0, None)].iter());
        assert_eq!(sizes.held.weight(), 4 * PAGE);
    }

    #[test]
    fn a_route_does_not_push_out_the_records_of_another() {
        let (a, b) = (RecordKind::Answer, RecordKind::Baseline);
        let mut sizes = Sizes::new(30 * PAGE);
        let both = |route, n| [change(a, route, n, Some(ONE)), change(b, route, n, Some(ONE))];
        (0..5).for_each(|n| assert!(sizes.change(both(1, n).iter()).victims.is_empty()));
        let mine = id(a, 1, 0).1.route();
        for n in 0..1000 {
            assert!(sizes.change(both(2, n).iter()).victims.iter().all(|(_, key)| key.route() != mine), "{n}");
        }
        assert_eq!(sizes.usage(mine).0.records, 10);
    }

    #[test]
    fn all_files_fit() {
        for disk in [0, MIB, 64 * MIB, 256 * MIB, 10_000 * MIB] {
            let Limits { records, file, journal } = Limits::of(disk);
            assert!(records <= file / 2 && file + 2 * journal + MIB <= disk + 8 * MIB, "{disk}");
        }
        assert_eq!(
            [stored_size(100), stored_size(2000), stored_size(5000), stored_size(9000)],
            [234, PAGE, 2 * PAGE, 4 * PAGE]
        );
    }
}
