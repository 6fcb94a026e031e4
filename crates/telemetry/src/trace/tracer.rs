//! Where traces begin: whether the spans of a request are collected.

use http::HeaderMap;
use prometheus::IntCounter;
use tokio::sync::mpsc;

use super::{Record, Span, SpanContext, SpanKind, TraceContext};

/// Counts spans that were dropped because the queue was full.
pub(super) type Losses = IntCounter;

/// The queue of finished spans. Adding never waits.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    queue: mpsc::Sender<Record>,
    losses: Losses,
}

impl Recorder {
    /// Adds `record` to the queue, unless it is full.
    pub(super) fn keep(&self, record: Record) {
        if self.queue.try_send(record).is_err() {
            self.losses.inc();
        }
    }
}

/// Begins the spans of requests.
#[derive(Debug, Default)]
pub struct Tracer {
    recorder: Option<Recorder>,
    sample: f64,
}

impl Tracer {
    /// Puts spans into `queue` and counts those that do not fit. If the caller has not decided whether a trace is kept, a
    /// share of `sample` is, from 0 to 1.
    #[must_use]
    pub const fn new(queue: mpsc::Sender<Record>, losses: Losses, sample: f64) -> Self {
        Self { recorder: Some(Recorder { queue, losses }), sample }
    }

    /// The span of a request with `headers`. If its trace is not kept here, the context of the caller.
    pub fn request(&self, headers: &HeaderMap, name: impl FnOnce() -> String) -> Span {
        let parent = TraceContext::of(headers);
        let Some(recorder) = &self.recorder else { return Span(parent.map(SpanContext::passing)) };
        let context = parent.map_or_else(|| TraceContext::new(fastrand::f64() < self.sample), TraceContext::child);
        if !context.is_sampled() {
            // Outgoing requests then belong to the caller's span.
            return Span(Some(SpanContext::passing(parent.unwrap_or(context))));
        }
        let record = Record::begin(context, parent, parent.is_some(), SpanKind::Server, name());
        Span(Some(SpanContext::open(record, recorder.clone())))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::Receiver;

    use super::*;
    use crate::trace::{self, HEADER};

    fn tracer(capacity: usize, sample: f64) -> (Tracer, Receiver<Record>, Losses) {
        let (queue, records) = mpsc::channel(capacity);
        let losses = Losses::new("losses", "Losses.").unwrap();
        (Tracer::new(queue, losses.clone(), sample), records, losses)
    }

    fn asked_by(context: TraceContext) -> HeaderMap {
        HeaderMap::from_iter([(HEADER, context.to_header().unwrap())])
    }

    fn name() -> String {
        "request".to_owned()
    }

    #[tokio::test]
    async fn spans_know_what_they_are_part_of() {
        let (tracer, mut records, _) = tracer(10, 0.0);
        let asking = TraceContext::new(true);
        let request = tracer.request(&asked_by(asking), name);
        let place = request.place().unwrap().context();
        let inner = request.instrument(async {
            let step = trace::begin(SpanKind::Internal, || "step".to_owned());
            step.instrument(async { tokio::spawn(trace::carry(async { trace::current() })).await.unwrap() }).await
        });
        let inner = inner.await.unwrap().context();
        assert!(trace::current().is_none());
        drop(request);
        let (step, request) = (records.recv().await.unwrap(), records.recv().await.unwrap());
        assert_eq!((request.context, request.parent, request.is_entry), (place, Some(asking), true));
        assert_eq!((step.context, step.parent, step.is_entry), (inner, Some(place), false));
        assert!([place, inner].iter().all(|context| context.trace() == asking.trace()));
        assert!(request.took >= step.took);
    }

    #[tokio::test]
    async fn who_asks_decides_and_else_the_share() {
        for (sample, asking, is_kept) in [
            (1.0, None, true),
            (0.0, None, false),
            (0.0, Some(TraceContext::new(true)), true),
            (1.0, Some(TraceContext::new(false)), false),
        ] {
            let (tracer, mut records, _) = tracer(10, sample);
            let headers = asking.map(asked_by).unwrap_or_default();
            let request = tracer.request(&headers, name);
            let place = request.place().unwrap();
            assert_eq!((place.is_recorded(), place.context().is_sampled()), (is_kept, is_kept));
            let step = request.enter(|| trace::begin(SpanKind::Internal, name));
            assert_eq!(step.place().is_some(), is_kept);
            if let (Some(asking), false) = (asking, is_kept) {
                assert_eq!(place.context(), asking, "it is passed on as it came");
            }
            drop((step, request));
            assert_eq!(records.try_recv().is_ok(), is_kept);
        }
    }

    #[tokio::test]
    async fn without_a_collector_ids_pass_through() {
        let tracer = Tracer::default();
        assert!(tracer.request(&HeaderMap::new(), || unreachable!()).place().is_none());
        let asking = TraceContext::new(true);
        let request = tracer.request(&asked_by(asking), || unreachable!());
        let seen = request.instrument(async {
            assert!(trace::begin(SpanKind::Client, || unreachable!()).place().is_none());
            trace::current()
        });
        assert_eq!(seen.await.map(|place| place.context()), Some(asking));
    }

    #[tokio::test]
    async fn spans_that_do_not_fit_are_counted_and_nobody_waits() {
        let (tracer, mut records, losses) = tracer(2, 1.0);
        for _ in 0..5 {
            drop(tracer.request(&HeaderMap::new(), name));
        }
        assert_eq!(losses.get(), 3);
        assert!(records.recv().await.is_some() && records.recv().await.is_some() && records.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_span_is_linked_to_others_and_not_to_itself() {
        let (tracer, mut records, _) = tracer(2, 1.0);
        let (request, other) = (tracer.request(&HeaderMap::new(), name), TraceContext::new(true));
        request.enter(|| [None, Some(other), trace::current().map(|place| place.context())].map(trace::wait_for));
        drop(request);
        assert_eq!(records.recv().await.unwrap().links, [other]);
    }

    #[tokio::test]
    async fn a_span_that_has_ended_takes_no_more_notes() {
        let (tracer, mut records, _) = tracer(2, 1.0);
        let request = tracer.request(&HeaderMap::new(), name);
        let place = request.place().unwrap();
        request.note(|record| record.fail("timeout"));
        drop(request);
        place.note(|_| unreachable!());
        let record = records.recv().await.unwrap();
        assert!(record.is_failed && record.attributes == [("error.type", "timeout".into())]);
    }
}
