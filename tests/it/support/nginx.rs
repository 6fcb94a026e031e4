//! A real web server: Debian's `nginx`, as one process with a folder of its own.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::authority::Ca;

/// How long nginx may take to start.
const START: Duration = Duration::from_secs(20);

/// A running nginx. It ends when this is dropped.
pub(crate) struct Nginx {
    /// Its address.
    pub address: SocketAddr,
    folder: TempDir,
    child: Child,
}

impl Nginx {
    /// An nginx whose only server has these `directives`, which may name files in `folder`.
    pub(crate) async fn start(folder: TempDir, directives: &str) -> Self {
        Self::start_as(folder, "", directives).await
    }

    /// An nginx with https, with a certificate of `ca`. Clients may use HTTP/2.
    pub(crate) async fn start_tls(folder: TempDir, ca: &Ca, directives: &str) -> Self {
        let (certificate, key) = ca.certificate(&["127.0.0.1"]);
        std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), key).unwrap();
        let own = "ssl_certificate tls.crt; ssl_certificate_key tls.key;";
        Self::start_as(folder, "ssl http2", &format!("{own}\n{directives}")).await
    }

    async fn start_as(folder: TempDir, options: &str, directives: &str) -> Self {
        // nginx cannot choose a port by itself, and a free port may be taken before it starts.
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            write_config(folder.path(), &format!("listen {address} {options};\n{directives}"));
            let mut child = launch(folder.path());
            let until = Instant::now() + START;
            while Instant::now() < until && child.try_wait().unwrap().is_none() {
                // The file is written when the port is bound.
                if folder.path().join("nginx.pid").exists() {
                    return Self { address, folder, child };
                }
                sleep(Duration::from_millis(10)).await;
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("nginx does not start: {}", read(folder.path(), "error.log"));
    }

    /// Its first `number` requests: method, target, status, the sent condition, and the accepted encodings.
    pub(crate) async fn log(&self, number: usize) -> Vec<String> {
        let until = Instant::now() + START;
        loop {
            // A line is written after its answer was sent.
            let lines: Vec<String> = read(self.folder(), "access.log").lines().map(str::to_owned).collect();
            if lines.len() >= number {
                return lines;
            }
            assert!(Instant::now() < until, "it was asked less: {lines:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default()
}

fn launch(folder: &Path) -> Child {
    let mut command = Command::new("nginx");
    // Debian's folder, which many users' PATH lacks.
    command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
    command.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "error.log"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs the program `nginx` (Debian's package of that name): {error}"))
}

/// One process that is no daemon, so that its end ends everything, with no files outside of its folder.
fn write_config(folder: &Path, server: &str) {
    let modules = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders: String = modules.map(|module| format!("{module}_temp_path temp;\n")).concat();
    let config = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log error.log;\nevents {{}}\nhttp {{\n{folders}\
         types {{ application/json json; text/html html; }}\n\
         log_format test '$request_method $request_uri $status $http_if_none_match$http_if_modified_since $http_accept_encoding';\n\
         access_log access.log test;\nserver {{\n{server}\n}}\n}}\n"
    );
    std::fs::write(folder.join("nginx.conf"), config).unwrap();
}
