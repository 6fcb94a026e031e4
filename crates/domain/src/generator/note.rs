//! The notes of a backend with its answers.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

/// A backend's note with an answer, which it gets back with later requests: any JSON. It is kept as text, which takes a quarter of the
/// memory, and is read only at the next run of the backend.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackendNote(Arc<RawValue>);

impl BackendNote {
    /// `note` as text. `None` if JSON cannot hold it, such as a map whose keys are not texts.
    #[must_use]
    pub fn of(note: &impl Serialize) -> Option<Self> {
        to_raw_value(note).ok().map(|text| Self(text.into()))
    }

    /// The note's value; `None` if it has another form. Another version may have written it.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// The length of the text in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.get().len()
    }
}

impl PartialEq for BackendNote {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for BackendNote {}

/// A backend's notes on earlier answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Before {
    /// The note with the last answer to the same request.
    pub own: Option<BackendNote>,
    /// The note with the last answer of the lineage, if that answered another request.
    pub lineage: Option<BackendNote>,
}

impl Before {
    /// The notes of the part called `name`, from the notes of the whole.
    #[must_use]
    pub fn of_part(&self, name: &str) -> Self {
        let part = |note: &Option<BackendNote>| note.as_ref()?.read::<HashMap<String, BackendNote>>()?.remove(name);
        Self { own: part(&self.own), lineage: part(&self.lineage) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was() {
        let value = json!({"a": [1, 2.5, "ü\n"], "b": {"c": null}});
        let note = BackendNote::of(&value).unwrap();
        assert_eq!(note.read::<Value>(), Some(value.clone()));
        // In a record, and through a value.
        let record = serde_json::to_string(&json!({"note": note})).unwrap();
        let read = serde_json::from_str::<HashMap<String, BackendNote>>(&record).unwrap();
        assert_eq!((&read["note"], read["note"].len()), (&note, value.to_string().len()));
        assert_eq!(note.read::<Vec<u8>>(), None);
    }

    #[test]
    fn each_part_has_its_own_note() {
        let own = BackendNote::of(&json!({"step 1": {"n": 1}, "step 2": 2}));
        let part = |name: &str| Before { own: own.clone(), lineage: None }.of_part(name).own?.read::<Value>();
        assert_eq!((part("step 1"), part("step 2"), part("step 3")), (Some(json!({"n": 1})), Some(json!(2)), None));
        assert_eq!(Before { own: BackendNote::of(&7), lineage: None }.of_part("step 1"), Before::default());
    }
}
