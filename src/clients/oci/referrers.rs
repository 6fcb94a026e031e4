//! The documents beside an image: what the referrers API or its fallback tag lists, and cosign's older tag `sha256-….sig`. Source: OCI
//! distribution specification 1.1, "Listing Referrers" and "Referrers Tag Schema".
//!
//! Only the origin is asked: a mirror may lack what was added to an image later. Whatever is not read is a *gap*. The documents that were
//! read are still valid then, but nothing may be taken for absent.

mod artifact;
mod list;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{Digest, documents::Documents, registries::Registries, registry::Registry};
use crate::{
    domain::error::{BackendError, ErrorKind},
    flight::{FlightGuard, wait::wait},
    signature::Formats,
};

/// The most documents beside one image that are opened.
const MAX_OPENED: usize = 128;
/// The most bytes of one document. Real ones have about 15 KiB.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;
/// The most bytes of all documents beside one image.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How many manifests beside one image are read at once. The registry's own `concurrency` may be lower.
const CONCURRENT_READS: usize = 8;

/// The image whose documents are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Subject<'a> {
    /// The registry's host.
    pub(crate) registry: &'a str,
    /// The repository.
    pub(crate) repository: &'a str,
    /// The digest of the index or manifest.
    pub(crate) digest: &'a Digest,
}

impl Registries {
    /// The documents beside `subject`. One look-up serves all callers who wait. With `joins` false, a look-up that has begun earlier is not
    /// waited for: it may have missed a change.
    ///
    /// # Errors
    /// When nothing is known by `deadline`. Part of it may be unknown without an error: [`Documents::gap`].
    pub(crate) async fn referrers(
        &self,
        subject: &Subject<'_>,
        formats: Formats,
        deadline: Instant,
        joins: bool,
    ) -> Result<Arc<Documents>, BackendError> {
        let Subject { registry, repository, digest } = *subject;
        let kind = format!("{} {}", formats.bundle, formats.legacy);
        let key: [u8; 32] = Sha256::digest(format!("{kind} {registry}/{repository}@{digest}")).into();
        let within = |error: BackendError| error.within(format_args!("registry {registry}"));
        let origin = self.origin(registry).map_err(within)?;
        let searches = self.searches();
        if !joins {
            searches.supersede(|flying| *flying == key, || ());
        }
        let ask = || {
            let (origin, repository, digest) = (Arc::clone(&origin), repository.to_owned(), digest.clone());
            let work = move |seat: FlightGuard<_, _, _>| async move {
                let _seat = seat;
                origin.referrers(&repository, &digest, formats, deadline).await.map(Arc::new)
            };
            searches.join(key, || None, || key, work)
        };
        wait(ask, deadline).await.map_err(within)
    }
}

impl Registry {
    async fn referrers(
        &self,
        repository: &str,
        digest: &Digest,
        formats: Formats,
        deadline: Instant,
    ) -> Result<Documents, BackendError> {
        if self.is_low(repository).await {
            let why = "little is left of what it allows, so that signatures are not read until it allows more";
            return Err(BackendError::new(ErrorKind::Throttled { retry_after: None }, why));
        }
        let room = Room::default();
        let bundles = async {
            if formats.bundle {
                self.listed(repository, digest, formats, &room, deadline).await
            } else {
                Documents::default()
            }
        };
        let legacy = async {
            if formats.legacy { self.legacy(repository, digest, &room, deadline).await } else { Documents::default() }
        };
        let (mut all, legacy) = tokio::join!(bundles, legacy);
        all.add(legacy);
        // Nothing was learned, and a caller with a later deadline may ask again.
        match all.gap {
            Some(gap) if all.candidates.is_empty() && gap.kind == ErrorKind::Timeout => Err(gap),
            _ => Ok(all),
        }
    }

    /// The documents that the registry lists as referrers.
    async fn listed(
        &self,
        repository: &str,
        digest: &Digest,
        formats: Formats,
        room: &Room,
        deadline: Instant,
    ) -> Documents {
        let mut list = match self.list_referrers(repository, digest, deadline).await {
            Ok(list) => list,
            Err(gap) => return Documents { gap: Some(gap), ..Documents::default() },
        };
        let mut found = Documents { places: vec![list.place], gap: list.gap.take(), ..Documents::default() };
        if list.digests.len() > MAX_OPENED {
            let why =
                format!("{} documents are beside {digest}, of which only {MAX_OPENED} are opened", list.digests.len());
            found.miss(BackendError::invalid_output(why));
            list.digests.truncate(MAX_OPENED);
        }
        let mut reads = stream::iter(list.digests)
            .map(async |referrer| self.documents(repository, &referrer, formats, room, deadline).await)
            .buffered(CONCURRENT_READS);
        while let Some(read) = reads.next().await {
            let is_down = read.gap.as_ref().is_some_and(|gap| gap.kind != ErrorKind::InvalidOutput);
            found.add(read);
            if is_down {
                // The registry has trouble: it is not asked for the rest.
                break;
            }
        }
        found
    }
}

/// How many bytes of documents may still be read for one image.
#[derive(Debug)]
struct Room(AtomicUsize);

impl Default for Room {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_BYTES))
    }
}

impl Room {
    /// Takes `bytes` of what is left.
    ///
    /// # Errors
    /// When less is left.
    fn take(&self, bytes: usize) -> Result<(), BackendError> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        let full = |_| {
            BackendError::invalid_output(format!("the documents beside the image have more than {MAX_BYTES} bytes"))
        };
        taken.map(drop).map_err(full)
    }
}
