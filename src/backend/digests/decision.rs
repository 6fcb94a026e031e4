//! What the witnesses say together, and what that makes of the answer. A pure function; the table that it follows stands in
//! docs/digests.md.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    commit::Commit,
    gate::{Ruling, RulingState},
    note::{Known, Note},
};
use crate::{
    clients::oci::{Contents, Digest},
    domain::{
        clock::Timestamp,
        error::BackendError,
        generator::{Evidence, Outcome, ParameterSet, Parameters, Verdict},
    },
};

/// For how long *not built* is believed while CI works.
const PENDING: Duration = Duration::from_secs(15);
/// For how long it is after CI failed: somebody may run it again.
const FAILED: Duration = Duration::from_mins(1);
/// For how long it is when a tag has been missing for long.
const MISSING: Duration = Duration::from_mins(2);

/// What an answer tells of where its images come from.
const ORIGIN: [&str; 3] = ["revision", "builtAt", "runUrl"];

/// What to answer while the images are not built, and were never seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OnMissing {
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
    pub(crate) name: String,
    /// What there is of it.
    pub(crate) is: ImageState,
    /// What the manifest under the tag holds, and those of its images that matter, by digest, where that was read.
    pub(crate) holds: Vec<(Digest, Arc<Contents>)>,
    /// How that is known.
    pub(crate) evidence: Vec<Evidence>,
}

/// What there is of an image.
#[derive(Debug)]
pub(super) enum ImageState {
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
    pub(crate) parts: Parameters,
    /// When it was built, if that is known.
    pub(crate) created: Option<String>,
    /// The commit, by its own word.
    pub(crate) revision: Option<String>,
}

/// All that was learned for one question.
#[derive(Debug)]
pub(super) struct Learned {
    /// Of each image.
    pub(crate) findings: Vec<Finding>,
    /// CI's word, where there is a gate.
    pub(crate) ruling: Option<Ruling>,
    /// Whether `revision`, `builtAt` and `runUrl` are told.
    pub(crate) tells_origin: bool,
    /// What was noted before.
    pub(crate) before: Note,
    /// The configuration that asks.
    pub(crate) made_by: String,
    /// Now.
    pub(crate) now: Timestamp,
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

impl Learned {
    /// The answer.
    ///
    /// # Errors
    /// When nothing is built, nothing was, and that is to be one.
    pub(crate) fn decide(mut self, fallback: &Fallback) -> Result<Outcome, BackendError> {
        let mut evidence: Vec<Evidence> = Vec::new();
        for finding in &mut self.findings {
            evidence.extend(finding.evidence.drain(..).map(|each| each.of(&finding.name)));
        }
        evidence.extend(self.ruling.iter_mut().flat_map(|ruling| ruling.evidence.drain(..)));
        let ruled = self.ruling.as_ref().map_or(RulingState::Passed, |ruling| ruling.state);
        let is_built = |finding: &Finding| matches!(finding.is, ImageState::Built(_));
        if ruled == RulingState::Passed && self.findings.iter().all(is_built) {
            return Ok(self.built(evidence));
        }
        let is_missing = self.findings.iter().any(|finding| matches!(finding.is, ImageState::Missing));
        let (note, known) = (std::mem::take(&mut self.before), self.known());
        let missing_since = note.missing_since.filter(|_| is_missing).unwrap_or(self.now);
        let life = match ruled {
            RulingState::Failed => FAILED,
            RulingState::Passed if is_missing => {
                let missing_for = self.now.since(missing_since).unwrap_or_default();
                (missing_for / 2).clamp(PENDING, MISSING)
            }
            RulingState::Pending | RulingState::Passed => PENDING,
        };
        let missing_since = is_missing.then_some(missing_since);
        // What was built for this very question, passed, and is no longer there is gone, not to come.
        let has_been = ruled == RulingState::Passed && is_missing && !note.is_earlier;
        let is_gone = has_been && !matches!(fallback, Fallback::Placeholder(_));
        if let Some(mut item) = note.item {
            if note.made_by != self.made_by {
                let why = "not built yet, and what was built before is of another configuration of this route, so that neither \
                           it nor nothing can be answered; it ends with the next build";
                return Err(BackendError { evidence, ..BackendError::unavailable(why) });
            }
            if !is_gone {
                evidence.push(Evidence::present("what was built before", stands_in(&item)));
                item.insert("stale".to_owned(), true.into());
                let note = Note { item: Some(item.clone()), missing_since, known, ..note };
                return Ok(Outcome::present(ParameterSet(item), evidence).lasting_at_most(life).noting(note.into()));
            }
        }
        let note = Note { missing_since, known, ..Note::default() };
        match fallback {
            Fallback::Omit => Ok(Outcome::absent(evidence).lasting_at_most(life).noting(note.into())),
            Fallback::Placeholder(images) => {
                let mut item = images.clone();
                item.insert("stale".to_owned(), true.into());
                // Of what stands in for nothing, nothing is known.
                item.extend(ORIGIN.into_iter().filter(|_| self.tells_origin).map(|name| (name.to_owned(), "".into())));
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
        let is_earlier = self.ruling.as_ref().is_some_and(|ruling| ruling.is_earlier);
        let (origin, known) = (self.origin(), self.known());
        let parts = self.findings.iter_mut().filter_map(|finding| {
            let ImageState::Built(built) = &mut finding.is else { return None };
            Some((finding.name.clone(), Value::Object(std::mem::take(&mut built.parts))))
        });
        let mut item: Parameters = parts.collect();
        item.insert("stale".to_owned(), is_earlier.into());
        item.extend(origin);
        let note = Note { item: Some(item.clone()), is_earlier, made_by: self.made_by, missing_since: None, known };
        let outcome = Outcome::present(ParameterSet(item), evidence).noting(note.into());
        // The commit that was asked about may pass at any time.
        if is_earlier { outcome.lasting_at_most(PENDING) } else { outcome }
    }

    /// What the images hold that were found. Annotations are for lists.
    fn known(&self) -> Known {
        let held = self.findings.iter().flat_map(|finding| &finding.holds);
        held.map(|(digest, contents)| (digest.clone(), Arc::new(contents.without_annotations()))).collect()
    }

    /// What the images have in common: from which commit they are, when and by which run they were built.
    fn origin(&self) -> Parameters {
        if !self.tells_origin {
            return Parameters::new();
        }
        let built: Vec<&Built> = self
            .findings
            .iter()
            .filter_map(|finding| if let ImageState::Built(built) = &finding.is { Some(built) } else { None })
            .collect();
        let mut revisions: Vec<&str> = built.iter().filter_map(|built| built.revision.as_deref()).collect();
        revisions.dedup();
        let ruling = self.ruling.as_ref();
        let revision = match revisions[..] {
            // None of them says: CI does.
            [] => ruling.and_then(|ruling| ruling.commit.as_ref()).map(Commit::as_str),
            [revision] => Some(revision),
            _ => None,
        };
        let at = |created: &&str| created.parse::<jiff::Timestamp>().ok();
        let created = built.iter().filter_map(|built| built.created.as_deref()).max_by_key(at);
        let built_at = ruling.and_then(|ruling| ruling.built_at.as_deref()).or(created);
        let run_url = ruling.and_then(|ruling| ruling.run_url.as_deref());
        let told = ORIGIN.into_iter().zip([revision, built_at, run_url]);
        told.map(|(name, value)| (name.to_owned(), value.unwrap_or_default().into())).collect()
    }
}

fn stands_in(item: &Parameters) -> String {
    match item.get("revision").and_then(Value::as_str).filter(|revision| !revision.is_empty()) {
        Some(revision) => format!("the images of {revision} stand in"),
        None => "its images stand in".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        backend::digests::commit::Commit,
        domain::generator::{Before, Lasting},
    };

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn built(name: &str, digest: &str) -> Finding {
        let parts = json!({"digest": digest}).as_object().unwrap().clone();
        let built = Built { parts, created: Some("2026-01-01T00:00:00Z".into()), revision: Some(sha('b')) };
        Finding {
            name: name.into(),
            is: ImageState::Built(built),
            holds: Vec::new(),
            evidence: vec![Evidence::present("its manifest", digest)],
        }
    }

    fn lacking(name: &str, is: ImageState) -> Finding {
        Finding { name: name.into(), is, holds: Vec::new(), evidence: vec![Evidence::absent("its manifest", "404")] }
    }

    fn sha(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn ruling(state: RulingState) -> Ruling {
        Ruling {
            state,
            commit: Some(Commit::parse(&sha('b')).unwrap()),
            is_earlier: false,
            evidence: vec![Evidence::present("the run", state.as_str())],
            run_url: Some("https://ci.example/1".into()),
            built_at: Some("2026-01-02T00:00:00Z".into()),
        }
    }

    fn decide(
        findings: Vec<Finding>,
        ruling: Option<Ruling>,
        before: Option<&Before>,
        fallback: &Fallback,
    ) -> Result<Outcome, BackendError> {
        let before = Note::read(before.unwrap_or(&Before::default()));
        let made_by = "this".to_owned();
        Learned { findings, ruling, tells_origin: true, before, made_by, now: NOW }.decide(fallback)
    }

    /// What is noted with an answer whose image has the digest `old`.
    fn before(is_own: bool) -> Before {
        follows(&decide(vec![built("front", "old")], None, None, &Fallback::Omit).unwrap(), is_own)
    }

    /// A question that follows `outcome`: the same one, or the next of its lineage.
    fn follows(outcome: &Outcome, is_own: bool) -> Before {
        let note = outcome.note.clone();
        if is_own { Before { own: note, lineage: None } } else { Before { own: None, lineage: note } }
    }

    fn told(outcome: &Outcome) -> String {
        match &outcome.sets[..] {
            [] => "[]".to_owned(),
            [set] => format!(
                "{}{}",
                set.0["front"]["digest"].as_str().unwrap(),
                if set.0["stale"] == true { ", stale" } else { "" }
            ),
            more => panic!("{more:?}"),
        }
    }

    type Line<'a> = (&'a str, Finding, Option<RulingState>, Option<&'a Before>, &'a str, Option<u64>);

    /// The table of answers, line by line: what is there, CI's word, and what was seen before.
    #[test]
    fn the_table() {
        let there = || built("front", "new");
        let (missing, unfit) = (|| lacking("front", ImageState::Missing), || lacking("front", ImageState::Unfit));
        let (own, followed) = (before(true), before(false));
        let (passed, pending, failed) = (RulingState::Passed, RulingState::Pending, RulingState::Failed);
        let table: Vec<Line<'_>> = vec![
            ("all agree", there(), Some(passed), None, "new", None),
            ("all agree, after another", there(), Some(passed), Some(&followed), "new", None),
            ("no gate", there(), None, Some(&own), "new", None),
            ("tag missing, never seen", missing(), Some(passed), None, "[]", Some(15)),
            ("CI pending, never seen", there(), Some(pending), None, "[]", Some(15)),
            ("of another commit, never seen", unfit(), Some(passed), None, "[]", Some(15)),
            ("CI failed, never seen", there(), Some(failed), None, "[]", Some(60)),
            ("tag missing, one before", missing(), Some(passed), Some(&followed), "old, stale", Some(15)),
            ("tag missing, no gate, one before", missing(), None, Some(&followed), "old, stale", Some(15)),
            ("CI pending, one before", there(), Some(pending), Some(&followed), "old, stale", Some(15)),
            ("of another commit, one before", unfit(), Some(passed), Some(&followed), "old, stale", Some(15)),
            ("CI failed, one before", there(), Some(failed), Some(&followed), "old, stale", Some(60)),
            ("CI failed, tag missing, one before", missing(), Some(failed), Some(&followed), "old, stale", Some(60)),
            ("CI runs again", there(), Some(pending), Some(&own), "old, stale", Some(15)),
            ("CI ran again and failed", there(), Some(failed), Some(&own), "old, stale", Some(60)),
            ("CI runs again, and the tag is missing", missing(), Some(pending), Some(&own), "old, stale", Some(15)),
            ("CI failed again, and the tag is missing", missing(), Some(failed), Some(&own), "old, stale", Some(60)),
            ("the tag moved on", unfit(), Some(passed), Some(&own), "old, stale", Some(15)),
            // What was built for this very question is gone: the guard has the last word.
            ("the tag was deleted", missing(), Some(passed), Some(&own), "[]", Some(15)),
        ];
        for (name, finding, state, before, expected, most) in table {
            let outcome = decide(vec![finding], state.map(ruling), before, &Fallback::Omit).unwrap();
            assert_eq!(told(&outcome), expected, "{name}");
            let most = most.map(|most| Lasting::AtMost(Duration::from_secs(most)));
            assert_eq!(outcome.lasting, most, "{name}");
            assert!(!outcome.evidence.is_empty(), "{name}");
            if expected == "old, stale" {
                assert_eq!(outcome.sets[0].0["revision"], sha('b').as_str(), "{name}: its own revision");
            }
        }
    }

    #[test]
    fn all_images_or_none() {
        let mixed = || vec![built("front", "new"), lacking("back", ImageState::Missing)];
        assert_eq!(told(&decide(mixed(), None, None, &Fallback::Omit).unwrap()), "[]");
        let outcome = decide(vec![built("front", "new"), built("back", "b")], None, None, &Fallback::Omit).unwrap();
        let keys: Vec<&String> = outcome.sets[0].0.keys().collect();
        assert_eq!(keys, ["front", "back", "stale", "revision", "builtAt", "runUrl"]);
        assert_eq!(outcome.sets[0].0["builtAt"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn what_another_configuration_built_neither_stands_in_nor_vanishes() {
        let note = json!({"item": {"front": {"digest": "old"}, "stale": false}, "madeBy": "another"});
        let before = Before { own: Some(note.into()), lineage: None };
        for fallback in [Fallback::Omit, Fallback::Error, Fallback::Placeholder(Parameters::new())] {
            let error =
                decide(vec![lacking("front", ImageState::Missing)], None, Some(&before), &fallback).unwrap_err();
            assert_eq!(
                error.message,
                "not built yet, and what was built before is of another configuration of this route, so that neither it nor \
                 nothing can be answered; it ends with the next build"
            );
        }
        assert_eq!(told(&decide(vec![built("front", "new")], None, Some(&before), &Fallback::Omit).unwrap()), "new");
    }

    #[test]
    fn a_revision_is_one_that_the_images_have() {
        let of = |revisions: [Option<char>; 2], state| {
            let findings = revisions.into_iter().enumerate().map(|(index, revision)| {
                let mut finding = built(&format!("image-{index}"), "d");
                if let ImageState::Built(built) = &mut finding.is {
                    built.revision = revision.map(sha);
                }
                finding
            });
            let outcome = decide(findings.collect(), state, None, &Fallback::Omit).unwrap();
            outcome.sets[0].0["revision"].as_str().unwrap().to_owned()
        };
        let passed = || Some(ruling(RulingState::Passed));
        assert_eq!(of([Some('a'), Some('a')], passed()), sha('a'));
        assert_eq!(of([Some('a'), None], passed()), sha('a'));
        assert_eq!(of([None, None], passed()), sha('b'));
        assert_eq!(of([Some('a'), Some('c')], passed()), "");
        assert_eq!(of([None, None], None), "");
    }

    #[test]
    fn what_stands_in_stands_in_again() {
        let (mut note, missing) = (before(false), || vec![lacking("front", ImageState::Missing)]);
        for _ in 0..3 {
            let outcome = decide(missing(), None, Some(&note), &Fallback::Omit).unwrap();
            assert_eq!(told(&outcome), "old, stale");
            note = follows(&outcome, true);
        }
        let outcome = decide(vec![built("front", "new")], None, Some(&note), &Fallback::Omit).unwrap();
        assert_eq!(told(&outcome), "new");
        let gone = follows(&outcome, true);
        assert_eq!(told(&decide(missing(), None, Some(&gone), &Fallback::Omit).unwrap()), "[]");
    }

    #[test]
    fn a_tag_that_is_missing_for_long_is_asked_for_less_often() {
        let note = |since: u64| Before { own: Some(json!({"missingSince": since}).into()), lineage: None };
        for (since, most) in [(NOW.0, 15), (NOW.0 - 60_000, 30), (NOW.0 - 600_000, 120), (NOW.0 + 1, 15)] {
            let missing = vec![lacking("front", ImageState::Missing)];
            let outcome = decide(missing, None, Some(&note(since)), &Fallback::Omit).unwrap();
            assert_eq!(outcome.lasting, Some(Lasting::AtMost(Duration::from_secs(most))), "{since}");
            assert_eq!(outcome.note.unwrap()["missingSince"], since);
        }
    }

    #[test]
    fn an_error_or_a_placeholder_in_place_of_nothing() {
        let missing = || vec![lacking("front", ImageState::Missing)];
        let error = decide(missing(), Some(ruling(RulingState::Passed)), None, &Fallback::Error).unwrap_err();
        assert_eq!(error.message, "not built: front: absent, its manifest: 404");
        assert_eq!(error.evidence.len(), 2);
        assert_eq!(told(&decide(missing(), None, Some(&before(false)), &Fallback::Error).unwrap()), "old, stale");
        let images = json!({"front": {"digest": "building"}}).as_object().unwrap().clone();
        let placeholder = Fallback::Placeholder(images);
        for note in [None, Some(before(true)), Some(before(false))] {
            let outcome = decide(missing(), None, note.as_ref(), &placeholder).unwrap();
            assert_eq!(told(&outcome), if note.is_none() { "building, stale" } else { "old, stale" });
        }
        // A placeholder is not what was built before.
        let outcome = decide(missing(), None, None, &placeholder).unwrap();
        let note = follows(&outcome, false);
        assert_eq!(told(&decide(missing(), None, Some(&note), &Fallback::Omit).unwrap()), "[]");
    }

    #[test]
    fn an_earlier_commit_that_passed_is_marked() {
        let ruling = Ruling { is_earlier: true, ..ruling(RulingState::Passed) };
        let outcome = decide(vec![built("front", "earlier")], Some(ruling), None, &Fallback::Omit).unwrap();
        assert_eq!(told(&outcome), "earlier, stale");
        assert_eq!(outcome.lasting, Some(Lasting::AtMost(PENDING)));
        // It is not what was asked about: when that is passed and not pushed yet, it stands in, and is not gone.
        let (missing, own) = (vec![lacking("front", ImageState::Missing)], follows(&outcome, true));
        let then = decide(missing, Some(self::ruling(RulingState::Passed)), Some(&own), &Fallback::Omit).unwrap();
        assert_eq!(told(&then), "earlier, stale");
        assert_eq!(outcome.sets[0].0["runUrl"], "https://ci.example/1");
        assert_eq!(outcome.sets[0].0["builtAt"], "2026-01-02T00:00:00Z");
    }
}
