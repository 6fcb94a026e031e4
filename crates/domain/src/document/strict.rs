//! Reads a JSON document strictly and without copies.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{
    Document, Object,
    number::{TOKEN, WrittenNumbers},
};

/// Up to so many keys are compared with each other, which is faster than a table.
const FEW: usize = 16;

/// Reads exactly one JSON value.
///
/// # Errors
/// When `bytes` are not JSON, with a repeated key, and with a number that is not finite.
pub(super) fn read(bytes: &[u8]) -> serde_json::Result<Document<'_>> {
    let numbers = WrittenNumbers::of(bytes);
    let visitor = DocumentVisitor(&numbers);
    // Checked as a whole, UTF-8 costs less than text by text. The error for other bytes says where they are.
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let document = visitor.deserialize(&mut deserializer)?;
        deserializer.end().map(|()| document)
    } else {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let document = visitor.deserialize(&mut deserializer)?;
        deserializer.end().map(|()| document)
    }
}

/// A text, borrowed unless it has escapes.
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[derive(Clone, Copy)]
struct DocumentVisitor<'n>(&'n WrittenNumbers<'n>);

impl<'de> DeserializeSeed<'de> for DocumentVisitor<'_> {
    type Value = Document<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentVisitor<'_> {
    type Value = Document<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Document::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Document::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Document::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Document::Number(value.into()))
    }

    /// The text of a number. All other texts are borrowed, or have escapes and are lent.
    fn visit_string<E: Error>(self, number: String) -> Result<Self::Value, E> {
        self.0.next(number).map(Document::Number)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        TextVisitor.visit_borrowed_str(text).map(Document::Text)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        TextVisitor.visit_str(text).map(Document::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Document::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut object: Vec<(Cow<'de, str>, Document<'de>)> = Vec::new();
        while let Some(Text(key)) = entries.next_key()? {
            if object.len() < FEW && object.iter().any(|(before, _)| *before == key) {
                return Err(repeated(&key));
            }
            let value = entries.next_value_seed(self)?;
            if key == TOKEN && self.0.took_number() {
                return Ok(value);
            }
            object.push((key, value));
        }
        if object.len() > FEW {
            let mut known = HashSet::with_capacity(object.len());
            if let Some((key, _)) = object.iter().find(|(key, _)| !known.insert(&**key)) {
                return Err(repeated(key));
            }
        }
        Ok(Document::Object(Object(object)))
    }
}

fn repeated<E: Error>(key: &str) -> E {
    E::custom(format!("the key `{}` stands twice", key.escape_debug()))
}
