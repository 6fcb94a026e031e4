//! Where in a distributed trace work is done: the ids that came with a request go along with all that is done for it, to
//! those who are asked, to programs and into the log. Where spans are collected, each part of the work is noted as one.
//!
//! The place goes with the task, as a scope, and not with the arguments: who sends a request or starts a program need not
//! know for whom. What goes on in another task is [`carry`]'d there. Nothing is kept for a request that has no place, so
//! without traces none of this costs anything. A span holds names of the configuration, statuses and counts; never a
//! parameter, a path, a message or a secret.

mod context;
mod record;
mod span;
mod tracer;

use futures_util::future::Either;
use tokio::task::futures::TaskLocalFuture;

#[cfg(feature = "otlp")]
pub(crate) use self::record::Value;
pub(crate) use self::{
    context::{Context, HEADER},
    record::{Record, SpanKind},
    span::{Span, SpanContext},
    tracer::Tracer,
};

tokio::task_local! {
    static PLACE: SpanContext;
}

/// Where the present task is, if it works for a trace.
#[must_use]
pub(crate) fn current() -> Option<SpanContext> {
    PLACE.try_with(Clone::clone).ok()
}

/// `work` at the present place, to be done by another task.
pub(crate) fn carry<F: Future>(work: F) -> Either<TaskLocalFuture<SpanContext, F>, F> {
    at(current(), work)
}

/// Begins a span of the present place. It is none where nobody collects them.
pub(crate) fn begin(kind: SpanKind, name: impl FnOnce() -> String) -> Span {
    PLACE.try_with(|place| place.begin(kind, name)).unwrap_or_default()
}

/// Notes that what the present span waits for is done for `other`, if that is another one.
pub(crate) fn wait_for(other: Option<Context>) {
    let Some(other) = other else { return };
    let _ = PLACE.try_with(|place| {
        if place.context() != other {
            place.note(|record| record.link(other));
        }
    });
}

/// `work` at `place`, or where it is done anyhow.
pub(crate) fn at<F: Future>(place: Option<SpanContext>, work: F) -> Either<TaskLocalFuture<SpanContext, F>, F> {
    match place {
        Some(place) => Either::Left(PLACE.scope(place, work)),
        None => Either::Right(work),
    }
}
