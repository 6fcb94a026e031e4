//! A real database beside the gateway: Debian's `postgresql` or `mariadb-server`.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::unistd::{Uid, User};
use tempfile::TempDir;
use tokio::{net::TcpStream, time::sleep};

use super::authority::Ca;

/// The user of the gateway.
pub(crate) const USER: &str = "gateway";
/// That user's password.
pub(crate) const PASSWORD: &str = "right-password";

/// How long it may take to start.
const START: Duration = Duration::from_secs(30);

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    Postgres,
    MariaDb,
}

/// A database process. It ends when this is dropped.
pub(crate) struct Database {
    product: Product,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Database {
    /// A database of this product with the tables that `statements` make, one on a line, and a certificate for 127.0.0.1 by `ca`.
    pub(crate) async fn start(product: Product, statements: &str, ca: &Ca) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut database = Self { product, folder: tempfile::tempdir().unwrap(), port, child: None };
        let (certificate, key) = ca.certificate(&["127.0.0.1"]);
        database.write("server.crt", &certificate);
        database.write("server.key", &key);
        database.give(database.folder.path());
        match product {
            Product::Postgres => database.create_postgres(statements),
            Product::MariaDb => database.create_mariadb(statements),
        }
        database.restart().await;
        database
    }

    /// Its URL, for the database `name`.
    pub(crate) fn url(&self, name: &str) -> String {
        let scheme = if self.product == Product::Postgres { "postgres" } else { "mysql" };
        format!("{scheme}://127.0.0.1:{}/{name}", self.port)
    }

    /// Starts it on the same address.
    pub(crate) async fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let (data, port) = (self.data(), self.port.to_string());
        let mut command = match self.product {
            Product::Postgres => {
                let mut command = self.command(&postgres("postgres"));
                command.arg("-D").arg(&data).args(["-p", &port, "-h", "127.0.0.1", "-k", ""]);
                command.args(["-c", "ssl=on", "-c", "fsync=off"]);
                command.arg("-c").arg(format!("ssl_cert_file={}", self.file("server.crt").display()));
                command.arg("-c").arg(format!("ssl_key_file={}", self.file("server.key").display()));
                command
            }
            Product::MariaDb => {
                let mut command = self.command(Path::new("mariadbd"));
                command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
                command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--port", &port]);
                command.arg(format!("--socket={}", self.file("socket").display()));
                command.arg(format!("--ssl-cert={}", self.file("server.crt").display()));
                command.arg(format!("--ssl-key={}", self.file("server.key").display()));
                command
            }
        };
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        while begun.elapsed() < START {
            // PostgreSQL does not start while processes of the one that was killed are still there.
            if self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
                let child = command.spawn();
                let needs = "this test needs `postgresql` and `mariadb-server`; `make test` installs them";
                self.child = Some(child.expect(needs));
            }
            if self.is_ready().await {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the database does not start: {command:?}");
    }

    /// Whether it answers queries. PostgreSQL accepts connections before, and says that it is starting up.
    async fn is_ready(&self) -> bool {
        match self.product {
            Product::Postgres => {
                let mut command = self.command(&postgres("pg_isready"));
                command.args(["--quiet", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
                command.status().expect("it comes with PostgreSQL").success()
            }
            Product::MariaDb => TcpStream::connect(("127.0.0.1", self.port)).await.is_ok(),
        }
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn create_postgres(&self, statements: &str) {
        self.write("password", PASSWORD);
        self.give(&self.file("password"));
        let mut command = self.command(&postgres("initdb"));
        command.arg("-D").arg(self.data()).args(["--no-sync", "-A", "scram-sha-256", "-U", "owner", "--pwfile"]);
        run(command.arg(self.file("password")), "");
        let mut command = self.command(&postgres("postgres"));
        command.args(["--single", "-D"]).arg(self.data());
        let (of_server, of_database) = statements.split_once("\n\n").unwrap();
        run(command.arg("postgres"), of_server);
        let mut command = self.command(&postgres("postgres"));
        command.args(["--single", "-D"]).arg(self.data());
        run(command.arg("shop"), of_database);
    }

    fn create_mariadb(&self, statements: &str) {
        let mut command = self.command(Path::new("mariadb-install-db"));
        command.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
        run(command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]), "");
        let mut command = self.command(Path::new("mariadbd"));
        command.arg("--no-defaults").arg("--bootstrap").arg(format!("--datadir={}", self.data().display()));
        run(&mut command, statements);
    }

    /// `program` as the product's own user, if this is root: neither runs as root.
    fn command(&self, program: &Path) -> Command {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
        let mut command = match self.user() {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--clear-groups", "--reuid", &user.uid.to_string(), "--regid", &user.gid.to_string()]);
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        command.env("PATH", path).current_dir(self.folder.path());
        command
    }

    fn user(&self) -> Option<User> {
        let name = if self.product == Product::Postgres { "postgres" } else { "mysql" };
        if Uid::effective().is_root() { User::from_name(name).unwrap() } else { None }
    }

    fn data(&self) -> PathBuf {
        self.file("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.file(name), content).unwrap();
        fs::set_permissions(self.file(name), fs::Permissions::from_mode(0o600)).unwrap();
        self.give(&self.file(name));
    }

    /// Gives `path` to the product's user.
    fn give(&self, path: &Path) {
        if let Some(user) = self.user() {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// A program of the newest PostgreSQL that is installed.
fn postgres(program: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("this test needs `postgresql`; `make test` installs it");
    let newest = versions.map(|version| version.unwrap().path()).max().unwrap();
    newest.join("bin").join(program)
}

/// Runs `command` with `input` to its end.
fn run(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("ERROR"), "{command:?}: {said}");
}
