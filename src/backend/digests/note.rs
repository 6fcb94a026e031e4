//! What is noted with an answer, for the questions that follow it: the last parameter set that was built, and what its
//! images held, which no registry has to be asked for again after a restart.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    clock::Timestamp,
    generator::{Before, Parameters},
    oci::{Contents, Digest},
};

/// What images hold, by digest.
pub(super) type Known = BTreeMap<Digest, Arc<Contents>>;

/// A note.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    /// The last parameter set that was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<Parameters>,
    /// Whether that was for an earlier question.
    #[serde(default)]
    pub is_earlier: bool,
    /// Since when the tag is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Timestamp>,
    /// What the images hold that were found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub known: Known,
}

/// What was noted before.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// The note; an empty one if there was none.
    pub note: Note,
    /// Whether it was noted with the answer to this very question.
    pub is_own: bool,
}

impl Noted {
    /// Reads a note. One that cannot be read is none: another version may have written it.
    pub fn read(before: Option<&Before>) -> Self {
        let Some(before) = before else { return Self::default() };
        let note = Note::deserialize(&*before.note).unwrap_or_default();
        Self { note, is_own: before.is_own }
    }
}

impl From<Note> for Value {
    fn from(note: Note) -> Self {
        serde_json::to_value(note).unwrap_or_default()
    }
}
