//! The bytes of the file with the marks of loss:
//!
//! `magic (7 bytes) | finished (1) | when everything was lost (8) | SHA-256 of these (8) | slots`
//!
//! and of a slot in it:
//!
//! `when (8 bytes) | tag (4) | outdated (1) | SHA-256 of these (3)`
//!
//! Numbers are little endian.

use super::super::record::checksum;

/// The size of a slot, in bytes.
pub(super) const SLOT: usize = 16;
/// The size of what comes before the slots, in bytes.
pub(super) const HEADER: usize = 24;
const MAGIC: &[u8; 7] = b"agwlost";
/// The tag of a mark that holds for every key of its bucket.
pub(super) const EVERY: u32 = 0;

/// What stands before the slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// That the database beside the marks was made whole.
    pub(crate) is_finished: bool,
    /// When everything was lost; 0 if it never was.
    pub(crate) everything: u64,
}

/// A slot that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// When the record was lost, as a stamp.
    pub(crate) at: u64,
    /// Whose record it was: a part of the key, or [`EVERY`].
    pub(crate) tag: u32,
    /// That an older record may still be in the database.
    pub(crate) is_outdated: bool,
}

/// What a slot holds that was never marked. It is not all zeros, which a damaged file may be.
pub(super) const EMPTY: Mark = Mark { at: 0, tag: EVERY, is_outdated: false };

impl Mark {
    /// As it stands in the file.
    pub(super) fn bytes(self) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.tag.to_le_bytes());
        bytes[12] = u8::from(self.is_outdated);
        let sum = checksum(&bytes[..13]);
        bytes[13..].copy_from_slice(&sum[..3]);
        bytes
    }

    /// `None` where it is damaged.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<8>()?;
        let (tag, rest) = rest.split_first_chunk::<4>()?;
        let is_outdated = *rest.first()? == 1;
        let mark = Self { at: u64::from_le_bytes(*at), tag: u32::from_le_bytes(*tag), is_outdated };
        (mark.bytes() == bytes).then_some(mark)
    }
}

impl Header {
    /// As it stands in the file.
    pub(super) fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..7].copy_from_slice(MAGIC);
        bytes[7] = u8::from(self.is_finished);
        bytes[8..16].copy_from_slice(&self.everything.to_le_bytes());
        let sum = checksum(&bytes[..16]);
        bytes[16..].copy_from_slice(&sum);
        bytes
    }

    /// `None` where it is damaged.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let everything = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let header = Self { is_finished: bytes[7] == 1, everything };
        (header.bytes() == bytes).then_some(header)
    }
}
