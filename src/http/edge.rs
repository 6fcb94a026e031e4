//! The accept loop: connections in, a router behind, and an end that finishes what was started. HTTP/1.1 in cleartext; by TLS that or
//! HTTP/2, as ALPN says.
//!
//! `axum::serve` bounds neither how many connections there are nor how long one may say nothing, so this loop is our own. What it
//! sends itself (a refusal) is handed in: it knows no status code.

mod client;
mod connection;
mod executor;
mod handshake;
mod peers;
mod received;
mod strangers;
mod stream;
mod streams;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use bytes::Bytes;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

pub(crate) use self::client::{Client, ClientCertificate};
use self::{
    connection::Watched,
    peers::{ConnectionPermit, Peers},
    strangers::Strangers,
};
use crate::{domain::lifecycle::Phase, telemetry::metrics::ConnectionMetrics, tls::Tls};

/// How long to wait before accepting again when descriptors have run out.
const BREATH: Duration = Duration::from_millis(100);

/// How many connections there may be, and how long they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// All of them.
    pub most: usize,
    /// Those of one address.
    pub most_per_peer: usize,
    /// How long a connection may be silent after an answer. Longer than clients keep theirs, so that it is they who close.
    pub idle: Duration,
    /// How long a connection lives; it ends after an answer.
    pub max_age: Duration,
    /// How long a request's head may take to arrive, and an answer to be taken.
    pub patience: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How much memory those connections may hold together on which nobody has authenticated yet, in bytes.
    pub strangers: usize,
}

/// The whole bytes of what is said without a request.
#[derive(Debug, Clone)]
pub struct Refusals {
    /// There are too many connections.
    pub(crate) overloaded: Bytes,
    /// This is no request, or none that is read.
    pub(crate) malformed: Bytes,
    /// This request's head is too large.
    pub(crate) large_head: Bytes,
    /// This is no TLS.
    pub(crate) cleartext: Bytes,
}

/// What connections are served with.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Their limits.
    pub limits: Limits,
    /// Who we are, where clients want to know; cleartext without it.
    pub tls: Option<Arc<Tls>>,
    /// What is said without a request.
    pub refusals: Arc<Refusals>,
    /// What is counted of them.
    pub metrics: ConnectionMetrics,
    /// From this phase on, each answer closes its connection.
    pub drains_in: Phase,
    /// From this phase on, no connection is accepted, and idle ones are closed.
    pub closes_in: Phase,
}

impl Edge {
    /// Serves `router` on `listener` until `phase` reaches `closes_in` or its sender is dropped. Then finishes the requests under way, within
    /// the time that `finish` gives. Returns whether all of them were finished.
    pub async fn serve(
        &self,
        listener: TcpListener,
        router: Router,
        mut phase: watch::Receiver<Phase>,
        finish: impl FnOnce() -> Duration,
    ) -> bool {
        let peers = Arc::new(Peers::new(self.limits.most, self.limits.most_per_peer));
        let strangers = Arc::new(Strangers::new(self.limits.strangers));
        let mut connections = JoinSet::new();
        let of_connections = phase.clone();
        let mut closing = pin!(phase.wait_for(|phase| *phase >= self.closes_in));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut closing => break,
            };
            match accepted {
                Ok((stream, peer)) => match self.enter(&peers, &stream, peer) {
                    Some(place) => {
                        let connection = Watched::new(
                            (stream, peer),
                            self.clone(),
                            router.clone(),
                            of_connections.clone(),
                            &strangers,
                        );
                        connections.spawn(async move {
                            let _place = place;
                            connection.serve().await;
                        });
                    }
                    None => self.metrics.ended("refused"),
                },
                Err(error) => rest_after(&error).await,
            }
            // What has ended is forgotten, else the set would grow for as long as there are connections.
            while connections.try_join_next().is_some() {}
            // Requests under way go first: a crowd of new connections must not hold them up.
            yield_now().await;
        }
        drop(listener);
        timeout(finish(), async { while connections.join_next().await.is_some() {} }).await.is_ok()
    }

    /// A place for a connection, or else it is told that there is none.
    fn enter(&self, peers: &Arc<Peers>, stream: &TcpStream, peer: SocketAddr) -> Option<ConnectionPermit> {
        let place = peers.enter(peer.ip());
        if place.is_none() {
            // Whoever does not take it at once has no use for it.
            let _ = stream.try_write(&self.refusals.overloaded);
        }
        place
    }
}

/// Errors of one connection that was gone before it was accepted are of no interest; others are, and
/// trying again at once would only burn a core.
async fn rest_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "cannot accept connections");
        sleep(BREATH).await;
    }
}
