//! All registries. Mirrors come before their origin, and all callers share the remembered results.

mod by_identity;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{
    Digest, Reference,
    config::{Means, RegistryConfig},
    contents::{CachedContents, Contents},
    documents::Documents,
    lookup::{Lookup, Missing, Target},
    reference::{is_registry, registry_key},
    registry::Registry,
};
use domain::{
    bounded_cache::Recent,
    clock::{Clock, Timestamp},
    error::BackendError,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    section::Section,
};
use flight::{FlightGuard, Flights, wait::wait};
use launcher::Launchers;
use outbound::{Identity, Outbound};

/// The most memory for the contents of digests, in bytes.
const MAX_CONTENTS: usize = 16 * 1024 * 1024;
/// The same for each identity that routes name.
const MAX_CONTENTS_OF_IDENTITY: usize = 4 * 1024 * 1024;
/// How many tags are remembered.
const MAX_TAGS: usize = 10_000;
/// How many threads verify the documents beside images, at most.
const VERIFIED_AT_ONCE: usize = 2;
/// How much longer a remembered tag is used when little is left of its registry's rate limit.
const STRETCH: u32 = 4;

/// The configured registries, and the remembered results of each.
#[derive(Debug, Clone)]
pub struct Registries(Arc<Shared>);

struct Shared {
    registries: Mutex<HashMap<String, Arc<Registry>>>,
    /// The mirrors of each registry, sorted by name.
    mirrors: HashMap<String, Vec<String>>,
    configs: BTreeMap<String, RegistryConfig>,
    base: BaseDir,
    outbound: Arc<Outbound>,
    launchers: Arc<Launchers>,
    /// The identity of the routes that use these, if they name one.
    of_route: Option<Arc<dyn Identity>>,
    /// The same registries for routes that name an identity, by its name.
    by_identity: Mutex<HashMap<String, Registries>>,
    clock: Arc<dyn Clock>,
    contents: CachedContents,
    tags: Recent<Reference, (Target, Timestamp)>,
    lookups: Flights<[u8; 32], [u8; 32], Result<Lookup, BackendError>>,
    readings: Flights<[u8; 32], (), Result<Arc<Contents>, BackendError>>,
    searches: Searches,
    verifications: Arc<Semaphore>,
}

/// Lookups of the documents beside images that are under way.
type Searches = Flights<[u8; 32], [u8; 32], Result<Arc<Documents>, BackendError>>;

/// The deadline of a caller for a tag, and the accepted age of the result.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The deadline.
    pub deadline: Instant,
    /// The age up to which the result of an earlier lookup is used.
    pub max_age: Duration,
    /// Whether to share a lookup already in progress (false after an event: it may have started before the change).
    pub joins: bool,
}

/// What building registries may use.
#[derive(Clone, Copy)]
pub struct RegistriesMeans<'a> {
    /// The client of their requests.
    pub outbound: &'a Arc<Outbound>,
    /// Starts credential helpers.
    pub launchers: &'a Arc<Launchers>,
    /// The age of remembered tags.
    pub clock: &'a Arc<dyn Clock>,
}

impl Registries {
    /// Checks and keeps the `registries` of a configuration, which are `section`.
    pub fn build(
        config: &BTreeMap<String, RegistryConfig>,
        with: RegistriesMeans<'_>,
        section: &mut Section<'_>,
    ) -> Self {
        Self::new(config, with, None, section)
    }

    fn new(
        config: &BTreeMap<String, RegistryConfig>,
        with: RegistriesMeans<'_>,
        of_route: Option<&Arc<dyn Identity>>,
        section: &mut Section<'_>,
    ) -> Self {
        let RegistriesMeans { outbound, launchers, clock } = with;
        let means = Means { outbound, launchers, of_route };
        let (mut registries, mut mirrors) = (HashMap::new(), HashMap::<String, Vec<String>>::new());
        for (host, entry) in config {
            let mut section = section.key(host);
            if !is_registry(host) {
                section.error_with_help(
                    format!("`{host}` is not a registry's host"),
                    "write the host and port as in image references, such as `registry.example.com:5000`",
                );
                continue;
            }
            let Some(registry) = entry.build(host, means, &mut section) else { continue };
            if let Some(of) = &entry.mirror_of {
                mirrors.entry(registry_key(of)).or_default().push(registry.name.clone());
            }
            if let Some(other) = registries.insert(registry.name.clone(), Arc::new(registry)) {
                section.error(format!("two entries are for {}", other.name));
            }
        }
        for (host, entry) in config {
            let of = entry.mirror_of.as_deref().map(registry_key);
            let of_mirror = of.and_then(|of| config.iter().find(|(name, _)| registry_key(name) == of));
            if of_mirror.is_some_and(|(_, other)| other.mirror_of.is_some()) {
                section.key(host).key("mirrorOf").error_with_help(
                    "that registry is a mirror itself",
                    "name the origin, which is used when a mirror has no answer",
                );
            }
        }
        let max_contents = if of_route.is_some() { MAX_CONTENTS_OF_IDENTITY } else { MAX_CONTENTS };
        Self(Arc::new(Shared {
            registries: Mutex::new(registries),
            mirrors,
            configs: config.clone(),
            base: section.base.clone(),
            outbound: Arc::clone(outbound),
            launchers: Arc::clone(launchers),
            of_route: of_route.cloned(),
            by_identity: Mutex::default(),
            clock: Arc::clone(clock),
            contents: Recent::weighed(max_contents, |_, contents| contents.weight()),
            tags: Recent::new(MAX_TAGS),
            lookups: Flights::default(),
            readings: Flights::default(),
            searches: Flights::default(),
            verifications: Arc::new(Semaphore::new(VERIFIED_AT_ONCE)),
        }))
    }

    /// The manifest that `reference` names now. One request serves all callers who wait.
    ///
    /// # Errors
    /// When the registry returns no clear answer in time.
    pub async fn look_up(&self, reference: &Reference, patience: Patience) -> Result<Lookup, BackendError> {
        let name = &reference.registry;
        if let Some(target) = self.remembered(reference, patience.max_age).await {
            return Ok(Lookup::There(target));
        }
        let key: [u8; 32] = Sha256::digest(reference.text()).into();
        // A lookup that runs already may have read the tag before the event that this caller follows.
        if !patience.joins {
            self.0.lookups.supersede(|running| *running == key, || ());
        }
        let join = || {
            let (shared, wanted) = (Arc::clone(&self.0), reference.clone());
            let work = move |seat: FlightGuard<_, _, _>| async move {
                // From before the request: the tag may move while the answer is on its way.
                let queried_at = shared.clock.now();
                let found = shared.look_up(&wanted, patience.deadline).await;
                seat.finish(|is_current| {
                    if let (Ok(Lookup::There(target)), true) = (&found, is_current) {
                        shared.tags.insert(wanted, (target.clone(), queried_at));
                    }
                });
                found
            };
            let known = || self.0.tag(reference, patience.max_age).map(|target| Ok(Lookup::There(target)));
            self.0.lookups.join(key, known, || key, work)
        };
        wait(join, patience.deadline).await.map_err(|error| error.within(format_args!("registry {name}")))
    }

    /// The contents of `digest`, if they are in memory.
    #[must_use]
    pub fn known_contents(&self, digest: &Digest) -> Option<Arc<Contents>> {
        self.0.contents.get(digest)
    }

    /// The contents of `digest`.
    ///
    /// # Errors
    /// When the whole content is not read by `deadline`.
    pub async fn contents(
        &self,
        registry: &str,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<Arc<Contents>, BackendError> {
        if let Some(contents) = self.known_contents(digest) {
            return Ok(contents);
        }
        let key = Sha256::digest(format!("{registry}/{repository}@{digest}")).into();
        let join = || {
            let shared = Arc::clone(&self.0);
            let (name, repository, wanted) = (registry.to_owned(), repository.to_owned(), digest.clone());
            let work = move |seat: FlightGuard<_, _, _>| async move {
                let _seat = seat;
                let contents = Arc::new(shared.read(&name, &repository, &wanted, deadline).await?);
                shared.contents.insert(wanted, Arc::clone(&contents));
                Ok(contents)
            };
            self.0.readings.join(key, || self.known_contents(digest).map(Ok), || (), work)
        };
        wait(join, deadline).await.map_err(|error| error.within(format_args!("registry {registry}")))
    }

    /// Forgets all tags, so that each is looked up again, and so are the documents beside images. Callers who already wait for
    /// an answer still get it.
    pub fn forget_tags(&self) {
        self.0.lookups.supersede(|_| true, || self.0.tags.clear());
        self.0.searches.supersede(|_| true, || ());
    }

    /// A permit to verify the documents beside an image, which takes a processor. Permits are served in the order of the calls,
    /// so a caller with many documents should take several short ones.
    ///
    /// # Errors
    /// When there is none by `deadline`.
    pub async fn verification_permit(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, BackendError> {
        let permit = Arc::clone(&self.0.verifications).acquire_owned();
        match timeout_at(deadline, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(BackendError::unavailable("no signatures are verified any more")),
            Err(_) => {
                Err(BackendError::timeout("there was no time to verify the signatures and attestations of the image"))
            }
        }
    }

    /// The registry called `name`, after its mirrors.
    pub(super) fn chain(&self, name: &str) -> Result<Vec<Arc<Registry>>, BackendError> {
        self.0.chain(name)
    }

    /// Lookups of the documents beside images that are under way.
    pub(super) fn searches(&self) -> &Searches {
        &self.0.searches
    }

    async fn remembered(&self, reference: &Reference, max_age: Duration) -> Option<Target> {
        if let Some(target) = self.0.tag(reference, max_age) {
            return Some(target);
        }
        // Little is left of the rate limit: a somewhat older digest is better than an error for all routes.
        let stretched = self.0.tag(reference, max_age.saturating_mul(STRETCH))?;
        let is_low = self.0.registry(&reference.registry).ok()?.is_low(&reference.repository).await;
        is_low.then_some(stretched)
    }
}

impl Shared {
    /// The remembered manifest of `reference`, if it is younger than `max_age`.
    fn tag(&self, reference: &Reference, max_age: Duration) -> Option<Target> {
        if max_age.is_zero() {
            return None;
        }
        let (target, at) = self.tags.get(reference)?;
        let age = self.clock.now().since(at)?;
        (age < max_age).then_some(target)
    }

    async fn look_up(&self, reference: &Reference, deadline: Instant) -> Result<Lookup, BackendError> {
        let chain = self.chain(&reference.registry)?;
        let last = chain.len() - 1;
        for (index, registry) in chain.iter().enumerate() {
            let found = registry.look_up(reference, share(deadline, last - index)).await;
            match found {
                Ok(found @ Lookup::There(_)) => return Ok(found),
                // If a mirror has no answer, its origin may have one.
                _ if index < last => {
                    tracing::debug!(mirror = registry.name, %reference, ?found, "the mirror has no answer");
                }
                Ok(Lookup::Missing(missing)) => {
                    if missing == Missing::Repository {
                        tracing::warn!(
                            registry = reference.registry,
                            repository = reference.repository,
                            "the registry has no such repository; its images are taken for not built yet"
                        );
                    }
                    return Ok(Lookup::Missing(missing));
                }
                Err(error) => return Err(error),
            }
        }
        Err(BackendError::unavailable("there is no registry for it"))
    }

    async fn read(
        &self,
        name: &str,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<Contents, BackendError> {
        let chain = self.chain(name)?;
        let last = chain.len() - 1;
        let mut result = Err(BackendError::unavailable("there is no registry for it"));
        for (index, registry) in chain.iter().enumerate() {
            result = registry.contents(repository, digest, share(deadline, last - index)).await;
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn chain(&self, name: &str) -> Result<Vec<Arc<Registry>>, BackendError> {
        let name = registry_key(name);
        let mirrors = self.mirrors.get(&name).into_iter().flatten();
        mirrors.map(String::as_str).chain([&*name]).map(|name| self.registry(name)).collect()
    }

    /// The registry called `name`: as configured, or else at that host over https, anonymously.
    fn registry(&self, name: &str) -> Result<Arc<Registry>, BackendError> {
        // Locked while a registry is built, so that all callers share one client and its limits.
        let mut registries = self.registries.lock();
        if let Some(registry) = registries.get(name) {
            return Ok(Arc::clone(registry));
        }
        let mut problems = Problems::default();
        let config = RegistryConfig::default();
        let Self { base, outbound, launchers, .. } = self;
        let means = Means { outbound, launchers, of_route: self.of_route.as_ref() };
        let built = config.build(name, means, &mut Section::new(base, Path::root(), &mut problems));
        let registry = built.ok_or_else(|| BackendError::unavailable(format!("{name} cannot be reached")))?;
        let registry = Arc::new(registry);
        registries.insert(name.to_owned(), Arc::clone(&registry));
        Ok(registry)
    }
}

/// Half of the time that is left, if other registries follow this one.
fn share(deadline: Instant, others: usize) -> Instant {
    if others == 0 {
        return deadline;
    }
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registries").field("mirrors", &self.mirrors).finish_non_exhaustive()
    }
}
