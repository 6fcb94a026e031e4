//! The fourth check: who signed an image, and which commit its signed provenance names. [`signature`] checks documents;
//! [`oci`] finds them. A *proven* result stays proven for a digest as long as keys and roots are the same. *Not signed* and
//! *bad* are remembered briefly, since CI may sign at any time.

mod lookup;
mod memory;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub(super) use self::memory::ProofKey;
use self::{
    lookup::{LookedUp, SignatureLookup},
    memory::Memory,
};
use super::commit::Commit;
use crate::Building;
use domain::{error::BackendError, generator::Trust};
use lang::template::Template;
use oci::{Digest, Registries};
use signature::{KeysInUse, Policy, Proof, ProvenanceConfig, SignatureConfig};

/// How long *bad* is remembered, as a gate remembers *failed*.
const BAD_FOR: Duration = Duration::from_mins(1);

/// The signers, the provenance that they must have signed, and the results about images.
#[derive(Debug)]
pub(super) struct Signatures {
    policy: Arc<Policy>,
    commit: Option<Template>,
    proves_commits: bool,
    registries: Registries,
    memory: Memory,
}

/// The check cannot be built; the problems are noted.
#[derive(Debug)]
pub(super) struct NotBuilt;

/// An image that must be signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SignedImage {
    /// The registry's host.
    pub registry: String,
    /// The repository.
    pub repository: String,
    /// The digests that a signature may name: the index, and the image that was picked from it.
    pub digests: Vec<Digest>,
}

/// A query about an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProofQuery<'a> {
    /// The commit that must be proven. `None`: any.
    pub commit: Option<&'a Commit>,
    /// The commit in the image's label.
    pub label: Option<&'a str>,
    /// Proofs that earlier answers noted.
    pub noted: &'a dyn Noted,
    /// When the answer must be here.
    pub deadline: Instant,
    /// Whether a lookup that another caller began is waited for. It may have missed a change.
    pub joins: bool,
    /// Whether verdicts of earlier requests may be used. Proofs always are.
    pub may_reuse: bool,
    /// The age up to which *not signed* of another query is used.
    pub(crate) not_signed_for: Duration,
}

/// The proofs that were noted with answers.
pub(super) type NotedProofs = BTreeMap<ProofKey, Arc<Proven>>;

/// Where noted proofs are looked up. A note is read only for a proof that memory does not have.
pub(super) trait Noted: fmt::Debug + Sync {
    /// The noted proof for `key`.
    fn proof(&self, key: &ProofKey) -> Option<&Arc<Proven>>;
}

impl Noted for NotedProofs {
    fn proof(&self, key: &ProofKey) -> Option<&Arc<Proven>> {
        self.get(key)
    }
}

/// The proof of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Proven {
    /// The commit, if provenance is demanded.
    pub commit: Option<Commit>,
    /// Its signers.
    pub signer: String,
}

/// The verdict on the signature of an image.
#[derive(Debug, Clone)]
pub(super) enum SignatureVerdict {
    /// All that is demanded is proven.
    Proven(ProofKey, Arc<Proven>),
    /// It is not signed yet, or for another commit.
    NotYet(String),
    /// A document claims to be by a signer, and is not good. The image must never be deployed.
    Bad(String),
}

impl Signatures {
    /// The check; `None` without `signature` in the configuration. Both are keys of the backend that is built.
    ///
    /// # Errors
    /// When there are problems.
    pub(super) fn build(
        signature: Option<&SignatureConfig>,
        provenance: Option<&ProvenanceConfig>,
        building: &mut Building<'_>,
    ) -> Result<Option<Self>, NotBuilt> {
        let Some(signature) = signature else {
            if provenance.is_some() {
                building.key("provenance").error_with_help(
                    "nobody signs it: anyone who may push could write such a provenance",
                    "add `signature`, with the key or the identity that signs it",
                );
                return Err(NotBuilt);
            }
            return Ok(None);
        };
        let context = building.context;
        let policy = Policy::build(signature, provenance, context.base, &building.path, building.problems);
        let commit = match provenance.and_then(|provenance| provenance.commit.as_ref()) {
            Some(text) => {
                let template = Commit::template(text, &mut building.key("provenance").key("commit"));
                Some(template.ok_or(NotBuilt)?)
            }
            None => None,
        };
        Ok(Some(Self {
            policy: Arc::new(policy.ok_or(NotBuilt)?),
            commit,
            proves_commits: provenance.is_some(),
            registries: context.registries.clone(),
            memory: Memory::new(context.clock),
        }))
    }

    /// Whether signed provenance names the commit, in place of the label.
    pub(crate) const fn proves_commits(&self) -> bool {
        self.proves_commits
    }

    /// The template of the commit that provenance must name, if it has one of its own.
    pub(super) const fn commit(&self) -> Option<&Template> {
        self.commit.as_ref()
    }

    /// The present keys and roots. An answer that was made under others is not served.
    pub(super) fn trust(&self) -> Trust {
        let KeysInUse { fingerprint, changes, since, is_complete } = self.policy.current();
        let mut start = [0; 8];
        start.copy_from_slice(&fingerprint[..8]);
        // 0 would mean that nothing is verified.
        Trust { fingerprint: u64::from_le_bytes(start).max(1), changes, since: Some(since), is_complete }
    }

    /// Forgets everything but proofs.
    pub(super) fn forget(&self) {
        self.memory.forget();
    }

    /// The verdict on `image`.
    ///
    /// # Errors
    /// When it is not known.
    pub(super) async fn verify(
        &self,
        image: &SignedImage,
        query: ProofQuery<'_>,
    ) -> Result<SignatureVerdict, BackendError> {
        let trust = self.policy.current();
        let key_for = |commit: Option<&str>| {
            ProofKey::of(&image.digests, &trust.fingerprint, commit.filter(|_| self.proves_commits))
        };
        let key = key_for(query.commit.map(Commit::as_str));
        if let Some(proven) = self.memory.proof(&key) {
            return Ok(SignatureVerdict::Proven(key, proven));
        }
        if let Some(proven) = query.noted.proof(&key) {
            self.memory.prove(key, Arc::clone(proven));
            return Ok(SignatureVerdict::Proven(key, Arc::clone(proven)));
        }
        // Label and proof agree on another commit: a further proof could only contradict the label.
        if let (Some(expected), Some(label)) = (query.commit.filter(|_| self.proves_commits), query.label)
            && let Ok(label) = Commit::parse(label)
            && label != *expected
            && let of_label = key_for(Some(label.as_str()))
            && (self.memory.proof(&of_label).is_some() || query.noted.proof(&of_label).is_some())
        {
            return Ok(SignatureVerdict::NotYet(format!("it is proven to be of {label}, not of {expected}")));
        }
        let here = key.within(&image.registry, &image.repository);
        if query.may_reuse
            && let Some(verdict) = self.memory.unproven(&here, BAD_FOR, query.not_signed_for)
        {
            return Ok(verdict);
        }
        let LookedUp { verdict, of_label, trust: checked_by } =
            SignatureLookup::new(self, image, &query).run(key).await?;
        // The proof's key names the keys by which it was checked. Which these were is not known if they changed meanwhile, even if they
        // changed back.
        if self.policy.current().changes != trust.changes || checked_by != trust.fingerprint {
            return Err(BackendError::unavailable(
                "the keys or roots of the signers changed while the signatures were read",
            ));
        }
        match &verdict {
            SignatureVerdict::Proven(key, proven) => self.memory.prove(*key, Arc::clone(proven)),
            SignatureVerdict::NotYet(_) | SignatureVerdict::Bad(_) => self.memory.note(here, &verdict),
        }
        if let Some(of_label) = of_label {
            self.memory.prove(key_for(of_label.commit.as_ref().map(Commit::as_str)), Arc::new(of_label));
        }
        Ok(verdict)
    }

    /// The facts that `proof` proves.
    ///
    /// # Errors
    /// When it is not the proof that is needed.
    fn check(&self, proof: Proof, expected: Option<&Commit>) -> Result<Proven, BackendError> {
        let Proof { commit, signer, .. } = proof;
        if !self.proves_commits {
            return Ok(Proven { commit: None, signer });
        }
        let wrong = |why: String| BackendError::invalid_output(format!("the signed provenance: {why}"));
        let commit = commit.ok_or_else(|| wrong("it names no commit".to_owned()))?;
        let commit = Commit::parse(&commit).map_err(|error| wrong(error.to_string()))?;
        if expected.is_some_and(|expected| *expected != commit) {
            return Err(wrong(format!("it names {commit}")));
        }
        Ok(Proven { commit: Some(commit), signer })
    }
}
