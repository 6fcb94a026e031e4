//! Verifies the signatures of images, and of the last build that is the fallback.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    super::{
        commit::Commit,
        found::{FoundImage, ImageRules, unclear},
        image_verdict::{ImageVerdict, NotedProof},
        note::{LazyNote, Proofs},
        signatures::{ProofQuery, SignatureVerdict, Signatures, SignedImage},
    },
    Images,
};
use domain::{
    error::BackendError,
    generator::{Parameters, Query},
};
use oci::Digest;

impl Images {
    /// Checks the result of the lookup for the image called `name`. Its signature is verified where that decides.
    ///
    /// # Errors
    /// When a check has no clear result.
    pub(super) async fn check(
        &self,
        name: &str,
        found: Result<FoundImage, BackendError>,
        rules: &ImageRules<'_>,
        before: &LazyNote,
        query: &Query,
    ) -> Result<ImageVerdict, BackendError> {
        let found = found?;
        let verdict = match (&self.signatures, found.image_to_verify(rules)) {
            (Some(signatures), Some(image)) => {
                let of_image = proof_query(rules.proven, found.label(), before, query);
                let verdict = signatures.verify(image, of_image).await;
                Some(verdict.map_err(|error| unclear(rules.proof_name(), error))?)
            }
            _ => None,
        };
        found.check(name, rules, verdict)
    }

    /// The proofs of the last build's images under the present keys and roots; or why that build is not good any more. Images whose proofs
    /// were noted under other keys are verified again.
    ///
    /// # Errors
    /// When that is not known.
    pub(super) async fn last_proofs(
        &self,
        before: &LazyNote,
        query: &Query,
    ) -> Result<Result<Proofs, String>, BackendError> {
        let mut proofs = Proofs::new();
        let Some(signatures) = &self.signatures else { return Ok(Ok(proofs)) };
        let note = before.get();
        let Some(item) = &note.item else { return Ok(Ok(proofs)) };
        if note.made_by != self.made_by {
            // It is not served anyway.
            return Ok(Ok(proofs));
        }
        for (name, _) in &self.named {
            let noted = note.proofs.get(name).map(|noted| (noted.image.clone(), noted.proven.commit.clone()));
            let of_item = || {
                let (image, commit) = of_item(item, name)?;
                Some((note.images.get(name).cloned().unwrap_or(image), commit))
            };
            let Some((image, commit)) = noted.or_else(of_item) else {
                return Ok(Err(format!("its image {name} has no digest that could be verified")));
            };
            // A set from before provenance was required may have no commit. Any commit would not do.
            if signatures.proves_commits() && commit.is_none() {
                return Ok(Err(format!("the commit of its image {name} is not known")));
            }
            match last_proof(signatures, image, commit.as_ref(), before, query).await {
                Ok(Ok(proof)) => drop(proofs.insert(name.clone(), proof)),
                Ok(Err(why)) => {
                    return Ok(Err(format!(
                        "its image {name} is no longer signed as the configuration demands: {why}"
                    )));
                }
                Err(error) => return Err(error.within(format_args!("the last build: image {name}"))),
            }
        }
        Ok(Ok(proofs))
    }
}

async fn last_proof(
    signatures: &Signatures,
    image: SignedImage,
    commit: Option<&Commit>,
    before: &LazyNote,
    query: &Query,
) -> Result<Result<NotedProof, String>, BackendError> {
    let verdict = signatures.verify(&image, proof_query(commit, None, before, query)).await;
    Ok(match verdict.map_err(|error| unclear("the signature of the last build", error))? {
        SignatureVerdict::Proven(key, proven) => Ok(NotedProof { image, key, proven: Arc::clone(&proven) }),
        SignatureVerdict::NotYet(why) | SignatureVerdict::Bad(why) => Err(why),
    })
}

fn proof_query<'a>(
    commit: Option<&'a Commit>,
    label: Option<&'a str>,
    before: &'a LazyNote,
    query: &Query,
) -> ProofQuery<'a> {
    ProofQuery {
        commit,
        label,
        noted: before,
        deadline: query.deadline,
        joins: !query.must_ask,
        may_reuse: !query.reuses_for().is_zero(),
        // The answer itself says how soon CI may have signed.
        not_signed_for: Duration::ZERO,
    }
}

/// The image called `name` of a set that was built before signatures were demanded.
fn of_item(item: &Parameters, name: &str) -> Option<(SignedImage, Option<Commit>)> {
    let image = item.get(name)?;
    let text = |key: &str| image.get(key).and_then(Value::as_str);
    let digests = vec![Digest::parse(text("digest")?).ok()?];
    let image =
        SignedImage { registry: text("registry")?.to_owned(), repository: text("repository")?.to_owned(), digests };
    let commit = text("revision").or_else(|| item.get("revision").and_then(Value::as_str));
    Some((image, commit.and_then(|commit| Commit::parse(commit).ok())))
}
