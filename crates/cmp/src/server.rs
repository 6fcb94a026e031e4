//! The whole server: plugins, sockets, the admin address, and the end.

use std::{
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Duration, sleep, timeout},
};

use crate::{
    admin,
    config::{ListenConfig, PluginSettings, ServeConfig},
    metrics::Metrics,
    network::{Network, NetworkError},
    served::{Common, Served, ServedError},
    service::Service,
    traces::{Exporting, TracesError},
    transport::listener::{Socket, shown_address},
    trees::Trees,
};
use domain::file::base_dir::BaseDir;
use launcher::{Launchers, own_program};

/// How long connections are still accepted when the sockets are gone.
pub(crate) const LAST_CONNECTIONS: Duration = Duration::from_secs(1);
/// How long a connection without a call is waited for at the end: its client may be between two calls.
const LAST_CALLS: Duration = Duration::from_secs(2);
/// The folder below the work folder (`DefaultCMPWorkDirName`). It is emptied at the start.
const WORK: &str = "_cmp_server";

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// A plugin.
    #[error("{}: {cause}", .file.display())]
    Plugin {
        /// Its file or folder.
        file: PathBuf,
        /// The reason.
        #[source]
        cause: ServedError,
    },
    /// Two plugins of one name.
    #[error("two plugins are called `{0}`: name and version make the name of the socket")]
    Twice(String),
    /// No plugin.
    #[error("no plugin is configured: `plugins: [{{ config: ./my-plugin }}]`")]
    None,
    /// A folder, a socket or an address.
    #[error("{what}: {cause}")]
    System {
        /// What cannot be made.
        what: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The listener for other machines.
    #[error("{0}")]
    Network(#[from] NetworkError),
    /// The traces.
    #[error("{0}")]
    Traces(#[from] TracesError),
    /// The metrics.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl ServerError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }
}

/// A server that has all it needs, and does not serve yet.
#[derive(Debug)]
pub(crate) struct Server {
    plugins: Vec<(Arc<Served>, PathBuf)>,
    metrics: Arc<Metrics>,
    common: Common,
    admin: Option<std::net::SocketAddr>,
    listen: Option<(ListenConfig, BaseDir)>,
    exporting: Option<Exporting>,
}

/// What all plugins share. With `has_indexes`, relays may name trees.
///
/// # Errors
/// When the work folder cannot be made.
pub(crate) fn common(
    work: Option<PathBuf>,
    trees: u64,
    has_indexes: bool,
    concurrency: usize,
) -> Result<Common, ServerError> {
    let work = work.unwrap_or_else(std::env::temp_dir).join(WORK);
    let work = std::path::absolute(&work).unwrap_or(work);
    let failed = |error| ServerError::system(format!("the work folder {}", work.display()))(error);
    match std::fs::remove_dir_all(&work) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let (spool, folder, failed_runs) = (work.join("spool"), work.join("trees"), work.join("failed"));
    let askpass = work.join("ask");
    for folder in [&spool, &folder, &askpass] {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let launchers = Arc::new(Launchers::new(own_program().to_owned(), concurrency));
    Ok(Common {
        launchers,
        trees: Arc::new(Trees::new(folder, trees, has_indexes)),
        spool,
        failed_runs,
        askpass,
        tracer: Arc::default(),
    })
}

/// How many programs run at once unless a setting says otherwise: few, since they share the processors with others.
pub(crate) fn usual_concurrency() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get().max(4))
}

impl Server {
    /// Reads all plugins, and begins to send spans. Needs a runtime.
    ///
    /// # Errors
    /// When a plugin or a folder cannot be used.
    pub(crate) fn new(config: ServeConfig) -> Result<Self, ServerError> {
        let all = config.concurrency.unwrap_or_else(usual_concurrency);
        let mut common = common(config.work, config.trees.0, config.listen.is_some(), all)?;
        let metrics = Arc::new(Metrics::new()?);
        let exporting = match config.traces.map(|traces| traces.start(metrics.spans.clone())).transpose()? {
            Some((tracer, exporting)) => {
                common.tracer = Arc::new(tracer);
                Some(exporting)
            }
            None => None,
        };
        let mut plugins: Vec<(Arc<Served>, PathBuf)> = Vec::new();
        for settings in config.plugins {
            let served = served(settings, &common, all, &metrics)?;
            let name = served.plugin().full_name();
            if plugins.iter().any(|(other, _)| other.plugin().full_name() == name) {
                return Err(ServerError::Twice(name));
            }
            let path = config.sockets.join(format!("{name}.sock"));
            plugins.push((Arc::new(served), path));
        }
        if plugins.is_empty() {
            return Err(ServerError::None);
        }
        let listen = config.listen.map(|listen| (listen, config.base));
        Ok(Self { plugins, metrics, common, admin: config.admin, listen, exporting })
    }

    /// Serves until SIGTERM or SIGINT, and then until all calls have ended.
    ///
    /// # Errors
    /// When the admin address, a socket or a signal cannot be used.
    pub(crate) async fn run(self) -> Result<(), ServerError> {
        let (calls, connections) = (watch::Sender::new(0), watch::Sender::new(0));
        let (mut term, mut int) = (listen_to(SignalKind::terminate())?, listen_to(SignalKind::interrupt())?);
        let is_ending = watch::Sender::new(false);
        if let Some(address) = self.admin {
            let pages = admin::PluginPages {
                plugins: self.plugins.iter().map(|(plugin, _)| Arc::clone(plugin)).collect(),
                trees: Arc::clone(&self.common.trees),
            };
            let failed = ServerError::system(format!("the admin address {address}"));
            let listening = admin::listen(address, Arc::clone(&self.metrics), is_ending.subscribe(), Arc::new(pages));
            listening.await.map_err(failed)?;
        }
        if let Some((config, base)) = self.listen {
            let plugins = self.plugins.iter().map(|(plugin, _)| (plugin.plugin().full_name(), Arc::clone(plugin)));
            let counts = (calls.clone(), connections.clone());
            let network = Network::new(&config, &base, plugins.collect(), counts.0, counts.1, is_ending.subscribe())?;
            let failed = ServerError::system(format!("the address {} (`listen`)", config.address));
            let listener = tokio::net::TcpListener::bind(config.address).await.map_err(failed)?;
            tracing::info!(address = shown_address(&listener, config.address), "serving by TLS");
            tokio::spawn(Arc::new(network).serve(listener));
        }
        // Last, when nothing else can fail: the repo-server waits for ever on a connection that is accepted and not served.
        let mut sockets = Vec::new();
        for (plugin, path) in self.plugins {
            let socket = Socket::bind(path).map_err(ServerError::system("the plugin's socket"))?;
            tracing::info!(plugin = plugin.plugin().full_name(), socket = %socket.path().display(), "serving");
            sockets.push((Service::new(plugin, calls.clone(), is_ending.subscribe()), socket));
        }
        let sockets = serve_all(sockets, &connections);
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        is_ending.send_replace(true);
        tracing::info!(
            calls = *calls.borrow(),
            connections = *connections.borrow(),
            "ending: the sockets go, and calls are served to their end"
        );
        sockets.iter().for_each(Socket::unlink);
        tokio::select! {
            () = ended(&calls, &connections) => {}
            _ = term.recv() => tracing::warn!("a second signal: calls are given up"),
            _ = int.recv() => tracing::warn!("a second signal: calls are given up"),
        }
        self.common.launchers.close().await;
        if let Some(exporting) = self.exporting {
            exporting.finish().await;
        }
        Ok(())
    }
}

/// A plugin with its settings.
///
/// # Errors
/// When it cannot be served.
pub(crate) fn served(
    settings: PluginSettings,
    common: &Common,
    all: usize,
    metrics: &Metrics,
) -> Result<Served, ServerError> {
    let (file, own) = (settings.config.clone(), settings.concurrency.unwrap_or(all));
    Served::new(settings, common, own, |plugin| metrics.plugin(plugin))
        .map_err(|cause| ServerError::Plugin { file, cause })
}

/// Begins to serve.
fn serve_all(sockets: Vec<(Service<Served>, Socket)>, connections: &watch::Sender<usize>) -> Arc<[Socket]> {
    let (services, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
    let sockets: Arc<[Socket]> = sockets.into();
    for (at, service) in services.into_iter().enumerate() {
        let (sockets, connections) = (Arc::clone(&sockets), connections.clone());
        tokio::spawn(async move {
            let answer = move |request| service.clone().answer(request);
            sockets[at].serve(&connections, answer).await;
        });
    }
    sockets
}

/// Waits until no call is under way, and no client can begin another one.
pub(crate) async fn ended(calls: &watch::Sender<usize>, connections: &watch::Sender<usize>) {
    // The listeners go on until the process ends.
    sleep(LAST_CONNECTIONS).await;
    let (mut calls, mut connections) = (calls.subscribe(), connections.subscribe());
    loop {
        let _ = calls.wait_for(|count| *count == 0).await;
        tokio::select! {
            _ = connections.wait_for(|count| *count == 0) => return,
            begun = timeout(LAST_CALLS, calls.wait_for(|count| *count > 0)) => if begun.is_err() { return },
        }
    }
}

/// The signals of this `kind`.
///
/// # Errors
/// When they cannot be received.
pub(crate) fn listen_to(kind: SignalKind) -> Result<tokio::signal::unix::Signal, ServerError> {
    signal(kind).map_err(ServerError::system("signals"))
}

/// The folder of sockets, as Argo CD's programs find it.
pub(crate) fn sockets_of_environment() -> PathBuf {
    let set = std::env::var_os("ARGOCD_PLUGINSOCKFILEPATH").filter(|path| !path.is_empty());
    set.map_or_else(|| Path::new(crate::config::SOCKETS).to_owned(), PathBuf::from)
}
