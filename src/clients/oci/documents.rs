//! The documents beside an image that may be signatures, and whether there may be more.

use crate::{domain::error::BackendError, signature::Candidate};

/// The documents beside one image.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// The documents that may be signatures.
    pub(crate) candidates: Vec<Candidate>,
    /// Why there may be more, if not everything was read.
    pub(crate) gap: Option<BackendError>,
    /// Where the documents were looked for, in words. Without a gap, this is the proof of an absence.
    pub(crate) places: Vec<&'static str>,
}

impl Documents {
    /// Notes that not everything was read. The first reason is kept.
    pub(super) fn miss(&mut self, error: BackendError) {
        self.gap.get_or_insert(error);
    }

    /// Adds what was read elsewhere.
    pub(super) fn add(&mut self, other: Self) {
        self.candidates.extend(other.candidates);
        self.places.extend(other.places);
        other.gap.into_iter().for_each(|gap| self.miss(gap));
    }
}
