//! Who calls: tokens, certificates, and how many calls each may have under way.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use http::{HeaderMap, header::AUTHORIZATION};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::grpc::status::{Code, Status};
use domain::{
    file::base_dir::BaseDir,
    secret::{SecretError, SecretRef},
};

/// A caller: the SHA-256 of its token or certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Caller([u8; 32]);

/// The tokens of callers. They are read again, since a Secret may be renewed.
#[derive(Debug)]
pub(super) struct Tokens {
    sources: Vec<SecretRef>,
    base: BaseDir,
    /// The SHA-256 of each: equal lengths, for a comparison in constant time.
    now: ArcSwap<Vec<[u8; 32]>>,
}

type Counts = Arc<Mutex<HashMap<Caller, usize>>>;

/// How many calls each caller has under way.
#[derive(Debug)]
pub(super) struct Callers {
    max: Option<usize>,
    counts: Counts,
}

/// The right to one call.
#[derive(Debug)]
pub(super) struct CallerPlace(Option<(Caller, Counts)>);

impl Caller {
    /// Who has shown this certificate.
    pub(super) fn of_certificate(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

impl Tokens {
    /// # Errors
    /// When one cannot be read.
    pub(super) fn read(sources: &[SecretRef], base: &BaseDir) -> Result<Self, SecretError> {
        let now = ArcSwap::from_pointee(hashes(sources, base)?);
        Ok(Self { sources: sources.to_vec(), base: base.clone(), now })
    }

    /// Reads all again. If one cannot be read, the old ones stay.
    pub(super) fn refresh(&self) {
        match hashes(&self.sources, &self.base) {
            Ok(read) if read != **self.now.load() => {
                self.now.store(Arc::new(read));
                tracing::info!("new tokens are in use (listen.tokens)");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the old tokens stay in use (listen.tokens)"),
        }
    }

    /// Who shows a token.
    pub(super) fn caller(&self, fields: &HeaderMap) -> Option<Caller> {
        let shown = fields.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let shown = hash(shown?);
        // All are compared, so that the time says nothing.
        let is_known = self.now.load().iter().fold(false, |found, token| found | bool::from(token.ct_eq(&shown)));
        is_known.then_some(Caller(shown))
    }
}

impl Callers {
    /// At most `max` calls of each at once.
    pub(super) fn new(max: Option<usize>) -> Self {
        Self { max, counts: Arc::default() }
    }

    /// A call of `caller` begins.
    ///
    /// # Errors
    /// When it has as many as it may.
    pub(super) fn begin(&self, caller: Caller) -> Result<CallerPlace, Status> {
        let Some(max) = self.max else { return Ok(CallerPlace(None)) };
        let mut counts = self.counts.lock();
        let count = counts.entry(caller).or_default();
        if *count >= max {
            let message =
                format!("the caller has {max} calls under way, the most that it may (`listen.callsPerCaller`)");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        *count += 1;
        drop(counts);
        Ok(CallerPlace(Some((caller, Arc::clone(&self.counts)))))
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        let Some((caller, counts)) = self.0.take() else { return };
        let mut counts = counts.lock();
        if let Some(count) = counts.get_mut(&caller) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&caller);
            }
        }
    }
}

fn hashes(sources: &[SecretRef], base: &BaseDir) -> Result<Vec<[u8; 32]>, SecretError> {
    sources.iter().map(|source| Ok(hash(source.read(base)?.expose()))).collect()
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_its_own_places() {
        let callers = Callers::new(Some(2));
        let [one, other] = [b"one", b"two"].map(|der| Caller::of_certificate(der));
        let places = [callers.begin(one).unwrap(), callers.begin(one).unwrap()];
        assert_eq!(callers.begin(one).unwrap_err().code, Code::ResourceExhausted);
        drop(callers.begin(other).unwrap());
        drop(places);
        drop(callers.begin(one).unwrap());
        assert!(callers.counts.lock().is_empty());
    }

    #[test]
    fn renewed_tokens_are_used_and_unreadable_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "first").unwrap();
        let tokens = Tokens::read(&[SecretRef::File(file.clone())], &BaseDir::default()).unwrap();
        let is_known = |token: &str| {
            let fields = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
            tokens.caller(&fields).is_some()
        };
        assert!(is_known("first") && !is_known("second"));
        std::fs::write(&file, "second").unwrap();
        tokens.refresh();
        assert!(!is_known("first") && is_known("second"));
        std::fs::remove_file(&file).unwrap();
        tokens.refresh();
        assert!(is_known("second"));
    }
}
