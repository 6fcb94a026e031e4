//! What a span says.

use std::{
    borrow::Cow,
    time::{Duration, Instant, SystemTime},
};

use super::Context;

/// Which part a span's work has in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    /// We are asked.
    Server,
    /// We ask.
    Client,
    /// Neither.
    Internal,
}

/// An attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
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

/// A span, as it is told when it has ended.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only `collector::otlp` reads all of it"))]
pub(crate) struct Record {
    /// Its ids.
    pub(crate) context: Context,
    /// The span that it belongs to, unless it is the first of its trace.
    pub(crate) parent: Option<Context>,
    /// Whether that one is another program's.
    pub(crate) is_entry: bool,
    /// What is done, in few words that do not depend on who asks for what.
    pub(crate) name: String,
    /// Which part it has.
    pub(crate) kind: SpanKind,
    /// Since when.
    pub(crate) began: SystemTime,
    /// For how long.
    pub(crate) took: Duration,
    /// What is known of it, by OpenTelemetry's names where there are some.
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Spans of other work that it waits for.
    pub(crate) links: Vec<Context>,
    /// Whether it failed.
    pub(crate) is_failed: bool,
    started: Instant,
}

impl Record {
    /// One that begins now.
    pub(super) fn begin(
        context: Context,
        parent: Option<Context>,
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
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push((key, value.into()));
    }

    /// Says that it failed, and in which of few ways.
    pub(crate) fn fail(&mut self, why: impl Into<Value>) {
        self.is_failed = true;
        self.set("error.type", why);
    }

    /// Says that it waits for what `other` does.
    pub(super) fn link(&mut self, other: Context) {
        self.links.push(other);
    }

    /// It ends now.
    pub(super) fn end(&mut self) {
        self.took = self.started.elapsed();
    }
}
