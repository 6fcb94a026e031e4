//! A request's body: JSON, whose strings are templates.

use minijinja::Value as TemplateValue;
use serde_json::Value;

use crate::{
    problem::{Path, Problems},
    template::{INPUT_SCOPE, Place, Template},
};

/// A JSON value whose strings are templates.
#[derive(Debug)]
pub(super) enum Tree {
    Literal(Value),
    Text(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Tree {
    pub(super) fn build(value: &Value, path: &Path, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::String(text) => problems.note(path, Template::parse(text, Place::Text, INPUT_SCOPE)).map(Self::Text),
            Value::Array(items) => {
                let items =
                    items.iter().enumerate().map(|(index, item)| Self::build(item, &path.index(index), problems));
                items.collect::<Option<_>>().map(Self::List)
            }
            Value::Object(map) => {
                let entries =
                    map.iter().map(|(key, item)| Some((key.clone(), Self::build(item, &path.key(key), problems)?)));
                entries.collect::<Option<_>>().map(Self::Object)
            }
            other => Some(Self::Literal(other.clone())),
        }
    }

    pub(super) fn render(&self, context: &TemplateValue) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(context)?),
            Self::List(items) => Value::Array(items.iter().map(|item| item.render(context)).collect::<Result<_, _>>()?),
            Self::Object(entries) => {
                let entries = entries.iter().map(|(key, item)| Ok((key.clone(), item.render(context)?)));
                Value::Object(entries.collect::<Result<_, String>>()?)
            }
        })
    }

    pub(super) fn reads_application_set(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Text(template) => template.reads_application_set(),
            Self::List(items) => items.iter().any(Self::reads_application_set),
            Self::Object(entries) => entries.iter().any(|(_, item)| item.reads_application_set()),
        }
    }
}
