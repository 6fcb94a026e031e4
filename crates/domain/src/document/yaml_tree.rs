//! A YAML value as serde-saphyr reads it, with the position of each node. The caller decides about numbers
//! and about repeated keys.

use std::{fmt, marker::PhantomData};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

/// A YAML value. `K` is the type of a mapping's keys: `String`, or `Spanned<String>` where their positions are needed.
pub enum YamlTree<K> {
    /// Neither a list nor a mapping. A whole number beyond 64 bits is a float.
    Scalar(Value),
    /// A list.
    List(Vec<Spanned<Self>>),
    /// A mapping: all entries in their order.
    Mapping(Vec<(K, Spanned<Self>)>),
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for YamlTree<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor(PhantomData))
    }
}

struct TreeVisitor<K>(PhantomData<K>);

impl<'de, K: Deserialize<'de>> Visitor<'de> for TreeVisitor<K> {
    type Value = YamlTree<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<YamlTree<K>, E> {
        Ok(YamlTree::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlTree<K>, E> {
        Ok(YamlTree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlTree<K>, E> {
        Ok(YamlTree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlTree<K>, E> {
        Ok(YamlTree::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<YamlTree<K>, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number that is not finite"))?;
        Ok(YamlTree::Scalar(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlTree<K>, E> {
        Ok(YamlTree::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlTree<K>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(YamlTree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlTree<K>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlTree::Mapping(entries))
    }
}
