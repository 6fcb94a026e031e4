//! The parts of an answer that has elements: its list, and each element.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::exact;

/// A part of the answer to a question. It is queried, remembered and renewed by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// The list of items.
    List,
    /// The element of one item.
    Element(Element),
}

/// An element: one item of a list, which has parameter sets of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// What makes it the same element in the next list: the values of the step's `key`, as a JSON list.
    pub id: Arc<str>,
    /// The item, a JSON object.
    #[serde(deserialize_with = "exact::read")]
    pub item: Arc<Value>,
}

impl Part {
    /// The element, if it is one.
    #[must_use]
    pub const fn element(&self) -> Option<&Element> {
        match self {
            Self::List => None,
            Self::Element(element) => Some(element),
        }
    }
}

impl Element {
    /// Its key for people: `12`, or `org/shop, 12`, without characters that a terminal would interpret.
    #[must_use]
    pub fn label(&self) -> String {
        let Ok(Value::Array(values)) = super::super::document::read_back(self.id.as_bytes()) else {
            return self.id.escape_debug().to_string();
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.escape_debug().to_string(),
            other => other.to_string(),
        };
        values.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("the list"),
            Self::Element(element) => write!(f, "element {}", element.label()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_element_comes_back_as_it_was() {
        let item: Value = super::super::super::document::read_back(br#"{"number":1.10,"x":null}"#).unwrap();
        let part = Part::Element(Element { id: r#"["org/shop",12]"#.into(), item: Arc::new(item) });
        let text = serde_json::to_string(&part).unwrap();
        assert!(text.contains("1.10"), "{text}");
        assert_eq!(serde_json::from_str::<Part>(&text).unwrap(), part);
        assert_eq!(part.to_string(), "element org/shop, 12");
        assert_eq!(serde_json::to_value(Part::List).unwrap(), json!("list"));
        let label = |id: &str| Element { id: id.into(), item: Arc::default() }.label();
        assert_eq!((label("[\"a\\u001b\"]"), label("x\n")), (r"a\u{1b}".to_owned(), r"x\n".to_owned()));
    }
}
