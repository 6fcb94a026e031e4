//! Compares the answers of the next configuration with those that callers got, and asks the next configuration's guard.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    applications::{Deleted, Sets, deleted},
    ask::{Answer, Answered, ask},
    recording::{Recorded, Recording},
};
use crate::app::Setup;
use domain::{
    clock::Timestamp,
    difference::Difference,
    generator::{ParameterSet, Parameters},
};
use engine::{
    guard::{
        Baseline, Identity,
        identity::{USUAL_KEYS, identities},
    },
    route::ResolvedQuery,
};

/// The changes by the next configuration.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The changes for each ApplicationSet, by name; the name is empty where the ApplicationSet is unknown.
    pub(crate) application_sets: BTreeMap<String, OfSet>,
    /// How many questions there are that were not sent.
    pub(crate) skipped: usize,
    /// Why it is not known which Applications would be deleted.
    pub(crate) applications_error: Option<String>,
    /// How many questions the guard would compare with nothing, by the routes of now and of then: their records have other keys.
    pub(crate) unguarded: BTreeMap<(String, String), usize>,
}

/// The changes for one ApplicationSet.
#[derive(Debug, Default)]
pub(crate) struct OfSet {
    /// Its questions, the most recent first.
    pub(crate) questions: Vec<Compared>,
    /// The Applications that would be deleted.
    pub(crate) deleted: Vec<Deleted>,
}

/// A question, and the changes by the next configuration.
#[derive(Debug)]
pub(crate) struct Compared {
    /// The route that answers now, if that is known.
    pub(crate) route: Option<String>,
    /// The route that would answer.
    pub(crate) next_route: Option<String>,
    /// Whether another route would answer only if the path of the call names none. It is not remembered whether it does.
    pub(crate) is_by_match_only: bool,
    /// The input parameters.
    pub(crate) parameters: Parameters,
    /// The changes.
    pub(crate) outcome: Outcome,
}

/// The changes for one question.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing.
    Same,
    /// The answer is another one.
    Differs(Box<Change>),
    /// There is no answer, and why.
    Unknown(String),
    /// It was not sent.
    Skipped,
}

/// Another answer.
#[derive(Debug)]
pub(crate) struct Change {
    /// The difference from the answer that callers got.
    pub(crate) difference: Difference,
    /// The keys that identify sets; empty if none does.
    pub(crate) keys: Vec<String>,
    /// Why callers got no answer.
    pub(crate) was_failing: Option<String>,
    /// Why the guard would hold it, and until when.
    pub(crate) held: Option<String>,
    /// Whether the guard would compare it with nothing, because the question would have another key.
    pub(crate) is_unguarded: bool,
}

/// Asks `next` the questions of `recording`, `limit` at most, at `now`.
pub(crate) async fn compare(next: &Setup, recording: &Recording, limit: usize, now: Timestamp) -> Comparison {
    let mut comparison = Comparison {
        application_sets: BTreeMap::new(),
        skipped: recording.total.saturating_sub(recording.questions.len()),
        applications_error: recording.application_sets_error.clone(),
        unguarded: BTreeMap::new(),
    };
    let mut sets: BTreeMap<String, Sets> = BTreeMap::new();
    for answered in ask(next, recording, limit).await {
        let name = answered.application_set.to_owned();
        let compared = compared(next, &answered, now);
        if let (Some(route), Some(query)) = (&answered.recorded.route, &answered.query)
            && answered.recorded.sets.as_ref().is_some_and(|sets| !sets.is_empty())
            && !is_guarded(answered.recorded, query)
        {
            *comparison.unguarded.entry((route.clone(), query.route.name.to_string())).or_default() += 1;
        }
        if matches!(compared.outcome, Outcome::Skipped) {
            comparison.skipped += 1;
        }
        let of_set = sets.entry(name.clone()).or_insert_with(|| Sets {
            is_answered: true,
            is_complete: true,
            ..Sets::default()
        });
        match (&compared.outcome, &answered.answer) {
            (Outcome::Same | Outcome::Differs(_), Answer::Sets(after)) => {
                match sets_of(answered.recorded) {
                    Some(before) => of_set.before.extend(before),
                    None => of_set.is_before_unknown = true,
                }
                of_set.after.extend(after.iter().cloned());
            }
            (Outcome::Skipped, _) => of_set.is_complete = false,
            _ => of_set.is_answered = false,
        }
        comparison.application_sets.entry(name).or_default().questions.push(compared);
    }
    for (name, of_set) in &mut comparison.application_sets {
        if of_set.questions.iter().any(|compared| matches!(compared.outcome, Outcome::Differs(_))) {
            let found = sets.get(name).map(|sets| deleted(&recording.application_sets, name, sets));
            of_set.deleted = found.unwrap_or_default();
        }
        let removes = |compared: &Compared| match &compared.outcome {
            Outcome::Differs(change) => !change.difference.removed.is_empty(),
            _ => false,
        };
        let is_removed = of_set.questions.iter().any(removes);
        let is_held =
            |compared: &Compared| matches!(&compared.outcome, Outcome::Differs(change) if change.held.is_some());
        if of_set.questions.iter().any(is_held) {
            let note = "not before the guard accepts the answer";
            of_set.deleted.iter_mut().for_each(|deleted| deleted.notes.push(note.to_owned()));
        }
        of_set.deleted.retain(|deleted| is_removed || deleted.count() > 0);
    }
    comparison
}

fn compared(next: &Setup, answered: &Answered<'_>, now: Timestamp) -> Compared {
    let outcome = match (&answered.query, &answered.answer) {
        (Some(query), Answer::Sets(after)) => outcome(answered.recorded, query, after, now),
        (_, Answer::Unknown(why)) => Outcome::Unknown(why.clone()),
        (_, Answer::Skipped) | (None, Answer::Sets(_)) => Outcome::Skipped,
    };
    let (route, next_route) =
        (answered.recorded.route.as_deref(), answered.query.as_ref().map(|query| &*query.route.name));
    let is_by_match_only = route.is_some_and(|name| {
        answered.recorded.by_match && next_route.is_some_and(|next| next != name) && next.routes.by_name(name).is_some()
    });
    Compared {
        route: route.map(str::to_owned),
        next_route: next_route.map(str::to_owned),
        is_by_match_only,
        parameters: answered.recorded.input.clone(),
        outcome,
    }
}

fn outcome(recorded: &Recorded, query: &ResolvedQuery, after: &[ParameterSet], now: Timestamp) -> Outcome {
    let (known, guard) = (sets_of(recorded), &query.route.guard);
    let before = known.clone().unwrap_or_default();
    let is_guarded = is_guarded(recorded, query);
    let baseline =
        if is_guarded && known.is_some() { Baseline::of(guard.config(), &before) } else { Baseline::default() };
    let evaluation = match guard.evaluate(Some(&baseline), || before.clone(), after, now) {
        Ok(evaluation) => evaluation,
        Err(why) => return Outcome::Unknown(format!("route {}: {why}", query.route.name)),
    };
    let rules = guard.config();
    let is_accepted_at_once = rules.confirm_after == 0;
    let held = evaluation.breach.filter(|breach| !(breach.can_be_confirmed && is_accepted_at_once)).map(|breach| {
        let until = if breach.can_be_confirmed {
            let pause = humantime::format_duration(rules.confirm_for.0);
            format!("accepted once {} further runs, {pause} apart, agree", rules.confirm_after)
        } else {
            "until an operator releases it".to_owned()
        };
        format!("{}; {until}", breach.reason)
    });
    let keys = telling_keys(&rules.identity, &before, after);
    let difference = Difference::of(&before, after, &keys);
    if difference.is_empty() && held.is_none() && known.is_some() {
        return Outcome::Same;
    }
    let was_failing = if known.is_some() {
        None
    } else {
        Some(recorded.failing.clone().unwrap_or_else(|| "it was not recorded".to_owned()))
    };
    let is_unguarded = !is_guarded && !difference.removed.is_empty();
    Outcome::Differs(Box::new(Change { difference, keys, was_failing, held, is_unguarded }))
}

/// Whether the guard finds the earlier answer: it is stored under a key of the question, or the route has or had its name.
fn is_guarded(recorded: &Recorded, query: &ResolvedQuery) -> bool {
    let keys: Vec<&String> = recorded.lineage.iter().chain(&recorded.key).collect();
    if keys.is_empty() {
        let has_name =
            |name: &str| *name == *query.route.name || query.route.formerly().iter().any(|former| **former == *name);
        return recorded.route.as_deref().is_none_or(has_name);
    }
    let own = [query.key, query.lineage()].into_iter();
    let mut all = own.chain(query.other_keys().flat_map(|other| [other.key, other.lineage]));
    all.any(|key| keys.contains(&&key.to_string()))
}

fn sets_of(recorded: &Recorded) -> Option<Vec<ParameterSet>> {
    recorded.sets.as_ref().map(|sets| sets.iter().cloned().map(ParameterSet).collect())
}

/// The keys that identify the sets of both answers: those of the guard, else a usual one. Unlike for the guard, one set is enough.
fn telling_keys(identity: &Identity, before: &[ParameterSet], after: &[ParameterSet]) -> Vec<String> {
    let identifies = |keys: &[String]| [before, after].iter().all(|sets| identities(sets, keys).is_some());
    if let Identity::Keys(keys) = identity
        && !keys.is_empty()
        && identifies(keys)
    {
        return keys.clone();
    }
    let is_name = |set: &ParameterSet, key: &str| match set.0.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(_)) => true,
        _ => false,
    };
    let usual = USUAL_KEYS.into_iter().find(|key| {
        before.iter().chain(after).all(|set| is_name(set, key)) && identifies(std::slice::from_ref(&(*key).to_owned()))
    });
    usual.map(|key| vec![key.to_owned()]).unwrap_or_default()
}
