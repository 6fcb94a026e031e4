//! A stored answer as operators see it.

use std::time::Duration;

use crate::cache::{ElementCounts, Entry, Life, MadeUnder, disk::record::Head};
use domain::{
    clock::Timestamp,
    generator::{Evidence, Question},
};

/// A stored answer without its body.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The question.
    pub question: Question,
    /// The configuration that made it, and the keys by which it was verified.
    pub(crate) made_under: MadeUnder,
    /// When the backend had it.
    pub stored_at: Timestamp,
    /// When a caller last wanted a new answer.
    pub queried_at: Timestamp,
    /// For how long it is fresh.
    pub life: Life,
    /// How long the backend took.
    pub took: Duration,
    /// About how many bytes it takes.
    pub size: usize,
    /// How many parameter sets it holds.
    pub sets: usize,
    /// How many elements it is made of, by state. `None` if it is not made of elements.
    pub elements: Option<ElementCounts>,
    /// The findings about each item.
    pub evidence: Vec<Evidence>,
}

impl Listed {
    /// From an answer on disk.
    #[must_use]
    pub(super) fn kept(head: Head, size: usize) -> Self {
        Self {
            life: head.life(),
            made_under: head.made_under(),
            question: head.question,
            stored_at: head.stored_at,
            queried_at: head.queried_at,
            took: Duration::from_micros(head.took_us),
            size,
            sets: head.sets,
            elements: head.elements.map(|elements| elements.counts),
            evidence: head.evidence,
        }
    }

    /// The listing of an answer in memory.
    pub fn remembered(entry: &Entry) -> Self {
        Self {
            question: entry.question.open(),
            made_under: entry.made_under,
            stored_at: entry.stored_at,
            queried_at: entry.queried_at,
            life: entry.life,
            took: entry.took,
            size: entry.weight(),
            sets: entry.encoded.sets(),
            elements: entry.elements.as_ref().map(|elements| elements.counts),
            evidence: entry.evidence.clone(),
        }
    }
}
