//! The work folders of failed runs, kept for a plugin's author: the newest ones, within a number and a size. The next start removes them.

use std::{
    collections::VecDeque,
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    sync::{Mutex, oneshot},
    task::spawn_blocking,
};

use crate::config::PluginSettings;
use domain::units::ByteSize;
use launcher::{KeptFolder, LeftFolder};
use telemetry::trace;

/// The kept folders of one plugin.
#[derive(Debug)]
pub(crate) struct KeptFolders {
    folder: PathBuf,
    max: usize,
    max_bytes: ByteSize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first, each with its bytes.
    kept: VecDeque<(KeptFolder, u64)>,
    /// How many were ever kept: the name of the next one.
    count: u64,
}

/// What a run was about, for the log.
#[derive(Debug)]
pub(crate) struct RunSubject {
    /// The plugin.
    pub(crate) plugin: String,
    /// The Application.
    pub(crate) application: String,
    /// Its folder in the tree.
    pub(crate) path: String,
    /// The program.
    pub(crate) program: String,
}

/// The work folder of a run. It is kept, if the plugin's are kept at all, unless [`Self::discard`] is called.
#[derive(Debug)]
#[must_use = "a run is a failed one unless its folder is discarded"]
pub(crate) struct RunFolder(Option<oneshot::Sender<()>>);

/// Why folders of failed runs cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptError {
    /// Their folder cannot be made.
    #[error("keepFailed: {}: {cause}", .folder.display())]
    NoFolder {
        /// Where it should be.
        folder: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// They cannot be moved there.
    #[error(
        "keepFailed: runs work in {}, which is not in the file system of {}: set `work` or `TMPDIR`", .temporary.display(), .folder.display()
    )]
    Elsewhere {
        /// The folder for temporary files.
        temporary: PathBuf,
        /// The folder for those that are kept.
        folder: PathBuf,
    },
}

/// Why a folder is not kept.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error("it takes more than {0} (`maxKept`)")]
    TooLarge(ByteSize),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server ends")]
    Ending,
}

impl KeptFolders {
    /// Keeps folders in `folder` as `settings` say. `None` if they do not.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub(crate) fn new(settings: &PluginSettings, folder: PathBuf) -> Result<Option<Arc<Self>>, KeptError> {
        if settings.keep_failed == 0 {
            return Ok(None);
        }
        let failed = |cause| KeptError::NoFolder { folder: folder.clone(), cause };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let temporary = std::env::temp_dir();
        let device = |path: &Path| path.metadata().map(|data| data.dev()).map_err(failed);
        if device(&temporary)? != device(&folder)? {
            return Err(KeptError::Elsewhere { temporary, folder });
        }
        let (max, max_bytes) = (settings.keep_failed, settings.max_kept);
        Ok(Some(Arc::new(Self { folder, max, max_bytes, state: Mutex::default() })))
    }

    /// Waits for the folder of a run about `subject`, and keeps it if the run fails.
    pub(crate) fn watch(self: &Arc<Self>, left: oneshot::Receiver<LeftFolder>, subject: RunSubject) -> RunFolder {
        let (good, is_good) = oneshot::channel();
        let kept = Arc::clone(self);
        tokio::spawn(trace::carry(async move {
            let Ok(left) = left.await else { return };
            // A call that was given up has failed, too.
            if is_good.await.is_ok() {
                return;
            }
            let RunSubject { plugin, application, path, program } = subject;
            match kept.keep(left).await {
                Ok(folder) => {
                    tracing::info!(plugin, application, path, program, folder = %folder.display(), "the folder of a failed run is kept");
                }
                Err(error) => {
                    tracing::warn!(plugin, application, path, program, %error, "the folder of a failed run is not kept");
                }
            }
        }));
        RunFolder(Some(good))
    }

    /// Keeps `left`, in the place of the oldest ones if there are too many. Dropping it removes it.
    async fn keep(&self, left: LeftFolder) -> Result<PathBuf, NotKept> {
        let mut state = self.state.lock().await;
        let max = self.max_bytes;
        let measured = spawn_blocking(move || (left.size(max.0), left)).await;
        let (bytes, left) = measured.map_err(|_| NotKept::Ending)?;
        let bytes = bytes?.ok_or(NotKept::TooLarge(max))?;
        while state.kept.len() >= self.max || state.bytes() + bytes > max.0 {
            let Some((oldest, _)) = state.kept.pop_front() else { break };
            oldest.remove().await;
        }
        let to = self.folder.join(state.count.to_string());
        let kept = spawn_blocking(move || left.keep(&to)).await.map_err(|_| NotKept::Ending)??;
        let path = kept.path().to_owned();
        state.count += 1;
        state.kept.push_back((kept, bytes));
        Ok(path)
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.kept.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl RunFolder {
    /// For a run whose folder is never kept.
    pub(crate) const fn unwatched() -> Self {
        Self(None)
    }

    /// The run was good: its folder is removed.
    pub(crate) fn discard(self) {
        // Without a receiver, the folder is gone already.
        let _ = self.0.map(|good| good.send(()));
    }
}
