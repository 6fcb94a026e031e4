//! One connection, from its first byte to its last.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use axum::{Router, body::Body, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep_until},
};
use tower::Service;

use super::{
    Edge,
    stream::{Noted, State, Turn},
};

/// A connection, and what it is served with.
pub struct Watched {
    stream: TcpStream,
    edge: Edge,
    router: Router,
    is_draining: watch::Receiver<bool>,
}

impl Watched {
    /// A connection that was accepted now.
    pub const fn new(stream: TcpStream, edge: Edge, router: Router, is_draining: watch::Receiver<bool>) -> Self {
        Self { stream, edge, router, is_draining }
    }

    /// Serves it until it ends, or somebody took too long.
    pub async fn serve(self) {
        let Self { stream, edge, router, mut is_draining } = self;
        // Answers are small and written at once; without this the kernel could hold one back.
        let _ = stream.set_nodelay(true);
        let _open = edge.metrics.open();
        let state = Arc::new(State::new(edge.limits));
        let stream = Noted::new(stream, Arc::clone(&state), Arc::clone(&edge.refusals));
        let turns = Arc::clone(&state);
        let service = service_fn(move |request: Request<Incoming>| {
            turns.turn(Turn::Ours);
            let (turns, answer) = (Arc::clone(&turns), router.clone().call(request.map(Body::new)));
            async move {
                let answer = answer.await;
                turns.turn(Turn::Taking);
                answer
            }
        });
        // Who takes how long is decided here, by one timer that is looked at when it is due.
        let http = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service);
        let mut http = pin!(http);
        let old = Instant::now() + lifetime(edge.limits.max_age);
        let mut timer = pin!(sleep_until(old.min(Instant::now() + edge.limits.patience)));
        let mut draining = pin!(async move { drop(is_draining.wait_for(|is_draining| *is_draining).await) });
        let mut is_last = false;
        let how = poll_fn(|cx| {
            if let Poll::Ready(ended) = http.as_mut().poll(cx) {
                return Poll::Ready(name_of(ended));
            }
            if !is_last && draining.as_mut().poll(cx).is_ready() {
                is_last = true;
                http.as_mut().graceful_shutdown();
                // Polled again, since one that is idle ends at once.
                cx.waker().wake_by_ref();
            }
            let (turn, end) = state.ends();
            if let Some(end) = end.filter(|end| *end < timer.deadline()) {
                timer.as_mut().reset(end);
            }
            while timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                if end.is_some_and(|end| end <= now) {
                    return Poll::Ready(late(turn));
                }
                if old <= now && !is_last {
                    is_last = true;
                    http.as_mut().graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
                let next = end.unwrap_or(now + edge.limits.idle);
                timer.as_mut().reset(if is_last { next } else { next.min(old) });
            }
            Poll::Pending
        })
        .await;
        edge.metrics.ended(how);
    }
}

/// How a connection ended that hyper is through with.
fn name_of(ended: hyper::Result<()>) -> &'static str {
    match ended {
        Ok(()) => "well",
        Err(error) if error.is_parse() => "malformed",
        Err(error) => {
            tracing::debug!(%error, "a connection ended early");
            "broken"
        }
    }
}

/// How a connection ends of which somebody took too long.
const fn late(turn: Turn) -> &'static str {
    match turn {
        Turn::Idle => "idle",
        Turn::Head => "slow_head",
        Turn::Taking | Turn::Ours => "slow_reader",
    }
}

/// An age, spread a little, so that connections that began together do not end together.
fn lifetime(max_age: Duration) -> Duration {
    max_age.mul_f64(fastrand::f64().mul_add(0.1, 0.9))
}
