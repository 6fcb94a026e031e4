//! A real registry beside the gateway: Debian's `docker-registry`, filled and asked by `skopeo`.

use std::{
    ffi::OsStr,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// The user of a registry with a password.
pub(crate) const USER: &str = "ci";
/// That user's password.
pub(crate) const PASSWORD: &str = "right-password";
/// [`PASSWORD`] as `htpasswd -B` writes it.
const PASSWORD_HASH: &str = "$2y$05$abcdefghijklmnopqrstuuBO.kmgTJhdt40M5ZyHgFmcpBdUb9aS.";
/// How long a registry may take to start.
const START: Duration = Duration::from_secs(20);

/// What a registry demands of its clients.
#[derive(Debug, Default, Clone)]
pub(crate) struct Setup {
    /// [`USER`] and [`PASSWORD`].
    pub has_user: bool,
    /// TLS with this certificate and its key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Who is told of pushes and pulls.
    pub notified: Option<Notified>,
    /// A token from the server at this URL, signed with the key of this certificate.
    pub tokens: Option<(String, PathBuf)>,
}

/// An endpoint for a registry's notifications.
#[derive(Debug, Clone)]
pub(crate) struct Notified {
    /// Its URL.
    pub url: String,
    /// The token for it.
    pub token: String,
}

/// A registry process. It ends when this is dropped.
pub(crate) struct Registry {
    /// The host and port, as in image references.
    pub host: String,
    folder: TempDir,
    name: String,
    setup: Setup,
    child: Option<Child>,
}

impl Registry {
    /// An empty registry that anyone may ask.
    pub(crate) async fn start() -> Self {
        Self::start_as(Setup::default()).await
    }

    /// An empty registry that wants [`USER`] and [`PASSWORD`].
    pub(crate) async fn with_user() -> Self {
        Self::start_as(Setup { has_user: true, ..Setup::default() }).await
    }

    /// An empty registry.
    pub(crate) async fn start_as(setup: Setup) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let mut registry = Self { host: String::new(), folder, name, setup, child: None };
        // The program cannot choose a port by itself, and a free port may be taken before it starts.
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            registry.host = free.to_string();
            if registry.launch().await {
                return registry;
            }
        }
        panic!("docker-registry found no free port");
    }

    /// Ends the process. Its images stay.
    pub(crate) async fn stop(&mut self) {
        self.child.take().expect("a running registry").kill().await.unwrap();
    }

    /// Starts the process again, at the same address.
    pub(crate) async fn restart(&mut self) {
        assert!(self.launch().await, "docker-registry did not start again on {}", self.host);
    }

    /// Starts the process again with another setup. Its images stay.
    pub(crate) async fn restart_as(&mut self, setup: Setup) {
        self.setup = setup;
        self.restart().await;
    }

    /// Copies an image of the demonstration layout, such as `front:feature-branch-1`, to `image`, such as `front:1`.
    pub(crate) async fn push(&self, name: &str, image: &str) {
        succeeded(self.try_push(name, image).await);
    }

    /// skopeo's error when the copy fails, as it must.
    pub(crate) async fn fail_to_push(&self, name: &str, image: &str) -> String {
        let output = self.try_push(name, image).await;
        assert!(!output.status.success(), "{image} was pushed");
        String::from_utf8(output.stderr).unwrap()
    }

    async fn try_push(&self, name: &str, image: &str) -> Output {
        let (from, to) = (format!("oci:{}:{name}", demo_images().display()), format!("docker://{}/{image}", self.host));
        let mut arguments = vec!["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"];
        let user = format!("--dest-creds={USER}:{PASSWORD}");
        arguments.extend(self.setup.has_user.then_some(&*user));
        skopeo(arguments.into_iter().chain([&*from, &*to])).await
    }

    /// From now on, its storage accepts no byte more, as a full disk, or accepts bytes again. Each write fails with another
    /// error number than on a full disk, but the registry reports neither.
    pub(crate) async fn is_full(&self, is_full: bool) {
        let id = self.child.as_ref().and_then(Child::id).expect("a running registry").to_string();
        // Only the soft limit, which may be raised again.
        let option = if is_full { "--fsize=0:" } else { "--fsize=unlimited:" };
        let output = start("prlimit", ["--pid", &*id, option]).output().await;
        succeeded(output.unwrap_or_else(|error| missing("prlimit", &error)));
    }

    /// Copies the image `name` of the layout in `folder`, with everything that belongs to it, to `image`.
    pub(crate) async fn push_all(&self, folder: &Path, name: &str, image: &str) {
        let (from, to) = (format!("oci:{}:{name}", folder.display()), format!("docker://{}/{image}", self.host));
        let arguments = ["--insecure-policy", "copy", "--all", "--quiet", "--dest-tls-verify=false", &from, &to];
        succeeded(skopeo(arguments.into_iter()).await);
    }

    /// Gives the repository `to` (or the tag, by its folder) everything that `from` has: the links that the registry itself
    /// would write, without its wait for the disk at each.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        fn links(from: &Path, to: &Path) {
            std::fs::create_dir_all(to).unwrap();
            for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
                let to = to.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    links(&entry.path(), &to);
                } else {
                    std::fs::copy(entry.path(), to).unwrap();
                }
            }
        }
        links(&self.repositories().join(from), &self.repositories().join(to));
    }

    /// The folder of its repositories.
    pub(crate) fn repositories(&self) -> PathBuf {
        self.folder.path().join("data/docker/registry/v2/repositories")
    }

    /// The file with the content of `digest`.
    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").unwrap();
        self.folder.path().join("data/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data")
    }

    /// The URL of its API.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}/v2/{path}", if self.setup.tls.is_some() { "https" } else { "http" }, self.host)
    }

    /// The digest of `image`, by skopeo.
    pub(crate) async fn inspect(&self, image: &str) -> String {
        let image = format!("docker://{}/{image}", self.host);
        let user = format!("--creds={USER}:{PASSWORD}");
        let mut arguments = vec!["inspect", "--tls-verify=false", "--format", "{{.Digest}}"];
        arguments.extend(self.setup.has_user.then_some(&*user));
        succeeded(skopeo(arguments.into_iter().chain([&*image])).await).trim().to_owned()
    }

    /// Whether our own process serves the address, which it does until `stop`.
    async fn launch(&mut self) -> bool {
        let mut child = start("docker-registry", ["serve".as_ref(), self.write_config().as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| missing("docker-registry", &error));
        let until = Instant::now() + START;
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            // The registry of another test may have taken the port.
            if self.greeting().await.is_some_and(|greeting| greeting == self.name) {
                self.child = Some(child);
                return true;
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn greeting(&self) -> Option<String> {
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().build().unwrap();
        let reply = client.get(self.url("")).send().await.ok()?;
        reply.headers().get("x-name")?.to_str().ok().map(str::to_owned)
    }

    fn write_config(&self) -> PathBuf {
        let (file, users) = (self.folder.path().join("config.yml"), self.folder.path().join("users"));
        std::fs::write(&users, format!("{USER}:{PASSWORD_HASH}\n")).unwrap();
        let auth = match &self.setup {
            Setup { has_user: true, .. } => {
                format!("auth: {{ htpasswd: {{ realm: test, path: {} }} }}\n", users.display())
            }
            Setup { tokens: Some((realm, bundle)), .. } => format!(
                "auth: {{ token: {{ realm: \"{realm}\", service: \"test registry\", issuer: test, rootcertbundle: {} }} }}\n",
                bundle.display()
            ),
            _ => String::new(),
        };
        let tls = self.setup.tls.as_ref().map(|(certificate, key)| {
            format!(", tls: {{ certificate: {}, key: {} }}", certificate.display(), key.display())
        });
        let notified = self.setup.notified.as_ref().map(|Notified { url, token }| {
            format!(
                "notifications: {{ endpoints: [ {{ name: gateway, url: \"{url}\", timeout: 1s, threshold: 3, backoff: 100ms, \
                 headers: {{ Authorization: [\"Bearer {token}\"] }} }} ] }}\n"
            )
        });
        let config = format!(
            "version: 0.1\nlog: {{ level: error, accesslog: {{ disabled: true }} }}\n\
             storage: {{ filesystem: {{ rootdirectory: {} }}, delete: {{ enabled: true }} }}\n\
             http: {{ addr: \"{}\", headers: {{ X-Name: [{}] }}{} }}\n{auth}{}",
            self.folder.path().join("data").display(),
            self.host,
            self.name,
            tls.unwrap_or_default(),
            notified.unwrap_or_default()
        );
        std::fs::write(&file, config).unwrap();
        file
    }
}

/// The image layout of the demonstration.
pub(crate) fn demo_images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/demo/images")
}

async fn skopeo(arguments: impl Iterator<Item = &str>) -> Output {
    start("skopeo", arguments).output().await.unwrap_or_else(|error| missing("skopeo", &error))
}

fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn start(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn missing(program: &str, error: &std::io::Error) -> ! {
    panic!(
        "this test needs the program `{program}` (Debian's package of that name; `prlimit` is in `util-linux`): {error}"
    )
}
