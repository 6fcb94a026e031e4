//! A real Valkey or Redis server, and a proxy before it that fails as a network does.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::sleep,
};

/// A loopback address of its own, so that nothing else takes a server's port while it is down.
fn own_address() -> Ipv4Addr {
    static COUNT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Ipv4Addr::new(127, 78, high, low)
}

/// A server in a process of its own. It writes each change to a file before it answers.
pub(crate) struct StoreServer {
    child: Option<Child>,
    folder: TempDir,
    ip: String,
    port: u16,
    arguments: Vec<String>,
}

impl StoreServer {
    /// A server with further `arguments`, such as `--requirepass`.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let ip = own_address().to_string();
        let announce = ["--replica-announce-ip", &ip, "--cluster-announce-ip", &ip];
        Self::start_as(&ip, 6379, "", &[&announce, arguments].concat()).await
    }

    /// A Sentinel that watches the primary `name` on `host`.
    pub(crate) async fn start_sentinel(name: &str, host: &str, quorum: u32) -> Self {
        let ip = own_address().to_string();
        let lines = [
            format!("sentinel monitor {name} {host} 6379 {quorum}"),
            format!("sentinel down-after-milliseconds {name} 1000"),
            format!("sentinel failover-timeout {name} 3000"),
            format!("sentinel announce-ip {ip}\n"),
        ];
        Self::start_as(&ip, 26379, &lines.join("\n"), &["--sentinel"]).await
    }

    async fn start_as(ip: &str, port: u16, file: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.conf"), file).unwrap();
        let mut server = Self { child: None, folder, ip: ip.to_owned(), port, arguments };
        server.restart().await;
        server
    }

    /// Starts it on the same address, after [`Self::kill`].
    pub(crate) async fn restart(&mut self) {
        self.restart_without_waiting();
        while TcpStream::connect((&*self.ip, self.port)).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The same, while it may still read its file.
    pub(crate) fn restart_without_waiting(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut command = Command::new("redis-server");
        command.arg(self.folder.path().join("server.conf"));
        command.args(["--port", &self.port.to_string(), "--bind", &self.ip, "--protected-mode", "no"]);
        command.arg("--dir").arg(self.folder.path());
        if !self.arguments.iter().any(|argument| argument == "--sentinel") {
            command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        }
        let child = command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(child.expect("this test needs `redis-server`; `make test` installs it"));
    }

    /// Adds arguments for the next start.
    pub(crate) fn add(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its host and port.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.ip, self.port)
    }

    /// Its host.
    pub(crate) fn host(&self) -> &str {
        &self.ip
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// What `redis-cli` prints for `command`.
    pub(crate) fn run(&self, command: &[&str]) -> String {
        self.try_run(command).unwrap_or_else(|output| panic!("{command:?}: {output:?}"))
    }

    /// The same for a server that may cut the connection, as one that becomes a primary does.
    pub(crate) fn try_run(&self, command: &[&str]) -> Result<String, Output> {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-h", &self.ip, "-p", &port]).args(command).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status.success() { Ok(printed) } else { Err(output) }
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// What the network does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// It passes all bytes on.
    Works,
    /// It refuses new connections, and cuts the others.
    Refuses,
    /// It passes requests on, and cuts the connection instead of passing on the reply.
    Cuts,
    /// It passes replies on after this time.
    Slow(Duration),
    /// It takes bytes and passes nothing on.
    Swallows,
    /// It swallows the bytes of connections that wait for changes.
    SwallowsWaits,
}

/// A network between replicas and a store.
pub(crate) struct StoreProxy {
    address: String,
    network: watch::Sender<Network>,
    task: tokio::task::JoinHandle<()>,
}

impl StoreProxy {
    /// A network before `server`, a host with a port.
    pub(crate) async fn start(server: String) -> Self {
        let (network, state) = watch::channel(Network::Works);
        let own = (own_address(), 6379);
        let mut listener = Some(TcpListener::bind(own).await.unwrap());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            let mut changes = state.clone();
            loop {
                if *changes.borrow_and_update() == Network::Refuses {
                    (listener, connections) = (None, JoinSet::new());
                    if changes.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                if listener.is_none() {
                    listener = Some(TcpListener::bind(own).await.unwrap());
                }
                tokio::select! {
                    accepted = listener.as_ref().unwrap().accept() => {
                        connections.spawn(pass_on(accepted.unwrap().0, server.clone(), state.clone()));
                    }
                    result = changes.changed() => if result.is_err() { return },
                }
            }
        });
        Self { address: format!("{}:{}", own.0, own.1), network, task }
    }

    /// The URL of the store behind it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Makes the network do this from now on.
    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for StoreProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(client: TcpStream, server: String, state: watch::Receiver<Network>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (waits, is_waiting) = watch::channel(false);
    tokio::select! {
        () = requests(from_client, to_server, &state, &waits) => {}
        () = replies(from_server, to_client, &state, &is_waiting) => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &watch::Receiver<Network>,
    waits: &watch::Sender<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..length];
        if bytes.windows(5).any(|window| window == b"XREAD") {
            waits.send_replace(true);
        }
        let network = *state.borrow();
        let swallows = network == Network::Swallows || (network == Network::SwallowsWaits && *waits.borrow());
        if !swallows && to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &watch::Receiver<Network>,
    is_waiting: &watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let network = *state.borrow();
        match network {
            Network::Works => {}
            Network::SwallowsWaits if !*is_waiting.borrow() => {}
            Network::Refuses | Network::Cuts => return,
            Network::Slow(delay) => sleep(delay).await,
            Network::Swallows | Network::SwallowsWaits => continue,
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
