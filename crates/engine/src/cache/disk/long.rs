//! Long records, such as an answer with thousands of parameter sets: they are stored in chunks ([`chunks`]), so that a change of one set
//! writes the chunk with it, not all sets. The record has an index in the place of its content. Its chunks are records of a kind of their
//! own, whose keys begin alike, and they leave with it.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use chunks::{ChunkId, Cut, MIN_LENGTH};
use parking_lot::Mutex;
use redb::{Database, ReadableTable, ReadableTableMetadata, WriteTransaction};
use serde::de::IgnoredAny;

use crate::cache::{
    Key,
    disk::{
        kind::RecordKind,
        record::{self, draft, draft_of_index, drafted},
        sizes::Id,
    },
};

/// How many bytes at the beginning of a chunk's key are those of its record.
const OWNER: usize = 12;

/// Which chunks of which long records are in the file, or on their way into it: once all that is queued is written, the file has at least these.
/// To forget some is always right, as they are then written again.
#[derive(Debug, Default)]
pub(super) struct KnownChunks(Mutex<HashMap<Id, HashSet<ChunkId>>>);

/// What is written for a record: its new chunks, and the draft of the record itself.
#[derive(Debug)]
pub(super) struct Drafts {
    pub chunks: Vec<(Key, Vec<u8>)>,
    pub record: Option<Vec<u8>>,
}

impl Drafts {
    /// How long all of it is, in bytes.
    pub(super) fn length(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|(_, draft)| draft.len()).sum();
        chunks + self.record.as_ref().map_or(0, Vec::len)
    }
}

/// The cut of the content of a draft, if it is long.
pub(super) fn cut(draft: &[u8]) -> Option<Cut> {
    (draft.len() >= MIN_LENGTH).then(|| Cut::of(drafted(draft)))
}

impl KnownChunks {
    /// What must be written so that the record `id` has the content of `whole`, of which this is the [`cut`]. The chunks then count as being in the file.
    pub(super) fn drafts(&self, id: Id, whole: Option<Vec<u8>>, cut: Option<Cut>) -> Drafts {
        let (Some(long), Some(cut)) = (&whole, cut) else {
            self.forget(&id);
            return Drafts { chunks: Vec::new(), record: whole };
        };
        let content = drafted(long);
        let ids = cut.chunks.iter().map(|(chunk, _)| *chunk).collect();
        let mut there = self.0.lock().insert(id, ids).unwrap_or_default();
        let new = cut.chunks.iter().filter(|(chunk, _)| there.insert(*chunk));
        let chunks = new.filter_map(|(chunk, range)| Some((key_of(id, *chunk), draft(&(), &content[range.clone()])?)));
        Drafts { chunks: chunks.collect(), record: Some(draft_of_index(&cut.index())) }
    }

    /// Counts no chunk of the record `id` as being in the file.
    pub(super) fn forget(&self, id: &Id) {
        self.0.lock().remove(id);
    }

    /// The same for all records.
    pub(super) fn forget_all(&self) {
        self.0.lock().clear();
    }
}

/// The key of a chunk of the record `id`.
fn key_of((kind, key): Id, chunk: ChunkId) -> Key {
    let mut bytes = *key.as_bytes();
    bytes[0] ^= kind.number();
    bytes[OWNER..OWNER + ChunkId::LENGTH].copy_from_slice(chunk.as_bytes());
    Key::of_bytes(bytes)
}

/// The chunk of which this is the key.
fn chunk_of(key: &[u8; 32]) -> ChunkId {
    let mut id = [0; ChunkId::LENGTH];
    id.copy_from_slice(&key[OWNER..OWNER + ChunkId::LENGTH]);
    ChunkId::of_bytes(id)
}

/// The record `id`, of which the file has `record`: itself, or made of its `chunks`. `None` if some of these are missing.
pub(super) fn whole<'r>(
    id: Id,
    record: &'r [u8],
    chunks: Option<&impl ReadableTable<&'static [u8; 32], &'static [u8]>>,
) -> Result<Option<Cow<'r, [u8]>>, redb::Error> {
    let Some((stamp, index)) = record::index(record) else { return Ok(Some(Cow::Borrowed(record))) };
    let Some(table) = chunks else { return Ok(None) };
    let mut found = HashMap::new();
    for chunk in &index.ids {
        if let Some(record) = table.get(key_of(id, *chunk).as_bytes())?
            && let Some((_, _, bytes)) = record::open::<IgnoredAny>(record.value())
        {
            found.insert(*chunk, bytes.to_vec());
        }
    }
    Ok(index.join(&found).map(|content| Cow::Owned(record::of_content(stamp, &content))))
}

/// Writes `draft` in the place of the record `id`, with the same stamp. Returns the record. Chunks that it does not need any more stay until
/// its next change.
pub(super) fn rewrite(
    transaction: &WriteTransaction,
    id: Id,
    mut draft: Vec<u8>,
    stamp: u64,
) -> Result<Vec<u8>, redb::Error> {
    if let Some(cut) = cut(&draft) {
        let Drafts { chunks, record } = KnownChunks::default().drafts(id, Some(draft), Some(cut));
        let mut table = transaction.open_table(RecordKind::Chunk.table())?;
        for (key, mut chunk) in chunks {
            record::seal(&mut chunk, stamp);
            table.insert(key.as_bytes(), chunk.as_slice())?;
        }
        draft = record.unwrap_or_default();
    }
    record::seal(&mut draft, stamp);
    Ok(draft)
}

/// Removes the chunks that the `changed` records do not have any more.
pub(super) fn sweep(transaction: &WriteTransaction, changed: &BTreeSet<Id>) -> Result<(), redb::Error> {
    let mut chunks = transaction.open_table(RecordKind::Chunk.table())?;
    if chunks.is_empty()? {
        return Ok(());
    }
    for (kind, key) in changed {
        let own = transaction.open_table(kind.table())?;
        let index = own.get(key.as_bytes())?.and_then(|record| record::index(record.value()));
        let kept: HashSet<ChunkId> = index.map(|(_, index)| index.ids.into_iter().collect()).unwrap_or_default();
        let [first, last] = [0, u8::MAX].map(|byte| key_of((*kind, *key), ChunkId::of_bytes([byte; ChunkId::LENGTH])));
        chunks.retain_in::<&[u8; 32], _>(first.as_bytes()..=last.as_bytes(), |key, _| kept.contains(&chunk_of(key)))?;
    }
    Ok(())
}

/// Removes all chunks that no record has, such as those of a change that a kill interrupted.
pub(super) fn sweep_all(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut kept = HashSet::new();
        for kind in RecordKind::ALL {
            for row in transaction.open_table(kind.table())?.iter()? {
                let (key, record) = row?;
                let id = (kind, Key::of_bytes(*key.value()));
                let index = record::index(record.value()).map(|(_, index)| index.ids);
                kept.extend(index.into_iter().flatten().map(|chunk| key_of(id, chunk)));
            }
        }
        transaction.open_table(RecordKind::Chunk.table())?.retain(|key, _| kept.contains(&Key::of_bytes(*key)))?;
    }
    transaction.commit()?;
    Ok(())
}
