//! Another configuration in the place of the one in use, without a restart: built whole, swapped at once, or not at all.

use std::{
    path::Path as FilePath,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::signal::unix::Signal;

use super::{App, Changes, Outline, Setup};
use crate::{
    app::file_watch::Renewals,
    config::{Loaded, Report},
    domain::clock::Timestamp,
    engine::route::Route,
};

/// What came of attempts to take another configuration.
pub(crate) struct Reloads {
    /// The configuration that the process began with.
    first: Outline,
    last: Mutex<Option<Attempt>>,
}

/// What came of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// When it was.
    pub(crate) at: Timestamp,
    /// Why the configuration before stays in use; else what is otherwise.
    pub(crate) result: Result<Arc<Changes>, Vec<String>>,
}

/// What there was to read: the hash of the files, or what was wrong with them.
type ConfigSource = Result<[u8; 32], String>;

impl Reloads {
    pub(super) fn begin(setup: &Setup) -> Self {
        Self { first: setup.outline.clone(), last: Mutex::default() }
    }

    /// The last attempt; `None` when nothing ever changed.
    #[must_use]
    pub(crate) fn last(&self) -> Option<Attempt> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// What is in use, and what came of the last attempt to take another one; as they were at one time.
    #[must_use]
    pub(crate) fn setup_and_last_attempt(&self) -> (Arc<Setup>, Option<Attempt>) {
        let last = self.reloads.lock();
        (self.setup(), last.clone())
    }

    /// What of the configuration in use takes effect with the next start only.
    #[must_use]
    pub(crate) fn at_the_next_start(&self) -> Vec<String> {
        self.reloads.first.changes(&self.setup().outline).at_the_next_start()
    }

    /// Takes `loaded` in the place of the configuration in use. Routes that stay the same keep their workers, runs under way and answers;
    /// calls that began before end as they began.
    ///
    /// # Errors
    /// With all that is wrong with it; then nothing changes.
    pub fn reload(&self, loaded: Result<Loaded, Report>) -> Result<Arc<Changes>, Report> {
        self.attempt(loaded, false)
    }

    /// [`Self::reload`]; problems that are known to a new try of the same are not told again.
    fn attempt(&self, loaded: Result<Loaded, Report>, is_retry: bool) -> Result<Arc<Changes>, Report> {
        let before = self.setup();
        let built = loaded.and_then(|loaded| Setup::build(loaded, &self.common, Some(&before)));
        let at = self.common.clock.now();
        match built {
            Ok((setup, report)) => {
                for line in report.lines() {
                    tracing::warn!("{line}");
                }
                let changes = Arc::new(before.outline.changes(&setup.outline));
                let begun: Vec<_> = setup.routes.new_beside(&before.routes).cloned().collect();
                tracing::info!(
                    generation = setup.generation,
                    kept = setup.kept,
                    begun = begun.len(),
                    gone = changes.gone.len(),
                    "another configuration is in use"
                );
                for line in changes.to_string().lines() {
                    tracing::info!("{line}");
                }
                let generation = setup.generation;
                let is_gone = |route: &&Arc<Route>| setup.routes.by_name(&route.name).is_none();
                let gone: Vec<_> = before.routes.iter().filter(is_gone).map(|route| Arc::clone(&route.name)).collect();
                {
                    let mut last = self.reloads.lock();
                    self.setup.store(Arc::new(setup));
                    *last = Some(Attempt { at, result: Ok(Arc::clone(&changes)) });
                }
                self.generation.send_replace(generation);
                for name in &gone {
                    self.metrics.routes.forget(name);
                }
                for route in &begun {
                    route.backend.start_ahead();
                }
                self.engine.forget_failures(|name| begun.iter().any(|route| *route.name == *name));
                self.metrics.reloads.succeeded(generation, at);
                Ok(changes)
            }
            Err(report) => {
                let (lines, mut last) = (report.lines(), self.reloads.lock());
                let is_known = last.as_ref().is_some_and(|last| last.result.as_ref().err() == Some(&lines));
                if !(is_retry && is_known) {
                    tracing::error!(
                        problems = lines.len(),
                        "the new configuration cannot be used; the one before stays in use"
                    );
                    for line in &lines {
                        tracing::error!("{line}");
                    }
                    self.metrics.reloads.failed();
                }
                *last = Some(Attempt { at, result: Err(lines) });
                Err(report)
            }
        }
    }

    /// Takes the configuration in `file` whenever it, or a plugin's, has changed, and on each `hangup`, for as long as it is polled. One
    /// that cannot be used is tried again: what it names, such as a mounted Secret, may come after it.
    pub(crate) async fn follow(self: &Arc<Self>, file: &FilePath, mut hangup: Signal) {
        let mut known: ConfigSource = Ok(self.setup().hash);
        let mut watched = vec![file.to_owned()];
        let mut renewals = Renewals::of(&watched);
        // What a plugin's file said at the start is known, where it is not yet.
        let mut is_new = true;
        loop {
            let mut is_asked = false;
            if !is_new {
                tokio::select! {
                    () = renewals.next() => {}
                    _ = hangup.recv() => is_asked = true,
                }
            }
            is_new = false;
            let Some(loaded) = off_thread({
                let file = file.to_owned();
                move || Loaded::read(&file)
            })
            .await
            else {
                continue;
            };
            if let Ok(files) = loaded.as_ref().map(|loaded| loaded.files(file))
                && files != watched
            {
                // Looked at once more, since what changed before they were watched was no event.
                (renewals, watched, is_new) = (Renewals::of(&files), files, true);
            }
            let source = loaded.as_ref().map(|loaded| loaded.hash).map_err(ToString::to_string);
            let has_failed = self.reloads.last().is_some_and(|last| last.result.is_err());
            let is_new_text = source != known;
            if is_asked || is_new_text || has_failed {
                known = source;
                let (app, is_retry) = (Arc::clone(self), !is_asked && !is_new_text);
                off_thread(move || _ = app.attempt(loaded, is_retry)).await;
            }
        }
    }
}

/// Runs what reads files, off the threads that serve. `None` when it panicked.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::error!(%error, "the configuration cannot be looked at")).ok()
}
