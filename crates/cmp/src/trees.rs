//! The trees of archives, extracted once for each digest. A run works in a copy, so a tree stays as it was.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::archive::{ArchiveError, digest::TreeDigest, extract::extract, index::Entries, intake::Archive};
use launcher::LauncherPool;

/// What a file takes beyond its bytes, in bytes: about a block.
const FILE_BYTES: u64 = 4096;

/// All trees.
#[derive(Debug)]
pub(crate) struct Trees {
    folder: PathBuf,
    /// The bytes of trees that no run uses.
    max_bytes: u64,
    /// Whether calls may name a tree in place of sending it.
    has_indexes: bool,
    count: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    trees: HashMap<TreeDigest, Known>,
    /// The trees that are being extracted. Others wait for them.
    making: HashMap<TreeDigest, Arc<tokio::sync::Mutex<()>>>,
    uses: u64,
}

#[derive(Debug)]
struct Known {
    tree: Arc<Tree>,
    last_use: u64,
}

/// A tree on the disk. Dropping the last use of it removes it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// What its files take, in bytes.
    pub(crate) bytes: u64,
    /// Its files, folders and links.
    pub(crate) files: usize,
    /// What is in it, if a call may name it.
    pub(crate) index: Option<Arc<Entries>>,
    /// The launchers of each plugin, which may read this tree and no other.
    pools: Mutex<HashMap<String, LauncherPool>>,
}

impl Trees {
    /// No trees yet. `folder` is there, and empty. With `has_indexes`, calls may name a tree.
    pub(crate) fn new(folder: PathBuf, max_bytes: u64, has_indexes: bool) -> Self {
        Self { folder, max_bytes, has_indexes, count: AtomicU64::new(0), state: Mutex::default() }
    }

    /// The tree of `archive`, and whether it was there already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn get(
        &self,
        digest: TreeDigest,
        archive: Archive,
        has_modes: bool,
    ) -> Result<(Arc<Tree>, bool), ArchiveError> {
        let making = Arc::clone(self.state.lock().making.entry(digest).or_default());
        // One call extracts, and those of the same tree wait for it. If it fails, the next one tries.
        let turn = making.lock().await;
        if let Some(tree) = self.state.lock().find(digest) {
            return Ok((tree, true));
        }
        let folder = self.folder.join(self.count.fetch_add(1, Ordering::Relaxed).to_string());
        let (bytes, files) = (archive.size + archive.entries.len() as u64 * FILE_BYTES, archive.entries.len());
        let index = self.has_indexes.then(|| Arc::clone(&archive.entries));
        let tree = Arc::new(Tree { folder, bytes, files, index, pools: Mutex::default() });
        // If the caller gives up, the tree goes when the extraction has ended, and not below it.
        let kept = Arc::clone(&tree);
        let extracted = spawn_blocking(move || {
            let extracted = extract(archive, &kept.folder, has_modes);
            drop(kept);
            extracted
        })
        .await;
        extracted.unwrap_or(Err(ArchiveError::Gone))?;
        let mut state = self.state.lock();
        let evicted = state.add(digest, &tree, self.max_bytes);
        state.making.remove(&digest);
        drop((state, turn, evicted));
        Ok((tree, false))
    }

    /// The tree of this digest, with what is in it, if it is there.
    pub(crate) fn find(&self, digest: TreeDigest) -> Option<(Arc<Tree>, Arc<Entries>)> {
        let tree = self.state.lock().find(digest)?;
        let index = Arc::clone(tree.index.as_ref()?);
        Some((tree, index))
    }

    /// Whether calls may name a tree.
    pub(crate) const fn has_indexes(&self) -> bool {
        self.has_indexes
    }

    /// How many trees there are, and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.trees.len(), state.trees.values().map(|known| known.tree.bytes).sum())
    }
}

impl State {
    fn find(&mut self, digest: TreeDigest) -> Option<Arc<Tree>> {
        self.uses += 1;
        let known = self.trees.get_mut(&digest)?;
        known.last_use = self.uses;
        let tree = Arc::clone(&known.tree);
        self.making.remove(&digest);
        Some(tree)
    }

    /// Adds a tree, and returns those that must go: the ones whose last use is longest ago.
    fn add(&mut self, digest: TreeDigest, tree: &Arc<Tree>, max_bytes: u64) -> Vec<Known> {
        self.uses += 1;
        self.trees.insert(digest, Known { tree: Arc::clone(tree), last_use: self.uses });
        let mut bytes: u64 = self.trees.values().map(|known| known.tree.bytes).sum();
        let mut evicted = Vec::new();
        while bytes > max_bytes {
            let oldest = self.trees.iter().min_by_key(|(_, known)| known.last_use).map(|(digest, _)| *digest);
            let Some(known) = oldest.and_then(|digest| self.trees.remove(&digest)) else { break };
            bytes -= known.tree.bytes;
            evicted.push(known);
        }
        evicted
    }
}

impl Tree {
    /// The launchers of the plugin `name`, made by `make` for the first run.
    pub(crate) fn pool(&self, name: &str, make: impl FnOnce() -> LauncherPool) -> LauncherPool {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(name) {
            return pool.clone();
        }
        let pool = make();
        pools.insert(name.to_owned(), pool.clone());
        pool
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let folder = std::mem::take(&mut self.folder);
        let remove = move || {
            if let Err(error) = std::fs::remove_dir_all(&folder)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(folder = %folder.display(), %error, "cannot remove a tree");
            }
        };
        // Outside of a runtime, as at the end of the process, there is time.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}
