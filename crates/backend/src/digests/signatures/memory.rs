//! The remembered results about images. Proofs are kept by digests, policy with keys and roots, and commit: none of these changes what is proven. What
//! is not proven is kept briefly.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Proven, SignatureVerdict};
use domain::{
    bounded_cache::Recent,
    clock::{Clock, Timestamp},
};
use oci::Digest;

/// How many proofs are kept; the least recently used leave first.
const MAX_PROOFS: usize = 20_000;
/// How many other verdicts are kept.
const MAX_UNPROVEN: usize = 4096;

/// The subject of a proof: the digests, the policy with its keys and roots, and the expected commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProofKey([u8; 32]);

/// The verdicts on images.
pub(super) struct Memory {
    proofs: Recent<ProofKey, Arc<Proven>>,
    unproven: Recent<ProofKey, (SignatureVerdict, Timestamp)>,
    clock: Arc<dyn Clock>,
}

impl ProofKey {
    /// The key for `digests` under the policy with the fingerprint `trust`.
    pub(super) fn of(digests: &[Digest], trust: &[u8; 32], commit: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        hash.update(trust);
        // A commit has 40 or 64 digits, so it differs from none, and from a digest with its `sha256:`.
        hash.update([u8::from(commit.is_some())]);
        hash.update(commit.unwrap_or_default());
        for digest in digests {
            hash.update(digest.as_str());
        }
        Self(hash.finalize().into())
    }

    /// The same in one repository. A proof holds wherever a copy of the image is; that there is none is known of one repository.
    pub(super) fn within(&self, registry: &str, repository: &str) -> Self {
        let mut hash = Sha256::new_with_prefix(self.0);
        hash.update(registry);
        hash.update("/");
        hash.update(repository);
        Self(hash.finalize().into())
    }
}

impl Memory {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        let (proofs, unproven) = (Recent::new(MAX_PROOFS), Recent::new(MAX_UNPROVEN));
        Self { proofs, unproven, clock: Arc::clone(clock) }
    }

    /// The proof for `key`.
    pub(super) fn proof(&self, key: &ProofKey) -> Option<Arc<Proven>> {
        self.proofs.get(key)
    }

    /// Keeps a proof.
    pub(super) fn prove(&self, key: ProofKey, proven: Arc<Proven>) {
        self.proofs.insert(key, proven);
    }

    /// *Bad*, if it was noted within `bad_for`; *not yet*, if within `not_yet_for`.
    pub(super) fn unproven(
        &self,
        key: &ProofKey,
        bad_for: Duration,
        not_yet_for: Duration,
    ) -> Option<SignatureVerdict> {
        let (verdict, at) = self.unproven.get(key)?;
        let life = if matches!(verdict, SignatureVerdict::Bad(_)) { bad_for } else { not_yet_for };
        let age = self.clock.now().since(at)?;
        (age < life).then_some(verdict)
    }

    /// Notes a verdict without a proof.
    pub(super) fn note(&self, key: ProofKey, verdict: &SignatureVerdict) {
        self.unproven.insert(key, (verdict.clone(), self.clock.now()));
    }

    /// Forgets everything but proofs.
    pub(super) fn forget(&self) {
        self.unproven.clear();
    }
}

impl From<ProofKey> for String {
    fn from(key: ProofKey) -> Self {
        base16ct::lower::encode_string(&key.0)
    }
}

/// A text is not a [`ProofKey`].
#[derive(Debug, thiserror::Error)]
#[error("64 hexadecimal digits are expected")]
pub struct ProofKeyError;

impl TryFrom<String> for ProofKey {
    type Error = ProofKeyError;

    fn try_from(text: String) -> Result<Self, ProofKeyError> {
        let mut key = [0; 32];
        match base16ct::lower::decode(&text, &mut key) {
            Ok(bytes) if bytes.len() == 32 => Ok(Self(key)),
            _ => Err(ProofKeyError),
        }
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base16ct::lower::encode_string(&self.0[..8]))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("proofs", &self.proofs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::clock::SystemClock;

    #[test]
    fn what_one_repository_lacks_says_nothing_of_another() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let memory = Memory::new(&clock);
        let key = ProofKey::of(&[Digest::of(b"image")], &[7; 32], None);
        memory.note(
            key.within("registry.example.com", "dev/app"),
            &SignatureVerdict::NotYet("it is not signed".to_owned()),
        );
        let known = |repository: &str| {
            let minute = Duration::from_mins(1);
            memory.unproven(&key.within("registry.example.com", repository), minute, minute).is_some()
        };
        assert!(known("dev/app") && !known("prod/app"));
    }
}
