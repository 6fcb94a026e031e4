//! Reloads: a new configuration replaces the one in use without a restart. It is built completely first, then swapped in at once. If it
//! cannot be built, nothing changes.

use std::{
    path::Path as FilePath,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::signal::unix::Signal;

use super::{App, Changes, Outline, Setup};
use crate::{
    app::file_watch::Renewals,
    config::{Loaded, Report},
};
use domain::clock::Timestamp;
use engine::{renewal::left_behind::LeftBehind, route::Route};

/// The results of reloads.
pub(crate) struct Reloads {
    /// The configuration at the start of the process.
    first: Outline,
    last: Mutex<Option<Attempt>>,
}

/// The result of one reload.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// When it happened.
    pub(crate) at: Timestamp,
    /// The changes, or the problems for which the previous configuration stays in use.
    pub(crate) result: Result<Arc<Changes>, Vec<String>>,
}

/// The hash of the files that were read, or why they could not be read.
type ConfigSource = Result<[u8; 32], String>;

impl Reloads {
    pub(super) fn begin(setup: &Setup) -> Self {
        Self { first: setup.outline.clone(), last: Mutex::default() }
    }

    /// The last reload; `None` if there was none.
    #[must_use]
    pub(crate) fn last(&self) -> Option<Attempt> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// The setup in use and the last reload, as they were at one moment.
    #[must_use]
    pub(crate) fn setup_and_last_attempt(&self) -> (Arc<Setup>, Option<Attempt>) {
        let last = self.reloads.lock();
        (self.setup(), last.clone())
    }

    /// The values of the configuration in use that take effect only at the next start.
    #[must_use]
    pub(crate) fn at_the_next_start(&self) -> Vec<String> {
        self.reloads.first.changes(&self.setup().outline).at_the_next_start()
    }

    /// Replaces the configuration in use by `loaded`. Unchanged routes keep their workers, runs under way and answers. Requests under way
    /// finish with the previous configuration.
    ///
    /// # Errors
    /// A report with all problems; then nothing changes.
    pub fn reload(&self, loaded: Result<Loaded, Report>) -> Result<Arc<Changes>, Report> {
        self.attempt(loaded, false)
    }

    /// [`Self::reload`]. A retry of the same files does not log the same problems again.
    fn attempt(&self, loaded: Result<Loaded, Report>, is_retry: bool) -> Result<Arc<Changes>, Report> {
        let before = self.setup();
        let built = loaded.and_then(|loaded| Setup::build(loaded, &self.common, Some(&before)));
        let at = self.common.clock.now();
        match built {
            Ok((setup, _, report)) => {
                for line in report.lines() {
                    tracing::warn!("{line}");
                }
                let changes = Arc::new(before.outline.changes(&setup.outline));
                let started: Vec<_> = setup.routes.new_beside(&before.routes).cloned().collect();
                tracing::info!(
                    generation = setup.generation,
                    kept = setup.kept,
                    new = started.len(),
                    gone = changes.gone.len(),
                    "another configuration is in use"
                );
                for line in changes.to_string().lines() {
                    tracing::info!("{line}");
                }
                self.log_served(&before, &changes);
                if !changes.leaves_routes() {
                    self.engine.left_behind(&before.routes, &setup.routes).iter().for_each(LeftBehind::warn);
                }
                for name in changes.with_other_lineage() {
                    tracing::warn!(
                        route = name,
                        "the `lineage` of a route has changed: new questions begin without a last good answer"
                    );
                }
                let generation = setup.generation;
                let is_gone = |route: &&Arc<Route>| setup.routes.by_name(&route.name).is_none();
                let gone: Vec<_> = before.routes.iter().filter(is_gone).map(|route| Arc::clone(&route.name)).collect();
                {
                    let mut last = self.reloads.lock();
                    self.push.set_current(setup.for_push());
                    self.setup.store(Arc::new(setup));
                    *last = Some(Attempt { at, result: Ok(Arc::clone(&changes)) });
                }
                self.generation.send_replace(generation);
                for name in &gone {
                    self.metrics.routes.forget(name);
                    self.metrics.limits.forget(name);
                }
                for route in &started {
                    route.backend.start();
                }
                if let Some(shared) = self.engine.replica() {
                    shared.want_sync();
                }
                self.engine.rename(&self.setup().routes);
                let is_name = |route: &Route, name: &str| {
                    *route.name == *name || route.formerly().iter().any(|former| **former == *name)
                };
                self.engine.forget_failures(|name| started.iter().any(|route| is_name(route, name)));
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

    /// Logs how many parameter sets each route serves that goes or changes. Which of them the new configuration removes is not known before
    /// its backends are called.
    fn log_served(&self, before: &Setup, changes: &Changes) {
        let served = self.engine.served(&before.routes);
        for name in changes.gone.iter().chain(changes.changed.keys()) {
            let sets = served.get(&**name).map_or(0, |served| served.sets);
            if sets > 0 {
                tracing::info!(route = name, sets, "its callers have parameter sets of the configuration before");
            }
        }
    }

    /// Reloads `file` whenever it or a plugin's file has changed, and on each `hangup`. Never returns. A configuration with problems is
    /// tried again, because a file that it names, such as a mounted Secret, may arrive later.
    pub(crate) async fn follow(self: &Arc<Self>, file: &FilePath, mut hangup: Signal) {
        let mut known: ConfigSource = Ok(self.setup().hash);
        let mut watched = vec![file.to_owned()];
        let mut renewals = Renewals::of(&watched);
        // The files of plugins are not known yet, so the first round reads without waiting for an event.
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
                // Read once more: a change before the watch began caused no event.
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

/// Runs `work`, which reads files, on a thread that may block. `None` if it panicked.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.inspect_err(|error| tracing::error!(%error, "the configuration cannot be read")).ok()
}
