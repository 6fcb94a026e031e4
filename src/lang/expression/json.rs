//! Reads and writes CEL values as JSON without an intermediate copy: a long list fills an evaluator's memory.

use std::{borrow::Cow, cell::Cell, collections::HashMap, fmt};

use cel::{
    common::{
        types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt},
        value::Val,
    },
    objects::Key,
};
use serde::{
    Serialize, Serializer,
    de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor},
    ser::{Error as _, SerializeMap as _},
};

use crate::domain::document::NODE;

/// Reads a document that was checked before, so that it has no repeated keys.
pub(super) fn read(json: &[u8]) -> Result<Box<dyn Val + '_>, String> {
    let read: Result<Read<'_>, _> = serde_json::from_slice(json);
    read.map(|read| read.0).map_err(|error| error.to_string())
}

/// A value that borrows its texts unless they have escapes. Whole numbers become `int`, so that `n + 1` works. Only larger
/// numbers become `uint`.
struct Read<'a>(Box<dyn Val + 'a>);

/// An object's key.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Read<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadVisitor)
    }
}

struct ReadVisitor;

impl<'de> Visitor<'de> for ReadVisitor {
    type Value = Read<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Read(Box::new(CelNull)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Read(Box::new(CelBool::from(value))))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Read(Box::new(CelInt::from(value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Read(
            i64::try_from(value)
                .map_or_else(|_| Box::new(CelUInt::from(value)) as Box<dyn Val>, |value| Box::new(CelInt::from(value))),
        ))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Read(Box::new(CelDouble::from(value))))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Read(Box::new(CelString::from(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Read(Box::new(CelString::from(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Read(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Read(Box::new(CelList::from(list))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map: HashMap<CelMapKey<'de>, Box<dyn Val + 'de>> = HashMap::new();
        while let Some((Name(name), Read(value))) = entries.next_entry()? {
            let key = match name {
                Cow::Borrowed(name) => CelMapKey::from(name),
                Cow::Owned(name) => CelMapKey::from(name),
            };
            map.insert(key, value);
        }
        Ok(Read(Box::new(CelMap::from(map))))
    }
}

/// A value to write as JSON, with the keys of maps in alphabetical order, since CEL's maps have no order.
pub(super) struct Written<'a, 'v> {
    /// The value.
    pub(crate) value: &'a (dyn Val + 'v),
    /// How much memory the written value may still take, in bytes. Zero when it took too much.
    pub(crate) left: &'a Cell<usize>,
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
            cel::Value::Float(value) if value.is_finite() => serializer.serialize_f64(value),
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
