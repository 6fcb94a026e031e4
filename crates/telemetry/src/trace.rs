//! Distributed traces. The ids of a request go along with all work for it: to upstreams, to programs and into the log. If a
//! collector is configured, each part of the work becomes a span.
//!
//! The span's context belongs to the task and is not an argument: code that sends a request or starts a program need not say for
//! whom. [`carry`] takes the context to another task. A request without a context costs nothing. A span holds names of the
//! configuration, statuses and counts, never a parameter, a path, a message or a secret.

mod context;
mod record;
mod span;
mod tracer;

use futures_util::future::Either;
use tokio::task::futures::TaskLocalFuture;

pub use self::record::Value;
pub use self::{
    context::{HEADER, TraceContext},
    record::{Record, SpanKind},
    span::{Span, SpanContext},
    tracer::Tracer,
};

tokio::task_local! {
    static PLACE: SpanContext;
}

/// The context of the present task, if it works for a trace.
#[must_use]
pub fn current() -> Option<SpanContext> {
    PLACE.try_with(Clone::clone).ok()
}

/// `work` with the present context, for another task.
pub fn carry<F: Future>(work: F) -> Either<TaskLocalFuture<SpanContext, F>, F> {
    at(current(), work)
}

/// Begins a span within the present one. Does nothing if no spans are collected.
pub fn begin(kind: SpanKind, name: impl FnOnce() -> String) -> Span {
    PLACE.try_with(|place| place.begin(kind, name)).unwrap_or_default()
}

/// Notes that the present span waits for work of `other`, unless they are the same.
pub fn wait_for(other: Option<TraceContext>) {
    let Some(other) = other else { return };
    let _ = PLACE.try_with(|place| {
        if place.context() != other {
            place.note(|record| record.link(other));
        }
    });
}

/// `work` with `place` as its context, if there is one.
pub fn at<F: Future>(place: Option<SpanContext>, work: F) -> Either<TaskLocalFuture<SpanContext, F>, F> {
    match place {
        Some(place) => Either::Left(PLACE.scope(place, work)),
        None => Either::Right(work),
    }
}
