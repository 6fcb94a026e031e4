//! The elements of an answer, each with its state, since when it is unknown, and why.

use serde::{Deserialize, Serialize};

use super::{date, failure::LastFailure};
use domain::{generator::Evidence, units::plural};
use engine::{
    cache::{ElementCounts, ElementState},
    operators::elements::ElementView,
};

/// How many elements of an answer are listed, unless a request says so.
pub(crate) const DEFAULT_LISTED: usize = 100;

/// The elements of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerElements {
    /// How many are in which state.
    #[serde(flatten)]
    pub(crate) counts: ElementCounts,
    /// The elements themselves, the unknown ones first. Lists of answers have only the counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) list: Option<Vec<ElementOf>>,
    /// How many are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<usize>,
}

/// An element.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ElementOf {
    /// The values of `each.key`.
    pub(crate) key: String,
    /// Its state.
    pub(crate) state: ElementState,
    /// How many parameter sets the answer has of it.
    pub(crate) parameter_sets: usize,
    /// When its backend had these, or had the proof that there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) confirmed_at: Option<String>,
    /// The findings about each item then.
    pub(crate) evidence: Vec<Evidence>,
    /// For how long it is fresh: after that, its backend is called again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fresh_for_seconds: Option<u64>,
    /// Since when it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unknown_since: Option<String>,
    /// Why it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failing: Option<LastFailure>,
    /// The key of the question about it, as the log has it.
    pub(crate) id: String,
}

impl ElementOf {
    fn of(view: &ElementView) -> Self {
        let failing = view.failing.as_ref();
        Self {
            key: view.label.clone(),
            state: view.state,
            parameter_sets: view.sets,
            confirmed_at: view.confirmed_at.map(date),
            evidence: view.evidence.clone(),
            fresh_for_seconds: view.fresh_for.map(|left| left.as_secs()),
            unknown_since: failing.map(|failing| date(failing.since)),
            failing: failing.map(|failing| LastFailure::of(&failing.failure, failing.left)),
            id: view.key.to_string(),
        }
    }

    /// Its state in words, with the reason.
    pub(crate) fn in_words(&self) -> String {
        let sets = format!("{} parameter set{}", self.parameter_sets, plural(self.parameter_sets));
        let state = match self.state {
            ElementState::Present => return format!("present, {sets}"),
            ElementState::Absent => return "absent".to_owned(),
            ElementState::LastKnown => {
                let at = self.confirmed_at.as_deref().unwrap_or("an unknown time");
                format!("unknown, the answer has what it had last: {sets} of {at}")
            }
            ElementState::Unknown => "unknown, the answer has nothing of it".to_owned(),
        };
        let Some(failing) = &self.failing else { return format!("{state}; it was not queried yet") };
        let since = self.unknown_since.as_deref().unwrap_or_default();
        format!("{state}; since {since} {}: {}; {}", failing.kind, failing.message, failing.again())
    }
}

impl AnswerElements {
    /// Only how many there are.
    pub(crate) fn counted(counts: ElementCounts) -> Self {
        Self { counts, list: None, left_out: None }
    }

    /// The first `limit` of `views`, the unknown ones first.
    pub(crate) fn of(views: &[ElementView], limit: usize) -> Self {
        let mut counts = ElementCounts::default();
        for view in views {
            counts.add(view.state);
        }
        let mut sorted: Vec<&ElementView> = views.iter().collect();
        // The sort is stable, so that each group is in the list's order.
        sorted.sort_by_key(|view| view.state.min(ElementState::Absent));
        let list: Vec<ElementOf> = sorted.into_iter().take(limit).map(ElementOf::of).collect();
        let left_out = views.len() - list.len();
        Self { counts, list: Some(list), left_out: Some(left_out) }
    }

    /// How many are in which state, in words.
    pub(crate) fn in_words(&self) -> String {
        let ElementCounts { present, absent, last_known, unknown } = self.counts;
        let all = [(present, "present"), (absent, "absent"), (last_known, "as last known"), (unknown, "unknown")];
        let named: Vec<String> =
            all.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}")).collect();
        if named.is_empty() { "none".to_owned() } else { named.join(", ") }
    }

    /// One line for each listed element, and one for those that are not.
    pub(crate) fn lines(&self) -> Vec<String> {
        let list = self.list.iter().flatten();
        let mut lines: Vec<String> =
            list.map(|element| format!("element   {}: {}", element.key, element.in_words())).collect();
        if let Some(more) = self.left_out.filter(|more| *more > 0) {
            lines.push(format!("elements  {more} more are not shown"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{clock::Timestamp, error::BackendError};
    use engine::{cache::Key, failure::Failure, operators::elements::ElementFailure};

    use super::*;

    fn view(label: &str, state: ElementState) -> ElementView {
        let failure = Failure::Backend(BackendError::unavailable("the registry answers 500"));
        let failing =
            ElementFailure { failure, since: Timestamp(1_700_000_000_000), left: Duration::from_millis(2500) };
        let is_unknown = matches!(state, ElementState::Unknown | ElementState::LastKnown);
        ElementView {
            label: label.to_owned(),
            key: Key::of_bytes([7; 32]),
            state,
            sets: usize::from(matches!(state, ElementState::Present | ElementState::LastKnown)),
            confirmed_at: Some(Timestamp(1_600_000_000_000)).filter(|_| state != ElementState::Unknown),
            evidence: Vec::new(),
            fresh_for: None,
            failing: is_unknown.then_some(failing),
        }
    }

    #[test]
    fn what_is_unknown_comes_first_and_more_are_counted() {
        use ElementState::{Absent, LastKnown, Present, Unknown};
        let states = [("1", Present), ("2", Absent), ("3", LastKnown), ("4", Unknown), ("5", Present), ("6", Unknown)];
        let views: Vec<ElementView> = states.iter().map(|(label, state)| view(label, *state)).collect();
        let elements = AnswerElements::of(&views, 4);
        let keys: Vec<&str> = elements.list.iter().flatten().map(|element| &*element.key).collect();
        assert_eq!((keys, elements.left_out), (vec!["4", "6", "3", "1"], Some(2)));
        assert_eq!(elements.in_words(), "2 present, 1 absent, 1 as last known, 2 unknown");
        let lines = elements.lines();
        let why = "since 2023-11-14T22:13:20.000Z unavailable: the registry answers 500; the source is read again in 3 s at the earliest";
        assert_eq!(lines[0], format!("element   4: unknown, the answer has nothing of it; {why}"));
        let last = "unknown, the answer has what it had last: 1 parameter set of 2020-09-13T12:26:40.000Z";
        assert_eq!(lines[2], format!("element   3: {last}; {why}"));
        assert_eq!(lines[3..], ["element   1: present, 1 parameter set", "elements  2 more are not shown"]);
    }

    #[test]
    fn a_list_of_answers_has_only_the_counts() {
        let counted = AnswerElements::counted(ElementCounts { present: 3, ..ElementCounts::default() });
        let json = serde_json::json!({"present": 3, "absent": 0, "lastKnown": 0, "unknown": 0});
        assert_eq!(serde_json::to_value(&counted).unwrap(), json);
        assert_eq!(AnswerElements::counted(ElementCounts::default()).in_words(), "none");
    }
}
