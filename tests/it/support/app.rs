//! A gateway in this process.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use appset_gateway::{
    app::App,
    config::{Loaded, Report},
    http::server,
};
use domain::{
    clock::{Clock, SystemClock, Timestamp},
    file::base_dir::BaseDir,
    lifecycle::Phase,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    ADMIN_TOKEN, Reply, TOKEN,
    contract::{self, Listener},
    wire,
};

/// The clock of a test. It stands still until a test moves it.
#[derive(Debug)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    /// A clock that stands at the machine's time.
    pub(crate) fn standing() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(SystemClock.now().0)))
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Puts the clock back.
    pub(crate) fn put_back(&self, by: Duration) {
        self.0.fetch_sub(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A running gateway. It ends when this is dropped.
pub(crate) struct TestApp {
    /// The gateway itself.
    pub app: Arc<App>,
    /// Its main listener.
    pub address: SocketAddr,
    /// Its admin listener.
    pub admin: SocketAddr,
    /// Its clock.
    pub clock: Arc<TestClock>,
    /// The folder to which paths of its configuration are relative.
    pub folder: TempDir,
    config: String,
    /// Dropping it ends the gateway.
    stop: Option<watch::Sender<Phase>>,
    main: Option<JoinHandle<bool>>,
    admin_task: JoinHandle<bool>,
}

impl TestApp {
    /// A gateway with the given `routes:` (YAML, a list) and the token [`TOKEN`].
    pub(crate) async fn with_routes(routes: &str) -> Self {
        Self::start(&format!("{}routes:\n{routes}", Self::auth())).await
    }

    /// The `auth:` section that lets [`TOKEN`] in, and [`ADMIN_TOKEN`] on the admin listener.
    pub(crate) fn auth() -> String {
        let [caller, admin] = [TOKEN, ADMIN_TOKEN].map(auth::hash_token);
        format!(
            "auth: {{ tokens: [ {{ name: test, sha256: \"{caller}\" }}, \
             {{ name: operator, role: admin, sha256: \"{admin}\" }} ] }}\n"
        )
    }

    /// A gateway with the given configuration. `listen` and `admin` are chosen by the kernel.
    pub(crate) async fn start(config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config).await
    }

    /// As [`Self::start_with`], with paths relative to `folder`.
    pub(crate) async fn start_in(folder: TempDir, config: &str) -> Self {
        Self::start_with(folder, config, TestClock::standing()).await
    }

    /// Ends the gateway and starts it again with another configuration. It has not opened its cache file yet.
    pub(crate) async fn restart_as(mut self, config: &str) -> Self {
        config.clone_into(&mut self.config);
        self.restart(async |_| {}).await
    }

    async fn start_with(folder: TempDir, config: &str, clock: Arc<TestClock>) -> Self {
        let app = match build(folder.path(), config, Arc::clone(&clock) as Arc<dyn Clock>) {
            Ok(app) => Arc::new(app),
            Err(report) => panic!("{}", report.lines().join("\n")),
        };
        app.engine.call_candidates();
        let (stop, phase) = watch::channel(Phase::Serving);
        let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (main, admin) = (listen().await, listen().await);
        let (address, admin_address) = (main.local_addr().unwrap(), admin.local_addr().unwrap());
        let (edge, site) = (server::edge(&app), server::site(&app));
        let main = tokio::spawn(async move { edge.serve(main, site, phase, || Duration::from_secs(10)).await });
        let (edge, router) = (server::admin::edge(&app), server::admin::router(Arc::clone(&app)));
        let phase = app.lifecycle.watch();
        let admin_task = tokio::spawn(async move { edge.serve(admin, router, phase, || Duration::ZERO).await });
        let config = config.to_owned();
        Self {
            app,
            address,
            admin: admin_address,
            clock,
            folder,
            config,
            stop: Some(stop),
            main: Some(main),
            admin_task,
        }
    }

    /// Ends the gateway and starts it again. It has not opened its cache file yet. `meanwhile` gets its folder.
    pub(crate) async fn restart(mut self, meanwhile: impl AsyncFnOnce(&Path)) -> Self {
        if let Some(disk) = self.app.engine.answers().disk() {
            disk.flush(Duration::from_secs(10));
        }
        self.stop().await;
        self.admin_task.abort();
        _ = (&mut self.admin_task).await;
        let Self { app, clock, folder, config, .. } = self;
        drop(app);
        meanwhile(folder.path()).await;
        Self::start_with(folder, &config, clock).await
    }

    /// Calls `path` as Argo CD does. The reply has been judged: see [`Reply::verdict`].
    pub(crate) async fn call(&self, path: &str, body: &Value) -> Reply {
        self.send(&wire::argo_request(path, TOKEN, body.to_string().as_bytes())).await
    }

    /// Asks the route `name` with `parameters`.
    pub(crate) async fn ask(&self, name: &str, parameters: Value) -> Reply {
        let body = json!({"applicationSetName": "test", "input": {"parameters": parameters}});
        self.call(&format!("/{name}/api/v1/getparams.execute"), &body).await
    }

    /// Asks again, when everything in the cache has expired.
    pub(crate) async fn ask_afresh(&self, name: &str, parameters: Value) -> Reply {
        self.clock.advance(Duration::from_hours(48));
        self.ask(name, parameters).await
    }

    /// Sends raw bytes on a new connection and reads one response, which must follow the contract.
    pub(crate) async fn send(&self, request: &[u8]) -> Reply {
        let reply = wire::exchange(self.address, request).await;
        contract::conforms(Listener::Main, request, &reply);
        reply
    }

    /// `GET` on the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        let request = format!("GET {path} HTTP/1.1\r\nHost: gateway\r\n\r\n");
        let reply = wire::exchange_admin(self.admin, request.as_bytes()).await;
        contract::conforms(Listener::Admin, request.as_bytes(), &reply);
        reply
    }

    /// The admin listener's answer to an operator who sends `body` to `path`, or gets `path` without a body.
    pub(crate) async fn operate(&self, path: &str, body: Option<Value>) -> Reply {
        let (method, body) = body.map_or(("GET", String::new()), |body| ("POST", body.to_string()));
        let request = wire::operator_request(method, path, &body);
        let reply = wire::exchange_admin(self.admin, request.as_bytes()).await;
        contract::conforms(Listener::Admin, request.as_bytes(), &reply);
        reply
    }

    /// Waits until no backend runs.
    pub(crate) async fn settle(&self) {
        let until = Instant::now() + Duration::from_mins(5);
        loop {
            self.app.engine.observe();
            if self.app.metrics.flights.get() == 0 {
                return;
            }
            assert!(Instant::now() < until, "a run does not end");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The value of one metric, written as in the exposition format. 0 if it is missing.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.admin("/metrics").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// Stops accepting and waits for the requests under way. Returns whether all of them were finished.
    pub(crate) async fn stop(&mut self) -> bool {
        drop(self.stop.take());
        self.main.take().expect("stopped once").await.unwrap()
    }
}

/// Everything but the sockets.
pub(crate) fn build(folder: &Path, config: &str, clock: Arc<dyn Clock>) -> Result<App, Report> {
    let loaded = Loaded::parse("test.yaml", config.to_owned(), BaseDir::new(folder))?;
    App::build(loaded, clock, Path::new(env!("CARGO_BIN_EXE_appset-gateway"))).map(|(app, _)| app)
}
