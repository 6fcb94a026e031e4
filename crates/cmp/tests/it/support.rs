//! A server in a process of its own, and the client.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::OnceLock,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

/// How long something may take that must happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// A plugin that prints a file of the Application's folder.
pub(crate) const DEMO: &str = r#"
apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: {name: demo}
spec:
  version: v1.0
  discover: {fileName: ./demo.yaml}
  generate: {command: [sh, -c, 'printf "kind: ConfigMap\nmetadata: {name: %s}\n" "$ARGOCD_APP_NAME"; cat demo.yaml']}
"#;

/// `plugin.yaml` with a shell script that prints the manifests, and no discovery.
pub(crate) fn script(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(
        "kind: ConfigManagementPlugin\nmetadata: {{name: demo, }}\nspec: {{version: v1.0, generate: {{command: [sh, -c, {text}]}}}}\n"
    )
}

/// A running server.
pub(crate) struct Gateway {
    child: Child,
    command: Command,
    folder: TempDir,
    /// Whether the server is the child of `child`.
    is_inner: bool,
}

impl Gateway {
    /// A sidecar with this plugin, whose socket is `demo-v1.0.sock`.
    pub(crate) fn sidecar(plugin: &str) -> Self {
        Self::sidecar_called("demo-v1.0", plugin)
    }

    /// A sidecar with this plugin, as process 1 of a namespace of its own.
    pub(crate) fn sidecar_as_first_process(plugin: &str) -> Self {
        let mut before = vec!["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
        if !nix::unistd::geteuid().is_root() {
            before.extend(["--user", "--map-root-user"]);
        }
        Self::sidecar_by(&before, "demo-v1.0", plugin)
    }

    /// A sidecar with this plugin, whose socket is called `name`.
    pub(crate) fn sidecar_called(name: &str, plugin: &str) -> Self {
        Self::sidecar_by(&[], name, plugin)
    }

    /// A sidecar with this plugin, started by `sh` after the commands `before`.
    pub(crate) fn sidecar_after(before: &str, plugin: &str) -> Self {
        Self::sidecar_by(&["sh", "-c", &format!("{before}; exec \"$0\" \"$@\"")], "demo-v1.0", plugin)
    }

    fn sidecar_by(before: &[&str], name: &str, plugin: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("config")).unwrap();
        fs::write(folder.path().join("config/plugin.yaml"), plugin).unwrap();
        let config = folder.path().join("config");
        let arguments = ["--config-dir-path".as_ref(), config.as_os_str()];
        let mut gateway = Self::start(before, &arguments, folder);
        gateway.wait_for_socket(name);
        gateway
    }

    /// A server with `cmp.yaml`, to which sockets and work folder are added, and with these plugins.
    pub(crate) fn serve(config: &str, plugins: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in plugins {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("plugin.yaml"), text).unwrap();
        }
        let (sockets, work) = (folder.path().join("sockets"), folder.path().join("work"));
        let text = format!("sockets: {}\nwork: {}\n{config}", sockets.display(), work.display());
        let file = folder.path().join("cmp.yaml");
        fs::write(&file, text).unwrap();
        let mut gateway = Self::start(&[], &["serve".as_ref(), "-c".as_ref(), file.as_os_str()], folder);
        let sockets = gateway.path("sockets");
        let served = || fs::read_dir(&sockets).map_or(0, |found| found.flatten().filter(is_socket).count());
        gateway.wait_until(|| served() == plugins.len());
        gateway
    }

    /// A relay with this relay.yaml, to which sockets and work folder are added, started after the words `before`. Waits for its sockets.
    pub(crate) fn relay(before: &[&str], config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (sockets, work) = (folder.path().join("sockets"), folder.path().join("work"));
        let text = format!("sockets: {}\nwork: {}\n{config}", sockets.display(), work.display());
        let file = folder.path().join("relay.yaml");
        fs::write(&file, text).unwrap();
        let mut gateway = Self::start(before, &["relay".as_ref(), "-c".as_ref(), file.as_os_str()], folder);
        gateway.wait_for_log("\"serving\"");
        gateway
    }

    /// A relay with the whole relay.yaml `config`, whose log has `text` at last.
    pub(crate) fn relay_of(config: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relay.yaml");
        fs::write(&file, config).unwrap();
        let mut gateway = Self::start(&[], &["relay".as_ref(), "-c".as_ref(), file.as_os_str()], folder);
        gateway.wait_for_log(text);
        gateway
    }

    /// Waits until a relay knows its first remote.
    pub(crate) fn wait_until_known(&mut self) {
        let address = self.address("serving probes and metrics");
        self.wait_until(|| !crate::remotes::get(&address, "/status").contains("\"kind\":\"unknown\""));
    }

    /// Sends `signal` to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Starts the server by the program `before`, if there is one.
    fn start(before: &[&str], arguments: &[&std::ffi::OsStr], folder: TempDir) -> Self {
        for name in ["sockets", "work", "repository"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let log = File::create(folder.path().join("log")).unwrap();
        let mut words = before.iter().copied().chain([env!("CARGO_BIN_EXE_cmp-gateway")]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(arguments)
            .env("ARGOCD_PLUGINSOCKFILEPATH", folder.path().join("sockets"))
            .env("ARGOCD_CMP_WORKDIR", folder.path().join("work"))
            .env("SHARED", folder.path())
            .env("PATH", path_of_examples())
            .env("MY_TOKEN", "hunter2-hunter2-hunter2")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self { child: command.spawn().unwrap(), command, folder, is_inner: before.first() == Some(&"unshare") }
    }

    /// Starts it again when it has ended.
    pub(crate) fn restart(&mut self) {
        self.child = self.command.spawn().unwrap();
    }

    fn wait_for_socket(&mut self, name: &str) {
        let socket = self.socket(name);
        self.wait_until(|| socket.exists());
    }

    /// Waits until `is_true`, while the server runs.
    pub(crate) fn wait_until(&mut self, is_true: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_true() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{ended:?}: {}", self.log());
            sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the log has `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        let log = self.path("log");
        self.wait_until(|| fs::read_to_string(&log).is_ok_and(|log| log.contains(text)));
    }

    /// The address after which the log says `text`.
    pub(crate) fn address(&mut self, text: &str) -> String {
        self.wait_for_log(text);
        let log = self.log();
        let (_, after) = log.split_once(&format!("{text}\",\"address\":\"")).unwrap();
        after.split('"').next().unwrap().to_owned()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.path(&format!("sockets/{name}.sock"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Writes a file of the repository.
    pub(crate) fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.path("repository").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Begins calls of `method` for the folder `app` of the repository.
    pub(crate) fn begin(&self, plugin: &str, method: &str, app: &str, flags: &[&str]) -> Child {
        let mut command = Command::new(client());
        command.arg(self.socket(plugin)).arg(method).arg("-folder").arg(self.path("repository")).args(["-app", app]);
        command.args(flags).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// The answers of calls of `demo-v1.0`.
    pub(crate) fn ask_all(&self, method: &str, app: &str, flags: &[&str]) -> Vec<Answer> {
        answers(self.begin("demo-v1.0", method, app, flags))
    }

    /// The answer of one call of `demo-v1.0`.
    pub(crate) fn ask(&self, method: &str, app: &str, flags: &[&str]) -> Answer {
        self.ask_all(method, app, flags).remove(0)
    }

    /// Asks the server to end.
    pub(crate) fn terminate(&self) {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let inner = children.split_whitespace().next().filter(|_| self.is_inner);
        let id = inner.map_or(id, |inner| inner.parse().unwrap());
        kill(Pid::from_raw(id.try_into().unwrap()), Signal::SIGTERM).unwrap();
    }

    /// The states of all processes that the server has started, and of itself.
    pub(crate) fn states(&self) -> Vec<char> {
        let stats: HashMap<u32, (char, u32)> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let id = entry.file_name().to_str()?.parse().ok()?;
                let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
                let mut after = stat.rsplit_once(") ")?.1.split(' ');
                Some((id, (after.next()?.chars().next()?, after.next()?.parse().ok()?)))
            })
            .collect();
        let is_own = |id: &u32| {
            let parents = std::iter::successors(Some(*id), |id| stats.get(id).map(|(_, parent)| *parent));
            parents.take(100).any(|id| id == self.child.id())
        };
        stats.iter().filter(|(id, _)| is_own(id)).map(|(_, (state, _))| *state).collect()
    }

    /// How the server ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "{}", self.log());
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Twice: calls need not end.
            self.terminate();
            sleep(Duration::from_millis(50));
            self.terminate();
            let until = Instant::now() + PATIENCE;
            while let Ok(None) = self.child.try_wait() {
                if Instant::now() > until {
                    let _ = self.child.kill();
                }
                sleep(Duration::from_millis(10));
            }
        }
    }
}

fn is_socket(file: &fs::DirEntry) -> bool {
    file.path().extension().is_some_and(|extension| extension == "sock")
}

/// What the client printed about a call.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Value);

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.0["code"].as_str().unwrap()
    }

    pub(crate) fn error(&self) -> &str {
        self.0["error"].as_str().unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    /// All values of the field `number`.
    pub(crate) fn fields(&self, number: &str) -> Vec<&Value> {
        assert_eq!(self.code(), "OK", "{self:?}");
        self.0["fields"].as_array().into_iter().flatten().filter_map(|field| field.get(number)).collect()
    }

    /// The manifests of `GenerateManifest`.
    pub(crate) fn manifests(&self) -> Vec<&str> {
        self.fields("1").into_iter().map(|text| text.as_str().unwrap()).collect()
    }

    /// Whether `MatchRepository` claimed the folder.
    pub(crate) fn is_supported(&self) -> bool {
        self.fields("1").iter().any(|flag| **flag == 1)
    }
}

pub(crate) fn answers(client: Child) -> Vec<Answer> {
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<_> = text.lines().map(|line| Answer(serde_json::from_str(line).unwrap())).collect();
    assert!(!answers.is_empty(), "the client printed nothing");
    answers
}

/// The folder of all crates.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Where programs are: those of the examples, and their stand-ins.
pub(crate) fn path_of_examples() -> std::ffi::OsString {
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-ins");
    let examples = ["helmfile", "kpt", "pipe"].map(|name| repository().join("docs/cmp/examples").join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(examples.into_iter().chain([stand_ins]).chain(std::env::split_paths(&path))).unwrap()
}

/// The client, built once.
pub(crate) fn client() -> &'static Path {
    static CLIENT: OnceLock<PathBuf> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cmp-client");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&built).arg(".").current_dir(folder);
        let status = go.envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly")]).status();
        let status = status.expect("Go builds the client: install it, from Debian or go.dev");
        assert!(status.success(), "the client cannot be built");
        built
    })
}
