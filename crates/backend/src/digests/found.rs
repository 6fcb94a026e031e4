//! The result of a lookup for one image, and the check of it.

use std::sync::Arc;

use super::{
    commit::Commit,
    image_verdict::{Built, ImageState, ImageVerdict, NotedProof},
    revision::{self, RevisionMatch, RevisionPolicy},
    signatures::{ProofKey, Proven, SignatureVerdict, SignedImage},
};
use domain::{
    error::BackendError,
    generator::{Evidence, Parameters},
};
use oci::{Contents, Digest};

/// The rules by which images are checked.
pub(super) struct ImageRules<'a> {
    /// How strictly the image's revision is compared with `expected`.
    pub policy: RevisionPolicy,
    /// The commit that the image must be of by its label, if one is expected.
    pub expected: Option<&'a Commit>,
    /// The commit that signed provenance must name, if one is expected.
    pub proven: Option<&'a Commit>,
    /// The earlier commit to which the gate walked back.
    pub earlier: Option<&'a Commit>,
    /// Whether CI has finished with the commit.
    pub(crate) is_ci_done: bool,
    /// Whether signed provenance names the commit, in place of the label.
    pub(crate) proves_commits: bool,
}

impl ImageRules<'_> {
    /// The query to the check of signatures, in evidence.
    pub(crate) const fn proof_name(&self) -> &'static str {
        if self.proves_commits { "its signed provenance" } else { "its signature" }
    }
}

/// The result of a lookup for one image.
#[derive(Debug)]
pub(super) struct FoundImage {
    /// The image's values; `None` if there is no image.
    pub(super) parts: Option<Parameters>,
    /// The contents of the tag's manifest and of the images that matter, by digest.
    pub(super) contents: Vec<(Digest, Arc<Contents>)>,
    /// The contents whose revision matters.
    pub(super) checked: Vec<Arc<Contents>>,
    pub(super) tag: String,
    /// The required platforms that the index lacks.
    pub(super) lacking: Option<String>,
    /// Whether the reference names the commit of the gate's verdict.
    pub(super) is_tied: bool,
    /// The image in a registry, whose signature may be verified.
    pub(super) image: Option<SignedImage>,
    pub(super) evidence: Evidence,
}

impl FoundImage {
    /// The result of a lookup that did not read the contents.
    pub(crate) fn unopened(parts: Option<Parameters>, tag: String, is_tied: bool, evidence: Evidence) -> Self {
        let (contents, checked) = (Vec::new(), Vec::new());
        Self { parts, contents, checked, tag, lacking: None, is_tied, image: None, evidence }
    }

    /// The query and the answer.
    pub(super) const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The image whose signature decides whether it is deployed. `None` if that is decided: CI has not passed the commit, a platform is
    /// missing, or a label that no proof replaces names another commit.
    pub(crate) fn image_to_verify(&self, rules: &ImageRules<'_>) -> Option<&SignedImage> {
        let is_of_other = || {
            let check = |expected| {
                self.checked.iter().any(|contents| {
                    let matched = revision::check(rules.policy, expected, contents, &self.tag, true);
                    matches!(matched, Ok(RevisionMatch::Other(_)))
                })
            };
            !rules.proves_commits && rules.expected.is_some_and(check)
        };
        self.image.as_ref().filter(|_| rules.is_ci_done && self.lacking.is_none() && !is_of_other())
    }

    /// The commit that the image's label names.
    pub(super) fn label(&self) -> Option<&str> {
        label(&self.checked).next()
    }

    /// Checks the image called `name` by `rules`, and by the verdict on its signature, if that was checked.
    ///
    /// # Errors
    /// When the image must name its commit, and does not.
    pub(super) fn check(
        self,
        name: &str,
        rules: &ImageRules<'_>,
        signature: Option<SignatureVerdict>,
    ) -> Result<ImageVerdict, BackendError> {
        let Self { parts, contents, checked, tag, lacking, is_tied, image, evidence } = self;
        let mut verdict =
            ImageVerdict { name: name.to_owned(), state: ImageState::Missing, contents, evidence: vec![evidence] };
        let Some(mut parts) = parts else { return Ok(verdict) };
        verdict.state = ImageState::Unfit;
        if let Some(lacking) = lacking {
            let query = format!("its platforms under {tag}");
            verdict.evidence.push(Evidence::absent(query, format!("it has none for {lacking}")));
            return Ok(verdict);
        }
        if !rules.proves_commits && !check_labels(&checked, rules, &tag, &mut verdict)? {
            return Ok(verdict);
        }
        let Ok(proof) = check_proof(signature, &checked, rules, &tag, &mut verdict) else {
            // The label may say more, such as that the tag is still that of the commit before.
            if rules.proves_commits && matches!(verdict.state, ImageState::Unfit) {
                check_labels(&checked, rules, &tag, &mut verdict)?;
            }
            return Ok(verdict);
        };
        let proven = proof.as_ref().and_then(|(_, proven)| proven.commit.as_ref());
        if rules.proves_commits && proven.is_none() && !check_labels(&checked, rules, &tag, &mut verdict)? {
            return Ok(verdict);
        }
        let is_of = |commit: &Commit| match proven {
            Some(proven) => proven == commit,
            None => {
                !checked.is_empty()
                    && checked.iter().all(|contents| contents.revision.as_deref().is_some_and(|label| commit.is(label)))
            }
        };
        if let Some(earlier) = rules.earlier.filter(|earlier| !is_tied && !is_of(earlier)) {
            let why =
                format!("CI passed {earlier}, an earlier commit, and nothing shows that the image is of that commit");
            verdict.evidence.push(Evidence::absent(format!("its revision under {tag}"), why));
            return Ok(verdict);
        }
        let created = first_value(&checked, |contents| &contents.created);
        let labelled = first_value(&checked, |contents| &contents.revision);
        let revision = proven.map(|proven| proven.as_str().to_owned()).or(labelled);
        if let Some(proven) = proven {
            parts.insert("revision".to_owned(), proven.as_str().into());
        }
        let (image, proof) = match (image, proof) {
            (Some(image), Some((key, proven))) => (None, Some(Box::new(NotedProof { image, key, proven }))),
            (image, _) => (image, None),
        };
        verdict.state = ImageState::Built(Built { parts, created, revision, image, proof });
        Ok(verdict)
    }
}

/// The image may not be deployed; the verdict has the reason.
struct Refused;

/// The proof of the image, if its signature was checked.
fn check_proof(
    signature: Option<SignatureVerdict>,
    checked: &[Arc<Contents>],
    rules: &ImageRules<'_>,
    tag: &str,
    verdict: &mut ImageVerdict,
) -> Result<Option<(ProofKey, Arc<Proven>)>, Refused> {
    let query = rules.proof_name();
    let (key, proven) = match signature {
        None => return Ok(None),
        Some(SignatureVerdict::Proven(key, proven)) => (key, proven),
        Some(SignatureVerdict::NotYet(why)) => {
            verdict.evidence.push(Evidence::absent(query, why));
            return Err(Refused);
        }
        Some(SignatureVerdict::Bad(why)) => {
            verdict.state = ImageState::Bad;
            verdict.evidence.push(Evidence::refused(query, why));
            return Err(Refused);
        }
    };
    verdict.evidence.push(Evidence::present(query, format!("signed by {}", proven.signer)));
    let Some(commit) = &proven.commit else { return Ok(Some((key, proven))) };
    let query = format!("its revision under {tag}");
    if let Some(other) = label(checked).find(|label| commit.is_contradicted_by(label)) {
        let shown: String = other.chars().take(64).collect();
        let why = format!(
            "its label names {}, and its signed provenance names {commit}; one of them is wrong, so the image is not used",
            shown.escape_debug()
        );
        verdict.state = ImageState::Bad;
        verdict.evidence.push(Evidence::refused(query, why));
        return Err(Refused);
    }
    let spoken = if label(checked).next().is_some() { "its label agrees" } else { "it has no label" };
    verdict.evidence.push(Evidence::present(query, format!("{commit}, by its signed provenance; {spoken}")));
    Ok(Some((key, proven)))
}

/// Whether the labels allow the image.
///
/// # Errors
/// When the image must name its commit, and does not.
fn check_labels(
    checked: &[Arc<Contents>],
    rules: &ImageRules<'_>,
    tag: &str,
    verdict: &mut ImageVerdict,
) -> Result<bool, BackendError> {
    let Some(expected) = rules.expected else { return Ok(true) };
    let query = format!("its revision under {tag}");
    // The proof, which was not read yet, takes the place of a missing label.
    let policy = if rules.proves_commits && rules.policy == RevisionPolicy::Require {
        RevisionPolicy::Prefer
    } else {
        rules.policy
    };
    for contents in checked {
        let matched = revision::check(policy, expected, contents, tag, rules.is_ci_done);
        match matched.map_err(|error| unclear(&query, error))? {
            RevisionMatch::Fits(answered) => verdict.evidence.push(Evidence::present(&query, answered)),
            RevisionMatch::Other(why) => {
                verdict.evidence.push(Evidence::absent(query, why));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The labels that are not empty.
fn label(checked: &[Arc<Contents>]) -> impl Iterator<Item = &str> {
    let trimmed = checked.iter().filter_map(|contents| contents.revision.as_deref()).map(str::trim);
    trimmed.filter(|label| !label.is_empty())
}

/// The first value of a field among `contents`.
pub(super) fn first_value(contents: &[Arc<Contents>], field: fn(&Contents) -> &Option<String>) -> Option<String> {
    contents.iter().find_map(|contents| field(contents).clone())
}

/// `error`, with the query as evidence.
pub(super) fn unclear(query: &str, mut error: BackendError) -> BackendError {
    error.evidence = vec![Evidence::unknown(query, error.message.as_str())];
    error
}
