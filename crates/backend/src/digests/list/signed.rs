//! Keeps the tags of a list whose images are signed, and the proofs for the next query.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use super::{CONCURRENT_READS, List, opened::OpenedTag};
use crate::digests::{
    commit::Commit,
    signatures::{Noted, NotedProofs, ProofKey, ProofQuery, Proven, SignatureVerdict, Signatures, SignedImage},
};
use domain::{
    error::BackendError,
    generator::{Before, Evidence, ParameterSet, Query, Verdict},
};
use lang::evaluator::Context;
use oci::{Digest, Reference};

/// The most tags of one repository that are named as not signed.
const MAX_NAMED: usize = 10;
/// For how long *not signed* is remembered: lists hold many tags, of which old ones may never be signed.
const NOT_SIGNED_FOR: Duration = Duration::from_mins(1);

/// The query to the check of signatures about each tag.
#[derive(Debug, Default)]
pub(super) struct SignedQuery {
    /// The commit that must be proven.
    commit: Option<Commit>,
    before: Before,
    /// Read when it is first needed: memory has most proofs.
    earlier: OnceLock<Earlier>,
}

/// The content of the notes of earlier answers.
#[derive(Debug, Default)]
struct Earlier {
    /// The proofs.
    noted: NotedProofs,
    /// The images of the last answers, and the commits that were proven of them then.
    were_proven: BTreeMap<Digest, Option<Commit>>,
}

/// A selected tag, with its proof if a signature is demanded.
#[derive(Debug)]
pub(super) struct KeptTag {
    opened: OpenedTag,
    proof: Option<(ProofKey, Arc<Proven>)>,
}

/// The selected tags of one repository, and those that were left out since they are not signed.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) tags: Vec<KeptTag>,
    not_signed: Vec<Evidence>,
}

/// The proofs of an answer, which come back with the next query.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Notes {
    proofs: BTreeMap<ProofKey, Arc<Proven>>,
    /// Which of the proofs is that of an image. It can be read whatever the keys are now. Earlier notes lack it: they only save requests.
    images: BTreeMap<Digest, ProofKey>,
}

impl Kept {
    /// The evidence of the repository, to the query `subject`.
    pub(super) fn evidence(&self, subject: String) -> Vec<Evidence> {
        let selected = match self.tags.len() {
            0 => Evidence::absent(subject, "no tag is selected"),
            1 => Evidence::present(subject, "1 tag is selected"),
            more => Evidence::present(subject, format!("{more} tags are selected")),
        };
        let mut evidence = vec![selected];
        // Refused images come first: an operator must act on them.
        let (refused, missing): (Vec<_>, Vec<_>) =
            self.not_signed.iter().cloned().partition(|each| each.verdict == Verdict::Refused);
        evidence.extend(refused.into_iter().chain(missing).take(MAX_NAMED));
        let more = self.not_signed.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            evidence.push(Evidence::absent("the signatures of other tags", format!("{more} more are not selected")));
        }
        evidence
    }
}

impl Notes {
    /// Adds the proof of `tag`. Returns its parameter set, in which the proven commit takes the place of the label's.
    pub(super) fn add(&mut self, tag: KeptTag) -> ParameterSet {
        let KeptTag { opened, proof } = tag;
        let digest = opened.target.digest.clone();
        let mut set = opened.into_set();
        if let Some((key, proven)) = proof {
            self.images.insert(digest, key);
            if let Some(commit) = &proven.commit {
                set.0.insert("revision".to_owned(), commit.as_str().into());
            }
            self.proofs.insert(key, proven);
        }
        set
    }

    /// The images, and the commits that were proven of them.
    fn were_proven(&self) -> impl Iterator<Item = (Digest, Option<Commit>)> {
        let commit = |key| self.proofs.get(key).and_then(|proven| proven.commit.clone());
        self.images.iter().map(move |(digest, key)| (digest.clone(), commit(key)))
    }
}

impl SignedQuery {
    fn earlier(&self) -> &Earlier {
        self.earlier.get_or_init(|| Earlier::read(&self.before))
    }
}

impl Noted for SignedQuery {
    fn proof(&self, key: &ProofKey) -> Option<&Arc<Proven>> {
        self.earlier().noted.get(key)
    }
}

impl Earlier {
    /// The note of this very query counts more than that of its lineage.
    fn read(before: &Before) -> Self {
        let mut earlier = Self::default();
        for note in [&before.lineage, &before.own].into_iter().flatten() {
            let Some(notes) = note.read::<Notes>() else { continue };
            earlier.were_proven.extend(notes.were_proven());
            earlier.noted.extend(notes.proofs);
        }
        earlier
    }
}

impl List {
    /// The query to the check of signatures about the tags that `query` selects.
    ///
    /// # Errors
    /// When the parameters make no commit.
    pub(super) async fn signed_query(&self, query: &Query) -> Result<SignedQuery, BackendError> {
        let Some(signatures) = &self.signatures else { return Ok(SignedQuery::default()) };
        let commit = match signatures.commit() {
            Some(template) => {
                let commit = Commit::render(template, &Context::of_input(query, &self.evaluator)).await;
                Some(commit.map_err(|error| error.within("provenance.commit"))?)
            }
            None => None,
        };
        Ok(SignedQuery { commit, before: query.before.clone(), earlier: OnceLock::new() })
    }

    /// Adds those of `opened` to `kept` that are signed, up to the limit, in their order. Without a demand for signatures, all are.
    ///
    /// # Errors
    /// When it is not known of a tag whether it is signed, or when the signature of an image that was proven cannot be verified any more.
    pub(super) async fn keep_signed(
        &self,
        opened: Vec<OpenedTag>,
        kept: &mut Kept,
        query: &Query,
        signed: &SignedQuery,
    ) -> Result<(), BackendError> {
        let left = self.limit - kept.tags.len();
        let Some(signatures) = &self.signatures else {
            kept.tags.extend(opened.into_iter().take(left).map(|opened| KeptTag { opened, proof: None }));
            return Ok(());
        };
        let mut checked = stream::iter(opened)
            .map(async |opened| {
                let tag = CheckedTag { signatures, opened: &opened, query, signed };
                let checked = tag.check().await;
                (opened, checked)
            })
            .buffered(left.clamp(1, CONCURRENT_READS));
        while kept.tags.len() < self.limit {
            let Some((opened, checked)) = checked.next().await else { break };
            match checked? {
                Ok(proof) => kept.tags.push(KeptTag { opened, proof: Some(proof) }),
                Err(because) => kept.not_signed.push(because),
            }
        }
        Ok(())
    }
}

/// A tag whose image is checked.
struct CheckedTag<'a> {
    signatures: &'a Signatures,
    opened: &'a OpenedTag,
    query: &'a Query,
    signed: &'a SignedQuery,
}

impl CheckedTag<'_> {
    /// The proof of the tag's image, or why the tag is not selected.
    ///
    /// # Errors
    /// When that is not known, or when the image was proven and its signature cannot be verified any more.
    async fn check(&self) -> Result<Result<(ProofKey, Arc<Proven>), Evidence>, BackendError> {
        let contents = &self.opened.contents;
        let label = contents.revision.as_deref().map(str::trim).filter(|label| !label.is_empty());
        let subject = subject(self.signatures, &self.opened.reference);
        let because = match self.verify(self.signed.commit.as_ref(), label).await? {
            SignatureVerdict::Proven(key, proven) => match (label, &proven.commit) {
                (Some(label), Some(commit)) if commit.is_contradicted_by(label) => {
                    let shown: String = label.chars().take(64).collect();
                    Evidence::refused(
                        subject,
                        format!("its label names {}, and its signed provenance {commit}", shown.escape_debug()),
                    )
                }
                _ => return Ok(Ok((key, proven))),
            },
            SignatureVerdict::NotYet(why) => Evidence::absent(subject, why),
            SignatureVerdict::Bad(why) => Evidence::refused(subject, why),
        };
        self.check_former(&because.answer).await?;
        Ok(Err(because))
    }

    /// Checks that an image that is not proven was not proven for the last answer either, unless that was for another commit.
    ///
    /// # Errors
    /// When it was. The answer would lose a tag, whose Application runs, because of the present keys.
    async fn check_former(&self, why: &str) -> Result<(), BackendError> {
        let Some(former) = self.signed.earlier().were_proven.get(&self.opened.target.digest) else { return Ok(()) };
        if let (Some(former), Some(expected)) = (former, &self.signed.commit)
            && former != expected
            && matches!(self.verify(Some(former), None).await?, SignatureVerdict::Proven(..))
        {
            return Ok(());
        }
        let subject = subject(self.signatures, &self.opened.reference);
        let message = format!(
            "{subject}: the image was in the last answer, and is no longer signed as the configuration demands: {why}; sign it again, or name its \
             key again; to give it up, delete the tag or leave it out with `tags.ignore`"
        );
        Err(BackendError { evidence: vec![Evidence::unknown(subject, why)], ..BackendError::unavailable(message) })
    }

    /// The verdict on the signature of the image, with provenance for `commit`.
    ///
    /// # Errors
    /// When that is not known.
    async fn verify(&self, commit: Option<&Commit>, label: Option<&str>) -> Result<SignatureVerdict, BackendError> {
        let Reference { registry, repository, .. } = self.opened.reference.clone();
        let image = SignedImage { registry, repository, digests: vec![self.opened.target.digest.clone()] };
        let of_image = ProofQuery {
            commit,
            label,
            noted: self.signed,
            deadline: self.query.deadline,
            joins: !self.query.must_ask,
            may_reuse: !self.query.reuses_for().is_zero(),
            not_signed_for: NOT_SIGNED_FOR,
        };
        self.signatures.verify(&image, of_image).await.map_err(|mut error| {
            let subject = subject(self.signatures, &self.opened.reference);
            error.evidence = vec![Evidence::unknown(&*subject, error.message.as_str())];
            error.within(subject)
        })
    }
}

fn subject(signatures: &Signatures, reference: &Reference) -> String {
    let what = if signatures.proves_commits() { "the signed provenance" } else { "the signature" };
    format!("{what} of {reference}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A note from before images were noted saves requests. It contains nothing about images.
    #[test]
    fn an_earlier_note_is_read() {
        let (key, proven) = ("ab".repeat(32), json!({"commit": "ab".repeat(20), "signer": "cosign.pub"}));
        let earlier = Notes::deserialize(&json!({"proofs": {&key: proven}})).unwrap();
        assert_eq!((earlier.proofs.len(), earlier.were_proven().count()), (1, 0));
        let digest = Digest::of(b"image");
        let present = json!({"proofs": {&key: proven}, "images": {digest.as_str(): key}});
        let notes = Notes::deserialize(&present).unwrap();
        let were_proven: Vec<_> = notes.were_proven().collect();
        assert_eq!(were_proven, [(digest, Commit::parse(&"ab".repeat(20)).ok())]);
        assert_eq!(serde_json::to_value(&notes).unwrap(), present);
    }
}
