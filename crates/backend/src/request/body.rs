//! The body of a request: JSON. Its strings are templates.

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Map, Value};

use crate::ITEMS;
use domain::{
    problem::{Path, Problems, Segment},
    secret::literal,
};
use lang::{
    evaluator::{Context, EvaluationError},
    scope::NameScope,
    template::{MAX_TEXT_BYTES, Template, ValueContext, json_of},
};

/// A JSON value whose strings are templates.
#[derive(Debug)]
pub(super) enum Tree {
    Literal(Value),
    Text(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
    /// The list of items of the previous step.
    Items,
}

impl Tree {
    pub(super) fn build(value: &Value, scope: &NameScope, path: &Path, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::String(text) if scope.has(ITEMS) && is_items(text) => Some(Self::Items),
            Value::String(text) => {
                if let Some(Segment::Key(name)) = path.segments().last() {
                    literal::check_sent(name, text, path, problems);
                }
                Template::build(text, ValueContext::Text, scope, path, problems).map(Self::Text)
            }
            Value::Array(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| Self::build(item, scope, &path.index(index), problems));
                items.collect::<Option<_>>().map(Self::List)
            }
            Value::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, item)| Some((key.clone(), Self::build(item, scope, &path.key(key), problems)?)));
                entries.collect::<Option<_>>().map(Self::Object)
            }
            other => Some(Self::Literal(other.clone())),
        }
    }

    pub(super) async fn render(&self, context: &Context) -> Result<Value, EvaluationError> {
        self.render_within(context, &mut MAX_TEXT_BYTES.clone()).await
    }

    /// Renders this part. `left` is the number of bytes that all remaining texts may have together.
    fn render_within<'a>(
        &'a self,
        context: &'a Context,
        left: &'a mut usize,
    ) -> BoxFuture<'a, Result<Value, EvaluationError>> {
        async move {
            Ok(match self {
                Self::Literal(value) => value.clone(),
                Self::Items => {
                    let items = context.values().get_attr(ITEMS).map_err(|error| error.to_string())?;
                    json_of(&items)?
                }
                Self::Text(template) => {
                    let text = context.render(template).await?;
                    *left =
                        left.checked_sub(text.len()).ok_or("its texts are longer than 4 MiB together".to_owned())?;
                    Value::String(text)
                }
                Self::List(items) => {
                    let mut list = Vec::new();
                    for item in items {
                        list.push(item.render_within(context, left).await?);
                    }
                    Value::Array(list)
                }
                Self::Object(entries) => {
                    let mut object = Map::new();
                    for (key, item) in entries {
                        object.insert(key.clone(), item.render_within(context, left).await?);
                    }
                    Value::Object(object)
                }
            })
        }
        .boxed()
    }

    /// Whether a template of it uses the top-level name `top`.
    pub(super) fn reads(&self, top: &str) -> bool {
        match self {
            Self::Literal(_) | Self::Items => false,
            Self::Text(template) => template.reads(top),
            Self::List(items) => items.iter().any(|item| item.reads(top)),
            Self::Object(entries) => entries.iter().any(|(_, item)| item.reads(top)),
        }
    }
}

/// Whether `text` is `{{ items }}` and nothing else. A template can only print text, so only this means the list itself.
fn is_items(text: &str) -> bool {
    text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).is_some_and(|name| name.trim() == ITEMS)
}
