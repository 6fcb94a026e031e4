//! What discovery said last about each folder, and where it failed.
//!
//! Argo CD takes a failed discovery for "not this plugin's", renders the folder raw, and prunes. So a failed discovery is answered with the
//! last verdict, or else claims the folder, and the manifests of a claimed folder fail until discovery works again.

use std::time::Duration;

use domain::bounded_cache::Recent;

/// How many folders are remembered.
const MAX: usize = 10_000;
/// How long a failure is remembered. Argo CD asks again within minutes.
const DOUBT: Duration = Duration::from_hours(1);

/// A folder: the repository's URL, and the path in it.
pub(crate) type FolderKey = (String, String);

/// The verdicts of one plugin.
#[derive(Debug)]
pub(crate) struct Verdicts {
    known: Recent<FolderKey, bool>,
    doubts: Recent<FolderKey, String>,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { known: Recent::new(MAX), doubts: Recent::new(MAX).with_ttl(DOUBT) }
    }
}

impl Verdicts {
    /// Discovery worked.
    pub(crate) fn note(&self, folder: FolderKey, verdict: bool) {
        self.doubts.remove(&folder);
        self.known.insert(folder, verdict);
    }

    /// Discovery failed, because of `why`: the last verdict, or else a claim.
    pub(crate) fn in_doubt(&self, folder: FolderKey, why: String) -> bool {
        if let Some(verdict) = self.known.get(&folder) {
            return verdict;
        }
        self.doubts.insert(folder, why);
        true
    }

    /// Why the folder is claimed though discovery failed.
    pub(crate) fn doubt(&self, folder: &FolderKey) -> Option<String> {
        self.doubts.get(folder)
    }

    /// Forgets everything: the rules have changed.
    pub(crate) fn clear(&self) {
        self.known.clear();
        self.doubts.clear();
    }
}
