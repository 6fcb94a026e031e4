//! The bytes of the file with the marks of loss:
//!
//! `magic (7 bytes) | finished (1) | when everything was lost (8) | SHA-256 of these (8) | slots`
//!
//! and of a slot in it:
//!
//! `when (8 bytes) | route (4) | kind, 0 for a mark of several keys (1) | outdated (1) | tag (4) | SHA-256 of these (2)`
//!
//! Numbers are little endian.

use crate::cache::disk::record::checksum;

/// The size of a slot, in bytes.
pub(super) const SLOT: usize = 20;
/// The size of the part before the slots, in bytes.
pub(super) const HEADER: usize = 24;
/// It changed with the form of the slots: an older file counts as damaged, so that everything is lost.
const MAGIC: &[u8; 7] = b"agwlos2";

/// The header before the slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// That the database beside the marks was made whole.
    pub is_finished: bool,
    /// When everything was lost; 0 if it never was.
    pub everything: u64,
}

/// Which records of a route a mark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// The record of one kind, named by its number, under one key, of which this is the beginning.
    One(u8, [u8; 4]),
    /// All records under the keys that begin with this byte.
    Range(u8),
    /// All records.
    Route,
}

/// A slot that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// When the record was lost, as a stamp.
    pub at: u64,
    /// The beginning of the route's id.
    pub route: [u8; 4],
    /// The route and key of the record.
    pub scope: Scope,
    /// That an older record may still be in the database.
    pub(crate) is_outdated: bool,
}

/// The content of a slot that was never marked. It is not all zeros, since a damaged file may be.
pub(super) const EMPTY: [u8; SLOT] = [b' '; SLOT];

/// The first byte of the tag of a mark of several keys.
const RANGE: u8 = 1;
const ROUTE: u8 = 2;

impl Mark {
    /// Its form in the file.
    pub(super) fn bytes(self) -> [u8; SLOT] {
        let (kind, tag) = match self.scope {
            Scope::One(kind, key) => (kind, key),
            Scope::Range(first) => (0, [RANGE, first, 0, 0]),
            Scope::Route => (0, [ROUTE, 0, 0, 0]),
        };
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.route);
        (bytes[12], bytes[13]) = (kind, u8::from(self.is_outdated));
        bytes[14..18].copy_from_slice(&tag);
        let sum = checksum(&bytes[..18]);
        bytes[18..].copy_from_slice(&sum[..2]);
        bytes
    }

    /// `None` where it is damaged.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<8>()?;
        let (route, rest) = rest.split_first_chunk::<4>()?;
        let ([kind, is_outdated], rest) = rest.split_first_chunk::<2>()?;
        let (tag, _) = rest.split_first_chunk::<4>()?;
        let scope = match (*kind, tag) {
            (0, [RANGE, first, ..]) => Scope::Range(*first),
            (0, _) => Scope::Route,
            (kind, key) => Scope::One(kind, *key),
        };
        let mark = Self { at: u64::from_le_bytes(*at), route: *route, scope, is_outdated: *is_outdated == 1 };
        (mark.bytes() == bytes).then_some(mark)
    }
}

impl Header {
    /// Its form in the file.
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
