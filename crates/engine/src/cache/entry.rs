//! A stored answer: complete, encoded once, never copied.

use std::{hash::BuildHasher as _, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cache::{Elements, LastServed, Life, MadeUnder};
use domain::{
    clock::Timestamp,
    document::{self, exact, memory_of},
    generator::{BackendNote, Evidence, ParameterSet, Parameters, Part, Question},
};

/// The cache's overhead per entry: its key, its place in two lists and its use count, as measured, and its place among its route's answers.
const BESIDE: usize = 640 + 128;
/// The overhead of one allocation, in bytes.
const PIECE: usize = 16;

/// The first capacity for the text of a parameter set, in bytes.
const ROOM_PER_SET: usize = 64;

/// The body of a complete answer. Only [`Encoded::encode`] makes one, and it takes the whole list, so
/// that a body without an explicit `output.parameters` cannot exist (invariant I1).
#[derive(Debug, Clone)]
pub struct Encoded {
    body: Bytes,
    sets: usize,
}

impl Encoded {
    /// `{"output":{"parameters":[…]}}`
    ///
    /// # Errors
    /// Never for maps with string keys, which parameter sets are; serde's signature wants it.
    pub fn encode(sets: &[ParameterSet]) -> Result<Self, serde_json::Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            output: Output<'a>,
        }
        #[derive(Serialize)]
        struct Output<'a> {
            parameters: Vec<&'a Parameters>,
        }
        let body = Body { output: Output { parameters: sets.iter().map(|set| &set.0).collect() } };
        let mut text = Vec::with_capacity(ROOM_PER_SET * (sets.len() + 1));
        serde_json::to_writer(&mut text, &body)?;
        // Without spare capacity, because it is stored for long.
        Ok(Self { body: text.into_boxed_slice().into(), sets: sets.len() })
    }

    /// The JSON text; cloning it is cheap.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// A body that was stored on disk; `None` if it is not a body with `sets` sets.
    #[must_use]
    pub fn restore(body: Bytes, sets: usize) -> Option<Self> {
        let restored = Self { body, sets };
        (restored.decode_checked()?.len() == sets).then_some(restored)
    }

    /// The parameter sets, read back.
    #[must_use]
    pub fn decode(&self) -> Vec<ParameterSet> {
        self.decode_checked().unwrap_or_default()
    }

    fn decode_checked(&self) -> Option<Vec<ParameterSet>> {
        #[derive(Deserialize)]
        struct Body {
            output: Output,
        }
        #[derive(Deserialize)]
        struct Output {
            #[serde(deserialize_with = "exact::read")]
            parameters: Vec<Parameters>,
        }
        let body = serde_json::from_slice::<Body>(&self.body).ok()?;
        Some(body.output.parameters.into_iter().map(ParameterSet).collect())
    }

    /// A hash of the JSON text, the same in all replicas. Never 0.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        foldhash::quality::FixedState::default().hash_one(&*self.body) | 1
    }

    /// The number of parameter sets in it.
    #[must_use]
    pub const fn sets(&self) -> usize {
        self.sets
    }
}

/// A question in compact form, as stored with its answer: its parameters are one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedQuestion {
    route: Arc<str>,
    application_set: Option<Arc<str>>,
    /// JSON
    parameters: Box<str>,
    /// The part of the answer, as JSON.
    part: Option<Box<str>>,
}

impl From<&Question> for PackedQuestion {
    fn from(question: &Question) -> Self {
        Self {
            route: Arc::clone(&question.route),
            application_set: question.application_set.clone(),
            parameters: serde_json::to_string(&*question.parameters).unwrap_or_default().into(),
            part: question.part.as_ref().map(|part| serde_json::to_string(part).unwrap_or_default().into()),
        }
    }
}

impl PackedQuestion {
    /// The route's name.
    #[must_use]
    pub const fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// The ApplicationSet's name, if the answer may depend on it.
    #[must_use]
    pub const fn application_set(&self) -> Option<&Arc<str>> {
        self.application_set.as_ref()
    }

    /// The input parameters as JSON.
    #[must_use]
    pub const fn parameters(&self) -> &str {
        &self.parameters
    }

    /// The part of the answer that it is about, as JSON.
    #[must_use]
    pub fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }

    fn read_parameters(&self) -> Parameters {
        match document::read_back(self.parameters.as_bytes()) {
            Ok(Value::Object(parameters)) => parameters,
            _ => Parameters::default(),
        }
    }

    /// The question.
    #[must_use]
    pub fn open(&self) -> Question {
        Question {
            route: Arc::clone(&self.route),
            application_set: self.application_set.clone(),
            parameters: Arc::new(self.read_parameters()),
            part: self.part.as_deref().and_then(|part| serde_json::from_str(part).ok()),
        }
    }
}

/// About how much memory `question` takes, in bytes.
#[must_use]
pub(crate) fn question_size(question: &Question) -> usize {
    let item = question.part.as_ref().and_then(Part::element).and_then(|element| element.item.as_object());
    let names = question.application_set.as_ref().map_or(0, |name| PIECE + name.len());
    names + memory_of(&question.parameters) + item.map_or(0, memory_of)
}

/// An answer and its facts.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The answer.
    pub encoded: Encoded,
    /// The question that it answers.
    pub question: PackedQuestion,
    /// The route's configuration that made it, and the keys by which it was verified.
    pub(crate) made_under: MadeUnder,
    /// When the backend had it.
    pub stored_at: Timestamp,
    /// When a caller last waited for it, or caused its renewal.
    pub queried_at: Timestamp,
    /// When its question was answered for the first time. A later time moves a lineage on.
    pub first_at: Timestamp,
    /// The number of the run that brought it. A later run has a higher number. 0 after a restart.
    pub run_number: u64,
    /// For how long it is fresh.
    pub life: Life,
    /// How long the backend took.
    pub took: Duration,
    /// The findings about each item, and the proof of an absence.
    pub evidence: Vec<Evidence>,
    /// The note that the backend gets back with the next question of the lineage.
    pub note: Option<BackendNote>,
    /// The elements that it is made of, if its route has elements.
    pub elements: Option<Arc<Elements>>,
    /// When a caller last wanted it.
    pub last_served: LastServed,
}

impl Entry {
    /// About how much memory it takes, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let evidence: usize = self.evidence.iter().map(|each| each.query.len() + each.answer.len() + 96).sum();
        let part = self.question.part.as_ref().map_or(0, |part| PIECE + part.len());
        let parameters = PIECE + self.question.parameters.len() + part;
        let note = self.note.as_ref().map_or(0, |note| PIECE + note.len());
        let elements = self.elements.as_ref().map_or(0, |elements| elements.weight());
        BESIDE + size_of::<Self>() + self.encoded.body.len() + evidence + parameters + note + elements
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_list_is_explicit() {
        let empty = Encoded::encode(&[]).unwrap();
        assert_eq!((&empty.body()[..], empty.sets()), (&br#"{"output":{"parameters":[]}}"#[..], 0));
    }

    #[test]
    fn keys_keep_their_order() {
        let set = ParameterSet(json!({"z": 1, "a": "ü\u{1}"}).as_object().unwrap().clone());
        let encoded = Encoded::encode(std::slice::from_ref(&set)).unwrap();
        assert_eq!(encoded.decode(), [set]);
        assert_eq!(
            std::str::from_utf8(encoded.body()).unwrap(),
            r#"{"output":{"parameters":[{"z":1,"a":"ü\u0001"}]}}"#
        );
    }
}
