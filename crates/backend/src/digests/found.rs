//! What a look-up found for one image, and the judgement on it.

use std::sync::Arc;

use super::{
    commit::Commit,
    finding::{Built, Finding, ImageState, NotedProof},
    revision::{self, RevisionMatch, RevisionPolicy},
    signatures::{ProofKey, Proven, SignedImage, Vouched},
};
use domain::{
    error::BackendError,
    generator::{Evidence, Parameters},
};
use oci::{Contents, Digest};

/// The rules by which images are judged.
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
    /// What the witness of signatures is asked for, in evidence.
    pub(crate) const fn proof_name(&self) -> &'static str {
        if self.proves_commits { "its signed provenance" } else { "its signature" }
    }
}

/// What a look-up found for one image.
#[derive(Debug)]
pub(super) struct Found {
    /// The image's values; `None` if there is no image.
    pub(super) parts: Option<Parameters>,
    /// The contents of the tag's manifest and of the images that matter, by digest.
    pub(super) contents: Vec<(Digest, Arc<Contents>)>,
    /// The contents whose revision matters.
    pub(super) judged: Vec<Arc<Contents>>,
    pub(super) tag: String,
    /// The required platforms that the index lacks.
    pub(super) lacking: Option<String>,
    /// Whether the reference names the commit that the gate ruled on.
    pub(super) is_tied: bool,
    /// The image in a registry, whose signature may be asked for.
    pub(super) image: Option<SignedImage>,
    pub(super) evidence: Evidence,
}

impl Found {
    /// The result of a look-up that did not read the contents.
    pub(crate) fn unopened(parts: Option<Parameters>, tag: String, is_tied: bool, evidence: Evidence) -> Self {
        let (contents, judged) = (Vec::new(), Vec::new());
        Self { parts, contents, judged, tag, lacking: None, is_tied, image: None, evidence }
    }

    /// What was asked and answered.
    pub(super) const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The image whose signature decides whether it is deployed. `None` if that is decided: CI has not passed the commit, a platform is
    /// missing, or a label that no proof replaces names another commit.
    pub(crate) fn to_vouch_for(&self, rules: &ImageRules<'_>) -> Option<&SignedImage> {
        let is_of_other = || {
            let judge = |expected| {
                self.judged.iter().any(|contents| {
                    let verdict = revision::judge(rules.policy, expected, contents, &self.tag, true);
                    matches!(verdict, Ok(RevisionMatch::Other(_)))
                })
            };
            !rules.proves_commits && rules.expected.is_some_and(judge)
        };
        self.image.as_ref().filter(|_| rules.is_ci_done && self.lacking.is_none() && !is_of_other())
    }

    /// The commit that the image's label names.
    pub(super) fn label(&self) -> Option<&str> {
        label(&self.judged).next()
    }

    /// Judges the image called `name` by `rules`, and by what the witness of signatures says, if it was asked.
    ///
    /// # Errors
    /// When the image must name its commit, and does not.
    pub(super) fn judge(
        self,
        name: &str,
        rules: &ImageRules<'_>,
        vouched: Option<Vouched>,
    ) -> Result<Finding, BackendError> {
        let Self { parts, contents, judged, tag, lacking, is_tied, image, evidence } = self;
        let mut finding =
            Finding { name: name.to_owned(), state: ImageState::Missing, contents, evidence: vec![evidence] };
        let Some(mut parts) = parts else { return Ok(finding) };
        finding.state = ImageState::Unfit;
        if let Some(lacking) = lacking {
            let asked = format!("its platforms under {tag}");
            finding.evidence.push(Evidence::absent(asked, format!("it has none for {lacking}")));
            return Ok(finding);
        }
        if !rules.proves_commits && !judge_labels(&judged, rules, &tag, &mut finding)? {
            return Ok(finding);
        }
        let Ok(proof) = judge_proof(vouched, &judged, rules, &tag, &mut finding) else {
            // The label may say more, such as that the tag is still that of the commit before.
            if rules.proves_commits && matches!(finding.state, ImageState::Unfit) {
                judge_labels(&judged, rules, &tag, &mut finding)?;
            }
            return Ok(finding);
        };
        let proven = proof.as_ref().and_then(|(_, proven)| proven.commit.as_ref());
        if rules.proves_commits && proven.is_none() && !judge_labels(&judged, rules, &tag, &mut finding)? {
            return Ok(finding);
        }
        let is_of = |commit: &Commit| match proven {
            Some(proven) => proven == commit,
            None => {
                !judged.is_empty()
                    && judged.iter().all(|contents| contents.revision.as_deref().is_some_and(|label| commit.is(label)))
            }
        };
        if let Some(earlier) = rules.earlier.filter(|earlier| !is_tied && !is_of(earlier)) {
            let why =
                format!("CI passed {earlier}, an earlier commit, and nothing shows that the image is of that commit");
            finding.evidence.push(Evidence::absent(format!("its revision under {tag}"), why));
            return Ok(finding);
        }
        let created = first_value(&judged, |contents| &contents.created);
        let labelled = first_value(&judged, |contents| &contents.revision);
        let revision = proven.map(|proven| proven.as_str().to_owned()).or(labelled);
        if let Some(proven) = proven {
            parts.insert("revision".to_owned(), proven.as_str().into());
        }
        let (image, proof) = match (image, proof) {
            (Some(image), Some((key, proven))) => (None, Some(Box::new(NotedProof { image, key, proven }))),
            (image, _) => (image, None),
        };
        finding.state = ImageState::Built(Built { parts, created, revision, image, proof });
        Ok(finding)
    }
}

/// The image may not be deployed; the finding says why.
struct Refused;

/// What is proven of the image, if the witness was asked.
fn judge_proof(
    vouched: Option<Vouched>,
    judged: &[Arc<Contents>],
    rules: &ImageRules<'_>,
    tag: &str,
    finding: &mut Finding,
) -> Result<Option<(ProofKey, Arc<Proven>)>, Refused> {
    let asked = rules.proof_name();
    let (key, proven) = match vouched {
        None => return Ok(None),
        Some(Vouched::Proven(key, proven)) => (key, proven),
        Some(Vouched::NotYet(why)) => {
            finding.evidence.push(Evidence::absent(asked, why));
            return Err(Refused);
        }
        Some(Vouched::Bad(why)) => {
            finding.state = ImageState::Bad;
            finding.evidence.push(Evidence::refused(asked, why));
            return Err(Refused);
        }
    };
    finding.evidence.push(Evidence::present(asked, format!("signed by {}", proven.signer)));
    let Some(commit) = &proven.commit else { return Ok(Some((key, proven))) };
    let asked = format!("its revision under {tag}");
    if let Some(other) = label(judged).find(|label| commit.is_contradicted_by(label)) {
        let shown: String = other.chars().take(64).collect();
        let why = format!(
            "its label names {}, and its signed provenance names {commit}; one of them is wrong, so the image is not used",
            shown.escape_debug()
        );
        finding.state = ImageState::Bad;
        finding.evidence.push(Evidence::refused(asked, why));
        return Err(Refused);
    }
    let spoken = if label(judged).next().is_some() { "its label agrees" } else { "it has no label" };
    finding.evidence.push(Evidence::present(asked, format!("{commit}, by its signed provenance; {spoken}")));
    Ok(Some((key, proven)))
}

/// Whether the labels allow the image.
///
/// # Errors
/// When the image must name its commit, and does not.
fn judge_labels(
    judged: &[Arc<Contents>],
    rules: &ImageRules<'_>,
    tag: &str,
    finding: &mut Finding,
) -> Result<bool, BackendError> {
    let Some(expected) = rules.expected else { return Ok(true) };
    let asked = format!("its revision under {tag}");
    // The proof, which was not asked for yet, takes the place of a missing label.
    let policy = if rules.proves_commits && rules.policy == RevisionPolicy::Require {
        RevisionPolicy::Prefer
    } else {
        rules.policy
    };
    for contents in judged {
        let verdict = revision::judge(policy, expected, contents, tag, rules.is_ci_done);
        match verdict.map_err(|error| unclear(&asked, error))? {
            RevisionMatch::Fits(answered) => finding.evidence.push(Evidence::present(&asked, answered)),
            RevisionMatch::Other(why) => {
                finding.evidence.push(Evidence::absent(asked, why));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The labels that are not empty.
fn label(judged: &[Arc<Contents>]) -> impl Iterator<Item = &str> {
    let trimmed = judged.iter().filter_map(|contents| contents.revision.as_deref()).map(str::trim);
    trimmed.filter(|label| !label.is_empty())
}

/// The first value of a field among `contents`.
pub(super) fn first_value(contents: &[Arc<Contents>], field: fn(&Contents) -> &Option<String>) -> Option<String> {
    contents.iter().find_map(|contents| field(contents).clone())
}

/// `error`, with what was asked as evidence.
pub(super) fn unclear(asked: &str, mut error: BackendError) -> BackendError {
    error.evidence = vec![Evidence::unknown(asked, error.message.as_str())];
    error
}
