//! Cuts long records into chunks, so that the next version of a record writes only the chunks that changed. Where a chunk ends depends on the
//! bytes around that place (content-defined chunking), so a byte more at the beginning does not move all later cuts.
//!
//! [`Cut::of`] cuts, [`Index`] is what is stored in the record's place, and [`Index::join`] makes the content of it again.

use std::{collections::HashMap, ops::Range};

use fastcdc::v2020::FastCDC;
use sha2::{Digest as _, Sha256};

/// A longer content is none of ours: who can write an index may name one chunk a million times.
const MAX_LENGTH: usize = 256 * 1024 * 1024;
/// Shorter records are not cut: a page of a database and a packet on the network have about this size, too.
pub const MIN_LENGTH: usize = 64 * 1024;
/// How long chunks are, in bytes: at least, usually, and at most.
const LENGTHS: [u32; 3] = [2 * 1024, 8 * 1024, 32 * 1024];
/// How long a SHA-256 is.
const HASH: usize = 32;

/// The name of a chunk: the beginning of the SHA-256 of its bytes. The index has the whole hash of the content, so two chunks with one name
/// make a record that cannot be read, never a wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId([u8; ChunkId::LENGTH]);

impl ChunkId {
    /// How many bytes it has.
    pub const LENGTH: usize = 12;

    /// The id of the chunk with these bytes.
    #[must_use]
    pub fn of(chunk: &[u8]) -> Self {
        let mut start = [0; Self::LENGTH];
        start.copy_from_slice(&Sha256::digest(chunk)[..Self::LENGTH]);
        Self(start)
    }

    /// An id of known bytes.
    #[must_use]
    pub const fn of_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

/// A content that is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The chunks in their order, and where they are in the content.
    pub chunks: Vec<(ChunkId, Range<usize>)>,
    hash: [u8; HASH],
}

impl Cut {
    /// Cuts `content`. Equal contents are cut alike.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        let [least, usual, most] = LENGTHS;
        let chunks = FastCDC::new(content, least as usize, usual as usize, most as usize).map(|chunk| {
            let range = chunk.offset..chunk.offset + chunk.length;
            (ChunkId::of(&content[range.clone()]), range)
        });
        Self { chunks: chunks.collect(), hash: Sha256::digest(content).into() }
    }

    /// Its index.
    #[must_use]
    pub fn index(&self) -> Index {
        let length = self.chunks.last().map_or(0, |(_, range)| range.end as u64);
        Index { hash: self.hash, length, ids: self.chunks.iter().map(|(id, _)| *id).collect() }
    }
}

/// Of which chunks a content is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The SHA-256 of the content.
    hash: [u8; HASH],
    /// How long the content is, in bytes.
    pub length: u64,
    /// The chunks in their order.
    pub ids: Vec<ChunkId>,
}

impl Index {
    /// Its bytes: the hash of the content (32 bytes), its length (8, little endian), then the ids (12 each).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let ids = self.ids.iter().flat_map(ChunkId::as_bytes);
        self.hash.iter().chain(&self.length.to_le_bytes()).chain(ids).copied().collect()
    }

    /// Reads the bytes of [`Self::to_bytes`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (hash, rest) = bytes.split_first_chunk::<HASH>()?;
        let (length, ids) = rest.split_first_chunk::<8>()?;
        let (ids, rest) = ids.as_chunks::<{ ChunkId::LENGTH }>();
        let ids = ids.iter().copied().map(ChunkId).collect();
        rest.is_empty().then(|| Self { hash: *hash, length: u64::from_le_bytes(*length), ids })
    }

    /// The content, made of `chunks`. `None` if one is missing, or they are not the content's.
    #[must_use]
    pub fn join<B: AsRef<[u8]>>(&self, chunks: &HashMap<ChunkId, B>) -> Option<Vec<u8>> {
        let chunks: Vec<&[u8]> = self.ids.iter().map(|id| chunks.get(id).map(AsRef::as_ref)).collect::<Option<_>>()?;
        let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        if length as u64 != self.length || length > MAX_LENGTH {
            return None;
        }
        let content = chunks.concat();
        (Sha256::digest(&content)[..] == self.hash).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameter sets as the body of an answer has them.
    fn sets(count: u32) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(1);
        let sets = (0..count).map(|n| format!(r#"{{"number":{n},"digest":"{:032x}"}},"#, random.u128(..)));
        sets.collect::<String>().into_bytes()
    }

    fn by_id(content: &[u8]) -> HashMap<ChunkId, Vec<u8>> {
        Cut::of(content).chunks.into_iter().map(|(id, range)| (id, content[range].to_vec())).collect()
    }

    #[test]
    fn a_change_changes_few_chunks() {
        let content = sets(10_000);
        let known = by_id(&content);
        let mut changed = content.clone();
        let at = content.len() / 2;
        changed.splice(at..=at, *b"two more bytes");
        let new: Vec<usize> =
            Cut::of(&changed).chunks.iter().filter(|(id, _)| !known.contains_key(id)).map(|(_, at)| at.len()).collect();
        assert!(known.len() > 20 && (1..=2).contains(&new.len()), "{} {new:?}", known.len());
    }

    #[test]
    fn an_index_gives_the_content_back_or_nothing() {
        for content in [sets(5000), Vec::new(), b"short".to_vec(), vec![0; 200_000]] {
            let mut chunks = by_id(&content);
            let index = Index::parse(&Cut::of(&content).index().to_bytes()).unwrap();
            assert_eq!(index.join(&chunks), Some(content));
            if let Some(chunk) = chunks.values_mut().next() {
                chunk[0] ^= 1;
                assert_eq!(index.join(&chunks), None);
            }
            if !index.ids.is_empty() {
                chunks.clear();
                assert_eq!(index.join(&chunks), None);
            }
        }
        let chunk = vec![0; 1 << 20];
        let mut huge = Cut::of(&chunk).index();
        (huge.ids, huge.length) = (vec![ChunkId::of(&chunk); 300], 300 << 20);
        assert_eq!(huge.join(&HashMap::from([(huge.ids[0], chunk)])), None);
        assert_eq!((Index::parse(&[0; 39]), Index::parse(&[0; 53])), (None, None));
    }
}
