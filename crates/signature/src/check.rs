//! Checks the documents beside one image. They may come one after the other: each is verified once, even if more documents follow, and for
//! all commits. [`Policy::check`] is the same for a whole list.

use std::sync::Arc;

use super::{
    Candidate, ExpectedImage, PolicyVerdict,
    document_verdict::{DocumentVerdict, Signed},
    policy::Policy,
    provenance::{Build, Built},
    signer::{Loaded, Read},
    statement::Says,
    verdict::Tally,
};

/// The check of one image, with the documents so far. It uses the keys and roots of the moment in which it began.
#[derive(Debug, Clone)]
pub struct PolicyCheck {
    files: Arc<[Arc<Loaded>]>,
    fingerprint: [u8; 32],
    digests: Vec<String>,
    /// The documents, as evidence for a signature of each signer.
    signed: Vec<Tally>,
    /// The documents that are not provenance of a signer, as evidence for provenance.
    built: Tally,
    builds: Vec<SignedBuild>,
}

/// Provenance by one of the signers.
#[derive(Debug, Clone)]
struct SignedBuild {
    place: String,
    /// The index of the signer, and its exact identity.
    signer: usize,
    by: String,
    build: Build,
}

impl Policy {
    /// Begins to check an image. A signature may name each of `digests`: see [`ExpectedImage::digests`].
    #[must_use]
    pub fn begin(&self, digests: Vec<String>) -> PolicyCheck {
        let (files, fingerprint) = self.present_files();
        let mut signed: Vec<Tally> = self.signers.iter().map(|_| Tally::default()).collect();
        for (signer, other) in self.duplicates(&files) {
            signed[signer].unknown(&self.signers[signer].name, &self.duplicate_of(other));
        }
        PolicyCheck { files, fingerprint, digests, signed, built: Tally::default(), builds: Vec::new() }
    }

    /// Checks all `candidates` together.
    ///
    /// Each demand is checked by itself: that one signer signed (`any`), that each signer signed (`all`), and that one of them signed
    /// provenance as demanded. A demand that one candidate meets is met, with any other candidates: a foreign or broken signature beside a
    /// good one changes nothing. For `all`, each identity or key counts for one signer only. If any demand is not met, the verdict is the
    /// first of this list that holds for an unmet demand:
    ///
    /// | verdict | a candidate … | before the next because |
    /// |---|---|---|
    /// | unknown | may be the one: its key or root cannot be used, its form is not supported, it is too large | it may outweigh the others |
    /// | bad | claims to be by a signer, and is not, or is about another digest or build | it will not get better, and an operator should check it |
    /// | another commit | is valid provenance of another commit | it is a better reason than that there is none |
    /// | absent | is by no signer of the policy, or there is none | |
    #[must_use]
    pub fn check(&self, expected: &ExpectedImage<'_>, candidates: &[Candidate]) -> PolicyVerdict {
        let mut check = self.begin(expected.digests.to_vec());
        for candidate in candidates {
            check.add(self, candidate);
        }
        check.verdict(self, expected.commit)
    }
}

impl PolicyCheck {
    /// The fingerprint of the policy with the keys and roots of this check: see [`Policy::fingerprint`].
    #[must_use]
    pub const fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Verifies one more document. This computes for milliseconds. `policy` is the one that began the check.
    pub fn add(&mut self, policy: &Policy, Candidate { place, form }: &Candidate) {
        let read = Read::of(form);
        for (index, signer) in policy.signers.iter().enumerate() {
            let why = match signer.check(&self.files[index], &read, &self.digests) {
                DocumentVerdict::Signed(found) => {
                    self.count(policy, index, place, *found);
                    continue;
                }
                DocumentVerdict::Bad(why) => {
                    DocumentVerdict::Bad(format!("{why} (it claims to be by {})", signer.name))
                }
                other => other,
            };
            for tally in [&mut self.signed[index], &mut self.built] {
                match &why {
                    DocumentVerdict::Signed(_) => {}
                    DocumentVerdict::Unknown(why) => tally.unknown(place, why),
                    DocumentVerdict::Bad(why) => tally.bad(place, why),
                    DocumentVerdict::Foreign(why) => tally.absent(place, why),
                }
            }
        }
    }

    /// The verdict on the documents so far. `commit` is the full commit that the provenance must name: see [`ExpectedImage::commit`].
    #[must_use]
    pub fn verdict(&self, policy: &Policy, commit: Option<&str>) -> PolicyVerdict {
        let mut signed = self.signed.clone();
        let mut demands = Vec::new();
        if policy.needs_all {
            for (signer, _) in policy.duplicates(&self.files) {
                signed[signer].clear_good();
            }
            Tally::share(&mut signed);
            let named = policy.signers.iter().zip(signed);
            demands.extend(named.map(|(signer, tally)| (format!("there is no signature by {}", signer.name), tally)));
        } else {
            let merged = signed.into_iter().fold(Tally::default(), Tally::or);
            demands.push(("there is no signature by one of the signers".to_owned(), merged));
        }
        if policy.provenance.is_some() {
            let built = self.built(policy, commit);
            demands.push(("there is no provenance signed by one of the signers".to_owned(), built));
        }
        PolicyVerdict::of(demands)
    }

    /// Counts a document of the signer `index` at `place` by the type of its statement.
    fn count(&mut self, policy: &Policy, index: usize, place: &str, found: Signed) {
        let (name, signed) = (&policy.signers[index].name, &mut self.signed[index]);
        let Signed { says, claims, by } = found;
        match says {
            Says::Signed => {
                signed.good(place, name, &by, None);
                self.built.absent(place, "it is a signature, not provenance");
            }
            Says::Other(kind) => {
                let why =
                    format!("{name} signed it, but a statement of the type `{kind}` is not a signature of an image");
                for tally in [signed, &mut self.built] {
                    tally.absent(place, &why);
                }
            }
            Says::Built(predicate) => {
                signed.good(place, name, &by, None);
                let Some(provenance) = &policy.provenance else { return };
                match provenance.check(&predicate, claims.as_ref()) {
                    Ok(build) => self.builds.push(SignedBuild { place: place.to_owned(), signer: index, by, build }),
                    Err(error) => self.built.bad(place, &error.to_string()),
                }
            }
        }
    }

    /// All documents, as evidence for provenance of `commit`.
    fn built(&self, policy: &Policy, commit: Option<&str>) -> Tally {
        let mut built = self.built.clone();
        for SignedBuild { place, signer, by, build } in &self.builds {
            match build.compare(commit) {
                Ok(Built::From(commit)) => built.good(place, &policy.signers[*signer].name, by, Some(commit)),
                Ok(Built::Other { commit, why }) => built.other(place, commit, &why),
                Err(error) => built.bad(place, &error.to_string()),
            }
        }
        built
    }
}
