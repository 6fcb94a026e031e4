//! What a program may do: the limits under which it runs.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// What a program may do. Programs on equal terms take turns in the same launchers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchOptions {
    /// The resources of each process.
    pub(crate) limits: Limits,
    /// Files and folders that it may read and run, besides the system's.
    pub(crate) readable: Vec<PathBuf>,
    /// Files and folders that it may change, besides its work folder.
    pub(crate) writable: Vec<PathBuf>,
    /// As whom it runs; as the gateway unless set.
    pub(crate) user: Option<User>,
    /// Whether it has a network.
    pub(crate) network: Network,
}

/// Which file each path leads to: its device and number, if it is there.
pub(crate) type Identities = Vec<Option<(u64, u64)>>;

impl LaunchOptions {
    /// What the paths lead to now. Permissions are for what was there when they were given, and editors and Kubernetes
    /// put new files in the place of old ones.
    #[must_use]
    pub(crate) fn identities(&self) -> Identities {
        self.paths().map(identity).collect()
    }

    /// What the paths lead to now, but for `known`, at which somebody else looks.
    #[must_use]
    pub(crate) fn identities_but(&self, known: &Path) -> Identities {
        self.paths().filter(|path| *path != known).map(identity).collect()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.readable.iter().chain(&self.writable).map(PathBuf::as_path)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|data| (data.dev(), data.ino()))
}

/// The resources of each process of a program; unlimited unless set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Processor time, in seconds.
    pub(crate) cpu: Option<u64>,
    /// Memory that it may write, in bytes.
    pub(crate) memory: Option<u64>,
    /// The largest file that it may write, in bytes.
    pub(crate) file_size: Option<u64>,
    /// Files that it may have open.
    pub(crate) open_files: Option<u64>,
    /// Processes that its user may have in all.
    pub(crate) processes: Option<u64>,
}

/// A user of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    /// The user's number.
    pub(crate) uid: u32,
    /// The number of the only group.
    pub(crate) gid: u32,
}

/// Which network a program sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Network {
    /// The gateway's.
    #[default]
    Host,
    /// None: no socket, also none to a file.
    None,
}

/// Folders and files of the system that every program may read: programs, libraries, certificates, names and time zones.
/// `/etc` as a whole is not among them, since keys and configurations are there too.
pub(crate) const SYSTEM: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];

/// What may be written besides: what is written there is gone.
pub(crate) const SINKS: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];
