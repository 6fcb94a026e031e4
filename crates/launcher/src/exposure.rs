//! Which files of the gateway its programs could read. They run as the gateway's user, unless `user` of a script names another one: then only
//! landlock keeps files from them.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{LaunchOptions, Launchers, Network, has_landlock};

/// What the programs of a pool are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A backend, with the rights in its `allow`.
    Script,
    /// A credential for a registry. A helper may read its own files and those that the clouds' variables name.
    Helper,
}

/// A program that could read a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// The program.
    pub reader: Reader,
    /// Why it could.
    pub why: String,
}

/// The demands of a gateway's pools.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// The strictest network of all pools.
    pub(super) network: Option<Network>,
    /// Programs that some pool runs as the gateway's user. Scripts come before helpers.
    as_gateway: Option<Reader>,
    /// The paths that those programs may read.
    readable: Vec<(PathBuf, Reader)>,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Script => "scripts",
            Self::Helper => "credential helpers",
        })
    }
}

impl Launchers {
    /// Notes the terms of a pool for `reader`.
    pub(super) fn want(&self, terms: &LaunchOptions, reader: Reader) {
        let mut demands = self.demands.lock();
        if demands.network != Some(Network::None) {
            demands.network = Some(terms.network);
        }
        if terms.user.is_none() {
            if demands.as_gateway != Some(Reader::Script) {
                demands.as_gateway = Some(reader);
            }
            demands.readable.extend(terms.readable.iter().chain(&terms.writable).map(|path| (path.clone(), reader)));
        }
    }

    /// The program that could read `file`, and why; `None` if none could.
    pub fn why_exposed(&self, file: &Path) -> Option<Exposure> {
        let demands = self.demands.lock();
        let reader = demands.as_gateway?;
        if !has_landlock() {
            let why = format!("the kernel has no landlock, so {reader} may read all files that the gateway may");
            return Some(Exposure { reader, why });
        }
        // Kubernetes mounts secrets as links to files elsewhere.
        let files = [Some(file.to_owned()), file.canonicalize().ok()];
        let is_below = |(folder, _): &&(PathBuf, Reader)| {
            let folders = [Some(folder.clone()), folder.canonicalize().ok()];
            folders.iter().flatten().any(|folder| files.iter().flatten().any(|file| file.starts_with(folder)))
        };
        let (folder, reader) = demands.readable.iter().find(is_below)?;
        let why = match reader {
            Reader::Script => format!("a script's `allow` has {}", folder.display()),
            Reader::Helper => format!("a credential helper may read {}", folder.display()),
        };
        Some(Exposure { reader: *reader, why })
    }
}
