//! One lookup: reads the documents beside the digests of an image, one digest after the other, and checks each document once. All of it shares one
//! budget and one deadline, since anyone with the right to push decides how much is there. All that is not read or not checked makes the result unknown,
//! unless a good signature was found.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use tokio::{task::spawn_blocking, time::Instant};

use super::{ProofKey, ProofQuery, Proven, SignatureVerdict, Signatures, SignedImage};
use crate::digests::commit::Commit;
use domain::error::BackendError;
use oci::{Digest, Documents, Lists, Reading, Search, Subject};
use signature::{Candidate, PolicyCheck, PolicyVerdict};

/// How long documents are checked at a stretch. Then another lookup gets the permit.
const PERIOD: Duration = Duration::from_millis(20);

/// The result of a lookup.
pub(super) struct LookedUp {
    pub(super) verdict: SignatureVerdict,
    /// The proof for the commit in the label, if that is not the expected one.
    pub(super) of_label: Option<Proven>,
    /// The fingerprint of the policy with the keys and roots of the check.
    pub(super) trust: [u8; 32],
}

/// A lookup under way.
pub(super) struct SignatureLookup<'a> {
    signatures: &'a Signatures,
    image: &'a SignedImage,
    query: &'a ProofQuery<'a>,
    check: PolicyCheck,
    /// The documents read so far.
    reading: Arc<Reading>,
    /// The first reason for which something was not read.
    gap: Option<BackendError>,
    places: Vec<&'static str>,
    /// The digests for which the referrers API was not called.
    unasked: Vec<&'a Digest>,
}

impl<'a> SignatureLookup<'a> {
    pub(super) fn new(signatures: &'a Signatures, image: &'a SignedImage, query: &'a ProofQuery<'a>) -> Self {
        let digests = image.digests.iter().map(|digest| digest.hex().to_owned()).collect();
        let check = signatures.policy.begin(digests);
        let (reading, places, unasked) = (Arc::default(), Vec::new(), Vec::new());
        Self { signatures, image, query, check, reading, gap: None, places, unasked }
    }

    /// Reads from the registry. A proof has the key `key`.
    ///
    /// # Errors
    /// When it is not known whether the image is signed.
    pub(super) async fn run(mut self, key: ProofKey) -> Result<LookedUp, BackendError> {
        let trust = self.check.fingerprint();
        let (verdict, of_label) = match self.search().await? {
            PolicyVerdict::Present(proof) => {
                let proven = self.signatures.check(proof, self.query.commit)?;
                (SignatureVerdict::Proven(key, Arc::new(proven)), None)
            }
            PolicyVerdict::Unknown(why) => return Err(BackendError::unavailable(why)),
            PolicyVerdict::Absent(why) => {
                (SignatureVerdict::NotYet(format!("{why} (queried: {})", self.places.join("; "))), None)
            }
            PolicyVerdict::OtherCommit { commit, why } => (SignatureVerdict::NotYet(why), self.of_label(&commit)?),
            PolicyVerdict::Bad(why) => (SignatureVerdict::Bad(why), None),
        };
        Ok(LookedUp { verdict, of_label, trust })
    }

    /// The verdict over everything that is beside the image, or over the documents that were read if those are enough.
    async fn search(&mut self) -> Result<PolicyVerdict, BackendError> {
        for digest in &self.image.digests {
            self.read(digest, Lists::All).await?;
            if let good @ PolicyVerdict::Present(_) = self.verdict() {
                return Ok(good);
            }
        }
        // Among what was not read there may be a good signature, or one more that fails. The API would not change that.
        if self.gap.is_none() {
            for digest in std::mem::take(&mut self.unasked) {
                self.read(digest, Lists::Api).await?;
            }
        }
        match (self.verdict(), self.gap.take()) {
            (verdict @ PolicyVerdict::Present(_), _) | (verdict, None) => Ok(verdict),
            (_, Some(gap)) => Err(gap),
        }
    }

    /// Reads and checks the documents that `lists` have beside `digest` and that were not read yet.
    async fn read(&mut self, digest: &'a Digest, lists: Lists) -> Result<(), BackendError> {
        let SignedImage { registry, repository, .. } = self.image;
        let subject = Subject { registry, repository, digest };
        let search = Search { formats: self.signatures.policy.reads(), lists, reading: Arc::clone(&self.reading) };
        let ProofQuery { deadline, joins, .. } = *self.query;
        match self.signatures.registries.referrers(&subject, &search, deadline, joins).await {
            Ok(documents) => {
                self.add(&documents, digest);
                self.check(documents.candidates.iter().cloned().collect()).await
            }
            Err(error) => {
                self.miss(error, digest);
                Ok(())
            }
        }
    }

    fn add(&mut self, documents: &Documents, digest: &'a Digest) {
        let Documents { places, gap, relies_on_memory, reading, .. } = documents;
        for place in places {
            if !self.places.contains(place) {
                self.places.push(place);
            }
        }
        self.reading = Arc::clone(reading);
        if *relies_on_memory {
            self.unasked.push(digest);
        }
        if let Some(gap) = gap {
            self.miss(gap.clone(), digest);
        }
    }

    fn miss(&mut self, error: BackendError, digest: &Digest) {
        self.gap.get_or_insert_with(|| error.within(format_args!("the signatures of {digest}")));
    }

    /// Checks `candidates` on a thread that may block, until one of them is good. Nothing can stop such a thread, so it stops by itself.
    ///
    /// # Errors
    /// When the deadline passes before.
    async fn check(&mut self, mut candidates: VecDeque<Candidate>) -> Result<(), BackendError> {
        while !candidates.is_empty() && !matches!(self.verdict(), PolicyVerdict::Present(_)) {
            if Instant::now() >= self.query.deadline {
                return Err(BackendError::timeout(
                    "there was no time to verify all signatures and attestations of the image",
                ));
            }
            let permit = self.signatures.registries.verification_permit(self.query.deadline).await?;
            let (policy, check) = (Arc::clone(&self.signatures.policy), self.check.clone());
            let checked = spawn_blocking(move || {
                let (_permit, mut check, end) = (permit, check, StdInstant::now() + PERIOD);
                while let Some(candidate) = candidates.pop_front() {
                    check.add(&policy, &candidate);
                    if StdInstant::now() >= end {
                        break;
                    }
                }
                (check, candidates)
            });
            let checked = checked.await;
            (self.check, candidates) = checked
                .map_err(|error| BackendError::unavailable(format!("checking the signatures failed: {error}")))?;
        }
        Ok(())
    }

    /// The verdict for the expected commit.
    fn verdict(&self) -> PolicyVerdict {
        self.verdict_for(self.query.commit)
    }

    fn verdict_for(&self, commit: Option<&Commit>) -> PolicyVerdict {
        let commit = commit.filter(|_| self.signatures.proves_commits);
        self.check.verdict(&self.signatures.policy, commit.map(Commit::as_str))
    }

    /// The proof if the label and the proof agree on `commit`, which is not the expected one.
    fn of_label(&self, commit: &str) -> Result<Option<Proven>, BackendError> {
        let Ok(commit) = Commit::parse(commit) else { return Ok(None) };
        if !self.query.label.is_some_and(|label| label.eq_ignore_ascii_case(commit.as_str())) {
            return Ok(None);
        }
        match self.verdict_for(Some(&commit)) {
            PolicyVerdict::Present(proof) => self.signatures.check(proof, Some(&commit)).map(Some),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rcgen::KeyPair;
    use serde_json::json;

    use super::{super::Memory, *};
    use domain::{
        clock::{Clock, SystemClock},
        error::ErrorKind,
        file::base_dir::BaseDir,
        problem::{Path, Problems},
        section::Section,
    };
    use launcher::Launchers;
    use oci::{Registries, RegistriesMeans};
    use outbound::Outbound;
    use signature::{Form, Policy};

    /// Signatures with one key.
    fn signatures() -> Signatures {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.pub"), KeyPair::generate().unwrap().public_key_pem()).unwrap();
        let (base, mut problems) = (BaseDir::new(folder.path()), Problems::default());
        let signature = serde_json::from_value(json!({"any": [{"key": {"file": "key.pub"}}]})).unwrap();
        let policy = Policy::build(&signature, None, &base, &Path::root(), &mut problems).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let outbound = Arc::new(Outbound::new(Arc::clone(&clock)));
        let launchers = Arc::new(Launchers::new(std::path::PathBuf::new(), 1));
        let means = RegistriesMeans { outbound: &outbound, launchers: &launchers, clock: &clock };
        let mut section = Section::new(&base, Path::root(), &mut problems);
        let registries = Registries::build(&BTreeMap::new(), means, &mut section);
        let memory = Memory::new(&clock);
        Signatures { policy: Arc::new(policy), commit: None, proves_commits: false, registries, memory }
    }

    /// Checks ten unsigned documents until `deadline`.
    async fn check(signatures: &Signatures, deadline: Instant) -> Result<PolicyVerdict, BackendError> {
        let (registry, repository) = ("registry.example.com".to_owned(), "org/app".to_owned());
        let image = SignedImage { registry, repository, digests: vec![Digest::of(b"image")] };
        let (noted, not_signed_for) = (BTreeMap::new(), Duration::ZERO);
        let query = ProofQuery {
            commit: None,
            label: None,
            noted: &noted,
            deadline,
            joins: true,
            may_reuse: true,
            not_signed_for,
        };
        let mut lookup = SignatureLookup::new(signatures, &image, &query);
        let document = |number| Candidate { place: format!("place {number}"), form: Form::Bundle("{}".into()) };
        lookup.check((0..10).map(document).collect()).await?;
        Ok(lookup.verdict())
    }

    /// A document that is not checked in time is unknown, not absent.
    #[tokio::test]
    async fn checking_ends_at_the_deadline() {
        let signatures = signatures();
        let soon = || Instant::now() + Duration::from_millis(50);
        let late = check(&signatures, Instant::now()).await.unwrap_err();
        assert!(late.kind == ErrorKind::Timeout && late.message.contains("verify all signatures"), "{late}");
        let permits = [
            signatures.registries.verification_permit(soon()).await,
            signatures.registries.verification_permit(soon()).await,
        ];
        let late = check(&signatures, soon()).await.unwrap_err();
        assert!(late.kind == ErrorKind::Timeout && late.message.contains("no time to verify"), "{late}");
        drop(permits);
        for _ in 0..3 {
            let verdict = check(&signatures, Instant::now() + Duration::from_mins(1)).await.unwrap();
            assert!(matches!(verdict, PolicyVerdict::Absent(_)), "{verdict:?}");
        }
    }
}
