//! The outcome: the answer that follows from the verdicts of all checks. A pure function; `docs/digests.md` has the table of cases.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    commit::Commit,
    gate::{CiState, CiVerdict},
    image_verdict::{Built, ImageState, ImageVerdict},
    note::{Known, LazyNote, Note, Proofs},
    signatures::SignedImage,
};
use domain::{
    clock::Timestamp,
    error::BackendError,
    generator::{BackendNote, Evidence, Outcome, ParameterSet, Parameters, Verdict},
};

/// How long *not built* is accepted while CI works.
const PENDING: Duration = Duration::from_secs(15);
/// How long *not built* is accepted after CI failed: a run may be repeated.
const FAILED: Duration = Duration::from_mins(1);
/// How long *not built* is accepted, at most, while a tag is missing.
const MISSING: Duration = Duration::from_mins(2);

/// The values of a parameter set that name the origin of the images.
const ORIGIN: [&str; 3] = ["revision", "builtAt", "runUrl"];

/// The answer while the images are not built, and no earlier build is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnMissing {
    /// An explicit empty list: there is nothing to deploy yet.
    #[default]
    Omit,
    /// An error: the ApplicationSet stays as it is.
    Error,
    /// The images that `placeholder` names.
    Placeholder,
}

/// The answer without any build: [`OnMissing`], with its images.
#[derive(Debug)]
pub(super) enum Fallback {
    /// An empty list.
    Omit,
    /// An error.
    Error,
    /// These images.
    Placeholder(Parameters),
}

/// The verdicts of all checks for one query, and everything else that its outcome depends on.
#[derive(Debug)]
pub(super) struct Checks {
    /// One for each image.
    pub images: Vec<ImageVerdict>,
    /// CI's verdict, if there is a gate.
    pub ci: Option<CiVerdict>,
    /// Whether the parameter set has `revision`, `builtAt` and `runUrl`.
    pub(crate) names_origin: bool,
    /// The note of the last answer.
    pub before: LazyNote,
    /// Whether each image must have a proof.
    pub is_signed: bool,
    /// The proofs of the last build's images, if a signature is demanded; or why that build is not good any more.
    pub(crate) last_proofs: Result<Proofs, String>,
    /// The fingerprint of the configuration.
    pub(crate) made_by: String,
    /// The present time.
    pub now: Timestamp,
}

impl Checks {
    /// The answer.
    ///
    /// # Errors
    /// When the images are not built and neither an earlier build nor the fallback may be answered.
    pub(super) fn outcome(mut self, fallback: &Fallback) -> Result<Outcome, BackendError> {
        let evidence = self.take_evidence();
        let state = self.ci.as_ref().map_or(CiState::Passed, |ci| ci.state);
        let are_all_built = self.images.iter().all(|verdict| matches!(verdict.state, ImageState::Built(_)));
        if state == CiState::Passed && are_all_built {
            return self.built(evidence);
        }
        let is_missing = self.images.iter().any(|verdict| matches!(verdict.state, ImageState::Missing));
        let mut before = std::mem::take(&mut self.before).into_note();
        let missing_since = if is_missing { Some(before.missing_since.unwrap_or(self.now)) } else { None };
        let not_built = NotBuilt {
            life: self.life(state, missing_since),
            note: Note { missing_since, known: self.known(), ..Note::default() },
            evidence,
        };
        let Some(item) = before.item.take() else { return not_built.fall_back(fallback, self.names_origin) };
        if before.made_by != self.made_by {
            let why = "not built yet, and the last build is of another configuration of this route; so neither that build nor \
                       an empty list can be answered; the next build ends this";
            return Err(BackendError { evidence: not_built.evidence, ..BackendError::unavailable(why) });
        }
        // The image of this very query was built and CI passed it: it was deleted since, and does not come again.
        let is_deleted = state == CiState::Passed && is_missing && !before.is_earlier;
        if is_deleted && !matches!(fallback, Fallback::Placeholder(_)) {
            return not_built.fall_back(fallback, self.names_origin);
        }
        match self.last_proofs {
            Ok(proofs) => Ok(not_built.last_build(item, Note { proofs, ..before })),
            Err(why) => {
                let why = format!(
                    "not built yet, and the last build cannot be served meanwhile: {why}; an empty list cannot be answered \
                     either; the next build ends this"
                );
                Err(BackendError { evidence: not_built.evidence, ..BackendError::unavailable(why) })
            }
        }
    }

    /// All evidence, each with the name of its image.
    fn take_evidence(&mut self) -> Vec<Evidence> {
        let mut evidence: Vec<Evidence> = Vec::new();
        for verdict in &mut self.images {
            evidence.extend(verdict.evidence.drain(..).map(|each| each.of(&verdict.name)));
        }
        evidence.extend(self.ci.iter_mut().flat_map(|ci| ci.evidence.drain(..)));
        evidence
    }

    /// How long *not built* is accepted: the longer a tag has been missing, the longer.
    fn life(&self, state: CiState, missing_since: Option<Timestamp>) -> Duration {
        let is_bad = self.images.iter().any(|verdict| matches!(verdict.state, ImageState::Bad));
        match (state, missing_since) {
            (CiState::Failed, _) => FAILED,
            (CiState::Passed, _) if is_bad => FAILED,
            (CiState::Passed, Some(since)) => {
                let missing_for = self.now.since(since).unwrap_or_default();
                (missing_for / 2).clamp(PENDING, MISSING)
            }
            (CiState::Passed, None) | (CiState::Pending, _) => PENDING,
        }
    }

    /// The answer with the images, all of which are built.
    ///
    /// # Errors
    /// When a proof is demanded, and an image has none. No check should have passed it.
    fn built(mut self, evidence: Vec<Evidence>) -> Result<Outcome, BackendError> {
        if self.is_signed
            && let Some(verdict) = self.images.iter().find(|verdict| !verdict.is_proven())
        {
            let why = format!("image {}: a signature is demanded, and nothing was proven", verdict.name);
            return Err(BackendError { evidence, ..BackendError::invalid_output(why) });
        }
        let is_earlier = self.ci.as_ref().is_some_and(|ci| ci.is_earlier);
        let (origin, known, images, proofs) = (self.origin(), self.known(), self.images(), self.take_proofs());
        let parts = self.images.iter_mut().filter_map(|verdict| {
            let ImageState::Built(built) = &mut verdict.state else { return None };
            Some((verdict.name.clone(), Value::Object(std::mem::take(&mut built.parts))))
        });
        let mut item: Parameters = parts.collect();
        item.insert("stale".to_owned(), is_earlier.into());
        item.extend(origin);
        let made_by = self.made_by;
        let note = Note { item: Some(item), is_earlier, made_by, known, proofs, images, ..Note::default() };
        let outcome = with_note(note, evidence);
        // The commit in the query may pass at any time.
        Ok(if is_earlier { outcome.lasting_at_most(PENDING) } else { outcome })
    }

    /// The contents of the images, without annotations, which only lists need.
    fn known(&self) -> Known {
        let contents = self.images.iter().flat_map(|verdict| &verdict.contents);
        contents.map(|(digest, contents)| (digest.clone(), Arc::new(contents.without_annotations()))).collect()
    }

    /// The proofs of the images, by their names.
    fn take_proofs(&mut self) -> Proofs {
        let proof = |verdict: &mut ImageVerdict| {
            let ImageState::Built(built) = &mut verdict.state else { return None };
            Some((verdict.name.clone(), *built.proof.take()?))
        };
        self.images.iter_mut().filter_map(proof).collect()
    }

    /// The images without a proof that have more digests than their values show, by their names.
    fn images(&self) -> BTreeMap<String, SignedImage> {
        let image = |verdict: &ImageVerdict| {
            let ImageState::Built(Built { parts, image: Some(image), .. }) = &verdict.state else { return None };
            let is_shown = matches!(&image.digests[..], [only] if parts["digest"] == only.as_str());
            (!is_shown).then(|| (verdict.name.clone(), image.clone()))
        };
        self.images.iter().filter_map(image).collect()
    }

    /// The values of [`ORIGIN`], which all images have in common.
    fn origin(&self) -> Parameters {
        if !self.names_origin {
            return Parameters::new();
        }
        let built: Vec<&Built> = self
            .images
            .iter()
            .filter_map(|verdict| if let ImageState::Built(built) = &verdict.state { Some(built) } else { None })
            .collect();
        let mut revisions: Vec<&str> = built.iter().filter_map(|built| built.revision.as_deref()).collect();
        revisions.dedup();
        let ci = self.ci.as_ref();
        let revision = match revisions[..] {
            // No image names its commit; the gate does.
            [] => ci.and_then(|ci| ci.commit.as_ref()).map(Commit::as_str),
            [revision] => Some(revision),
            _ => None,
        };
        let time = |created: &&str| created.parse::<jiff::Timestamp>().ok();
        let created = built.iter().filter_map(|built| built.created.as_deref()).max_by_key(time);
        let built_at = ci.and_then(|ci| ci.built_at.as_deref()).or(created);
        let run_url = ci.and_then(|ci| ci.run_url.as_deref());
        let values = ORIGIN.into_iter().zip([revision, built_at, run_url]);
        values.map(|(name, value)| (name.to_owned(), value.unwrap_or_default().into())).collect()
    }
}

/// The results when the images are not all built, or CI has not passed the commit.
struct NotBuilt {
    /// How long the answer lasts.
    life: Duration,
    /// The note of an answer without an item.
    note: Note,
    evidence: Vec<Evidence>,
}

/// The answer with the set of `note`, which notes it.
fn with_note(note: Note, evidence: Vec<Evidence>) -> Outcome {
    let text = BackendNote::of(&note);
    Outcome::present(ParameterSet(note.item.unwrap_or_default()), evidence).noting(text)
}

impl NotBuilt {
    /// The answer with `item`, the last build, which `before` noted.
    fn last_build(mut self, mut item: Parameters, before: Note) -> Outcome {
        self.evidence.push(Evidence::present("the last build", describe_last_build(&item)));
        item.insert("stale".to_owned(), true.into());
        let Note { is_earlier, made_by, proofs, images, .. } = before;
        let note = Note { item: Some(item), is_earlier, made_by, proofs, images, ..self.note };
        with_note(note, self.evidence).lasting_at_most(self.life)
    }

    /// The answer without any build.
    fn fall_back(mut self, fallback: &Fallback, names_origin: bool) -> Result<Outcome, BackendError> {
        match fallback {
            Fallback::Omit => {
                Ok(Outcome::absent(self.evidence).lasting_at_most(self.life).noting(BackendNote::of(&self.note)))
            }
            Fallback::Placeholder(images) => {
                let mut item = images.clone();
                item.insert("stale".to_owned(), true.into());
                if names_origin {
                    // The origin of a placeholder is not known.
                    item.extend(ORIGIN.map(|name| (name.to_owned(), "".into())));
                }
                self.evidence.push(Evidence::present("the placeholder", "it is answered until the images are built"));
                let outcome = Outcome::present(ParameterSet(item), self.evidence);
                Ok(outcome.lasting_at_most(self.life).noting(BackendNote::of(&self.note)))
            }
            Fallback::Error => {
                let missing = self.evidence.iter().filter(|evidence| evidence.verdict != Verdict::Present);
                let missing: Vec<String> = missing.map(Evidence::to_string).collect();
                let error = BackendError::invalid_input(format!("not built: {}", missing.join("; ")));
                Err(BackendError { evidence: self.evidence, ..error })
            }
        }
    }
}

fn describe_last_build(item: &Parameters) -> String {
    match item.get("revision").and_then(Value::as_str).filter(|revision| !revision.is_empty()) {
        Some(revision) => format!("the images of {revision} are served meanwhile"),
        None => "its images are served meanwhile".to_owned(),
    }
}

#[cfg(test)]
mod tests;
