//! The network: TLS, callers, and which plugin a call is for.

mod callers;

use std::{
    collections::BTreeMap,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use self::callers::{Caller, Callers, Tokens};
use crate::{
    config::ListenConfig,
    exchange::{DESCRIBE, PLUGIN, credentials::CREDENTIALS},
    grpc::{
        reply::{self, ReplyBody},
        status::{Code, Status},
    },
    served::Served,
    service::Service,
    transport::{Peer, pause_after, serve},
};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::SecretError,
};
use tls::{H2, ServerTls};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client without a certificate may take until its first call with a token.
const UNAUTHENTICATED: Duration = Duration::from_secs(30);
/// The most open connections.
const MAX_CONNECTIONS: usize = 1024;
/// How often the certificates' files are looked at.
const RENEWAL: Duration = Duration::from_secs(5);

/// Why the listener cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// The certificates.
    #[error("{0}")]
    Tls(String),
    /// A token.
    #[error("listen.tokens: {0}")]
    Token(#[from] SecretError),
    /// No client could call.
    #[error("listen: set `tokens` or `tls.clientCa`, since otherwise no client may call")]
    NoCallers,
}

/// Everything that the listener needs.
#[derive(Debug)]
pub(crate) struct Network {
    tls: Arc<ServerTls>,
    tokens: Tokens,
    callers: Callers,
    plugins: BTreeMap<String, Arc<Served>>,
    calls: watch::Sender<usize>,
    connections: watch::Sender<usize>,
    is_ending: watch::Receiver<bool>,
}

impl Network {
    /// Reads certificates and tokens. Paths start from `base`.
    ///
    /// # Errors
    /// When they cannot be used, or no client could call.
    pub(crate) fn new(
        config: &ListenConfig,
        base: &BaseDir,
        plugins: BTreeMap<String, Arc<Served>>,
        calls: watch::Sender<usize>,
        connections: watch::Sender<usize>,
        is_ending: watch::Receiver<bool>,
    ) -> Result<Self, NetworkError> {
        if config.tokens.is_empty() && config.tls.client_ca.is_none() {
            return Err(NetworkError::NoCallers);
        }
        let mut problems = Problems::default();
        let tls = config.tls.build(base, &Path::root().key("listen").key("tls"), &mut problems).ok_or_else(|| {
            let texts: Vec<String> = problems.into_vec().into_iter().map(|problem| problem.message).collect();
            NetworkError::Tls(texts.join("; "))
        })?;
        let tokens = Tokens::read(&config.tokens, base)?;
        let callers = Callers::new(config.calls_per_caller);
        Ok(Self { tls, tokens, callers, plugins, calls, connections, is_ending })
    }

    /// Serves all connections of `listener`, for ever.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        tokio::spawn(Arc::clone(&self).renew());
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // A client in the kernel's queue could wait for ever, so it gets an end at once.
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                        tracing::warn!(%peer, "a connection was closed: {MAX_CONNECTIONS} are open");
                        continue;
                    };
                    let network = Arc::clone(&self);
                    tokio::spawn(async move {
                        network.connections.send_modify(|count| *count += 1);
                        network.one(stream, peer).await;
                        network.connections.send_modify(|count| *count -= 1);
                        drop(place);
                    });
                }
                Err(error) => pause_after(&error).await,
            }
        }
    }

    async fn renew(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            let network = Arc::clone(&self);
            let renewing = tokio::task::spawn_blocking(move || {
                network.tls.refresh();
                network.tokens.refresh();
            });
            let _ = renewing.await;
        }
    }

    async fn one(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        // Small answers leave at once.
        let _ = stream.set_nodelay(true);
        let shaken = timeout(HANDSHAKE, TlsAcceptor::from(self.tls.server()).accept(stream)).await;
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "a TLS handshake took too long"),
        };
        let (_, tls) = stream.get_ref();
        if tls.alpn_protocol() != Some(H2) {
            return tracing::debug!(%peer, "a client does not offer HTTP/2 by ALPN");
        }
        // The handshake has verified it.
        let certificate =
            tls.peer_certificates().and_then(|chain| chain.first()).map(|own| Caller::of_certificate(own));
        let is_proven = Arc::new(AtomicBool::new(certificate.is_some()));
        let (network, proven) = (Arc::clone(self), Arc::clone(&is_proven));
        let answer = move |request: Request<Incoming>| {
            let caller = certificate.or_else(|| network.tokens.caller(request.headers()));
            proven.fetch_or(caller.is_some(), Ordering::Relaxed);
            Arc::clone(&network).answer(request, caller)
        };
        let unauthenticated = async {
            sleep(UNAUTHENTICATED).await;
            if is_proven.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
        };
        tokio::select! {
            served = serve(stream, Peer::Remote, answer) => if let Err(error) = served {
                tracing::debug!(%peer, %error, "a connection has ended with an error");
            },
            () = unauthenticated => tracing::debug!(%peer, "a client proved nothing in time"),
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>, caller: Option<Caller>) -> Response<ReplyBody> {
        // The archive of a client that is refused is not waited for.
        let begun = match caller {
            // A relay repeats the call on another replica. Which calls are open already, is served to its end.
            Some(_) if *self.is_ending.borrow() => Err(Status::new(Code::Unavailable, "the service ends")),
            Some(caller) => self.plugin(request.headers()).and_then(|plugin| {
                // Relays ask so whether the service is there, and what it serves, or go with a call that is counted itself.
                let is_counted = ![DESCRIBE, CREDENTIALS].contains(&request.uri().path());
                let place = is_counted.then(|| self.callers.begin(caller)).transpose()?;
                Ok((plugin, place))
            }),
            None => Err(unauthenticated()),
        };
        match begun {
            Ok((plugin, _place)) => {
                Service::new(plugin, self.calls.clone(), self.is_ending.clone()).answer(request).await
            }
            Err(status) => reply::failure(&status),
        }
    }

    fn plugin(&self, fields: &HeaderMap) -> Result<Arc<Served>, Status> {
        let named = fields.get(PLUGIN).and_then(|value| value.to_str().ok());
        let found = match named {
            Some(name) => self.plugins.get(name),
            None if self.plugins.len() == 1 => self.plugins.values().next(),
            None => None,
        };
        found.cloned().ok_or_else(|| {
            let plugins: Vec<&str> = self.plugins.keys().map(String::as_str).collect();
            let message = format!("name a plugin by the metadata `{PLUGIN}`: {}", plugins.join(", "));
            Status { code: Code::NotFound, message }
        })
    }
}

fn unauthenticated() -> Status {
    let message = "a token (`authorization: Bearer …`) or a client certificate is needed".to_owned();
    Status { code: Code::Unauthenticated, message }
}
