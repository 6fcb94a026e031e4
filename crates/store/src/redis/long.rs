//! Long fields, such as an answer with thousands of parameter sets: the server has them in chunks, so that a change of one set sends and reads
//! the chunk with it. A chunk that is missing makes the field unreadable, as one that somebody removed.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use chunks::{ChunkId, Cut, Index, MIN_LENGTH};
use redis::ScriptInvocation;

use super::super::{Field, Record, RecordKey};
use domain::bounded_cache::Recent;

/// What a long field begins with, as in `common.lua`.
const MARK: &[u8] = b"\0chunks\0";
/// How many bytes of long fields are remembered, so that only changes are sent and read.
const MAX_REMEMBERED: usize = 64 * 1024 * 1024;

/// A field of a record.
type Place = (RecordKey, Field);

/// A content and its chunks.
#[derive(Debug)]
struct Long {
    content: Bytes,
    cut: Cut,
}

/// The long fields that the server had when this replica last wrote or read them.
pub(super) struct LongFields {
    known: Recent<Place, Arc<Long>>,
}

/// A field as the scripts read it.
pub(super) struct Argument {
    content: Option<Bytes>,
    chunks: Vec<(ChunkId, Bytes)>,
    /// To remember once the server has it.
    long: Option<Arc<Long>>,
}

/// A long field of a record that was read, whose content is to be made.
pub(super) struct Wanted {
    pub place: Place,
    /// `None`: it cannot be read.
    index: Option<Index>,
    /// What was known here when it was read.
    known: Option<Arc<Long>>,
    /// The chunks that are not known here.
    pub missing: Vec<ChunkId>,
}

impl Argument {
    /// Adds it to the arguments of `script`.
    pub(super) fn fill(&self, script: &mut ScriptInvocation<'_>) {
        let content = self.content.as_deref();
        script.arg(u8::from(content.is_some())).arg(content.unwrap_or_default()).arg(self.chunks.len());
        for (id, chunk) in &self.chunks {
            script.arg(&id.as_bytes()[..]).arg(&chunk[..]);
        }
    }
}

impl Long {
    fn of(content: &Bytes) -> Self {
        Self { content: content.clone(), cut: Cut::of(content) }
    }

    fn ids(&self) -> impl Iterator<Item = ChunkId> {
        self.cut.chunks.iter().map(|(id, _)| *id)
    }

    fn chunks(&self) -> impl Iterator<Item = (ChunkId, Bytes)> {
        self.cut.chunks.iter().map(|(id, range)| (*id, self.content.slice(range.clone())))
    }
}

impl Default for LongFields {
    fn default() -> Self {
        Self { known: Recent::weighed(MAX_REMEMBERED, |_, long| long.content.len()) }
    }
}

impl LongFields {
    /// The content of the field at `place` for a script, with its chunks: those that the server may lack, or `all`.
    pub(super) fn argument(&self, place: Place, content: Option<&Bytes>, all: bool) -> Argument {
        let long = content.filter(|content| content.len() >= MIN_LENGTH || content.starts_with(MARK));
        let Some(long) = long.map(|content| Arc::new(Long::of(content))) else {
            return Argument { content: content.cloned(), chunks: Vec::new(), long: None };
        };
        let known = self.known.get(&place).filter(|_| !all);
        let mut there: HashSet<ChunkId> = known.iter().flat_map(|known| known.ids()).collect();
        let chunks = long.chunks().filter(|(id, _)| there.insert(*id)).collect();
        let content = [MARK, &long.cut.index().to_bytes()].concat();
        Argument { content: Some(content.into()), chunks, long: Some(long) }
    }

    /// Remembers that the server has `argument` at `place`.
    pub(super) fn is_there(&self, place: Place, argument: Argument) {
        match argument.long {
            Some(long) => _ = self.known.insert(place, long),
            None => _ = self.known.remove(&place),
        }
    }

    /// The long fields of `records`, with what must be read for [`Self::complete`].
    pub(super) fn wanted(&self, records: &[(RecordKey, Record)]) -> Vec<Wanted> {
        let fields =
            records.iter().flat_map(|(key, record)| Field::ALL.map(|field| ((*key, field), record.get(field))));
        let wanted = |(place, content): (Place, Option<&Bytes>)| {
            let index = Index::parse(content?.strip_prefix(MARK)?);
            let known = self.known.get(&place);
            let mut there: HashSet<ChunkId> = known.iter().flat_map(|known| known.ids()).collect();
            let missing = index.iter().flat_map(|index| &index.ids).filter(|id| there.insert(**id)).copied().collect();
            Some(Wanted { place, index, known, missing })
        };
        fields.filter_map(wanted).collect()
    }

    /// Puts the contents of the `wanted` fields into `records`, made of what was known and of the chunks that were `found`. A field that cannot
    /// be made is unreadable. Returns whether there is none.
    pub(super) fn complete(
        &self,
        records: &mut [(RecordKey, Record)],
        wanted: Vec<Wanted>,
        mut found: HashMap<Place, HashMap<ChunkId, Bytes>>,
    ) -> bool {
        let mut is_complete = true;
        for Wanted { place, index, known, .. } in wanted {
            let mut chunks = found.remove(&place).unwrap_or_default();
            chunks.extend(known.iter().flat_map(|known| known.chunks()));
            let content = index.and_then(|index| index.join(&chunks)).map(Bytes::from);
            is_complete &= content.is_some();
            match &content {
                Some(content) => _ = self.known.insert(place, Arc::new(Long::of(content))),
                None => _ = self.known.remove(&place),
            }
            for (_, record) in records.iter_mut().filter(|(key, _)| *key == place.0) {
                record.set(place.1, Some(content.clone().unwrap_or_default()));
            }
        }
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = ([1; 32], Field::Answer);

    fn long(changed: usize) -> Bytes {
        let lines =
            (0..4000_usize).map(|n| format!("{} {n}\n", (n + usize::from(n == changed)).wrapping_mul(2_654_435_761)));
        lines.collect::<String>().into()
    }

    fn sent(argument: &Argument) -> usize {
        argument.chunks.iter().map(|(_, chunk)| chunk.len()).sum()
    }

    #[test]
    fn only_changes_are_sent_and_read() {
        let (writer, reader) = (LongFields::default(), LongFields::default());
        let first = writer.argument(PLACE, Some(&long(1)), false);
        assert_eq!(sent(&first), long(1).len());
        let chunks = first.chunks.iter().cloned().collect();
        let record = |argument: &Argument| {
            let mut record = Record::new(1);
            record.set(Field::Answer, argument.content.clone());
            vec![(PLACE.0, record)]
        };
        let mut records = record(&first);
        let wanted = reader.wanted(&records);
        assert_eq!(wanted[0].missing.len(), first.chunks.len());
        assert!(reader.complete(&mut records, wanted, HashMap::from([(PLACE, chunks)])));
        assert_eq!(records[0].1.get(Field::Answer), Some(&long(1)));
        writer.is_there(PLACE, first);

        let second = writer.argument(PLACE, Some(&long(2000)), false);
        assert!((1..=4).contains(&second.chunks.len()), "{}", second.chunks.len());
        assert_eq!(sent(&writer.argument(PLACE, Some(&long(2000)), true)), long(2000).len());
        let mut records = record(&second);
        let wanted = reader.wanted(&records);
        assert_eq!(wanted[0].missing, second.chunks.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        // Without them, it is unreadable.
        assert!(!reader.complete(&mut records.clone(), wanted, HashMap::new()));
        let wanted = reader.wanted(&records);
        let chunks = writer.argument(PLACE, Some(&long(2000)), true).chunks.into_iter().collect();
        assert!(reader.complete(&mut records, wanted, HashMap::from([(PLACE, chunks)])));
        assert_eq!(records[0].1.get(Field::Answer), Some(&long(2000)));
    }

    #[test]
    fn a_short_field_that_looks_long_is_not_taken_for_one() {
        let fields = LongFields::default();
        let content = Bytes::from_static(b"\0chunks\0 and more");
        let argument = fields.argument(PLACE, Some(&content), false);
        assert_eq!(argument.chunks.len(), 1);
        let plain = fields.argument(PLACE, Some(&Bytes::from_static(b"short")), false);
        assert_eq!((plain.content.as_deref(), plain.chunks.len()), (Some(&b"short"[..]), 0));
    }
}
