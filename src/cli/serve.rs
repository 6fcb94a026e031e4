//! `appset-gateway serve`: sockets, signals, and an orderly end.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::exit;
use crate::{
    app::App,
    clock::SystemClock,
    config::Loaded,
    launcher::own_program,
    server,
    telemetry::log::{self, LogConfig, Stream},
};

/// What finishing may take beyond the deadline that every request has.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the last answers may take to reach the disk, and the last spans their collector.
const FLUSH: Duration = Duration::from_secs(5);

/// Serves what `file` describes until SIGTERM or SIGINT.
pub fn run(file: &Path) -> anyhow::Result<ExitCode> {
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
    let _flush = log::init(log_config, Stream::Stdout);
    for line in report.lines() {
        tracing::warn!("{line}");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(Arc::new(app), file))
}

async fn serve(app: Arc<App>, file: &Path) -> anyhow::Result<ExitCode> {
    app.open_disk();
    match app.launchers.lacks().await {
        Ok(lacks) => lacks.iter().for_each(|lack| tracing::warn!("scripts are not wholly contained: {lack}")),
        Err(why) => tracing::error!(%why, "scripts cannot be started"),
    }
    // Before the first connection: a signal that came earlier would end the process at once.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let bind = async |address, key: &str| {
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} (server.{key})"))
    };
    let listener = bind(app.server.listen, "listen").await?;
    let admin = bind(app.server.admin, "admin").await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %listener.local_addr()?,
        admin = %admin.local_addr()?,
        config = %file.display(),
        routes = app.routes.iter().count(),
        "ready"
    );
    // The admin listener stays until the last request is finished, so that probes see the drain.
    let (finished, mut is_finished) = watch::channel(false);
    let admin_router = server::admin::router(Arc::clone(&app));
    let edge = server::edge(&app);
    let admin_edge = edge.clone();
    let admin = tokio::spawn(async move {
        let over = async move { _ = is_finished.wait_for(|over| *over).await };
        admin_edge.serve(admin, admin_router, over, MARGIN).await
    });
    let traces = app.traces.start();
    app.start_ahead();
    let renewing = Arc::clone(&app);
    tokio::spawn(async move { renewing.renew_tokens().await });
    let warming = Arc::clone(&app);
    tokio::spawn(async move { warming.warm_up().await });
    let draining = Arc::clone(&app);
    let shutdown = async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        draining.start_draining();
        tracing::info!(signal = name, in_flight = draining.in_flight.now(), "finishing what was started");
    };
    let longest = app.routes.iter().map(|route| route.deadline).max().unwrap_or_default();
    let is_whole = edge.serve(listener, server::router(Arc::clone(&app)), shutdown, longest + MARGIN).await;
    finished.send_replace(true);
    let _ = admin.await;
    if !is_whole {
        tracing::warn!(in_flight = app.in_flight.now(), "some requests were not finished in time");
    }
    if let Some(disk) = app.engine.answers().disk() {
        disk.flush(FLUSH);
    }
    traces.finish(FLUSH).await;
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}
