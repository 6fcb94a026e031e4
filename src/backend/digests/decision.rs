//! What the witnesses say together, and what that makes of the answer. A pure function; the table that it follows stands in
//! the README.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gate::{Ruling, State};
use crate::{
    clock::Timestamp,
    error::BackendError,
    generator::{Before, Evidence, Outcome, ParameterSet, Parameters, Verdict},
};

/// For how long *not built* is believed while CI works.
const PENDING: Duration = Duration::from_secs(15);
/// For how long it is after CI failed: somebody may run it again.
const FAILED: Duration = Duration::from_mins(1);
/// For how long it is when a tag has been missing for long.
const MISSING: Duration = Duration::from_mins(2);

/// What to answer while the images are not built, and were never seen.
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

/// What was learned of one image.
#[derive(Debug)]
pub(super) struct Finding {
    /// Its name.
    pub name: String,
    /// What there is of it.
    pub is: Is,
    /// How that is known.
    pub evidence: Vec<Evidence>,
}

/// What there is of an image.
#[derive(Debug)]
pub(super) enum Is {
    /// It may be deployed.
    Built(Built),
    /// There is none.
    Missing,
    /// There is one, but of another commit, or not for the machines that it must run on.
    Unfit,
}

/// An image that was found.
#[derive(Debug)]
pub(super) struct Built {
    /// Its parts, under the names that templates use.
    pub parts: Parameters,
    /// When it was built, if that is known.
    pub created: Option<String>,
    /// The commit, by its own word.
    pub revision: Option<String>,
}

/// What a backend notes with an answer: what to say when the next commit of the lineage is not built yet.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    /// The last parameter set that was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<Parameters>,
    /// Whether that was for an earlier question.
    #[serde(default)]
    is_earlier: bool,
    /// Since when the tag is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_since: Option<Timestamp>,
}

/// All that was learned for one question.
#[derive(Debug)]
pub(super) struct Learned<'a> {
    /// Of each image.
    pub findings: Vec<Finding>,
    /// CI's word, where there is a gate.
    pub ruling: Option<Ruling>,
    /// Whether `revision`, `builtAt` and `runUrl` are told.
    pub tells_origin: bool,
    /// What was noted before.
    pub before: Option<&'a Before>,
    /// Now.
    pub now: Timestamp,
}

/// What to say when there is nothing.
#[derive(Debug)]
pub(super) enum Fallback {
    /// An empty list.
    Omit,
    /// An error.
    Error,
    /// These images.
    Placeholder(Parameters),
}

impl Learned<'_> {
    /// The answer.
    ///
    /// # Errors
    /// When nothing is built, nothing was, and that is to be one.
    pub fn decide(mut self, fallback: &Fallback) -> Result<Outcome, BackendError> {
        let mut evidence: Vec<Evidence> = Vec::new();
        for finding in &mut self.findings {
            evidence.extend(finding.evidence.drain(..).map(|each| each.of(&finding.name)));
        }
        evidence.extend(self.ruling.iter_mut().flat_map(|ruling| ruling.evidence.drain(..)));
        let ruled = self.ruling.as_ref().map_or(State::Passed, |ruling| ruling.state);
        let is_built = |finding: &Finding| matches!(finding.is, Is::Built(_));
        if ruled == State::Passed && self.findings.iter().all(is_built) {
            return Ok(self.built(evidence));
        }
        let is_missing = self.findings.iter().any(|finding| matches!(finding.is, Is::Missing));
        let note = self.before.and_then(|before| serde_json::from_value::<Note>((*before.note).clone()).ok());
        let is_own = self.before.is_some_and(|before| before.is_own);
        let note = note.unwrap_or_default();
        let missing_since = note.missing_since.filter(|_| is_own && is_missing).unwrap_or(self.now);
        let life = match ruled {
            State::Failed => FAILED,
            _ if is_missing => {
                let missing_for = self.now.since(missing_since).unwrap_or_default();
                (missing_for / 2).clamp(PENDING, MISSING)
            }
            State::Pending | State::Passed => PENDING,
        };
        // What was built for this very question and is no longer there is gone, not to come.
        let is_gone = is_missing && is_own && !note.is_earlier && !matches!(fallback, Fallback::Placeholder(_));
        let has_all = |item: &Parameters| self.findings.iter().all(|finding| item.contains_key(&finding.name));
        let missing_since = is_missing.then_some(missing_since);
        if let Some(mut item) = note.item.filter(|item| !is_gone && has_all(item)) {
            evidence.push(Evidence::present("what was built before", stands_in(&item)));
            item.insert("stale".to_owned(), true.into());
            let note = Note { is_earlier: note.is_earlier || !is_own, item: Some(item.clone()), missing_since };
            return Ok(Outcome::present(ParameterSet(item), evidence).lasting_at_most(life).noting(note.into()));
        }
        let note = Note { missing_since, ..Note::default() };
        match fallback {
            Fallback::Omit => Ok(Outcome::absent(evidence).lasting_at_most(life).noting(note.into())),
            Fallback::Placeholder(images) => {
                let mut item = images.clone();
                self.add_origin(&mut item, true);
                evidence.push(Evidence::present("the placeholder", "it stands in for what is not built yet"));
                Ok(Outcome::present(ParameterSet(item), evidence).lasting_at_most(life).noting(note.into()))
            }
            Fallback::Error => {
                let missing = evidence.iter().filter(|evidence| evidence.verdict != Verdict::Present);
                let told: Vec<String> = missing.map(Evidence::to_string).collect();
                let error = BackendError::invalid_input(format!("not built: {}", told.join("; ")));
                Err(BackendError { evidence, ..error })
            }
        }
    }

    fn built(mut self, evidence: Vec<Evidence>) -> Outcome {
        let mut item = Parameters::new();
        self.add_origin(&mut item, self.ruling.as_ref().is_some_and(|ruling| ruling.is_earlier));
        let origin = std::mem::take(&mut item);
        for finding in &mut self.findings {
            if let Is::Built(built) = &mut finding.is {
                item.insert(finding.name.clone(), Value::Object(std::mem::take(&mut built.parts)));
            }
        }
        item.extend(origin);
        let note = Note { item: Some(item.clone()), ..Note::default() };
        Outcome::present(ParameterSet(item), evidence).noting(note.into())
    }

    /// Adds what the images have in common: from which commit they are, when and by which run they were built.
    fn add_origin(&self, item: &mut Parameters, is_stale: bool) {
        item.insert("stale".to_owned(), is_stale.into());
        if !self.tells_origin {
            return;
        }
        let built = || {
            self.findings
                .iter()
                .filter_map(|finding| if let Is::Built(built) = &finding.is { Some(built) } else { None })
        };
        let common = |mut all: Vec<&str>| {
            all.dedup();
            if let [one] = all[..] { one.to_owned() } else { String::new() }
        };
        let ruling = self.ruling.as_ref();
        let mut revision = common(built().map(|built| built.revision.as_deref().unwrap_or_default()).collect());
        if let Some(commit) = ruling.filter(|ruling| revision.is_empty() && ruling.state == State::Passed)
            && let Some(commit) = &commit.commit
        {
            commit.as_str().clone_into(&mut revision);
        }
        let created = built().filter_map(|built| built.created.as_deref()).max();
        let built_at = ruling.and_then(|ruling| ruling.built_at.as_deref()).or(created).unwrap_or_default();
        let run_url = ruling.and_then(|ruling| ruling.run_url.as_deref()).unwrap_or_default();
        item.insert("revision".to_owned(), revision.into());
        item.insert("builtAt".to_owned(), built_at.into());
        item.insert("runUrl".to_owned(), run_url.into());
    }
}

fn stands_in(item: &Parameters) -> String {
    match item.get("revision").and_then(Value::as_str).filter(|revision| !revision.is_empty()) {
        Some(revision) => format!("the images of {revision} stand in"),
        None => "its images stand in".to_owned(),
    }
}

impl From<Note> for Value {
    fn from(note: Note) -> Self {
        serde_json::to_value(note).unwrap_or_default()
    }
}
