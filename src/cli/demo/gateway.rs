//! The gateway of the story: the program's own server, on loopback, with a clock that the story moves.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::net::TcpListener;

use crate::{
    app::App,
    cli::new_token,
    config::Loaded,
    http::server,
    replay::{clock::CaseClock, play::pass},
};
use auth::hash_token;
use demo::{
    judge::Time,
    story::{GatewayAt, Stage},
};
use domain::{
    clock::{Clock as _, SystemClock},
    file::base_dir::BaseDir,
    lifecycle::Phase,
};
use launcher::own_program;

/// Where the page is, if nothing else is there: the admin port of `serve`.
const PAGE: u16 = 4356;
/// How long requests may take when the story is over.
const MARGIN: Duration = Duration::from_secs(1);

/// A running gateway.
pub(super) struct Running {
    app: Arc<App>,
    clock: Arc<CaseClock>,
    main: SocketAddr,
    admin: SocketAddr,
    argocd: String,
    /// The token of operators.
    pub(super) operator: String,
}

impl Running {
    /// Starts a gateway before the sources of `stage`.
    pub(super) async fn start(stage: &Stage) -> anyhow::Result<Self> {
        let (argocd, operator) = (new_token()?, new_token()?);
        let config = stage.config(&hash_token(&argocd), &hash_token(&operator));
        let failed = |report: crate::config::Report| anyhow::anyhow!(report.lines().join("\n"));
        let loaded = Loaded::parse("the story's gateway.yaml", config, BaseDir::default()).map_err(failed)?;
        // It stands still while nothing happens, so that a story is the same on each machine.
        let clock = Arc::new(CaseClock::at(SystemClock.now()));
        let (app, _) = App::build(loaded, Arc::clone(&clock) as Arc<_>, own_program()).map_err(failed)?;
        let app = Arc::new(app);
        let (main, admin) = (TcpListener::bind(("127.0.0.1", 0)).await?, bind_page().await?);
        let (at, admin_at) = (main.local_addr()?, admin.local_addr()?);
        let (edge, site, phase) = (server::edge(&app), server::site(&app), app.lifecycle.watch());
        tokio::spawn(async move { edge.serve(main, site, phase, || MARGIN).await });
        let (edge, router, phase) =
            (server::admin::edge(&app), server::admin::router(Arc::clone(&app)), app.lifecycle.watch());
        tokio::spawn(async move { edge.serve(admin, router, phase, || MARGIN).await });
        Ok(Self { app, clock, main: at, admin: admin_at, argocd, operator })
    }

    /// Where it is, and its tokens.
    pub(super) fn at(&self) -> GatewayAt {
        let Self { main, admin, .. } = *self;
        GatewayAt { main, admin, argocd: self.argocd.clone(), operator: self.operator.clone() }
    }

    /// The address of its page.
    pub(super) fn page(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Whether the page is not where it usually is.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.admin.port() != PAGE
    }

    /// Ends it.
    pub(super) async fn close(&self) {
        self.app.lifecycle.enter(Phase::Closing);
        self.app.close_launchers().await;
        self.app.lifecycle.enter(Phase::Ended);
    }
}

impl Time for Running {
    async fn pass(&self, time: Duration) {
        pass(&self.app, &self.clock, time).await;
    }
}

/// The usual port of the page, or another one if it is taken, as by another gateway.
async fn bind_page() -> io::Result<TcpListener> {
    match TcpListener::bind(("127.0.0.1", PAGE)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => TcpListener::bind(("127.0.0.1", 0)).await,
        bound => bound,
    }
}
