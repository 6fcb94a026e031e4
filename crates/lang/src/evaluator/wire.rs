//! The protocol between the gateway and an evaluator: messages in postcard's format, each after its length.

use std::{
    borrow::Cow,
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    expression::Expression,
    template::{Refusal, ValueContext},
};
use domain::document::{self, Document, DocumentError};

/// The longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// The size of a message's length, in bytes.
pub(super) const HEAD: usize = 4;

/// The text before the reason on stderr when an evaluator cannot start.
pub(super) const START_FAILED: &str = "error: evaluator: ";

/// A task for an evaluator.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task<'a> {
    /// Evaluate an expression over variables, which are JSON.
    Expression {
        /// The expression.
        source: &'a str,
        /// Names and values.
        #[serde(borrow)]
        variables: Vec<(&'a str, &'a [u8])>,
    },
    /// Render a template with variables that are a JSON object.
    Template {
        /// The template.
        source: &'a str,
        /// The context of its values.
        place: ValueContext,
        /// The variables.
        context: &'a [u8],
    },
}

impl Task<'_> {
    /// How much there is to read, in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Expression { source, variables } => {
                source.len() + variables.iter().map(|(name, json)| name.len() + json.len()).sum::<usize>()
            }
            Self::Template { source, context, .. } => source.len() + context.len(),
        }
    }
}

/// The answer to a task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EvaluatorAnswer {
    /// The expression's value as JSON, or the mistake: its text, since errors of CEL cannot be sent.
    Value(Result<String, String>),
    /// The template's text, or the mistake.
    Text(Result<String, Refusal>),
    /// The result is too large.
    TooLarge,
    /// A bug in the evaluation. The evaluator ends.
    Panicked,
}

impl EvaluatorAnswer {
    /// The outcome in metrics.
    pub(super) fn as_str(&self) -> &'static str {
        let is_wrong = match self {
            Self::Value(value) => value.is_err(),
            Self::Text(text) => text.is_err(),
            Self::TooLarge | Self::Panicked => true,
        };
        if is_wrong { "wrong" } else { "done" }
    }
}

/// The variables of expressions.
#[derive(Debug, Clone, Default)]
pub struct Variables(Vec<(&'static str, VariableValue)>);

/// A variable's value.
#[derive(Debug, Clone)]
enum VariableValue {
    /// One JSON document.
    Json(Bytes),
    /// A value that is shared with others.
    Shared(Arc<Value>),
}

impl Variables {
    /// Adds a JSON document called `name`.
    #[must_use]
    pub fn json(mut self, name: &'static str, document: Bytes) -> Self {
        self.0.push((name, VariableValue::Json(document)));
        self
    }

    /// Adds a value called `name`.
    #[must_use]
    pub fn value(mut self, name: &'static str, value: impl Into<Arc<Value>>) -> Self {
        self.0.push((name, VariableValue::Shared(value.into())));
        self
    }

    /// The value of `expression` with these variables, if that is provably cheap; or the mistake, as an evaluator would report it.
    #[must_use]
    pub fn evaluate_small(&self, expression: &Expression) -> Option<Result<Value, String>> {
        let mut documents = Vec::new();
        for (name, source) in self.mentioned(expression) {
            match source.read() {
                Ok(document) => documents.push((*name, document)),
                Err(why) => return Some(Err(why.to_string())),
            }
        }
        let variables: Vec<_> = documents.iter().map(|(name, document)| (*name, document)).collect();
        Some(expression.evaluate_small(&variables)?.map_err(|error| error.to_string()))
    }

    /// The variables that `expression` mentions, as JSON.
    pub(super) fn of(&self, expression: &Expression) -> Vec<(&str, Cow<'_, [u8]>)> {
        self.mentioned(expression).map(|(name, source)| (*name, source.to_json())).collect()
    }

    fn mentioned(&self, expression: &Expression) -> impl Iterator<Item = &(&'static str, VariableValue)> {
        self.0.iter().filter(|(name, _)| expression.mentions(name))
    }
}

impl VariableValue {
    fn read(&self) -> Result<Document<'_>, DocumentError> {
        match self {
            Self::Json(document) => document::read(document),
            Self::Shared(value) => Ok((&**value).into()),
        }
    }

    fn to_json(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Json(document) => Cow::Borrowed(document),
            Self::Shared(value) => Cow::Owned(value.to_string().into_bytes()),
        }
    }
}

/// `message` after its length.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = postcard::to_extend(message, vec![0; HEAD]).map_err(io::Error::other)?;
    let length = body.len() - HEAD;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::other("what it reads is longer than 64 MiB"));
    }
    let length = u32::try_from(length).map_err(io::Error::other)?;
    let mut frame = body;
    frame[..HEAD].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// The length in `head`.
pub(super) fn length(head: [u8; HEAD]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

/// The bytes of the next message. `None` at the end of the stream.
pub(super) fn receive(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD];
    match stream.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let mut body = vec![0; length(head)?];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Sends `message`.
pub(super) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frame(message)?)?;
    stream.flush()
}

/// Decodes a message.
pub(super) fn message<'a, T: Deserialize<'a>>(body: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(io::Error::other)
}
