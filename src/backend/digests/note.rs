//! What is noted with an answer, for the questions that follow it: the last parameter set that was built, and what its
//! images held, which no registry has to be asked for again after a restart.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    clock::Timestamp,
    generator::{Before, Parameters},
    oci::{Contents, Digest},
};

/// What images hold, by digest.
pub(super) type Known = BTreeMap<Digest, Arc<Contents>>;

/// A note.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Note {
    /// The last parameter set that was built.
    pub item: Option<Parameters>,
    /// Whether that was for an earlier question.
    pub is_earlier: bool,
    /// Since when the tag is missing.
    pub missing_since: Option<Timestamp>,
    /// What the images hold that were found.
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
        // By hand: the parameter set is moved, not copied.
        let Note { item, is_earlier, missing_since, known } = note;
        let mut fields = Parameters::new();
        fields.extend(item.map(|item| ("item".to_owned(), Self::Object(item))));
        if is_earlier {
            fields.insert("isEarlier".to_owned(), true.into());
        }
        fields.extend(missing_since.map(|since| ("missingSince".to_owned(), since.0.into())));
        if let Ok(known) = serde_json::to_value(known)
            && known != Self::Object(Parameters::new())
        {
            fields.insert("known".to_owned(), known);
        }
        Self::Object(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let digest = Digest::of(b"");
        let contents = Contents { revision: Some("abc".into()), ..Contents::default() };
        let full = Note {
            item: json!({"front": {"digest": "d"}}).as_object().cloned(),
            is_earlier: true,
            missing_since: Some(Timestamp(7)),
            known: Known::from([(digest, Arc::new(contents))]),
        };
        for note in [full, Note::default()] {
            let before = Before { note: Arc::new(note.clone().into()), is_own: true };
            assert_eq!(Noted::read(Some(&before)).note, note);
        }
        let strange = Before { note: Arc::new(json!({"item": 7})), is_own: true };
        assert_eq!(Noted::read(Some(&strange)).note, Note::default());
    }
}
