//! Which files of the gateway scripts could read. Scripts run as the gateway's user, unless `user` names another one: then only landlock
//! keeps files from them.

use std::path::{Path, PathBuf};

use super::{LaunchOptions, Launchers, Network, has_landlock};

/// The demands of a gateway's pools.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// The strictest network of all pools.
    pub(super) network: Option<Network>,
    /// Whether some pool runs programs as the gateway's user.
    as_gateway: bool,
    /// The paths that those programs may read.
    readable: Vec<PathBuf>,
}

impl Launchers {
    /// Notes the terms of a pool.
    pub(super) fn want(&self, terms: &LaunchOptions) {
        let mut demands = self.demands.lock();
        if demands.network != Some(Network::None) {
            demands.network = Some(terms.network);
        }
        if terms.user.is_none() {
            demands.as_gateway = true;
            demands.readable.extend(terms.readable.iter().chain(&terms.writable).cloned());
        }
    }

    /// Why a script could read `file`; `None` if none could.
    pub fn why_exposed(&self, file: &Path) -> Option<String> {
        let demands = self.demands.lock();
        if !demands.as_gateway {
            return None;
        }
        if !has_landlock() {
            return Some("the kernel has no landlock, so scripts may read all files that the gateway may".to_owned());
        }
        // Kubernetes mounts secrets as links to files elsewhere.
        let files = [Some(file.to_owned()), file.canonicalize().ok()];
        let is_below = |folder: &PathBuf| {
            let folders = [Some(folder.clone()), folder.canonicalize().ok()];
            folders.iter().flatten().any(|folder| files.iter().flatten().any(|file| file.starts_with(folder)))
        };
        let folder = demands.readable.iter().find(|folder| is_below(folder))?;
        Some(format!("a script's `allow` has {}", folder.display()))
    }
}
