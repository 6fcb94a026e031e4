//! `appset-gateway serve`: sockets, signals and the shutdown.

use std::{io, path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};

use super::{ConfigFile, exit};
use crate::{app::App, config::Loaded, http::server};
use domain::{clock::SystemClock, lifecycle::Phase};
use launcher::own_program;
use telemetry::{
    crash,
    log::{self, LogConfig, LogStream},
};

/// How much longer than a request's deadline the shutdown may wait for it.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the last answers may take to reach the disk, and the last spans their collector.
const FLUSH: Duration = Duration::from_secs(5);

/// The most open files that the gateway asks for.
const MAX_FILES: u64 = 65_536;

/// The signal with which Kubernetes ends a container.
const TERMINATE: &str = "SIGTERM";

/// The arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
The gateway reloads the file when it changes, and on SIGHUP. A reload checks the whole file first; it takes over everything or nothing.

Exit codes: 0 ended by a signal; 1 failed; 78 the configuration is wrong.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    file: ConfigFile,
}

/// Serves the configuration of the arguments until SIGTERM or SIGINT.
pub(crate) fn run(arguments: &ServeArgs) -> anyhow::Result<ExitCode> {
    let file = &arguments.file.path;
    // Before the first secret is read.
    let no_core_dump = crash::leave_no_memory();
    let loaded = match Loaded::read(file) {
        Ok(loaded) => loaded,
        Err(report) => {
            eprint!("{report}");
            return Ok(ExitCode::from(exit::CONFIG));
        }
    };
    let log_config = loaded.config.as_ref().map_or_else(LogConfig::default, |config| config.log);
    let (app, report) = match App::build(loaded, Arc::new(SystemClock), own_program()) {
        Ok(built) => built,
        Err(report) => {
            eprintln!("{report}{}: {}", file.display(), report.summary());
            return Ok(ExitCode::from(exit::CONFIG));
        }
    };
    let _flush = log::init(log_config, LogStream::Stdout);
    for line in report.lines() {
        tracing::warn!("{line}");
    }
    if let Err(error) = no_core_dump {
        tracing::warn!(%error, "a crash may write this process's memory, with its secrets, to a disk");
    }
    // Each connection is an open file, and shells allow 1024.
    if let Err(error) = launcher::raise_open_files(MAX_FILES) {
        tracing::warn!(%error, "the number of open files stays limited, and with it that of connections");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(serve(Arc::new(app), file));
    // A thread that still reads a file must not delay the exit.
    runtime.shutdown_background();
    code
}

async fn serve(app: Arc<App>, file: &Path) -> anyhow::Result<ExitCode> {
    // Before anything that takes time: without a handler, SIGHUP would end the process.
    let hangup = signal(SignalKind::hangup())?;
    app.open_disk();
    app.exposed_secrets().iter().for_each(|why| tracing::error!("{why}"));
    // Before the first connection: without a handler, a signal would end the process at once.
    let mut signals = Signals::listen()?;
    let setup = app.setup();
    let bind = async |address, key: &str| {
        let listening = TcpListener::bind(address).await;
        let help = match &listening {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                "; another program, perhaps another gateway, has this port: stop it, or choose another one"
            }
            _ => "",
        };
        listening.with_context(|| format!("cannot listen on {address} (server.{key}){help}"))
    };
    let listener = bind(setup.server.listen, "listen").await?;
    let admin = bind(setup.server.admin, "admin").await?;
    let hooks = match setup.server.hooks {
        Some(address) => Some(bind(address, "hooks").await?),
        None => None,
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %listener.local_addr()?,
        tls = app.tls.is_some(),
        admin = %admin.local_addr()?,
        admin_tls = app.admin_tls.is_some(),
        hooks = hooks.as_ref().and_then(|hooks| hooks.local_addr().ok()).map(tracing::field::display),
        config = %file.display(),
        routes = setup.routes.iter().count(),
        "ready"
    );
    let traces = app.traces.start();
    let unfinished = start_tasks(&app, file, hangup);
    let serving = tokio::spawn(answer(Arc::clone(&app), listener, admin, hooks));

    let signal = signals.next().await;
    tokio::select! {
        is_whole = finish(&app, signal, serving) => if !is_whole? {
            tracing::warn!(in_flight = app.in_flight.now(), "some requests were not finished in time");
        },
        signal = signals.next() => {
            tracing::warn!(signal, in_flight = app.in_flight.now(), "ended at once by a second signal");
            return Ok(ExitCode::from(exit::FAILED));
        }
    }
    let _ = timeout(FLUSH, unfinished).await;
    app.close_launchers().await;
    if let Some(disk) = app.engine.answers().disk() {
        disk.flush(FLUSH);
    }
    traces.finish(FLUSH).await;
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

/// Warns the operator of rights that scripts have and should not have. To find out takes the start of a process.
async fn warn_of_lacks(app: &App) {
    match app.launchers.lacks().await {
        Ok(lacks) => lacks.iter().for_each(|lack| tracing::warn!("scripts are not completely contained: {lack}")),
        Err(why) => tracing::error!(%why, "scripts cannot be started"),
    }
}

/// Starts the tasks that run beside the requests. Returns those that have work until the end.
fn start_tasks(app: &Arc<App>, file: &Path, hangup: Signal) -> impl Future<Output = ()> + use<> {
    let containing = Arc::clone(app);
    tokio::spawn(async move { warn_of_lacks(&containing).await });
    app.engine.call_candidates();
    app.start_workers();
    let renewing = Arc::clone(app);
    tokio::spawn(async move { renewing.renew().await });
    let (following, file) = (Arc::clone(app), file.to_owned());
    tokio::spawn(async move { following.follow(&file, hangup).await });
    let syncing = Arc::clone(app);
    tokio::spawn(async move { syncing.follow_store().await });
    let warming = Arc::clone(app);
    tokio::spawn(async move { warming.warm_up().await });
    let events = Arc::clone(&app.push);
    let events = tokio::spawn(async move { events.follow_events().await });
    let refreshing = Arc::clone(&app.push);
    let refreshing = tokio::spawn(async move { refreshing.follow_notices().await });
    let publishing = Arc::clone(&app.push);
    let publishing = tokio::spawn(async move { publishing.publish_requesters().await });
    let sampling = Arc::clone(app);
    tokio::spawn(async move { sampling.keep_history().await });
    let confirming = Arc::clone(app);
    tokio::spawn(async move { confirming.confirm_held().await });
    async move {
        let _ = tokio::join!(events, refreshing, publishing);
    }
}

/// Drains after `signal`, then waits for the last request. Returns whether all requests were finished in time.
async fn finish(app: &App, signal: &str, serving: JoinHandle<bool>) -> Result<bool, JoinError> {
    app.lifecycle.enter(Phase::Draining);
    // Only the signal of Kubernetes drains: a person who presses Ctrl-C waits for the exit.
    let drain = app.setup().server.drain.0;
    if signal == TERMINATE && !drain.is_zero() {
        tracing::info!(signal, ?drain, "serving on, so that callers can find another gateway");
        sleep(drain).await;
    }
    app.lifecycle.enter(Phase::Closing);
    tracing::info!(signal, in_flight = app.in_flight.now(), "finishing what was started");
    serving.await
}

/// Answers on all listeners until [`Phase::Closing`] and until the last request is finished. Returns whether all were finished in time.
async fn answer(app: Arc<App>, main: TcpListener, admin: TcpListener, hooks: Option<TcpListener>) -> bool {
    let (edge, admin_edge) = (server::edge(&app), server::admin::edge(&app));
    let (router, phase) = (server::admin::router(Arc::clone(&app)), app.lifecycle.watch());
    let admin = tokio::spawn(async move { admin_edge.serve(admin, router, phase, || MARGIN).await });
    if let Some(hooks) = hooks {
        let (edge, router, phase) =
            (server::hooks::edge(&app), server::hooks::router(Arc::clone(&app)), app.lifecycle.watch());
        tokio::spawn(async move { edge.serve(hooks, router, phase, || MARGIN).await });
    }
    let longest = || app.setup().routes.iter().map(|route| route.deadline).max().unwrap_or_default() + MARGIN;
    let is_whole = edge.serve(main, server::site(&app), app.lifecycle.watch(), longest).await;
    app.lifecycle.enter(Phase::Ended);
    let _ = admin.await;
    is_whole
}

/// The signals that end the gateway.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The name of the next signal.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => TERMINATE,
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
