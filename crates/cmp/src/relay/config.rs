//! relay.yaml: the remote plugins.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::link::TlsFiles;
use crate::{
    archive::ArchiveLimits,
    config::{
        Allow, SOCKETS,
        reading::{self, ConfigError, Mistake},
    },
    plugin::{Command, Discover},
    served::allow::AllowRules,
    traces::TracesConfig,
};
use domain::{
    file::base_dir::BaseDir,
    glob::NameGlob,
    secret::SecretRef,
    units::{ByteSize, HumanDuration},
};
use telemetry::log::LogConfig;

/// The time of a call whose caller names none.
const TIMEOUT: HumanDuration = HumanDuration(Duration::from_mins(5));
/// The socket of Argo CD's askpass service, unless `ARGOCD_ASK_PASS_SOCK` is set.
const ASK_PASS: &str = "/tmp/reposerver-ask-pass.sock";
/// The longest name of a socket, in bytes: the path of a unix socket has at most 107.
const MAX_NAME: usize = 100;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RelayConfig {
    /// The folder of sockets.
    #[serde(default = "sockets")]
    pub(crate) sockets: PathBuf,
    /// The address of probes, metrics and the status.
    pub(crate) admin: Option<std::net::SocketAddr>,
    /// The folder for archives.
    pub(crate) work: Option<PathBuf>,
    /// The bytes of all archives that are held at once.
    #[serde(default = "spool")]
    pub(crate) spool: ByteSize,
    /// The bytes of all answers that are held at once.
    #[serde(default = "answers")]
    pub(crate) answers: ByteSize,
    /// The socket of Argo CD's askpass service, for remotes with `gitCredentials`.
    #[serde(default = "ask_pass")]
    pub(crate) ask_pass: PathBuf,
    /// The log.
    #[serde(default)]
    pub(crate) log: LogConfig,
    /// The collector of spans. None unless set.
    pub(crate) traces: Option<TracesConfig>,
    /// The remote plugins.
    remotes: Vec<Spanned<RemoteSettings>>,
    /// The folder of the file.
    #[serde(skip)]
    pub(crate) base: BaseDir,
}

/// A remote plugin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RemoteSettings {
    /// Its name.
    pub(crate) name: String,
    /// Its version. Empty if it has none.
    #[serde(default)]
    pub(crate) version: String,
    /// Its rules of discovery. Those that the remote describes unless set.
    discover: Option<DiscoverSettings>,
    /// `host:port`, or a list of these. All addresses of a name count.
    pub(crate) address: Addresses,
    /// How the remote proves who it is, and how the relay does.
    pub(crate) tls: TlsFiles,
    /// The token for the remote.
    pub(crate) token: Option<SecretRef>,
    /// Whether the repository's Git credentials are passed on to it, if it wants and takes them.
    #[serde(default)]
    pub(super) git_credentials: bool,
    /// Which Applications may use it.
    #[serde(default)]
    pub(crate) allow: Allow,
    /// The time of a call. The caller's deadline counts too.
    #[serde(default = "timeout")]
    pub(crate) timeout: HumanDuration,
    /// The limits of the archives that Argo CD sends.
    #[serde(default)]
    pub(crate) archive: ArchiveLimits,
    /// Whether an answer without manifests is taken from a remote that is not cmp-gateway. Argo CD then deletes all that were there.
    #[serde(default)]
    pub(crate) allow_blank: bool,
}

/// Addresses of a remote.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Addresses {
    One(String),
    Many(Vec<String>),
}

/// `spec.discover` of plugin.yaml. Empty: Applications name the plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct DiscoverSettings {
    file_name: String,
    find: FindSettings,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FindSettings {
    glob: String,
    /// The remote runs its own: only whether there is one counts.
    command: Vec<String>,
}

impl RelayConfig {
    /// Reads `file`. Relative paths start from its folder.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(crate) fn read(file: &Path) -> Result<Self, ConfigError> {
        let (mut config, root) = reading::read::<Self>(file)?;
        config.work = config.work.map(|work| root.join(&work));
        config.sockets = root.join(&config.sockets);
        config.ask_pass = root.join(&config.ask_pass);
        config.base = root.base();
        let mistakes = config.mistakes(file);
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError::Mistakes(mistakes)) }
    }

    /// The remotes, by the names of their sockets.
    pub(crate) fn remotes(&self) -> BTreeMap<String, RemoteSettings> {
        self.remotes.iter().map(|remote| (remote.value.full_name(), remote.value.clone())).collect()
    }

    fn mistakes(&self, file: &Path) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut seen = BTreeMap::<String, Location>::new();
        for (at, Spanned { value: remote, referenced, .. }) in self.remotes.iter().enumerate() {
            let mut note = |key: &str, why: String| {
                let path = format!("remotes[{at}].{key}");
                mistakes.push(Mistake { file: file.to_owned(), line: referenced.line(), path, why });
            };
            let name = remote.full_name();
            if let Some(first) = seen.insert(name.clone(), *referenced) {
                note(
                    "name",
                    format!(
                        "`{name}` is also the name of the remote in line {}: both would have one socket",
                        first.line()
                    ),
                );
            }
            remote.mistakes(&self.base, &mut note);
        }
        mistakes
    }
}

impl RemoteSettings {
    /// The name of its socket, and the one by which the remote is asked.
    pub(crate) fn full_name(&self) -> String {
        let Self { name, version, .. } = self;
        if version.is_empty() { name.clone() } else { format!("{name}-{version}") }
    }

    /// The rules of discovery, if they are set.
    pub(crate) fn discover(&self) -> Option<Discover> {
        let DiscoverSettings { file_name, find: FindSettings { glob, command } } = self.discover.as_ref()?;
        Some(if !file_name.is_empty() {
            Discover::FileName(file_name.clone())
        } else if !glob.is_empty() {
            Discover::Glob(glob.clone())
        } else if let Some((program, arguments)) = command.split_first() {
            Discover::Command(Command { program: program.clone(), arguments: arguments.to_vec() })
        } else {
            Discover::ByName
        })
    }

    /// Hosts and ports.
    pub(crate) fn addresses(&self) -> Vec<(String, u16)> {
        let all = match &self.address {
            Addresses::One(one) => std::slice::from_ref(one),
            Addresses::Many(all) => all,
        };
        all.iter().filter_map(|text| host_and_port(text)).collect()
    }

    fn mistakes(&self, base: &BaseDir, note: &mut impl FnMut(&str, String)) {
        if self.name.is_empty() {
            note("name", "must not be empty".to_owned());
        }
        let full = self.full_name();
        if full.contains(['/', '\0']) || full.starts_with('.') || full.len() > MAX_NAME {
            note("name", format!("`{full}` cannot be the name of a socket"));
        }
        let texts = match &self.address {
            Addresses::One(one) => std::slice::from_ref(one),
            Addresses::Many(all) => all,
        };
        if texts.is_empty() {
            note("address", "must not be empty".to_owned());
        }
        for text in texts.iter().filter(|text| host_and_port(text).is_none()) {
            note("address", format!("`{text}` is not `host:port`, such as `kpt.plugins.svc:8443`"));
        }
        if let Some(Discover::Glob(pattern) | Discover::FileName(pattern)) = self.discover()
            && let Err(error) = NameGlob::parse_path(&pattern)
        {
            note("discover", error.to_string());
        }
        if let Err(error) = AllowRules::new(&self.allow) {
            note("allow", error.to_string());
        }
        if let Err(error) = self.tls.client(base) {
            note("tls", error.to_string());
        }
        if let Some(Err(error)) = self.token.as_ref().map(|token| token.read(base)) {
            note("token", error.to_string());
        }
        if self.token.is_none() && !self.tls.has_certificate() {
            note("token", "set `token` or `tls.cert` and `tls.key`: the remote must know who calls".to_owned());
        }
    }
}

/// The parts of `host:port` or `[v6]:port`.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').map_or(Some(host), |rest| rest.strip_suffix(']'))?;
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '[', ']', '@']);
    Some((host.to_owned(), port.parse().ok().filter(|port| *port > 0 && is_host)?))
}

fn sockets() -> PathBuf {
    SOCKETS.into()
}

/// Where the repo-server has it, in both containers (util/askpass/common.go).
fn ask_pass() -> PathBuf {
    let set = std::env::var_os("ARGOCD_ASK_PASS_SOCK").filter(|path| !path.is_empty());
    set.map_or_else(|| ASK_PASS.into(), PathBuf::from)
}

/// Two of the largest.
fn answers() -> ByteSize {
    ByteSize::mib(200)
}

fn spool() -> ByteSize {
    ByteSize::mib(2048)
}

fn timeout() -> HumanDuration {
    TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relay.yaml");
        std::fs::write(&file, text).unwrap();
        let read = RelayConfig::read(&file).map(|config| config.remotes().into_keys().collect::<Vec<_>>().join(","));
        read.unwrap_or_else(|error| error.to_string()).replace(&folder.path().display().to_string(), "")
    }

    #[test]
    fn all_mistakes_are_named_with_their_lines() {
        let error = read(
            "sockets: s\nremotes:\n- name: kpt\n  address: kpt:8443\n  tls: { ca: ca.crt }\n- name: kpt\n  version: ''\n  address: [kpt, 'https://x:1']\n  \
             tls: { ca: ca.crt }\n  discover: { fileName: '[' }\n",
        );
        let lines: Vec<&str> = error.lines().collect();
        for (at, text) in [
            (0, "/relay.yaml:3: remotes[0].tls: cannot read the CA file"),
            (1, "/relay.yaml:3: remotes[0].token: set `token` or"),
            (2, "/relay.yaml:6: remotes[1].name: `kpt` is also the name of the remote in line 3"),
            (3, "/relay.yaml:6: remotes[1].address: `kpt` is not `host:port`"),
            (4, "/relay.yaml:6: remotes[1].address: `https://x:1` is not"),
            (5, "/relay.yaml:6: remotes[1].discover:"),
        ] {
            assert!(lines[at].starts_with(text), "{error}");
        }
        assert_eq!(lines.len(), 8, "{error}");
        let error = read("remotes:\n- name: kpt\n  adress: kpt:8443\n");
        assert!(error.starts_with("/relay.yaml: ") && error.contains("adress") && error.contains('3'), "{error}");
    }

    #[test]
    fn addresses_are_hosts_and_ports() {
        for (text, parts) in [
            ("kpt.plugins.svc:8443", Some(("kpt.plugins.svc", 8443))),
            ("10.0.0.1:1", Some(("10.0.0.1", 1))),
            ("[::1]:443", Some(("::1", 443))),
            ("kpt", None),
            (":1", None),
            ("kpt:0", None),
            ("kpt:http", None),
            ("[::1:443", None),
        ] {
            assert_eq!(host_and_port(text), parts.map(|(host, port)| (host.to_owned(), port)), "{text}");
        }
    }
}
