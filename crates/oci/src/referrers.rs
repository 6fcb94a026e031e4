//! The documents beside an image: those that the referrers API or its fallback tag lists, and cosign's older tag
//! `sha256-….sig`. Source: OCI distribution specification 1.1, "Listing Referrers" and "Referrers Tag Schema".
//!
//! Only the origin is read: a mirror may lack documents that were added to an image later. Each list or document that is not
//! read is a *gap*. The documents that were read are still valid then, but nothing may be taken for absent.

mod artifact;
mod list;

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    Digest,
    documents::Documents,
    reading::{Next, Reading},
    registries::Registries,
    registry::Registry,
};
use domain::error::{BackendError, ErrorKind};
use flight::{FlightGuard, wait::wait};
use signature::Formats;

/// How many manifests beside one image are read at once. The registry's own `concurrency` may be lower.
const CONCURRENT_READS: usize = 8;

/// The image whose documents are wanted.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The registry's host.
    pub registry: &'a str,
    /// The repository.
    pub repository: &'a str,
    /// The digest of the index or manifest.
    pub digest: &'a Digest,
}

/// Which of the documents beside an image are wanted.
#[derive(Debug, Clone)]
pub struct Search {
    /// The forms of signatures.
    pub formats: Formats,
    /// The lists that are read.
    pub lists: Lists,
    /// The documents that the lookup has read already. They are not read again.
    pub reading: Arc<Reading>,
}

/// The lists of documents that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// All that the formats need.
    All,
    /// Only the referrers API, even if it is remembered that there is none.
    Api,
}

impl Registries {
    /// The documents beside `subject` that were not read yet. One lookup serves all callers who wait. With `joins` false, this
    /// does not wait for a lookup that has begun earlier: it may have missed a change.
    ///
    /// # Errors
    /// When nothing is known by `deadline`. Part of it may be unknown without an error: [`Documents::gap`].
    pub async fn referrers(
        &self,
        subject: &Subject<'_>,
        search: &Search,
        deadline: Instant,
        joins: bool,
    ) -> Result<Arc<Documents>, BackendError> {
        let Subject { registry, repository, digest } = *subject;
        let Search { formats, lists, reading } = search;
        let mut key = Sha256::new_with_prefix(reading.fingerprint());
        key.update(format!("{lists:?} {} {} {registry}/{repository}@{digest}", formats.bundle, formats.legacy));
        let key: [u8; 32] = key.finalize().into();
        let within = |error: BackendError| error.within(format_args!("registry {registry}"));
        let origin = self.origin(registry).map_err(within)?;
        let searches = self.searches();
        if !joins {
            searches.supersede(|running| *running == key, || ());
        }
        let join = || {
            let (origin, repository, digest) = (Arc::clone(&origin), repository.to_owned(), digest.clone());
            let search = search.clone();
            let work = move |seat: FlightGuard<_, _, _>| async move {
                let _seat = seat;
                origin.referrers(&repository, &digest, search, deadline).await.map(Arc::new)
            };
            searches.join(key, || None, || key, work)
        };
        wait(join, deadline).await.map_err(within)
    }
}

/// The lookup of the documents beside one image.
struct Beside<'a> {
    registry: &'a Registry,
    repository: &'a str,
    digest: &'a Digest,
    formats: Formats,
    reading: Reading,
    deadline: Instant,
}

impl Registry {
    async fn referrers(
        &self,
        repository: &str,
        digest: &Digest,
        search: Search,
        deadline: Instant,
    ) -> Result<Documents, BackendError> {
        if self.is_low(repository).await {
            let why = "little is left of what it allows, so that signatures are not read until it allows more";
            return Err(BackendError::new(ErrorKind::Throttled { retry_after: None }, why));
        }
        let Search { formats, lists, reading } = search;
        let reading = Reading::clone(&reading);
        let beside = Beside { registry: self, repository, digest, formats, reading, deadline };
        let mut all = Box::pin(beside.read(lists)).await;
        all.reading = Arc::new(beside.reading);
        // Nothing was read, and a caller with a later deadline may try again.
        match all.gap {
            Some(gap) if all.candidates.is_empty() && gap.kind == ErrorKind::Timeout => Err(gap),
            _ => Ok(all),
        }
    }
}

impl Beside<'_> {
    async fn read(&self, lists: Lists) -> Documents {
        if self.reading.is_over() {
            let why = "no more of its referrers are read";
            return Documents { gap: Some(BackendError::invalid_output(why)), ..Documents::default() };
        }
        let bundles = async { if self.formats.bundle { self.listed(lists).await } else { Documents::default() } };
        let legacy = async {
            if self.formats.legacy && lists == Lists::All { self.legacy().await } else { Documents::default() }
        };
        let (mut all, legacy) = tokio::join!(bundles, legacy);
        all.add(legacy);
        all
    }

    /// The documents that the registry lists as referrers.
    async fn listed(&self, lists: Lists) -> Documents {
        let list = match lists {
            Lists::All => self.registry.list_referrers(self.repository, self.digest, self.deadline).await,
            Lists::Api => self.registry.list_by_api(self.repository, self.digest, self.deadline).await,
        };
        let list = match list {
            Ok(list) => list,
            Err(gap) => return Documents { gap: Some(gap), ..Documents::default() },
        };
        let (gap, relies_on_memory) = (list.gap, list.relies_on_memory);
        let mut found = Documents { places: vec![list.place], gap, relies_on_memory, ..Documents::default() };
        let mut reads =
            stream::iter(list.digests).map(async |referrer| self.open(&referrer).await).buffered(CONCURRENT_READS);
        while let Some(read) = reads.next().await {
            let Some(read) = read else { break };
            found.add(read);
        }
        found
    }

    /// The signatures in the document `referrer`; `None` if nothing more is read.
    async fn open(&self, referrer: &Digest) -> Option<Documents> {
        match self.reading.open(referrer) {
            Next::New => Some(self.documents(referrer).await),
            Next::Known => Some(Documents::default()),
            Next::Over(Some(gap)) => Some(Documents { gap: Some(gap), ..Documents::default() }),
            Next::Over(None) => None,
        }
    }
}
