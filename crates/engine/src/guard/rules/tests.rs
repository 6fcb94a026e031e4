use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};
use serde_json::{Value, json};

use crate::guard::{
    GuardConfig, Identity,
    identity::{USUAL_KEYS, identities, is_name},
    rules::*,
};
use domain::problem::{Path, Problems};

pub(in crate::guard) fn guard(config: &Value) -> Guard {
    let config: GuardConfig = serde_json::from_value(config.clone()).unwrap();
    let mut problems = Problems::default();
    let guard = Guard::build(&config, &Path::root(), &mut problems);
    assert_eq!(problems.into_vec(), vec![]);
    guard
}

/// Parameter sets called `names`, each with another digest.
pub(in crate::guard) fn sets(names: &[&str], digest: &str) -> Vec<ParameterSet> {
    let set = |name: &&str| ParameterSet(json!({"name": name, "digest": digest}).as_object().unwrap().clone());
    names.iter().map(set).collect()
}

#[test]
fn what_is_held_and_why() {
    let twelve: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
    let twelve: Vec<&str> = twelve.iter().map(String::as_str).collect();
    let named = json!({"identity": ["name"]});
    for (config, last, new, held) in [
        (json!({}), &twelve[..], &twelve[..], None),
        (json!({}), &twelve, &twelve[..9], None),
        (json!({}), &twelve, &twelve[..8], Some("4 of 12 parameter sets would be gone")),
        (json!({}), &twelve, &[], Some("an empty list after one of 12")),
        (json!({}), &[], &[], None),
        (json!({}), &[], &twelve, None),
        (json!({"onEmpty": "allow"}), &twelve, &[], None),
        (json!({"onEmpty": "allow"}), &twelve, &twelve[..1], Some("11 of 12")),
        (json!({"onEmpty": "allow", "minItems": 5}), &twelve, &[], Some("an empty list")),
        (json!({"onEmpty": "keep"}), &twelve, &[], Some("an empty list")),
        (json!({"maxShrink": "100%"}), &twelve, &twelve[..1], None),
        (json!({"maxShrink": "0%"}), &twelve, &twelve[..11], Some("1 of 12")),
        (json!({"minItems": 2}), &[], &["a"], Some("fewer than `guard.minItems: 2`")),
        (json!({"maxItems": 2}), &[], &twelve, Some("more than `guard.maxItems: 2`")),
        // Sets are counted where nothing identifies them.
        (json!({"identity": []}), &["a", "b"], &["c", "d"], None),
        (json!({}), &["a", "b"], &["c", "d"], Some("2 of 2")),
        (json!({}), &["a"], &["c"], None),
        (named.clone(), &["a", "b"], &["c", "d"], Some("2 of 2")),
        (named, &["a", "b"], &["b", "a"], None),
    ] {
        let breach = evaluate(&config, &sets(last, "1"), &sets(new, "2")).unwrap();
        match held {
            None => assert_eq!(breach, None, "{config} {last:?} {new:?}"),
            Some(reason) => assert!(breach.as_ref().unwrap().reason.contains(reason), "{breach:?}"),
        }
    }
    let breach = evaluate(&json!({"identity": ["name"]}), &sets(&["a", "b"], "1"), &[]).unwrap().unwrap();
    assert_eq!(breach.gone, ["a", "b"]);
}

/// What `config` says of `new` after `last`, at one time.
fn evaluate(config: &Value, last: &[ParameterSet], new: &[ParameterSet]) -> Result<Option<Breach>, String> {
    let guard = guard(config);
    let baseline = Baseline::of(guard.config(), last);
    let evaluation = guard.evaluate(Some(&baseline), || last.to_vec(), new, Timestamp(0));
    evaluation.map(|evaluation| evaluation.breach).map_err(|error| error.to_string())
}

#[test]
fn where_the_record_is_lost_everything_is_held() {
    let lost =
        |config: &Value, new: &[&str]| guard(config).evaluate(None, Vec::new, &sets(new, "1"), Timestamp(0)).unwrap();
    for (config, new, held) in [
        (json!({}), &[][..], Some(true)),
        (json!({}), &["a"], Some(true)),
        (json!({}), &["a", "b", "c"], Some(true)),
        (json!({"onEmpty": "keep"}), &[], Some(false)),
        (json!({"onShrink": "keep"}), &["a"], Some(false)),
        (json!({"onEmpty": "allow"}), &[], None),
        (json!({"onEmpty": "allow"}), &["a"], Some(true)),
        (json!({"maxShrink": "100%"}), &["a"], None),
        (json!({"maxShrink": "100%"}), &[], Some(true)),
    ] {
        let breach = lost(&config, new).breach;
        assert_eq!(breach.as_ref().map(|breach| breach.can_be_confirmed), held, "{config} {new:?}");
        assert!(breach.is_none_or(|breach| breach.reason.contains("the record of the previous answer is lost")));
    }
}

fn numbered(names: impl IntoIterator<Item = usize>) -> Vec<ParameterSet> {
    let names: Vec<String> = names.into_iter().map(|n| format!("n{n:02}")).collect();
    sets(&names.iter().map(String::as_str).collect::<Vec<_>>(), "1")
}

/// One set in twenty that is replaced by each run replaces all of them in the end.
#[test]
fn sets_that_are_replaced_one_by_one_are_a_loss() {
    for config in [json!({}), json!({"identity": ["name"]})] {
        let guard = guard(&config);
        let mut last = numbered(0..20);
        let mut baseline = Baseline::of(guard.config(), &last);
        let mut replaced = 0;
        let breach = loop {
            let new = numbered(replaced + 1..replaced + 21);
            let now = Timestamp(60_000 * replaced as u64);
            let evaluation = guard.evaluate(Some(&baseline), || last.clone(), &new, now).unwrap();
            if let Some(breach) = evaluation.breach {
                break breach;
            }
            baseline = baseline.after(evaluation.identities, now);
            last = new;
            replaced += 1;
        };
        assert_eq!(replaced, 6, "{config}");
        assert!(breach.reason.starts_with("7 of the 20 parameter sets of the last hour would be gone"), "{breach:?}");
    }
}

#[test]
fn what_was_accepted_outlives_the_answer() {
    let guard = guard(&json!({}));
    let baseline = Baseline::of(guard.config(), &numbered(0..6));
    for new in [numbered(0..1), numbered(10..16), Vec::new()] {
        let evaluation = guard.evaluate(Some(&baseline), Vec::new, &new, Timestamp(0)).unwrap();
        assert!(evaluation.breach.is_some(), "{new:?}");
    }
    assert!(guard.evaluate(Some(&baseline), Vec::new, &numbered(1..7), Timestamp(0)).unwrap().breach.is_none());
}

/// A key of the usual ones is found where nobody names one.
#[test]
fn replaced_sets_are_noticed_without_a_word_in_the_configuration() {
    let of = |key: &str, values: std::ops::Range<usize>| -> Vec<ParameterSet> {
        let set = |n| ParameterSet(json!({key: n, "tag": format!("v{n}"), "same": "x"}).as_object().unwrap().clone());
        values.map(set).collect()
    };
    for key in USUAL_KEYS {
        let breach = evaluate(&json!({}), &of(key, 0..23), &of(key, 100..123)).unwrap().unwrap();
        assert!(breach.reason.starts_with("23 of 23 ") && breach.identity == [key], "{breach:?}");
        assert_eq!(evaluate(&json!({"identity": []}), &of(key, 0..23), &of(key, 100..123)), Ok(None));
    }
    assert_eq!(evaluate(&json!({}), &of("tag", 0..23), &of("tag", 100..123)), Ok(None), "a version is not a name");
    // One set before or after says nothing of what names it.
    assert_eq!(evaluate(&json!({}), &of("name", 0..1), &of("name", 5..6)), Ok(None));
    assert_eq!(
        evaluate(&json!({"identity": ["name"]}), &of("name", 0..1), &of("name", 5..6)).unwrap().unwrap().gone,
        ["0"]
    );
    // A key that no longer identifies the sets is not an error: another does, or they are counted.
    let alike = |sets: Vec<ParameterSet>| -> Vec<ParameterSet> {
        let same = |mut set: ParameterSet| {
            set.0.insert("name".to_owned(), json!("x"));
            set
        };
        sets.into_iter().map(same).collect()
    };
    let both = |values: std::ops::Range<usize>| {
        let add = |(mut set, n): (ParameterSet, usize)| {
            set.0.insert("id".to_owned(), json!(n));
            set
        };
        of("name", values.clone()).into_iter().zip(values).map(add).collect::<Vec<_>>()
    };
    let breach = evaluate(&json!({}), &both(0..5), &alike(both(10..15))).unwrap().unwrap();
    assert!(breach.identity == ["id"] && breach.reason.starts_with("5 of 5"), "{breach:?}");
    assert_eq!(evaluate(&json!({}), &of("name", 0..5), &alike(of("name", 10..15))), Ok(None), "counted");
    assert!(evaluate(&json!({}), &of("name", 0..5), &alike(of("name", 10..12))).unwrap().is_some(), "counted");
}

#[test]
fn an_identity_that_was_changed_is_compared_by_the_last_answer() {
    let last = numbered(0..5);
    let guard = guard(&json!({"identity": ["name"]}));
    let other = GuardConfig { identity: Identity::Keys(vec!["digest".to_owned()]), ..GuardConfig::default() };
    let baseline = Baseline::of(&other, &last);
    let evaluation = guard.evaluate(Some(&baseline), || last.clone(), &numbered(5..10), Timestamp(0)).unwrap();
    assert!(evaluation.breach.unwrap().reason.starts_with("5 of 5"));
    // The answer is remembered no more: sets are counted.
    let evaluation = guard.evaluate(Some(&baseline), Vec::new, &numbered(5..10), Timestamp(0)).unwrap();
    assert!(evaluation.breach.is_none());
    assert!(guard.evaluate(Some(&baseline), Vec::new, &numbered(5..7), Timestamp(0)).unwrap().breach.is_some());
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    let evaluate = |config: &Value, new: &[ParameterSet]| evaluate(config, &[], new).unwrap_err();
    let duplicates = [sets(&["a"], "1"), sets(&["a"], "2")].concat();
    let error = evaluate(&json!({"identity": ["name"]}), &duplicates);
    assert_eq!(error, "the parameter sets 0 and 1 are both `a`");
    assert!(evaluate(&json!({}), &sets(&["a", "a"], "1")).contains("0 and 1"));
    let empty = [ParameterSet::default(), ParameterSet::default()];
    assert_eq!(evaluate(&json!({}), &empty), "the parameter sets 0 and 1 are both empty");
    assert!(super::tests::evaluate(&json!({}), &[], &duplicates).is_ok());
    assert!(evaluate(&json!({"identity": ["id"]}), &duplicates).contains("parameter set 0: it has no `id`"));
    assert!(evaluate(&json!({"onEmpty": "error"}), &[]).contains("onEmpty"));
}

/// Sets with equal and unequal values, also numbers that are equal and written in two ways.
fn any_sets() -> impl Strategy<Value = Vec<ParameterSet>> {
    let value = json!(["a", "b", "c", "", 0, 0.0, -0.0, 1, 1.0, null, ["a"]]);
    let value = prop::sample::select(value.as_array().cloned().unwrap());
    let key = prop::sample::select(vec!["name", "id", "tag"]);
    let set = prop::collection::hash_map(key, value, 0..4)
        .prop_map(|map| ParameterSet(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()));
    prop::collection::vec(set, 0..5)
}

proptest! {
    #[test]
    fn sets_that_a_key_identifies_are_no_duplicates(sets in any_sets()) {
        for identity in [json!("auto"), json!([])] {
            let checked = guard(&json!({"identity": identity})).identify(&sets);
            prop_assert_eq!(checked.is_err(), duplicates_as_a_whole(&sets).is_some(), "{:?}", checked);
        }
    }

    #[test]
    fn the_usual_key_is_found_at_once(sets in any_sets()) {
        let fits = |key: &&&str| {
            sets.len() > 1 && sets.iter().all(|set| is_name(set, key)) && identities(&sets, &[(**key).to_owned()]).is_some()
        };
        let keys: Vec<String> = USUAL_KEYS.iter().find(fits).map(|key| (*key).to_owned()).into_iter().collect();
        let mut by_keys = if keys.is_empty() { Vec::new() } else { identities(&sets, &keys).unwrap() };
        by_keys.sort_unstable();
        let identities = Identities::of(&Identity::Auto, &sets);
        prop_assert_eq!(identities, Identities { count: sets.len(), keys, sorted: by_keys });
    }
}
