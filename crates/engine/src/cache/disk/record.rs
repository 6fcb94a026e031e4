//! The form of a record, as the journal and the database hold it:
//!
//! `version 3 (1 byte) | SHA-256 of what follows (its first 8 bytes) | stamp (8) | length of the head (4) | head (JSON) | body`
//!
//! A long record is stored in chunks ([`super::long`]): its version is 4, and a [`chunks::Index`] of what follows the stamp is in the place of that.
//!
//! Numbers are little endian. The *stamp* is the time at which the record was made, by [`super::marks::Marks::next`]: a record is accepted
//! if it was made after the latest mark of loss for its key. A record that does not fit its checksum is damaged, and what it held is
//! unknown.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chunks::Index;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::cache::{Elements, Encoded, Entry, LastServed, Life, MadeUnder, PackedQuestion, Revision};
use domain::{
    clock::Timestamp,
    generator::{BackendNote, Evidence, Question},
};

const VERSION: u8 = 3;
/// The version of a record that has an index in the place of its content.
const LONG: u8 = 4;
/// Version and checksum, in bytes.
const PREFIX: usize = 9;
/// The stamp, in bytes.
const STAMP: usize = 8;

/// All parts of an answer except its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The question that it answers.
    pub question: Question,
    /// The revision that made the answer.
    pub revision: Revision,
    /// The fingerprint of the keys and roots by which it was verified. A record from before this field has them in its revision, so that
    /// it is of no present revision if anything was verified.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trust: u64,
    /// When the backend had the answer.
    pub stored_at: Timestamp,
    /// When a caller last wanted a new answer.
    #[serde(rename = "asked_at")]
    pub queried_at: Timestamp,
    /// When the question was answered for the first time.
    pub first_at: Timestamp,
    /// How long the backend took, in microseconds.
    pub(crate) took_us: u64,
    /// How many parameter sets there are.
    pub sets: usize,
    /// Whether the backend must be called before the answer is served.
    pub is_over: bool,
    /// The findings about each item.
    pub evidence: Vec<Evidence>,
    /// The backend's note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<BackendNote>,
    /// The elements that it is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<Arc<Elements>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature wants it")]
const fn is_zero(trust: &u64) -> bool {
    *trust == 0
}

impl Head {
    /// The route's revision, keys and roots that the answer was made under.
    pub(in crate::cache) const fn made_under(&self) -> MadeUnder {
        MadeUnder { revision: self.revision, trust: self.trust }
    }

    /// For how long the answer is fresh: not at all.
    pub(in crate::cache) const fn life(&self) -> Life {
        if self.is_over { Life::For(Duration::ZERO) } else { Life::Restored }
    }
}

/// The draft of a record of `head` and `body`, to be sealed.
pub(super) fn draft<H: Serialize>(head: &H, body: &[u8]) -> Option<Vec<u8>> {
    let head = serde_json::to_vec(head).ok()?;
    let length = u32::try_from(head.len()).ok()?.to_le_bytes();
    let mut record = vec![0; PREFIX + STAMP];
    record[0] = VERSION;
    record.extend_from_slice(&length);
    record.extend_from_slice(&head);
    record.extend_from_slice(body);
    Some(record)
}

/// Writes `stamp` and the checksum into the draft of a record, or into a record that was sealed before.
pub(super) fn seal(draft: &mut [u8], stamp: u64) {
    draft[PREFIX..PREFIX + STAMP].copy_from_slice(&stamp.to_le_bytes());
    let sum = checksum(&draft[PREFIX..]);
    draft[1..PREFIX].copy_from_slice(&sum);
}

/// The draft of the record with `index` in the place of its content.
pub(super) fn draft_of_index(index: &Index) -> Vec<u8> {
    let mut record = vec![0; PREFIX + STAMP];
    record[0] = LONG;
    record.extend(index.to_bytes());
    record
}

/// The content of a draft, after the stamp.
pub(super) fn drafted(draft: &[u8]) -> &[u8] {
    draft.get(PREFIX + STAMP..).unwrap_or_default()
}

/// The stamp and the index of a long record.
#[must_use]
pub(super) fn index(record: &[u8]) -> Option<(u64, Index)> {
    let (stamp, index) = content(record, LONG)?;
    Some((stamp, Index::parse(index)?))
}

/// The record with this stamp and content.
#[must_use]
pub(super) fn of_content(stamp: u64, content: &[u8]) -> Vec<u8> {
    let mut record = vec![0; PREFIX + STAMP];
    record[0] = VERSION;
    record.extend_from_slice(content);
    seal(&mut record, stamp);
    record
}

/// The stamp of a record that is whole, or of one with an index.
#[must_use]
pub(super) fn stamp(record: &[u8]) -> Option<u64> {
    content(record, VERSION).or_else(|| content(record, LONG)).map(|(stamp, _)| stamp)
}

/// The stamp, the head and the body of a record that is whole.
#[must_use]
pub(super) fn open<H: DeserializeOwned>(record: &[u8]) -> Option<(u64, H, &[u8])> {
    let (stamp, content) = content(record, VERSION)?;
    let (length, rest) = content.split_first_chunk::<4>()?;
    let (head, body) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    Some((stamp, serde_json::from_slice(head).ok()?, body))
}

/// The stamp of a record of this version that is whole, and the rest after it.
fn content(record: &[u8], version: u8) -> Option<(u64, &[u8])> {
    let (&own, rest) = record.split_first()?;
    let (sum, content) = rest.split_first_chunk::<8>()?;
    if own != version || *sum != checksum(content) {
        return None;
    }
    content.split_first_chunk::<STAMP>().map(|(stamp, rest)| (u64::from_le_bytes(*stamp), rest))
}

pub(super) fn checksum(content: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha256::digest(content)[..8]);
    sum
}

/// A sealed record of `head` and `body` without a stamp, for the shared store.
pub(crate) fn sealed<H: Serialize>(head: &H, body: &[u8]) -> Option<Bytes> {
    let mut record = draft(head, body)?;
    seal(&mut record, 0);
    Some(record.into())
}

/// The head and the body of a sealed record that is whole.
pub(crate) fn opened<H: DeserializeOwned>(record: &[u8]) -> Option<(H, &[u8])> {
    open(record).map(|(_, head, body)| (head, body))
}

/// The draft of an answer's record.
pub(super) fn encode(entry: &Entry) -> Option<Vec<u8>> {
    draft(&Head::of(entry), entry.encoded.body())
}

impl Head {
    /// The head of the record of `entry`.
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            question: entry.question.open(),
            revision: entry.made_under.revision,
            trust: entry.made_under.trust,
            stored_at: entry.stored_at,
            queried_at: entry.queried_at,
            first_at: entry.first_at,
            took_us: u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX),
            sets: entry.encoded.sets(),
            is_over: matches!(entry.life, Life::Brief(_) | Life::For(Duration::ZERO)),
            evidence: entry.evidence.clone(),
            note: entry.note.clone(),
            elements: entry.elements.clone(),
        }
    }

    /// The answer with `body`: fresh no more. `None` if the body does not fit.
    pub(crate) fn with_body(self, body: &[u8]) -> Option<Entry> {
        let life = self.life();
        Some(Entry {
            encoded: Encoded::restore(Bytes::copy_from_slice(body), self.sets)?,
            made_under: self.made_under(),
            stored_at: self.stored_at,
            queried_at: self.queried_at,
            first_at: self.first_at,
            run_number: 0,
            life,
            question: PackedQuestion::from(&self.question),
            took: Duration::from_micros(self.took_us),
            evidence: self.evidence,
            note: self.note,
            elements: self.elements,
            last_served: LastServed::default(),
        })
    }
}

/// The stamp and the answer of a record: fresh no more.
#[must_use]
pub(super) fn decode(record: &[u8]) -> Option<(u64, Entry)> {
    let (stamp, head, body) = open::<Head>(record)?;
    Some((stamp, head.with_body(body)?))
}
