//! The documents beside an image that may be signatures, and whether there may be more.

use std::sync::Arc;

use super::reading::Reading;
use domain::error::BackendError;
use signature::Candidate;

/// The documents beside one image.
#[derive(Debug, Default)]
pub struct Documents {
    /// The documents that may be signatures.
    pub candidates: Vec<Candidate>,
    /// Why there may be more, if not everything was read.
    pub gap: Option<BackendError>,
    /// The places that were searched, in words. Without a gap, this is the proof of an absence.
    pub places: Vec<&'static str>,
    /// Whether the referrers API was not called, since it is remembered that the registry has none. Nothing may be taken for
    /// absent before it was called.
    pub relies_on_memory: bool,
    /// The documents that the lookup has read so far.
    pub reading: Arc<Reading>,
}

impl Documents {
    /// Notes that not everything was read. The first reason is kept.
    pub(super) fn miss(&mut self, error: BackendError) {
        self.gap.get_or_insert(error);
    }

    /// Adds documents from another place.
    pub(super) fn add(&mut self, other: Self) {
        self.candidates.extend(other.candidates);
        self.places.extend(other.places);
        self.relies_on_memory |= other.relies_on_memory;
        other.gap.into_iter().for_each(|gap| self.miss(gap));
    }
}
