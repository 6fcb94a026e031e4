//! A backend that queries another one for each item of a list.

use std::{collections::HashMap, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer, Visitor},
};
use serde_json::Value;

use super::Backend;
use domain::{
    document::kind_of,
    error::BackendError,
    generator::{Element, ParameterSet},
    units::Percent,
};

/// How many elements an answer may have.
const MAX_ELEMENTS: usize = 10_000;

/// How many elements of one answer are queried at a time. The limits of the destinations come on top.
pub const ELEMENTS_AT_ONCE: usize = 64;
/// How many elements a message names.
const MAX_NAMED: usize = 5;

/// The first of `count` texts, each about an element, and how many more there are.
pub fn first_named(count: usize, texts: impl Iterator<Item = String>) -> String {
    let named = texts.take(MAX_NAMED).collect::<Vec<_>>().join("; ");
    if count > MAX_NAMED { format!("{named}; and {} more", count - MAX_NAMED) } else { named }
}

/// The parts of a backend that queries one backend for each item of another one's list. The engine remembers each element by itself.
pub struct Each {
    /// Makes the list.
    pub list: Arc<dyn Backend>,
    /// Makes the sets of one element: of the item in `Query::part`.
    pub element: Arc<dyn Backend>,
    /// The kind of the list's backend, and of the elements'.
    pub kinds: [&'static str; 2],
    /// The fields that identify an item.
    pub key: Vec<String>,
    /// How many elements may be unknown in an answer.
    pub max_unknown: MaxUnknown,
    /// Whether each set also has its element's item, as `item`.
    pub has_item_in_sets: bool,
}

/// How many elements may be unknown in an answer. With more, the whole answer is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum MaxUnknown {
    /// This many.
    Count(u32),
    /// This share.
    Share(Percent),
}

impl MaxUnknown {
    /// Half of the elements, which is also the limit of any other value: a source that is down must not look like many elements that fail.
    pub const HALF: Self = Self::Share(Percent(50));

    /// Whether `unknown` of `all` elements are too many.
    #[must_use]
    pub fn is_exceeded(self, unknown: usize, all: usize) -> bool {
        let is_own = match self {
            Self::Count(count) => unknown > count as usize,
            Self::Share(share) => share.is_exceeded(unknown, all),
        };
        is_own || Percent(50).is_exceeded(unknown, all)
    }
}

impl<'de> Deserialize<'de> for MaxUnknown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountOrShare)
    }
}

struct CountOrShare;

impl Visitor<'_> for CountOrShare {
    type Value = MaxUnknown;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of elements, such as `5`, or a share, such as `10%`")
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<MaxUnknown, E> {
        u32::try_from(count).map(MaxUnknown::Count).map_err(|_| neither(count))
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<MaxUnknown, E> {
        Err(neither(count))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<MaxUnknown, E> {
        Err(neither(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MaxUnknown, E> {
        if text.parse::<u32>().is_ok() {
            return Err(E::custom(format!(
                "`\"{text}\"` is a text: write the number `{text}`, or a share such as `10%`"
            )));
        }
        let share = Percent::deserialize(IntoDeserializer::<E>::into_deserializer(text));
        share.map(MaxUnknown::Share).map_err(|_| neither(text.escape_debug()))
    }
}

/// `given` is no limit.
fn neither<E: de::Error>(given: impl fmt::Display) -> E {
    E::custom(format!("`{given}` is neither a number of elements, such as `5`, nor a share of them, such as `10%`"))
}

impl fmt::Display for MaxUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Share(share) => share.fmt(f),
        }
    }
}

impl Each {
    /// The elements of a list, in its order.
    ///
    /// # Errors
    /// When two items have the same key, an item lacks it, or there are more than [`MAX_ELEMENTS`].
    pub fn elements(&self, items: Vec<ParameterSet>) -> Result<Vec<Element>, BackendError> {
        if items.len() > MAX_ELEMENTS {
            let count = items.len();
            return Err(BackendError::invalid_output(format!(
                "the list has {count} items, and an answer may have {MAX_ELEMENTS} elements; select fewer, or make several routes"
            )));
        }
        let mut places = HashMap::with_capacity(items.len());
        let mut elements: Vec<Element> = Vec::with_capacity(items.len());
        for (index, ParameterSet(item)) in items.into_iter().enumerate() {
            let values = self.key.iter().map(|field| value_of(&item, field));
            let values = values.collect::<Result<Vec<Value>, String>>();
            let values = values.map_err(|why| BackendError::invalid_output(format!("item {index}: {why}")))?;
            let element = Element { id: Value::Array(values).to_string().into(), item: Arc::new(Value::Object(item)) };
            if let Some(first) = places.insert(Arc::clone(&element.id), index) {
                return Err(BackendError::invalid_output(format!(
                    "the items {first} and {index} both have the key {}; name more fields in `each.key`, so that each item has its own",
                    element.label()
                )));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// The value of the field `name`, whose dots lead into objects.
fn value_of(item: &serde_json::Map<String, Value>, name: &str) -> Result<Value, String> {
    let mut fields = name.split('.');
    let first = fields.next().and_then(|field| item.get(field));
    let value = fields.fold(first, |value, field| value.and_then(|value| value.get(field)));
    match value {
        Some(Value::String(text)) if text.is_empty() => Err(format!("its `{name}` is empty, and `each.key` names it")),
        Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => Ok(value.clone()),
        Some(other) => Err(format!("its `{name}` is {}, and `each.key` needs a text or a number", kind_of(other))),
        None => Err(format!("it has no `{name}`, which `each.key` names")),
    }
}

impl fmt::Debug for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Each").field("kinds", &self.kinds).field("key", &self.key).finish_non_exhaustive()
    }
}
