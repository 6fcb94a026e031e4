//! Spans under way, and their contexts.

use std::{fmt, sync::Arc};

use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::task::futures::TaskLocalFuture;

use super::{PLACE, Record, SpanKind, TraceContext, at, tracer::Recorder};

/// A place in a trace: a span of the gateway or of the caller.
#[derive(Clone)]
pub struct SpanContext {
    context: TraceContext,
    /// The record of a span of the gateway.
    open: Option<Arc<Open>>,
}

struct Open {
    /// `None` once the span has ended.
    record: Mutex<Option<Record>>,
    recorder: Recorder,
}

impl SpanContext {
    /// The context of the caller, when no spans of the gateway are collected.
    pub(super) const fn passing(context: TraceContext) -> Self {
        Self { context, open: None }
    }

    /// A span that is recorded.
    pub(super) fn open(record: Record, recorder: Recorder) -> Self {
        let context = record.context;
        Self { context, open: Some(Arc::new(Open { record: Mutex::new(Some(record)), recorder })) }
    }

    /// Its ids.
    #[must_use]
    pub const fn context(&self) -> TraceContext {
        self.context
    }

    /// Whether it is a recorded span of the gateway.
    #[must_use]
    pub(crate) const fn is_recorded(&self) -> bool {
        self.open.is_some()
    }

    /// Changes the record until the span has ended.
    pub fn note(&self, add: impl FnOnce(&mut Record)) {
        if let Some(open) = &self.open
            && let Some(record) = &mut *open.record.lock()
        {
            add(record);
        }
    }

    /// Begins a span within this one.
    pub(super) fn begin(&self, kind: SpanKind, name: impl FnOnce() -> String) -> Span {
        let place = self.open.as_ref().map(|open| {
            let record = Record::begin(self.context.child(), Some(self.context), false, kind, name());
            Self::open(record, open.recorder.clone())
        });
        Span(place)
    }
}

impl fmt::Debug for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.context)
    }
}

/// A span. It ends when it is dropped. Work that still runs in other tasks may add spans within it.
#[derive(Debug, Default)]
#[must_use = "it ends when it is dropped"]
pub struct Span(pub(super) Option<SpanContext>);

impl Span {
    /// The span's context, if it is recorded.
    #[must_use]
    pub fn place(&self) -> Option<SpanContext> {
        self.0.clone()
    }

    /// Changes the record. Does not call `change` if the span is not recorded.
    pub fn note(&self, add: impl FnOnce(&mut Record)) {
        if let Some(place) = &self.0 {
            place.note(add);
        }
    }

    /// `work` within the span.
    pub fn instrument<F: Future>(&self, work: F) -> Either<TaskLocalFuture<SpanContext, F>, F> {
        at(self.place(), work)
    }

    /// Does `work` within the span.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(place) => PLACE.sync_scope(place.clone(), work),
            None => work(),
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(SpanContext { open: Some(open), .. }) = &self.0 else { return };
        let record = open.record.lock().take();
        if let Some(mut record) = record {
            record.end();
            open.recorder.keep(record);
        }
    }
}
