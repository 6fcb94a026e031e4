//! The note that is stored with an answer, for later queries: the last parameter set that was built, and the contents of
//! its images, so that they are not read from the registry again after a restart.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap as _};

use super::{
    image_verdict::NotedProof,
    signatures::{Noted, NotedProofs, ProofKey, Proven, SignedImage},
};
use domain::{
    clock::Timestamp,
    generator::{BackendNote, Before, Parameters},
};
use oci::{Contents, Digest};

/// The contents of images, by digest.
pub(super) type Known = BTreeMap<Digest, Arc<Contents>>;

/// The proofs of a set's images, by their names.
pub(super) type Proofs = BTreeMap<String, NotedProof>;

/// The note of one answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Note {
    /// The last parameter set that was built.
    pub item: Option<Parameters>,
    /// Whether that set is of an earlier query of the lineage, or of an earlier commit than the requested one.
    pub is_earlier: bool,
    /// The fingerprint of the configuration that built it.
    pub(crate) made_by: String,
    /// Since when the tag is missing.
    pub(crate) missing_since: Option<Timestamp>,
    /// The contents of the images that were found.
    pub known: Known,
    /// The proofs of the signatures of that set's images, by their names.
    pub proofs: Proofs,
    /// The images of that set that have no proof and more digests than the set shows: an index, of which `platform` picks an image.
    pub images: BTreeMap<String, SignedImage>,
    /// The proofs in all notes that were read.
    #[serde(skip)]
    pub noted: NotedProofs,
}

/// The note on earlier answers, read when it is first needed. A lookup never needs it if all images are built, and their contents and
/// proofs are in memory.
#[derive(Debug, Default)]
pub(super) struct LazyNote {
    before: Before,
    note: OnceLock<Note>,
}

impl LazyNote {
    /// The note in `before`.
    pub(super) fn new(before: &Before) -> Self {
        Self { before: before.clone(), note: OnceLock::new() }
    }

    /// The note.
    pub(super) fn get(&self) -> &Note {
        self.note.get_or_init(|| Note::read(&self.before))
    }

    /// The note itself.
    pub(super) fn into_note(self) -> Note {
        let Self { before, note } = self;
        note.into_inner().unwrap_or_else(|| Note::read(&before))
    }
}

impl Noted for LazyNote {
    fn proof(&self, key: &ProofKey) -> Option<&Arc<Proven>> {
        self.get().noted.get(key)
    }
}

impl Note {
    /// The note of the last answer to this very query; if that has no set, the set that the lineage noted. A note that
    /// cannot be read is ignored: another version may have written it.
    fn read(before: &Before) -> Self {
        let read = |note: &Option<BackendNote>| note.as_ref().and_then(BackendNote::read::<Self>).unwrap_or_default();
        let (mut own, lineage) = (read(&before.own), read(&before.lineage));
        own.known.extend(lineage.known);
        let all = own.proofs.values().chain(lineage.proofs.values());
        own.noted = all.map(|proof| (proof.key, Arc::clone(&proof.proven))).collect();
        if own.item.is_none() {
            own.item = lineage.item;
            own.made_by = lineage.made_by;
            own.proofs = lineage.proofs;
            own.images = lineage.images;
            own.is_earlier = true;
        }
        own
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { item, is_earlier, made_by, missing_since, known, proofs, images, noted: _ } = self;
        let mut fields = serializer.serialize_map(None)?;
        if let Some(item) = item {
            fields.serialize_entry("item", item)?;
            fields.serialize_entry("isEarlier", is_earlier)?;
            fields.serialize_entry("madeBy", made_by)?;
        }
        if let Some(since) = missing_since {
            fields.serialize_entry("missingSince", since)?;
        }
        if !proofs.is_empty() {
            fields.serialize_entry("proofs", proofs)?;
        }
        if !images.is_empty() {
            fields.serialize_entry("images", images)?;
        }
        if !known.is_empty() {
            fields.serialize_entry("known", known)?;
        }
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(own: Option<Value>, lineage: Option<Value>) -> Note {
        let [own, lineage] = [own, lineage].map(|note| BackendNote::of(&note?));
        Note::read(&Before { own, lineage })
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let contents = Contents { revision: Some("abc".into()), ..Contents::default() };
        let proof: NotedProof = serde_json::from_value(json!({
            "image": {"registry": "r.example", "repository": "front", "digests": [Digest::of(b"").as_str()]},
            "key": "ab".repeat(32),
            "proven": {"commit": "ab".repeat(20), "signer": "cosign.pub"},
        }))
        .unwrap();
        let note = Note {
            item: json!({"front": {"digest": "d"}}).as_object().cloned(),
            is_earlier: true,
            made_by: "x".into(),
            missing_since: Some(Timestamp(7)),
            known: Known::from([(Digest::of(b""), Arc::new(contents))]),
            noted: NotedProofs::from([(proof.key, Arc::clone(&proof.proven))]),
            images: BTreeMap::from([("back".to_owned(), proof.image.clone())]),
            proofs: Proofs::from([("front".to_owned(), proof)]),
        };
        assert_eq!(Note::read(&Before { own: BackendNote::of(&note), lineage: None }), note);
        assert_eq!(read(Some(json!({"item": 7})), None).item, None);
        assert_eq!(read(None, None).item, None);
    }

    #[test]
    fn a_note_is_read_only_when_it_is_needed() {
        let before = Before { own: BackendNote::of(&json!({"item": {}, "madeBy": "x"})), lineage: None };
        let lazy = LazyNote::new(&before);
        assert!(lazy.note.get().is_none());
        assert_eq!(lazy.get().made_by, "x");
        assert!(lazy.note.get().is_some());
        assert_eq!(lazy.into_note(), Note::read(&before));
        assert_eq!(LazyNote::new(&before).into_note(), Note::read(&before));
    }

    #[test]
    fn a_question_without_a_set_takes_that_of_its_lineage() {
        let item = |name: &str| json!({"item": {"of": name}, "missingSince": 3});
        let of = |note: &Note| note.item.as_ref().map(|item| item["of"].as_str().unwrap().to_owned());
        let note = read(Some(json!({"missingSince": 7})), Some(item("lineage")));
        assert_eq!(
            (of(&note), note.is_earlier, note.missing_since),
            (Some("lineage".into()), true, Some(Timestamp(7)))
        );
        let note = read(Some(item("own")), Some(item("lineage")));
        assert_eq!((of(&note), note.is_earlier), (Some("own".into()), false));
    }
}
