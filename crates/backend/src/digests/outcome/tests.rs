use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::digests::commit::Commit;
use domain::generator::{BackendNote, Before, Lasting};

const NOW: Timestamp = Timestamp(1_000_000_000);

fn built(name: &str, digest: &str) -> ImageVerdict {
    let parts = json!({"digest": digest}).as_object().unwrap().clone();
    let built = Built {
        parts,
        created: Some("2026-01-01T00:00:00Z".into()),
        revision: Some(sha('b')),
        image: None,
        proof: None,
    };
    ImageVerdict {
        name: name.into(),
        state: ImageState::Built(built),
        contents: Vec::new(),
        evidence: vec![Evidence::present("its manifest", digest)],
    }
}

fn lacking(name: &str, is: ImageState) -> ImageVerdict {
    ImageVerdict {
        name: name.into(),
        state: is,
        contents: Vec::new(),
        evidence: vec![Evidence::absent("its manifest", "404")],
    }
}

fn sha(digit: char) -> String {
    digit.to_string().repeat(40)
}

fn ci(state: CiState) -> CiVerdict {
    CiVerdict {
        state,
        commit: Some(Commit::parse(&sha('b')).unwrap()),
        is_earlier: false,
        evidence: vec![Evidence::present("the run", state.as_str())],
        run_url: Some("https://ci.example/1".into()),
        built_at: Some("2026-01-02T00:00:00Z".into()),
    }
}

fn decide(
    images: Vec<ImageVerdict>,
    ci: Option<CiVerdict>,
    before: Option<&Before>,
    fallback: &Fallback,
) -> Result<Outcome, BackendError> {
    let before = LazyNote::new(before.unwrap_or(&Before::default()));
    let made_by = "this".to_owned();
    let last_proofs = Ok(BTreeMap::new());
    let is_signed = false;
    Checks { images, ci, names_origin: true, before, is_signed, last_proofs, made_by, now: NOW }.outcome(fallback)
}

/// Whatever let an image pass without a proof where one is demanded: it is not answered.
#[test]
fn an_image_without_a_proof_is_not_built_where_one_is_demanded() {
    let decide = |is_signed: bool| {
        let (images, made_by, last_proofs) = (vec![built("front", "new")], "this".to_owned(), Ok(BTreeMap::new()));
        let before = LazyNote::default();
        Checks { images, ci: None, names_origin: true, before, is_signed, last_proofs, made_by, now: NOW }
            .outcome(&Fallback::Omit)
    };
    assert_eq!(summary(&decide(false).unwrap()), "new");
    let error = decide(true).unwrap_err();
    assert!(error.message.contains("nothing was proven") && !error.evidence.is_empty(), "{}", error.message);
}

/// A last build whose signature cannot be verified any more is neither served nor replaced by an empty list. A new build ends that.
#[test]
fn a_last_build_without_proofs_is_not_served() {
    let decide = |verdict: ImageVerdict, is_own: bool, fallback: &Fallback| {
        let (before, made_by) = (LazyNote::new(&before(is_own)), "this".to_owned());
        let (images, last_proofs) = (vec![verdict], Err("the key was removed".to_owned()));
        let is_signed = false;
        Checks { images, ci: None, names_origin: true, before, is_signed, last_proofs, made_by, now: NOW }
            .outcome(fallback)
    };
    for is_bad in [false, true] {
        for fallback in [Fallback::Omit, Fallback::Error, Fallback::Placeholder(Parameters::new())] {
            let state = if is_bad { ImageState::Bad } else { ImageState::Unfit };
            let error = decide(lacking("front", state), !is_bad, &fallback).unwrap_err();
            assert!(error.message.contains("cannot be served meanwhile: the key was removed"), "{}", error.message);
            assert!(!error.evidence.is_empty());
        }
    }
    assert_eq!(summary(&decide(built("front", "new"), true, &Fallback::Omit).unwrap()), "new");
}

/// The note of an answer whose image has the digest `old`.
fn before(is_own: bool) -> Before {
    follows(&decide(vec![built("front", "old")], None, None, &Fallback::Omit).unwrap(), is_own)
}

/// A query that follows `outcome`: the same one, or the next of its lineage.
fn follows(outcome: &Outcome, is_own: bool) -> Before {
    let note = outcome.note.clone();
    if is_own { Before { own: note, lineage: None } } else { Before { own: None, lineage: note } }
}

fn summary(outcome: &Outcome) -> String {
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

type Row<'a> = (&'a str, ImageVerdict, Option<CiState>, Option<&'a Before>, &'a str, Option<u64>);

/// The table of answers, row by row: the image, CI's ci, and the last build.
#[test]
fn the_table() {
    let there = || built("front", "new");
    let (missing, unfit) = (|| lacking("front", ImageState::Missing), || lacking("front", ImageState::Unfit));
    let bad = || lacking("front", ImageState::Bad);
    let (own, followed) = (before(true), before(false));
    let (passed, pending, failed) = (CiState::Passed, CiState::Pending, CiState::Failed);
    let table: Vec<Row<'_>> = vec![
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
        ("badly signed, never seen", bad(), Some(passed), None, "[]", Some(60)),
        ("badly signed, one before", bad(), Some(passed), Some(&followed), "old, stale", Some(60)),
        ("badly signed, no gate", bad(), None, Some(&own), "old, stale", Some(60)),
        // The image of this very query was deleted: the guard has the last word.
        ("the tag was deleted", missing(), Some(passed), Some(&own), "[]", Some(15)),
    ];
    for (name, verdict, state, before, expected, seconds) in table {
        let outcome = decide(vec![verdict], state.map(ci), before, &Fallback::Omit).unwrap();
        assert_eq!(summary(&outcome), expected, "{name}");
        let lasting = seconds.map(|seconds| Lasting::AtMost(Duration::from_secs(seconds)));
        assert_eq!(outcome.lasting, lasting, "{name}");
        assert!(!outcome.evidence.is_empty(), "{name}");
        if expected == "old, stale" {
            assert_eq!(outcome.sets[0].0["revision"], sha('b').as_str(), "{name}: its own revision");
        }
    }
}

#[test]
fn all_images_or_none() {
    let mixed = || vec![built("front", "new"), lacking("back", ImageState::Missing)];
    assert_eq!(summary(&decide(mixed(), None, None, &Fallback::Omit).unwrap()), "[]");
    let outcome = decide(vec![built("front", "new"), built("back", "b")], None, None, &Fallback::Omit).unwrap();
    let keys: Vec<&String> = outcome.sets[0].0.keys().collect();
    assert_eq!(keys, ["front", "back", "stale", "revision", "builtAt", "runUrl"]);
    assert_eq!(outcome.sets[0].0["builtAt"], "2026-01-01T00:00:00Z");
}

#[test]
fn a_build_of_another_configuration_is_neither_served_nor_replaced_by_an_empty_list() {
    let note = json!({"item": {"front": {"digest": "old"}, "stale": false}, "madeBy": "another"});
    let before = Before { own: BackendNote::of(&note), lineage: None };
    for fallback in [Fallback::Omit, Fallback::Error, Fallback::Placeholder(Parameters::new())] {
        let error = decide(vec![lacking("front", ImageState::Missing)], None, Some(&before), &fallback).unwrap_err();
        assert_eq!(
            error.message,
            "not built yet, and the last build is of another configuration of this route; so neither that build nor an empty \
             list can be answered; the next build ends this"
        );
    }
    assert_eq!(summary(&decide(vec![built("front", "new")], None, Some(&before), &Fallback::Omit).unwrap()), "new");
}

#[test]
fn the_revision_is_the_one_that_all_images_share() {
    let of = |revisions: [Option<char>; 2], state| {
        let images = revisions.into_iter().enumerate().map(|(index, revision)| {
            let mut verdict = built(&format!("image-{index}"), "d");
            if let ImageState::Built(built) = &mut verdict.state {
                built.revision = revision.map(sha);
            }
            verdict
        });
        let outcome = decide(images.collect(), state, None, &Fallback::Omit).unwrap();
        outcome.sets[0].0["revision"].as_str().unwrap().to_owned()
    };
    let passed = || Some(ci(CiState::Passed));
    assert_eq!(of([Some('a'), Some('a')], passed()), sha('a'));
    assert_eq!(of([Some('a'), None], passed()), sha('a'));
    assert_eq!(of([None, None], passed()), sha('b'));
    assert_eq!(of([Some('a'), Some('c')], passed()), "");
    assert_eq!(of([None, None], None), "");
}

#[test]
fn the_last_build_is_served_again_and_again() {
    let (mut note, missing) = (before(false), || vec![lacking("front", ImageState::Missing)]);
    for _ in 0..3 {
        let outcome = decide(missing(), None, Some(&note), &Fallback::Omit).unwrap();
        assert_eq!(summary(&outcome), "old, stale");
        note = follows(&outcome, true);
    }
    let outcome = decide(vec![built("front", "new")], None, Some(&note), &Fallback::Omit).unwrap();
    assert_eq!(summary(&outcome), "new");
    let gone = follows(&outcome, true);
    assert_eq!(summary(&decide(missing(), None, Some(&gone), &Fallback::Omit).unwrap()), "[]");
}

#[test]
fn a_tag_that_has_been_missing_for_long_is_queried_less_often() {
    let note = |since: u64| Before { own: BackendNote::of(&json!({"missingSince": since})), lineage: None };
    for (since, seconds) in [(NOW.0, 15), (NOW.0 - 60_000, 30), (NOW.0 - 600_000, 120), (NOW.0 + 1, 15)] {
        let missing = vec![lacking("front", ImageState::Missing)];
        let outcome = decide(missing, None, Some(&note(since)), &Fallback::Omit).unwrap();
        assert_eq!(outcome.lasting, Some(Lasting::AtMost(Duration::from_secs(seconds))), "{since}");
        assert_eq!(outcome.note.unwrap().read::<Value>().unwrap()["missingSince"], since);
    }
}

#[test]
fn an_error_or_a_placeholder_replaces_an_empty_list() {
    let missing = || vec![lacking("front", ImageState::Missing)];
    let error = decide(missing(), Some(ci(CiState::Passed)), None, &Fallback::Error).unwrap_err();
    assert_eq!(error.message, "not built: front: absent, its manifest: 404");
    assert_eq!(error.evidence.len(), 2);
    assert_eq!(summary(&decide(missing(), None, Some(&before(false)), &Fallback::Error).unwrap()), "old, stale");
    let images = json!({"front": {"digest": "building"}}).as_object().unwrap().clone();
    let placeholder = Fallback::Placeholder(images);
    for note in [None, Some(before(true)), Some(before(false))] {
        let outcome = decide(missing(), None, note.as_ref(), &placeholder).unwrap();
        assert_eq!(summary(&outcome), if note.is_none() { "building, stale" } else { "old, stale" });
    }
    // A placeholder does not count as the last build.
    let outcome = decide(missing(), None, None, &placeholder).unwrap();
    let note = follows(&outcome, false);
    assert_eq!(summary(&decide(missing(), None, Some(&note), &Fallback::Omit).unwrap()), "[]");
}

#[test]
fn an_earlier_commit_that_passed_is_marked() {
    let ci = CiVerdict { is_earlier: true, ..ci(CiState::Passed) };
    let outcome = decide(vec![built("front", "earlier")], Some(ci), None, &Fallback::Omit).unwrap();
    assert_eq!(summary(&outcome), "earlier, stale");
    assert_eq!(outcome.lasting, Some(Lasting::AtMost(PENDING)));
    // The commit in the query may pass before its image is pushed: the earlier build is then served, not taken for deleted.
    let (missing, own) = (vec![lacking("front", ImageState::Missing)], follows(&outcome, true));
    let then = decide(missing, Some(self::ci(CiState::Passed)), Some(&own), &Fallback::Omit).unwrap();
    assert_eq!(summary(&then), "earlier, stale");
    assert_eq!(outcome.sets[0].0["runUrl"], "https://ci.example/1");
    assert_eq!(outcome.sets[0].0["builtAt"], "2026-01-02T00:00:00Z");
}
