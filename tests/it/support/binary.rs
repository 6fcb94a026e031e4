//! The built program as a process.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A gateway in a process of its own. Dropping it kills the process.
pub(crate) struct Gateway {
    child: Child,
    /// Reads the log all the time: a full pipe would stop the gateway.
    reader: Option<JoinHandle<()>>,
    /// The log since it was ready.
    log: Arc<Mutex<String>>,
    /// The address that Argo CD calls.
    pub address: SocketAddr,
    /// The address for probes and metrics.
    pub admin: SocketAddr,
    /// The address for webhooks, if there is one.
    pub hooks: Option<SocketAddr>,
}

/// The program.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_appset-gateway"))
}

impl Gateway {
    /// Serves `config`, which listens on port 0 and logs JSON.
    pub(crate) fn serve(config: &Path) -> Self {
        Self::start(command().arg("serve").arg("-c").arg(config))
    }

    /// Serves `config` with files of at most `max_bytes` bytes. Writing more fails, as on a full disk.
    pub(crate) fn serve_limited(config: &Path, max_bytes: usize) -> Self {
        // An ignored signal stays ignored in the program. A block is 512 bytes.
        let script = format!("trap '' XFSZ; ulimit -S -f {}; exec \"$0\" serve -c \"$1\"", max_bytes / 512);
        Self::start(Command::new("sh").arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_appset-gateway")).arg(config))
    }

    /// Removes the limit of [`Self::serve_limited`].
    pub(crate) fn unlimit(&self) {
        self.limit("unlimited");
    }

    /// Sets the limit of [`Self::serve_limited`] to so many bytes.
    pub(crate) fn limit(&self, max_bytes: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={max_bytes}:")]).status();
        assert!(status.expect("this test needs the program `prlimit`").success());
    }

    /// Runs `command`, a gateway that listens on port 0 and logs JSON.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stdout.take().unwrap());
        let mut lines = Vec::new();
        let ready = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it was ready: {lines:?}");
            let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
            lines.push(line);
            if parsed["message"] == "ready" {
                break parsed;
            }
        };
        let address = |key: &str| ready[key].as_str().unwrap().parse().unwrap();
        let hooks = ready["hooks"].as_str().map(|hooks| hooks.parse().unwrap());
        let (address, admin) = (address("listen"), address("admin"));
        let read = Arc::<Mutex<String>>::default();
        let rest = Arc::clone(&read);
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|length| length > 0) {
                rest.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { child, reader: Some(reader), log: read, address, admin, hooks }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits at most `timeout` for its end. Returns the exit status and the rest of the log.
    pub(crate) fn wait(&mut self, timeout: Duration) -> (ExitStatus, String) {
        let until = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        self.reader.take().expect("waited for once").join().unwrap();
        (status, std::mem::take(&mut *self.log.lock().unwrap()))
    }

    /// The log since it was ready, once it has `words`. Waits at most 20 s.
    pub(crate) fn logged(&self, words: &str) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let log = self.log.lock().unwrap().clone();
            if log.contains(words) {
                return log;
            }
            assert!(Instant::now() < until, "no {words:?} in {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
