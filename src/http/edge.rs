//! The accept loop. It limits connections, serves a [`Site`] on each, and finishes the requests under way at shutdown. A cleartext connection
//! speaks HTTP/1.1. A TLS connection speaks HTTP/1.1 or HTTP/2, by ALPN.
//!
//! `axum::serve` limits neither the number of connections nor how long a connection may be silent, so this loop is our own. It has no
//! status codes: the refusals that it sends itself are handed in.

mod budget;
mod client;
mod connection;
mod executor;
mod handshake;
mod peers;
mod received;
mod site;
mod stream;
mod streams;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

pub use self::site::Site;
use self::{
    budget::Budget,
    connection::Watched,
    peers::{ConnectionPermit, Peers},
};
pub(crate) use self::{
    budget::Share,
    client::{ConnectionInfo, PeerCertificate},
    site::{Answering, Calls},
};
use domain::lifecycle::Phase;
use telemetry::metrics::ConnectionMetrics;
use tls::ServerTls;

/// How long to wait before accepting again, when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many bytes the bodies of a listener's authenticated requests may hold together, beyond the uncounted bytes of each.
const BODIES: usize = 64 * 1024 * 1024;

/// How many connections there may be, and how long they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections of all addresses.
    pub max: usize,
    /// The most connections of one address.
    pub max_per_peer: usize,
    /// How long a connection may be silent after an answer. Longer than clients keep idle connections, so that clients close first.
    pub idle: Duration,
    /// The age at which a connection is closed, after its next answer.
    pub max_age: Duration,
    /// How long a client may take to send a request's head, and to take an answer.
    pub patience: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How many bytes all connections together may hold that are not authenticated yet.
    pub unauthenticated: usize,
}

/// The complete answers that are sent where no request reaches the router.
#[derive(Debug, Clone)]
pub struct Refusals {
    /// For too many connections.
    pub(crate) overloaded: Bytes,
    /// For bytes that are not a request.
    pub(crate) malformed: Bytes,
    /// For a request whose head is too large.
    pub(crate) large_head: Bytes,
    /// For cleartext on a TLS port.
    pub(crate) cleartext: Bytes,
}

/// The means to serve connections.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The limits of connections.
    pub limits: Limits,
    /// The gateway's certificate and key. Connections are cleartext without it.
    pub tls: Option<Arc<ServerTls>>,
    /// The answers to connections that do not reach the router.
    pub refusals: Arc<Refusals>,
    /// Metrics of connections.
    pub metrics: ConnectionMetrics,
    /// From this phase on, each answer closes its connection.
    pub drains_in: Phase,
    /// From this phase on, no connection is accepted, and idle ones are closed.
    pub closes_in: Phase,
}

impl Edge {
    /// Serves `site` on `listener` until `phase` reaches `closes_in` or its sender is dropped. Then finishes the requests under way, within
    /// the time that `finish` gives. Returns whether all of them were finished.
    pub async fn serve(
        &self,
        listener: TcpListener,
        site: impl Into<Site>,
        mut phase: watch::Receiver<Phase>,
        finish: impl FnOnce() -> Duration,
    ) -> bool {
        let site = site.into();
        let peers = Arc::new(Peers::new(self.limits.max, self.limits.max_per_peer));
        let unauthenticated = Arc::new(Budget::new(self.limits.unauthenticated));
        let bodies = Arc::new(Budget::new(BODIES));
        let mut connections = JoinSet::new();
        let connection_phase = phase.clone();
        let mut closing = pin!(phase.wait_for(|phase| *phase >= self.closes_in));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut closing => break,
            };
            match accepted {
                Ok((stream, peer)) => match self.admit(&peers, &stream, peer) {
                    Some(permit) => {
                        let connection = Watched::new(
                            (stream, peer),
                            self.clone(),
                            site.clone(),
                            connection_phase.clone(),
                            (&unauthenticated, &bodies),
                        );
                        connections.spawn(async move {
                            let _permit = permit;
                            connection.serve().await;
                        });
                    }
                    None => self.metrics.ended("refused"),
                },
                Err(error) => pause_after(&error).await,
            }
            // Removes ended connections from the set, which would grow without bound otherwise.
            while connections.try_join_next().is_some() {}
            // Requests under way go first: many new connections must not hold them up.
            yield_now().await;
        }
        drop(listener);
        timeout(finish(), async { while connections.join_next().await.is_some() {} }).await.is_ok()
    }

    /// A permit for a connection of `peer`. At the limit there is no permit, and the connection gets the refusal.
    fn admit(&self, peers: &Arc<Peers>, stream: &TcpStream, peer: SocketAddr) -> Option<ConnectionPermit> {
        let permit = peers.enter(peer.ip());
        if permit.is_none() {
            // One attempt: a client that does not read must not hold up the accept loop.
            let _ = stream.try_write(&self.refusals.overloaded);
        }
        permit
    }
}

/// Logs an error of the listener and pauses, because trying again at once would burn a core. Errors of a single connection that was
/// gone before it was accepted are ignored.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "cannot accept connections");
        sleep(ACCEPT_PAUSE).await;
    }
}
