//! The content of a span.

use std::{
    borrow::Cow,
    time::{Duration, Instant, SystemTime},
};

use super::TraceContext;

/// The side of a conversation that a span is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// The gateway answers a request.
    Server,
    /// The gateway sends a request.
    Client,
    /// Neither.
    Internal,
}

/// An attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A finished span.
#[derive(Debug)]
pub struct Record {
    /// Its ids.
    pub context: TraceContext,
    /// The parent span, unless this is the first span of its trace.
    pub parent: Option<TraceContext>,
    /// Whether the parent belongs to another program.
    pub is_entry: bool,
    /// The name of the work. It does not depend on the caller or the parameters.
    pub name: String,
    /// The side of the conversation.
    pub kind: SpanKind,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// Attributes, by OpenTelemetry's names where there are some.
    pub attributes: Vec<(&'static str, Value)>,
    /// Spans of other work that it waits for.
    pub links: Vec<TraceContext>,
    /// Whether it failed.
    pub is_failed: bool,
    started: Instant,
}

impl Record {
    /// A span that begins now.
    pub(super) fn begin(
        context: TraceContext,
        parent: Option<TraceContext>,
        is_entry: bool,
        kind: SpanKind,
        name: String,
    ) -> Self {
        Self {
            context,
            parent,
            is_entry,
            name,
            kind,
            began: SystemTime::now(),
            took: Duration::ZERO,
            attributes: Vec::new(),
            links: Vec::new(),
            is_failed: false,
            started: Instant::now(),
        }
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push((key, value.into()));
    }

    /// Marks the span as failed, with one of few kinds of failure.
    pub fn fail(&mut self, why: impl Into<Value>) {
        self.is_failed = true;
        self.set("error.type", why);
    }

    /// Notes that it waits for the work of `other`.
    pub(super) fn link(&mut self, other: TraceContext) {
        self.links.push(other);
    }

    /// Ends the span now.
    pub(super) fn end(&mut self) {
        self.took = self.started.elapsed();
    }
}
