//! Reads and writes CEL values as JSON without an intermediate copy: a long list fills an evaluator's memory.

use std::{borrow::Cow, cell::Cell, collections::HashMap, fmt};

use cel::{
    common::{
        types::{CelBool, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString},
        value::Val,
    },
    objects::Key,
};
use serde::{
    Serialize, Serializer,
    de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
    ser::{Error as _, SerializeMap as _},
};

use super::number;
use domain::document::{
    NODE,
    number::{TOKEN, WrittenNumbers},
    strict::Text,
};

/// Reads a document that was checked before, so that it has no repeated keys.
pub(super) fn read(json: &[u8]) -> Result<Box<dyn Val + '_>, serde_json::Error> {
    let numbers = WrittenNumbers::of(json);
    Reader(&numbers).deserialize(&mut serde_json::Deserializer::from_slice(json))
}

/// Reads a value that borrows its texts unless they have escapes.
#[derive(Clone, Copy)]
struct Reader<'n>(&'n WrittenNumbers<'n>);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Box<dyn Val + 'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Box<dyn Val + 'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Box::new(CelNull))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Box::new(CelBool::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Box::new(CelInt::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(number::unsigned(value))
    }

    /// The text of a number. All other texts are borrowed, or have escapes and are lent.
    fn visit_string<E: de::Error>(self, number: String) -> Result<Self::Value, E> {
        self.0.next(number).map(|number| number::to_cel(&number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Box::new(CelList::from(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map: HashMap<CelMapKey<'de>, Box<dyn Val + 'de>> = HashMap::new();
        while let Some(Text(name)) = entries.next_key()? {
            let value = entries.next_value_seed(self)?;
            if name == TOKEN && self.0.took_number() {
                return Ok(value);
            }
            let key = match name {
                Cow::Borrowed(name) => CelMapKey::from(name),
                Cow::Owned(name) => CelMapKey::from(name),
            };
            map.insert(key, value);
        }
        Ok(Box::new(CelMap::from(map)))
    }
}

/// A value to write as JSON, with the keys of maps in alphabetical order, since CEL's maps have no order.
pub(super) struct Written<'a, 'v> {
    /// The value.
    pub value: &'a (dyn Val + 'v),
    /// How much memory the written value may still take, in bytes. Zero when it took too much.
    pub left: &'a Cell<usize>,
}

impl Serialize for Written<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let spend = |bytes: usize| {
            let left = self.left.get().saturating_sub(NODE + bytes);
            self.left.set(left);
            if left == 0 { Err(S::Error::custom("the result is too large")) } else { Ok(()) }
        };
        let inner = |value| Written { value, left: self.left };
        if let Some(text) = self.value.downcast_ref::<CelString>() {
            spend(text.inner().len())?;
            return serializer.serialize_str(text.inner());
        }
        if let Some(number) = number::written(self.value) {
            spend(number.as_str().len())?;
            return number.serialize(serializer);
        }
        spend(0)?;
        if let Some(list) = self.value.downcast_ref::<CelList>() {
            return serializer.collect_seq(list.iter().map(|item| inner(item.as_ref())));
        }
        if let Some(map) = self.value.downcast_ref::<CelMap>() {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (name_of(key), value)).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            let mut object = serializer.serialize_map(Some(entries.len()))?;
            for (name, value) in entries {
                spend(name.len())?;
                object.serialize_entry(&name, &inner(value.as_ref()))?;
            }
            return object.end();
        }
        match cel::Value::try_from(self.value).map_err(S::Error::custom)? {
            cel::Value::Null => serializer.serialize_unit(),
            cel::Value::Bool(value) => serializer.serialize_bool(value),
            cel::Value::Int(value) => serializer.serialize_i64(value),
            cel::Value::UInt(value) => serializer.serialize_u64(value),
            cel::Value::Float(value) if value.is_finite() => {
                number::calculated(value).map_err(S::Error::custom)?.serialize(serializer)
            }
            cel::Value::Float(_) => Err(S::Error::custom("a number in the result is not finite")),
            // A type is written as its name.
            cel::Value::String(name) => serializer.serialize_str(&name),
            other => {
                Err(S::Error::custom(format!("the result holds a {}, which JSON cannot express", other.type_of())))
            }
        }
    }
}

fn name_of<'a>(key: &'a CelMapKey<'_>) -> Cow<'a, str> {
    match key {
        CelMapKey::String(text) => Cow::Borrowed(text.inner()),
        other => Cow::Owned(Key::from(other.clone()).to_string()),
    }
}
