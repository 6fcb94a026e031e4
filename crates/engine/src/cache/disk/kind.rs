//! The kinds of records, and a change to one of them.

use redb::TableDefinition;

use crate::cache::{Key, disk::record};

/// A table: the key is a question's or a lineage's [`Key`], the value a [`record`].
pub(super) type Records = TableDefinition<'static, &'static [u8; 32], &'static [u8]>;

/// The subject of a record. Each kind has a table of its own. A new kind needs a variant, a row in each function here,
/// its rank in an eviction ([`super::sizes`]), and nothing in the journal, the marks of loss or the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RecordKind {
    /// The last good answer to a question or of a lineage.
    Answer,
    /// The held answer of a lineage.
    Held,
    /// The baseline of a lineage.
    Baseline,
    /// How much of a shared store the file holds. It has one key.
    Copy,
    /// The requesters of a question, and the answer that each was served.
    Requesters,
    /// A chunk of a long record of any other kind ([`super::long`]).
    Chunk,
}

impl RecordKind {
    /// All of them: chunks come before the records that need them.
    pub(super) const ALL: [Self; 6] =
        [Self::Chunk, Self::Answer, Self::Held, Self::Baseline, Self::Copy, Self::Requesters];

    /// Its table.
    pub(super) const fn table(self) -> Records {
        match self {
            Self::Answer => TableDefinition::new("answers"),
            Self::Held => TableDefinition::new("held"),
            Self::Baseline => TableDefinition::new("baselines"),
            Self::Copy => TableDefinition::new("copy"),
            Self::Requesters => TableDefinition::new("askers"),
            Self::Chunk => TableDefinition::new("chunks"),
        }
    }

    /// Its number in the journal and in marks. Never 0, and never reused for another kind.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Answer => 1,
            Self::Held => 2,
            Self::Baseline => 3,
            Self::Copy => 4,
            Self::Requesters => 5,
            Self::Chunk => 6,
        }
    }

    /// Whether a mark says that such a record is lost. Nothing depends on requesters, and a record whose chunks are missing cannot be read.
    pub(super) const fn has_marks(self) -> bool {
        !matches!(self, Self::Requesters | Self::Chunk)
    }

    /// The kind with this number.
    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// A change: a record to store under a key, or the removal of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub kind: RecordKind,
    pub key: Key,
    /// When it was made, see [`super::marks::Marks::next`].
    pub stamp: u64,
    /// The sealed record; `None` removes.
    pub record: Option<Vec<u8>>,
}

impl Change {
    /// With the draft of a record, which is sealed with `stamp`.
    pub(super) fn new(kind: RecordKind, key: Key, draft: Option<Vec<u8>>, stamp: u64) -> Self {
        let mut change = Self { kind, key, stamp, record: draft };
        change.renew(stamp);
        change
    }

    /// Gives it a later stamp.
    pub(super) fn renew(&mut self, stamp: u64) {
        self.stamp = stamp;
        if let Some(record) = &mut self.record {
            record::seal(record, stamp);
        }
    }
}
