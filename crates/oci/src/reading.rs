//! The documents that one lookup has read, and how many more it may read. A lookup covers an image and the index that it was
//! picked from, by API, fallback tag and cosign's older tag. All of them share one budget: everybody who may push can put
//! documents beside each.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::Digest;
use domain::error::{BackendError, ErrorKind};

/// The most documents that are opened for one lookup, and the most signatures in them.
const MAX_OPENED: usize = 128;
/// The most bytes of one lookup: manifests and signatures. Real ones have about 15 KiB each.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// After so many documents that the registry fails to return, the others are not fetched: it may be down. A few may be damaged.
const MAX_FAILURES: usize = 3;

/// The content of a blob, or why it is not known.
type Blob = Arc<OnceCell<Result<Bytes, BackendError>>>;

/// The documents that one lookup has read so far. Nothing is read twice.
#[derive(Debug, Default)]
pub struct Reading(Mutex<State>);

#[derive(Debug, Default, Clone)]
struct State {
    /// The documents that were opened, or tried.
    opened: BTreeSet<Digest>,
    /// The signatures that were found: the digest of each, and how it is to be read.
    signatures: BTreeSet<(Digest, SignatureLayer)>,
    blobs: HashMap<Digest, Blob>,
    bytes: usize,
    failures: usize,
    /// Nothing more is read.
    is_over: bool,
}

/// How a layer is to be read. One layer may be named in several ways, of which one is right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SignatureLayer {
    /// As a Sigstore bundle.
    Bundle,
    /// As a payload of cosign's older signatures, with the signature that its annotation has. Several keys may have signed one payload.
    SimpleSigning(Option<String>),
}

/// Whether something is still to be read.
#[derive(Debug)]
pub(super) enum Next {
    /// It is new.
    New,
    /// It was read for this lookup already.
    Known,
    /// It is not read. The reason is a gap; there is none if the reason was returned before.
    Over(Option<BackendError>),
}

impl Clone for Reading {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }
}

impl Reading {
    /// A hash of all that was read. Lookups that continue from the same state share one flight.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let state = self.0.lock();
        let mut hash = Sha256::new();
        let State { opened, signatures, bytes, failures, is_over, .. } = &*state;
        hash.update(format!("{opened:?} {signatures:?} {bytes} {failures} {is_over}"));
        hash.finalize().into()
    }

    /// Whether nothing more is read. The reason was returned as a gap.
    pub(super) fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    /// Whether the document `digest` is to be opened.
    pub(super) fn open(&self, digest: &Digest) -> Next {
        let mut state = self.0.lock();
        if state.opened.contains(digest) {
            return Next::Known;
        }
        if state.is_over {
            return Next::Over(None);
        }
        if state.opened.len() >= MAX_OPENED {
            let why = format!("the image has more signatures and attestations than the {MAX_OPENED} that are opened");
            return state.end(why);
        }
        state.opened.insert(digest.clone());
        Next::New
    }

    /// Whether the signature `layer` in the blob `digest` is to be read.
    pub(super) fn find(&self, digest: &Digest, layer: &SignatureLayer) -> Next {
        let mut state = self.0.lock();
        let found = (digest.clone(), layer.clone());
        if state.signatures.contains(&found) {
            return Next::Known;
        }
        if state.is_over {
            return Next::Over(None);
        }
        if state.signatures.len() >= MAX_OPENED {
            let why = format!("the image has more signatures than the {MAX_OPENED} that are read");
            return state.end(why);
        }
        state.signatures.insert(found);
        Next::New
    }

    /// The place for the content of the blob `digest`, which is read once.
    pub(super) fn blob(&self, digest: &Digest) -> Blob {
        Arc::clone(self.0.lock().blobs.entry(digest.clone()).or_default())
    }

    /// Counts `bytes` that were read.
    ///
    /// # Errors
    /// When these are more than may be read.
    pub(super) fn take(&self, bytes: usize) -> Result<(), BackendError> {
        let mut state = self.0.lock();
        state.bytes += bytes;
        if state.bytes <= MAX_BYTES {
            return Ok(());
        }
        state.is_over = true;
        Err(BackendError::invalid_output(format!(
            "the signatures and attestations of the image have more than {MAX_BYTES} bytes"
        )))
    }

    /// Notes that something was not read. A document that is missing or wrong says nothing of the others.
    pub(super) fn fail(&self, error: &BackendError) {
        let mut state = self.0.lock();
        match error.kind {
            ErrorKind::InvalidOutput | ErrorKind::InvalidInput => {}
            ErrorKind::Throttled { .. } => state.is_over = true,
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Denied => {
                state.failures += 1;
                state.is_over |= state.failures >= MAX_FAILURES;
            }
        }
    }
}

impl State {
    fn end(&mut self, why: String) -> Next {
        self.is_over = true;
        Next::Over(Some(BackendError::invalid_output(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(number.to_string().as_bytes())
    }

    fn signed(text: &str) -> SignatureLayer {
        SignatureLayer::SimpleSigning(Some(text.to_owned()))
    }

    #[test]
    fn everything_is_read_once_and_the_reason_for_the_end_is_returned_once() {
        let reading = Reading::default();
        for number in 0..MAX_OPENED {
            assert!(matches!(reading.open(&digest(number)), Next::New));
            assert!(matches!(reading.open(&digest(number)), Next::Known));
        }
        assert!(matches!(reading.open(&digest(MAX_OPENED)), Next::Over(Some(_))) && reading.is_over());
        assert!(matches!(reading.open(&digest(MAX_OPENED)), Next::Over(None)));
        assert!(matches!(reading.find(&digest(0), &SignatureLayer::Bundle), Next::Over(None)));
        let reading = Reading::default();
        // Several keys may have signed one payload.
        for layer in [SignatureLayer::Bundle, signed("a"), signed("b"), SignatureLayer::SimpleSigning(None)] {
            assert!(matches!(reading.find(&digest(0), &layer), Next::New));
            assert!(matches!(reading.find(&digest(0), &layer), Next::Known));
        }
        for number in 4..MAX_OPENED {
            assert!(matches!(reading.find(&digest(0), &signed(&number.to_string())), Next::New));
        }
        assert!(matches!(reading.find(&digest(0), &signed("more")), Next::Over(Some(_))) && reading.is_over());
    }

    #[test]
    fn bytes_and_failures_end_it() {
        let reading = Reading::default();
        assert!(reading.take(MAX_BYTES).is_ok() && !reading.is_over());
        assert!(reading.take(1).is_err() && reading.is_over());
        let after = |kinds: &[ErrorKind]| {
            let reading = Reading::default();
            for kind in kinds {
                reading.fail(&BackendError::new(*kind, "why"));
            }
            reading.is_over()
        };
        let (denied, down, late) = (ErrorKind::Denied, ErrorKind::Unavailable, ErrorKind::Timeout);
        assert!(!after(&[denied, down]) && after(&[denied, down, late]));
        assert!(!after(&[ErrorKind::InvalidOutput; 100]), "a document that is missing says nothing of the others");
        assert!(after(&[ErrorKind::Throttled { retry_after: None }]));
    }

    #[test]
    fn lookups_that_read_the_same_are_alike() {
        let (one, other) = (Reading::default(), Reading::default());
        assert_eq!(one.fingerprint(), other.fingerprint());
        one.open(&digest(1));
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.fingerprint(), one.clone().fingerprint());
        other.open(&digest(1));
        assert_eq!(one.fingerprint(), other.fingerprint());
        one.find(&digest(2), &signed("a"));
        other.find(&digest(2), &signed("b"));
        assert_ne!(one.fingerprint(), other.fingerprint());
    }
}
