//! A parameter in the format of a Config Management Plugin (`parameters.static` of its `plugin.yaml`, and the output of the
//! command of `parameters.dynamic`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::route::input::{InputParameter, Type};
use domain::problem::{Path, Problems};

/// A parameter, as a Config Management Plugin announces it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announcement {
    /// Its name.
    pub name: String,
    /// A short description.
    pub title: Option<String>,
    /// A longer description.
    pub tooltip: Option<String>,
    /// Whether a call without it is refused.
    #[serde(default)]
    pub required: bool,
    /// The type of its value, or of the values in its collection.
    #[serde(default)]
    pub(crate) item_type: ItemType,
    /// The kind of its collection.
    #[serde(default)]
    pub(crate) collection_type: CollectionType,
    /// The default if it is not a collection.
    pub string: Option<String>,
    /// The default of a list.
    pub array: Option<Vec<String>>,
    /// The default of a map.
    pub map: Option<BTreeMap<String, String>>,
}

/// The type of a value, or of the values of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemType {
    /// Text.
    #[default]
    #[serde(alias = "")]
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}

/// The kind of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectionType {
    /// Not a collection.
    #[default]
    #[serde(alias = "")]
    String,
    /// A list.
    Array,
    /// An object.
    Map,
}

impl Announcement {
    /// The route's parameter. Problems are noted at the path `at`.
    pub fn parameter(&self, at: &Path, problems: &mut Problems) -> InputParameter {
        if self.name.is_empty() {
            problems.error(&at.key("name"), "a parameter's name is not empty");
        }
        let kind = match (self.collection_type, self.item_type) {
            (CollectionType::Array, _) => Type::Array,
            (CollectionType::Map, _) => Type::Map,
            (CollectionType::String, ItemType::String) => Type::String,
            (CollectionType::String, ItemType::Number) => Type::Number,
            (CollectionType::String, ItemType::Boolean) => Type::Boolean,
        };
        let defaults = [
            ("string", kind != Type::Array && kind != Type::Map, self.string.clone().map(Value::from)),
            ("array", kind == Type::Array, self.array.clone().map(Value::from)),
            ("map", kind == Type::Map, self.map.clone().map(|map| json!(map))),
        ];
        let mut default = None;
        for (key, fits, value) in defaults {
            if value.is_some() && !fits {
                let help = "a default stands under `string`, `array` or `map`, as `collectionType` says";
                problems.error_with_help(&at.key(key), "the parameter is of another type", help);
            } else if fits {
                default = value;
            }
        }
        InputParameter {
            name: self.name.clone(),
            kind,
            // A parameter with a default is never missing.
            required: self.required && default.is_none(),
            default,
            pattern: None,
            title: self.title.clone().or_else(|| self.tooltip.clone()),
        }
    }
}
