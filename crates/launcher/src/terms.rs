//! The rights of a program, and its limits.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The rights and limits of a program. Programs with equal options share launchers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchOptions {
    /// The limits of each process.
    pub limits: ProcessLimits,
    /// Files and folders that it may read and run, besides those of the system.
    pub readable: Vec<PathBuf>,
    /// Files and folders that it may change, besides its work folder.
    pub writable: Vec<PathBuf>,
    /// The user that it runs as. The gateway's own user unless set.
    pub user: Option<ProgramUser>,
    /// Its network.
    pub network: Network,
}

/// The device and inode number of the file behind each path, if it exists.
pub type Identities = Vec<Option<(u64, u64)>>;

impl LaunchOptions {
    /// The files behind the paths now. Landlock permits files, not paths, while editors and Kubernetes replace files.
    #[must_use]
    pub fn identities(&self) -> Identities {
        self.paths().map(identity).collect()
    }

    /// The files behind the paths now, without `known`, which the caller watches itself.
    #[must_use]
    pub fn identities_but(&self, known: &Path) -> Identities {
        self.paths().filter(|path| *path != known).map(identity).collect()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.readable.iter().chain(&self.writable).map(PathBuf::as_path)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|data| (data.dev(), data.ino()))
}

/// Limits of each process. None unless set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Processor time, in seconds.
    pub cpu: Option<u64>,
    /// Memory that it may write to, in bytes.
    pub memory: Option<u64>,
    /// The largest file that it may write, in bytes.
    pub file_size: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
    /// Processes of its user.
    pub processes: Option<u64>,
}

/// A user of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramUser {
    /// The user's number.
    pub uid: u32,
    /// The number of its only group.
    pub gid: u32,
}

/// The network of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Network {
    /// The gateway's network.
    #[default]
    Host,
    /// No network: no sockets, not even to files.
    None,
}

/// Folders and files of the system that every program may read: programs, libraries, certificates, names and time zones.
/// Not the whole of `/etc`, since keys and configurations are there too.
pub const SYSTEM: &[&str] = &[
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

/// Devices that every program may write to. They discard all output.
pub(crate) const SINKS: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];
