//! What operators are told of a remembered answer.

use std::time::Duration;

use super::{Entry, Life, Revision, disk::record::Head};
use crate::{
    domain::clock::Timestamp,
    domain::generator::{Evidence, Question},
};

/// What is told of a remembered answer.
#[derive(Debug, Clone)]
pub struct Listed {
    /// What was asked.
    pub question: Question,
    /// What made it.
    pub revision: Revision,
    /// When the backend had it.
    pub stored_at: Timestamp,
    /// When a caller last wanted it anew.
    pub asked_at: Timestamp,
    /// For how long it is fresh.
    pub life: Life,
    /// How long the backend took.
    pub took: Duration,
    /// About how many bytes it takes.
    pub size: usize,
    /// How many parameter sets it holds.
    pub sets: usize,
    /// What was learned of each item.
    pub evidence: Vec<Evidence>,
}

impl Listed {
    /// Of an answer on disk.
    #[must_use]
    pub(super) fn kept(head: Head, size: usize) -> Self {
        Self {
            life: head.life(),
            question: head.question,
            revision: head.revision,
            stored_at: head.stored_at,
            asked_at: head.asked_at,
            took: Duration::from_micros(head.took_us),
            size,
            sets: head.sets,
            evidence: head.evidence,
        }
    }

    pub(super) fn remembered(entry: &Entry) -> Self {
        Self {
            question: entry.question.open(),
            revision: entry.revision,
            stored_at: entry.stored_at,
            asked_at: entry.asked_at,
            life: entry.life,
            took: entry.took,
            size: entry.weight(),
            sets: entry.encoded.sets(),
            evidence: entry.evidence.clone(),
        }
    }
}
