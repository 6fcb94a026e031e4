//! The keys of an issuer that are in use. They are fetched regularly in the background, and when a token names an unknown key. Keys stay in use
//! until newer ones arrive, however long that takes.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use jsonwebtoken::Algorithm;
use tokio::time::{Instant, sleep};

use super::{config::JwtConfig, set::KeySet, source::KeySource};
use crate::AuthContext;
use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
    problem::{Path, Problems},
};
use flight::{FlightGuard, FlightJoin, Flights, wait::wait};
use telemetry::metrics::KeySetMetrics;

/// How long a caller waits for keys.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between fetches because of unknown keys.
const UNKNOWN_BACKOFF: Duration = Duration::from_secs(30);
/// The pause after a failed fetch before a call may cause another one.
const FAILED_BACKOFF: Duration = Duration::from_secs(5);
/// The longest wait between background fetches while a source fails.
const MAX_RETRY_WAIT: Duration = Duration::from_mins(1);

/// The keys of an issuer.
pub(super) struct Keys {
    /// The issuer, for the log.
    issuer: String,
    source: KeySource,
    algorithms: Vec<Algorithm>,
    refresh: Duration,
    current: ArcSwapOption<KeySet>,
    flights: Flights<(), (), Fetched>,
    backoffs: Mutex<Backoffs>,
    clock: Arc<dyn Clock>,
    metrics: KeySetMetrics,
}

type Fetched = Result<Arc<KeySet>, BackendError>;

/// The pauses in which a call causes no fetch.
#[derive(Debug, Default)]
struct Backoffs {
    unknown: Option<Timestamp>,
    failed: Option<(Timestamp, BackendError)>,
}

impl Keys {
    /// The keys of `config`, at `path`. Local keys are read now, and their problems noted.
    pub(super) fn build(
        config: &JwtConfig,
        means: AuthContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        let (source, at) = KeySource::build(config, means, path, problems)?;
        let metrics = means.metrics.callers.keys(&config.issuer);
        let current = match &source {
            KeySource::Published(_) => None,
            KeySource::Local(local) => Some(Arc::new(problems.note_secret(&at, local.read(&config.algorithms))?)),
        };
        if let Some(set) = &current {
            metrics.read(means.clock.now(), set.len());
        }
        Some(Arc::new(Self {
            issuer: config.issuer.clone(),
            source,
            algorithms: config.algorithms.clone(),
            refresh: config.jwks.as_ref().map_or(Duration::ZERO, |jwks| jwks.refresh.0),
            current: ArcSwapOption::new(current),
            flights: Flights::default(),
            backoffs: Mutex::default(),
            clock: Arc::clone(means.clock),
            metrics,
        }))
    }

    /// When the keys were last read without an error, and how often they are read. `None` for local keys.
    pub(super) fn last_read(&self) -> Option<(Option<Timestamp>, Duration)> {
        matches!(self.source, KeySource::Published(_)).then(|| (self.metrics.last_read(), self.refresh))
    }

    /// Whether `set` is in use.
    pub(super) fn is_current(&self, set: &Arc<KeySet>) -> bool {
        self.current.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, set))
    }

    /// The keys in use. Waits for the first ones.
    ///
    /// # Errors
    /// When there were none yet, and fetching them fails.
    pub(super) async fn get(self: &Arc<Self>) -> Fetched {
        if let Some(set) = self.current.load_full() {
            return Ok(set);
        }
        let second_lookup = || match self.current.load_full() {
            Some(set) => Some(Ok(set)),
            None => self.failed_just_now().map(Err),
        };
        self.fetch(second_lookup).await
    }

    /// Newer keys than `seen`, which lack a token's key. `seen` itself if there are none, or if they were fetched a short time ago.
    ///
    /// # Errors
    /// When fetching them fails.
    pub(super) async fn newer(self: &Arc<Self>, seen: &Arc<KeySet>) -> Fetched {
        if matches!(self.source, KeySource::Local(_)) {
            return Ok(Arc::clone(seen));
        }
        let second_lookup = || {
            let current = self.current.load_full().unwrap_or_else(|| Arc::clone(seen));
            let is_newer = !Arc::ptr_eq(&current, seen);
            (is_newer || !self.may_fetch_unknown()).then_some(Ok(current))
        };
        self.fetch(second_lookup).await
    }

    /// Fetches published keys regularly. Never returns, except for local keys.
    pub(super) async fn keep(self: Arc<Self>) {
        if matches!(self.source, KeySource::Local(_)) {
            return;
        }
        let mut retry = Duration::from_secs(1);
        loop {
            let wait = if self.fetch(|| None).await.is_ok() {
                retry = Duration::from_secs(1);
                self.refresh
            } else {
                retry = (2 * retry).min(MAX_RETRY_WAIT);
                retry.min(self.refresh)
            };
            sleep(wait).await;
        }
    }

    /// Reads local keys again. A repeated error is logged only once.
    pub(crate) fn reread(&self) {
        let KeySource::Local(local) = &self.source else { return };
        let read = local.read(&self.algorithms).map_err(BackendError::from);
        let before = self.backoffs().failed.as_ref().map(|(_, error)| error.message.clone());
        if read.as_ref().err().is_some_and(|error| before.as_ref() == Some(&error.message)) {
            self.metrics.failed();
        } else {
            let _ = self.store(read);
        }
    }

    /// The file of the keys, if they are local.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.source.file()
    }

    /// Takes over the keys of `former` if both have the same source and no keys were fetched here yet.
    pub(super) fn take_over(&self, former: &Self) {
        if let (KeySource::Published(own), KeySource::Published(other)) = (&self.source, &former.source)
            && own.is_same(other)
            && self.algorithms == former.algorithms
        {
            self.current.rcu(|current| current.clone().or_else(|| former.current.load_full()));
        }
    }

    /// Joins the fetch under way, or starts one unless `second_lookup` has a result.
    async fn fetch(self: &Arc<Self>, second_lookup: impl Fn() -> Option<Fetched>) -> Fetched {
        let deadline = Instant::now() + PATIENCE;
        let join = || -> FlightJoin<Fetched> {
            let keys = Arc::clone(self);
            let work = move |seat: FlightGuard<_, _, _>| async move {
                let fetched = match &keys.source {
                    KeySource::Published(published) => published.fetch(&keys.algorithms, deadline).await,
                    KeySource::Local(local) => local.read(&keys.algorithms).map_err(BackendError::from),
                };
                seat.finish(|_| keys.store(fetched))
            };
            self.flights.join((), &second_lookup, || (), work)
        };
        wait(join, deadline).await
    }

    /// Puts fetched keys into use, if they are good and new.
    fn store(&self, fetched: Result<KeySet, BackendError>) -> Fetched {
        let issuer = &*self.issuer;
        let current = self.current.load_full();
        let set = match fetched {
            Ok(set) => set,
            Err(error) => {
                self.metrics.failed();
                let consequence = if current.is_some() {
                    "the previous keys stay in use"
                } else {
                    "there are no keys yet, so its tokens get a 503"
                };
                tracing::warn!(issuer, %error, "an issuer's keys cannot be read; {consequence}");
                self.backoffs().failed = Some((self.clock.now(), error.clone()));
                return Err(error);
            }
        };
        self.backoffs().failed = None;
        self.metrics.read(self.clock.now(), set.len());
        if let Some(current) = current.filter(|current| current.is_same(&set)) {
            return Ok(current);
        }
        for why in &set.unusable {
            tracing::warn!(issuer, %why, "one of an issuer's keys is not used");
        }
        tracing::info!(issuer, keys = set.len(), "an issuer's keys are in use");
        let set = Arc::new(set);
        self.current.store(Some(Arc::clone(&set)));
        Ok(set)
    }

    fn backoffs(&self) -> std::sync::MutexGuard<'_, Backoffs> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed_just_now(&self) -> Option<BackendError> {
        let backoffs = self.backoffs();
        let (at, error) = backoffs.failed.as_ref()?;
        is_within(*at, FAILED_BACKOFF, self.clock.now()).then(|| error.clone())
    }

    /// Whether an unknown key may cause a fetch now. If so, the next pause starts.
    fn may_fetch_unknown(&self) -> bool {
        let (mut backoffs, now) = (self.backoffs(), self.clock.now());
        if backoffs.unknown.is_some_and(|at| is_within(at, UNKNOWN_BACKOFF, now)) {
            return false;
        }
        backoffs.unknown = Some(now);
        true
    }
}

/// Whether less than `time` has passed from `since` to `now`. If the clock was set back, all pauses end.
fn is_within(since: Timestamp, time: Duration, now: Timestamp) -> bool {
    now.since(since).is_some_and(|passed| passed < time)
}
