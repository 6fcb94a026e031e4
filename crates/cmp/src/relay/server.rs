//! The relay: sockets that come and go with its configuration.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use tokio::{
    signal::unix::SignalKind,
    sync::watch,
    task::JoinHandle,
    time::{Duration, interval, sleep},
};

use super::{
    answers::AnswerRoom,
    config::{RelayConfig, RemoteSettings},
    metrics::RelayMetrics,
    names::Names,
    remote::{Memory, Remote, Shared},
    slot::Slot,
    spool::SpoolFolder,
};
use crate::{
    admin::{self, Gauge, Pages},
    config,
    metrics::Metrics,
    server::{self, LAST_CONNECTIONS, ServerError, listen_to},
    service::Service,
    transport::listener::Socket,
};

/// How often the configuration's file is looked at, and sockets that could not be made are tried again.
const LOOK: Duration = Duration::from_secs(2);

/// A relay that serves.
struct Relay {
    file: PathBuf,
    sockets: PathBuf,
    shared: Arc<Shared>,
    metrics: (Arc<Metrics>, RelayMetrics),
    open: Arc<parking_lot::Mutex<BTreeMap<String, Open>>>,
    counts: (watch::Sender<usize>, watch::Sender<usize>),
    is_ending: watch::Sender<bool>,
}

/// A remote with its socket.
struct Open {
    slot: Arc<Slot>,
    socket: Option<(Arc<Socket>, JoinHandle<()>)>,
    /// Why there is no socket, so that it is logged once.
    trouble: Option<String>,
}

/// Serves `config`, which was read from `file`, until SIGTERM or SIGINT, and then until all calls have ended.
///
/// # Errors
/// When a folder, the admin address or a signal cannot be used.
pub(crate) async fn serve(file: &Path, config: RelayConfig) -> Result<(), ServerError> {
    let (mut term, mut int) = (listen_to(SignalKind::terminate())?, listen_to(SignalKind::interrupt())?);
    let metrics = Arc::new(Metrics::new()?);
    let own = RelayMetrics::new(metrics.registry())?;
    let exporting = config.traces.clone().map(|traces| traces.start(metrics.spans.clone())).transpose()?;
    let (tracer, exporting) = exporting.map_or_else(Default::default, |(tracer, task)| (Arc::new(tracer), Some(task)));
    let spool = SpoolFolder::new(config.work.clone(), config.spool).map_err(ServerError::system("the spool"))?;
    let shared = Arc::new(Shared {
        base: config.base.clone(),
        spool,
        tracer,
        names: Names::of_system(),
        answers: AnswerRoom::new(config.answers),
        ask_pass: config.ask_pass.clone(),
    });
    let mut relay = Relay {
        file: file.to_owned(),
        sockets: config.sockets.clone(),
        shared,
        metrics: (Arc::clone(&metrics), own),
        open: Arc::default(),
        counts: (watch::Sender::new(0), watch::Sender::new(0)),
        is_ending: watch::Sender::new(false),
    };
    if let Some(address) = config.admin {
        let pages = RelayPages { open: Arc::clone(&relay.open), shared: Arc::clone(&relay.shared) };
        let failed = ServerError::system(format!("the admin address {address}"));
        admin::listen(address, metrics, relay.is_ending.subscribe(), Arc::new(pages)).await.map_err(failed)?;
    }
    let mut stamp = config::stamp(file);
    relay.apply(&config);
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => relay.look(&mut stamp),
            _ = term.recv() => break,
            _ = int.recv() => break,
        }
    }
    relay.is_ending.send_replace(true);
    let (calls, connections) = &relay.counts;
    let (open_calls, open_connections) = (*calls.borrow(), *connections.borrow());
    tracing::info!(
        calls = open_calls,
        connections = open_connections,
        "ending: the sockets go, and calls are served to their end"
    );
    relay.open.lock().values().filter_map(|open| open.socket.as_ref()).for_each(|(socket, _)| socket.unlink());
    tokio::select! {
        () = server::ended(calls, connections) => {}
        _ = term.recv() => tracing::warn!("a second signal: calls are given up"),
        _ = int.recv() => tracing::warn!("a second signal: calls are given up"),
    }
    relay.shared.spool.remove();
    if let Some(exporting) = exporting {
        exporting.finish().await;
    }
    Ok(())
}

impl Relay {
    /// Reads the configuration if it has changed, and makes sockets that are missing.
    fn look(&mut self, stamp: &mut Option<(SystemTime, u64)>) {
        let now = config::stamp(&self.file);
        if now != *stamp {
            *stamp = now;
            match RelayConfig::read(&self.file) {
                Ok(config) => {
                    self.apply(&config);
                    tracing::info!("the changed relay.yaml is in use: its remotes. Other keys need a restart");
                }
                Err(error) => tracing::error!(%error, "the changed relay.yaml is invalid: the old one stays in use"),
            }
        }
        self.bind();
    }

    /// Serves the remotes of `config`, and no others.
    fn apply(&self, config: &RelayConfig) {
        let wanted = config.remotes();
        let mut open = self.open.lock();
        let gone: Vec<String> = open.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(Open { slot, socket, .. }) = open.remove(&name) {
                close(slot, socket);
                tracing::info!(plugin = name, "a remote is gone from relay.yaml: its socket is removed");
            }
        }
        for (name, settings) in wanted {
            let known = open.get(&name).map(|open| Arc::clone(&open.slot));
            if let Some(slot) = known {
                let current = slot.remote();
                if current.settings != settings {
                    let memory = slot.memory(current.settings.discover() == settings.discover());
                    self.remote(settings, memory, |remote| slot.replace(remote));
                }
            } else {
                self.remote(settings, Memory::default(), |remote| {
                    let slot = Arc::new(Slot::new(remote));
                    open.insert(name, Open { slot, socket: None, trouble: None });
                });
            }
        }
        drop(open);
        self.bind();
    }

    fn remote(&self, settings: RemoteSettings, memory: Memory, with: impl FnOnce(Remote)) {
        let name = settings.full_name();
        let metrics = (self.metrics.0.plugin(&name), self.metrics.1.remote(&name));
        match Remote::new(settings, memory, metrics, Arc::clone(&self.shared)) {
            Ok(remote) => with(remote),
            // The configuration was checked.
            Err(error) => tracing::error!(plugin = name, %error, "a remote cannot be used"),
        }
    }

    /// Makes the sockets that are missing. One that another process serves stays.
    fn bind(&self) {
        for (name, open) in self.open.lock().iter_mut().filter(|(_, open)| open.socket.is_none()) {
            let path = self.sockets.join(format!("{name}.sock"));
            match Socket::bind_unless_served(path) {
                Ok(socket) => {
                    tracing::info!(plugin = name, socket = %socket.path().display(), "serving");
                    let (calls, connections) = self.counts.clone();
                    let service = Service::new(Arc::clone(&open.slot), calls, self.is_ending.subscribe());
                    let (socket, answer) = (Arc::new(socket), move |request| service.clone().answer(request));
                    let listening = Arc::clone(&socket);
                    let serving = tokio::spawn(async move { listening.serve(&connections, answer).await });
                    (open.socket, open.trouble) = (Some((socket, serving)), None);
                }
                Err(error) => {
                    let error = error.to_string();
                    if open.trouble.as_ref() != Some(&error) {
                        tracing::error!(plugin = name, error, "no socket: it is tried again");
                        open.trouble = Some(error);
                    }
                }
            }
        }
    }
}

/// Removes a socket. Clients that have just found it are served, and open calls end by themselves.
fn close(slot: Arc<Slot>, socket: Option<(Arc<Socket>, JoinHandle<()>)>) {
    let Some((socket, serving)) = socket else { return };
    socket.unlink();
    tokio::spawn(async move {
        sleep(LAST_CONNECTIONS).await;
        serving.abort();
        drop((slot, socket));
    });
}

/// What the admin address shows.
struct RelayPages {
    open: Arc<parking_lot::Mutex<BTreeMap<String, Open>>>,
    shared: Arc<Shared>,
}

impl Pages for RelayPages {
    fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, help, value| Gauge { name, help, values: vec![(String::new(), value)] };
        let Shared { spool, answers, .. } = &*self.shared;
        vec![
            gauge("cmp_gateway_relay_spool_bytes", "Room in the spool that archives have taken.", spool.taken()),
            gauge("cmp_gateway_relay_answers_bytes", "Memory that answers of remotes have taken.", answers.taken()),
        ]
    }

    fn status(&self) -> Option<serde_json::Value> {
        let open = self.open.lock();
        let remotes: Vec<_> = open
            .values()
            .map(|open| {
                let mut status = open.slot.remote().status();
                status["socketProblem"] = open.trouble.clone().into();
                status
            })
            .collect();
        Some(serde_json::json!({ "remotes": remotes }))
    }
}
