//! The report of a comparison, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{
    applications::Deleted,
    compare::{Change, Compared, Comparison, OfSet, Outcome},
};
use domain::{
    generator::{ParameterSet, Parameters},
    units::plural,
    visible::visible as printable,
};
use engine::guard::identity::label;

/// The longest value in text, in characters. JSON has the whole value.
const MAX_VALUE_CHARS: usize = 80;
/// How many sets of one kind are named in text. JSON has all of them.
const MAX_NAMED: usize = 100;

/// How much a configuration changes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    /// Questions with the same answer.
    pub(crate) same: usize,
    /// Questions with another answer.
    pub(crate) different: usize,
    /// Questions without an answer.
    pub(crate) unknown: usize,
    /// Parameter sets that are added.
    pub(crate) added: usize,
    /// Parameter sets that are removed.
    pub(crate) removed: usize,
    /// Parameter sets with other values.
    pub(crate) changed: usize,
    /// Answers that the guard holds.
    pub(crate) held: usize,
    /// Applications that Argo CD deletes, or perhaps.
    pub(crate) deleted: usize,
    /// Answers to questions whose earlier answer is unknown, or whose sets no key identifies. They may remove something.
    pub(crate) unclear: usize,
    /// Questions that the guard would compare with nothing.
    pub(crate) unguarded: usize,
}

impl Counts {
    /// Whether anything is removed, whether the guard holds it first or not.
    #[must_use]
    pub(crate) const fn removes(&self) -> bool {
        self.removed > 0 || self.deleted > 0
    }

    /// Whether some answer is not known on one side, or cannot be compared.
    #[must_use]
    pub(crate) const fn is_unclear(&self) -> bool {
        self.unknown > 0 || self.unclear > 0 || self.unguarded > 0
    }
}

/// Counts the findings of `comparison`. A question counts once for each ApplicationSet that sent it.
#[must_use]
pub(crate) fn count(comparison: &Comparison) -> Counts {
    let mut counts = Counts { unguarded: comparison.unguarded.values().sum(), ..Counts::default() };
    for of_set in comparison.application_sets.values() {
        counts.deleted += of_set.deleted.iter().map(Deleted::count).sum::<usize>();
        for compared in &of_set.questions {
            match &compared.outcome {
                Outcome::Same => counts.same += 1,
                Outcome::Unknown(_) => counts.unknown += 1,
                Outcome::Skipped => {}
                Outcome::Differs(change) => {
                    counts.different += 1;
                    counts.added += change.difference.added.len();
                    counts.removed += change.difference.removed.len();
                    counts.changed += change.difference.changed.len();
                    counts.held += usize::from(change.held.is_some());
                    // One set for another is taken for the same one.
                    let is_untold = change.keys.is_empty() && change.difference.changed.len() > 1;
                    counts.unclear += usize::from(change.was_failing.is_some() || is_untold);
                }
            }
        }
    }
    counts
}

/// For people. Only differences are listed.
#[must_use]
pub(crate) fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (name, of_set) in &comparison.application_sets {
        let is_reported = |compared: &&Compared| matches!(compared.outcome, Outcome::Differs(_) | Outcome::Unknown(_));
        let mut reported = of_set.questions.iter().filter(is_reported).peekable();
        if reported.peek().is_none() {
            continue;
        }
        let shown = if name.is_empty() { "not known".to_owned() } else { printable(name) };
        let _ = writeln!(text, "ApplicationSet {shown}");
        reported.for_each(|compared| write_question(&mut text, compared));
        of_set.deleted.iter().for_each(|deleted| write_deleted(&mut text, deleted));
    }
    if let Some(why) = &comparison.applications_error {
        let _ = writeln!(text, "which Applications would be deleted is not known: {}", printable(why));
    }
    for ((route, next), questions) in &comparison.unguarded {
        let (route, next, s) = (printable(route), printable(next), plural(*questions));
        let _ = if route == next {
            writeln!(
                text,
                "route {route}: the guard has no baseline for {questions} question{s}, which have other parameters or keys then"
            )
        } else {
            writeln!(
                text,
                "route {route} → {next}: the guard has no baseline for {questions} question{s}; if the route was renamed, write `formerly: {route}` on \
                 the route `{next}`"
            )
        };
    }
    let counts = count(comparison);
    let _ = writeln!(
        text,
        "{} the same, {} different, {} without an answer: {} parameter sets added, {} removed, {} changed; {} held by the guard",
        counts.same, counts.different, counts.unknown, counts.added, counts.removed, counts.changed, counts.held
    );
    if comparison.skipped > 0 {
        let _ = writeln!(text, "{} older questions were not sent", comparison.skipped);
    }
    text
}

fn write_question(text: &mut String, compared: &Compared) {
    let parameters = Value::Object(compared.parameters.clone());
    let _ = writeln!(text, "  {} {}", routes(compared), printable(&parameters.to_string()));
    if compared.is_by_match_only {
        text.push_str("    only if the path of the call names no route\n");
    }
    let change = match &compared.outcome {
        Outcome::Differs(change) => change,
        Outcome::Unknown(why) => {
            let _ = writeln!(text, "    no answer  {}; Argo CD keeps the Applications", printable(why));
            return;
        }
        Outcome::Same | Outcome::Skipped => return,
    };
    if let Some(why) = &change.was_failing {
        let _ = writeln!(text, "    before     no answer is known: {}", printable(why));
    }
    let named = |set: &ParameterSet| printable(&label(set, &change.keys));
    let difference = &change.difference;
    let removed = difference.removed.iter().map(named);
    let added = difference.added.iter().map(named);
    let changed =
        difference.changed.iter().map(|(before, after)| format!("{}: {}", named(before), values(&before.0, &after.0)));
    write_all(text, "- removed", removed);
    write_all(text, "+ added", added);
    write_all(text, "~ changed", changed);
    if change.keys.is_empty() && !difference.changed.is_empty() {
        text.push_str("    no key identifies the sets: what is changed may also be removed and added\n");
    }
    if let Some(why) = &change.held {
        let _ = writeln!(text, "    held by the guard: {}", printable(why));
    }
    if change.is_unguarded {
        text.push_str(
            "    the guard would compare it with nothing, because it would be the first answer of this route\n",
        );
    }
}

fn write_all(text: &mut String, what: &str, all: impl ExactSizeIterator<Item = String>) {
    let more = all.len().saturating_sub(MAX_NAMED);
    for each in all.take(MAX_NAMED) {
        let _ = writeln!(text, "    {what:<10} {each}");
    }
    if more > 0 {
        let _ = writeln!(text, "    {what:<10} … and {more} more");
    }
}

fn routes(compared: &Compared) -> String {
    match (&compared.route, &compared.next_route) {
        (Some(one), Some(other)) if one != other => format!("route {} → {}", printable(one), printable(other)),
        (Some(name), _) | (None, Some(name)) => format!("route {}", printable(name)),
        (None, None) => "no route".to_owned(),
    }
}

/// The values that differ.
fn values(before: &Parameters, after: &Parameters) -> String {
    let shown = |value: Option<&Value>| {
        let text = value.map_or_else(|| "none".to_owned(), Value::to_string);
        if text.chars().count() <= MAX_VALUE_CHARS {
            return text;
        }
        text.chars().take(MAX_VALUE_CHARS).chain(['…']).collect()
    };
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let differing = names.filter(|name| before.get(*name) != after.get(*name));
    let lines =
        differing.map(|name| format!("{} {} → {}", printable(name), shown(before.get(name)), shown(after.get(name))));
    lines.collect::<Vec<_>>().join(", ")
}

fn write_deleted(text: &mut String, deleted: &Deleted) {
    let what = if deleted.count() > 0 { "Argo CD would delete these Applications" } else { "Applications" };
    let _ = writeln!(text, "  {what} in the namespace {}:", printable(&deleted.namespace));
    write_all(text, "certainly", deleted.certain.iter().map(|name| printable(name)));
    write_all(text, "perhaps", deleted.perhaps.iter().map(|name| printable(name)));
    write_all(text, "note", deleted.notes.iter().cloned());
}

/// For programs. Every question that was sent is listed.
#[must_use]
pub(crate) fn json(comparison: &Comparison) -> Value {
    let counts = count(comparison);
    let sets: Vec<Value> = comparison.application_sets.iter().map(|(name, of_set)| json_of_set(name, of_set)).collect();
    json!({
        "removes": counts.removes(),
        "counts": {
            "same": counts.same, "different": counts.different, "unknown": counts.unknown, "notAsked": comparison.skipped,
            "added": counts.added, "removed": counts.removed, "changed": counts.changed, "held": counts.held,
        },
        "applicationSets": sets,
        "applicationsError": comparison.applications_error,
        "unguarded": comparison.unguarded.iter().map(|((route, next), questions)| {
            json!({ "route": route, "nextRoute": next, "questions": questions })
        }).collect::<Value>(),
    })
}

fn json_of_set(name: &str, of_set: &OfSet) -> Value {
    let questions: Vec<Value> = of_set.questions.iter().map(json_of_question).collect();
    let name = Some(name).filter(|name| !name.is_empty());
    json!({ "name": name, "questions": questions, "deletes": of_set.deleted })
}

fn json_of_question(compared: &Compared) -> Value {
    let mut fields = Map::new();
    fields.insert("route".into(), json!(compared.route));
    fields.insert("nextRoute".into(), json!(compared.next_route));
    fields.insert("isByMatchOnly".into(), compared.is_by_match_only.into());
    fields.insert("input".into(), Value::Object(compared.parameters.clone()));
    let result = match &compared.outcome {
        Outcome::Same => "same",
        Outcome::Skipped => "notAsked",
        Outcome::Unknown(why) => {
            fields.insert("error".into(), why.as_str().into());
            "unknown"
        }
        Outcome::Differs(change) => {
            fields.extend(json_of_change(change));
            "different"
        }
    };
    fields.insert("result".into(), result.into());
    fields.into()
}

fn json_of_change(change: &Change) -> Map<String, Value> {
    let sets = |sets: &[ParameterSet]| sets.iter().map(|set| Value::Object(set.0.clone())).collect::<Value>();
    let pair = |(before, after): &(ParameterSet, ParameterSet)| json!({ "before": before.0, "after": after.0 });
    let mut fields = Map::new();
    fields.insert("identity".into(), json!(change.keys));
    fields.insert("added".into(), sets(&change.difference.added));
    fields.insert("removed".into(), sets(&change.difference.removed));
    fields.insert("changed".into(), change.difference.changed.iter().map(pair).collect());
    fields.insert("wasFailing".into(), json!(change.was_failing));
    fields.insert("held".into(), json!(change.held));
    fields.insert("isUnguarded".into(), change.is_unguarded.into());
    fields
}
