//! The findings about a candidate: counts, and the last differences. Everything has a limit, and no secret of a backend is in it.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use crate::shadow::Compared;
use domain::{
    clock::Timestamp,
    difference::Difference,
    generator::{ParameterSet, Parameters, Query},
    secret::Secrets,
    units::Percent,
};

/// How many differences are remembered.
const MAX_DIFFERENCES: usize = 20;
/// How many added, removed and changed sets each of them shows.
const MAX_SETS: usize = 10;
/// How many bytes of input parameters and sets each of them shows.
const MAX_BYTES: usize = 64 * 1024;
/// How many characters of an error each of them shows.
const MAX_ERROR: usize = 4096;

/// The result of a comparison.
pub(super) enum Sighting {
    /// The lists differ.
    Difference(Difference),
    /// The candidate failed.
    Error(String),
}

/// Counts and differences of one route.
pub(super) struct Differences {
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counts: Counts,
    subtracted: u64,
    /// The last ones first.
    last: VecDeque<NotedDifference>,
}

/// How many comparisons ended in each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    same: u64,
    differs: u64,
    candidate_error: u64,
    primary_error: u64,
    skipped: u64,
}

/// The findings about the candidate of one route, for operators.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The route's name.
    route: Arc<str>,
    /// The kind of the candidate.
    candidate: &'static str,
    /// The share of runs after which the candidate is called.
    sample: Percent,
    /// Since when comparisons are counted.
    since: String,
    counts: Counts,
    /// The keys that vary between answers of the route's own backend, and are not compared.
    noise: BTreeSet<String>,
    /// How many values differed and were left out as noise.
    subtracted: u64,
    /// The last differences, the most recent first.
    differences: Vec<NotedDifference>,
}

/// A difference that was found.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotedDifference {
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    application_set: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum What {
    Difference { added: Excerpt<Value>, removed: Excerpt<Value>, changed: Excerpt<Pair> },
    Error { error: String },
}

/// The number of sets, and the first ones.
#[derive(Debug, Clone, Serialize)]
struct Excerpt<T> {
    count: usize,
    sets: Vec<T>,
}

/// A set that both lists have, with other values.
#[derive(Debug, Clone, Serialize)]
struct Pair {
    primary: Value,
    candidate: Value,
}

impl Differences {
    /// Nothing was found yet, at `since`.
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, state: Mutex::default() }
    }

    /// Counts a comparison.
    pub(super) fn count(&self, compared: Compared) {
        let counts = &mut self.state.lock().counts;
        let count = match compared {
            Compared::Same => &mut counts.same,
            Compared::Differs => &mut counts.differs,
            Compared::CandidateError => &mut counts.candidate_error,
            Compared::PrimaryError => &mut counts.primary_error,
            Compared::Skipped => &mut counts.skipped,
        };
        *count += 1;
    }

    /// Counts values that were left out as noise.
    pub(super) fn subtracted(&self, values: u64) {
        self.state.lock().subtracted += values;
    }

    /// Records the finding for `query` at `now`, without `secrets`.
    pub(super) fn note(&self, now: Timestamp, query: &Query, sighting: Sighting, secrets: &Secrets) {
        let mut shown = Shown { secrets, left: MAX_BYTES };
        let name = &query.application_set;
        let difference = NotedDifference {
            at: now.to_date(),
            application_set: (!name.is_empty()).then(|| secrets.redact(name).into()),
            input: shown.value(&query.parameters),
            what: shown.what(sighting),
        };
        let last = &mut self.state.lock().last;
        last.truncate(MAX_DIFFERENCES - 1);
        last.push_front(difference);
    }

    /// Everything that was found.
    pub(super) fn report(
        &self,
        route: &Arc<str>,
        candidate: &'static str,
        sample: Percent,
        noise: BTreeSet<String>,
    ) -> Report {
        let state = self.state.lock();
        Report {
            route: Arc::clone(route),
            candidate,
            sample,
            since: self.since.to_date(),
            counts: state.counts,
            noise,
            subtracted: state.subtracted,
            differences: state.last.iter().cloned().collect(),
        }
    }
}

/// Redacts a finding, and limits its size.
struct Shown<'a> {
    secrets: &'a Secrets,
    /// How many bytes may still be shown.
    left: usize,
}

impl Shown<'_> {
    fn what(&mut self, sighting: Sighting) -> What {
        match sighting {
            Sighting::Error(error) => {
                What::Error { error: self.secrets.redact(&error).chars().take(MAX_ERROR).collect() }
            }
            Sighting::Difference(Difference { added, removed, changed }) => What::Difference {
                added: excerpt(&added, |set| self.set(set)),
                removed: excerpt(&removed, |set| self.set(set)),
                changed: excerpt(&changed, |(primary, candidate)| {
                    Some(Pair { primary: self.set(primary)?, candidate: self.set(candidate)? })
                }),
            },
        }
    }

    fn set(&mut self, set: &ParameterSet) -> Option<Value> {
        self.value(&set.0)
    }

    /// `None` if it is too large.
    fn value(&mut self, map: &Parameters) -> Option<Value> {
        let value = self.secrets.redact_json(Value::Object(map.clone()));
        self.left = self.left.checked_sub(value.to_string().len())?;
        Some(value)
    }
}

/// The first sets of `all` that can be shown.
fn excerpt<S, T>(all: &[S], show: impl FnMut(&S) -> Option<T>) -> Excerpt<T> {
    Excerpt { count: all.len(), sets: all.iter().take(MAX_SETS).map_while(show).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use domain::secret::Secret;

    fn sets(all: Value) -> Vec<ParameterSet> {
        serde_json::from_value::<Vec<_>>(all).unwrap().into_iter().map(ParameterSet).collect()
    }

    fn found(sighting: Sighting, input: Value) -> Value {
        let differences = Differences::new(Timestamp(0));
        let query = Query::new("fleet".into(), Arc::new(serde_json::from_value(input).unwrap()), Instant::now());
        let secrets = [Secret::from("hunter22".to_owned())].into_iter().collect();
        differences.note(Timestamp(1000), &query, sighting, &secrets);
        differences.count(Compared::Differs);
        json!(differences.report(&"r".into(), "http", Percent(100), BTreeSet::new()))
    }

    #[test]
    fn a_difference_is_shown_without_secrets() {
        let added = sets(json!([{"name": "a", "url": "https://u:hunter22@h"}]));
        let changed =
            sets(json!([{"n": "b", "v": "1"}])).into_iter().zip(sets(json!([{"n": "b", "v": "2"}]))).collect();
        let difference = Difference { added, removed: Vec::new(), changed };
        let report = found(Sighting::Difference(difference), json!({"token": "hunter22", "env": "eu"}));
        assert_eq!(
            report["counts"],
            json!({"same": 0, "differs": 1, "candidateError": 0, "primaryError": 0, "skipped": 0})
        );
        assert_eq!(
            report["differences"],
            json!([{
                "at": "1970-01-01T00:00:01Z", "applicationSet": "fleet",
                "input": {"token": "[redacted]", "env": "eu"},
                "added": {"count": 1, "sets": [{"name": "a", "url": "https://u:[redacted]@h"}]},
                "removed": {"count": 0, "sets": []},
                "changed": {"count": 1, "sets": [{"primary": {"n": "b", "v": "1"}, "candidate": {"n": "b", "v": "2"}}]},
            }])
        );
        let report = found(Sighting::Error(format!("with hunter22 {}", "x".repeat(9000))), json!({}));
        let error = report["differences"][0]["error"].as_str().unwrap();
        assert!(error.starts_with("with [redacted] x") && error.len() == MAX_ERROR, "{error}");
    }

    #[test]
    fn what_is_shown_has_a_limit() {
        let many: Vec<Value> = (0..100).map(|n| json!({ "n": n })).collect();
        let removed = Difference { removed: sets(many.into()), ..Difference::default() };
        let shown = &found(Sighting::Difference(removed), json!({}))["differences"][0]["removed"];
        assert_eq!((&shown["count"], shown["sets"].as_array().unwrap().len()), (&json!(100), MAX_SETS));
        let large = json!({"x": "y".repeat(MAX_BYTES - 100)});
        let added = Difference { added: sets(json!([large, large])), ..Difference::default() };
        let shown = &found(Sighting::Difference(added), json!({}))["differences"][0]["added"];
        assert_eq!((&shown["count"], shown["sets"].as_array().unwrap().len()), (&json!(2), 1));
        let report = found(Sighting::Error("e".to_owned()), json!({"x": "y".repeat(MAX_BYTES)}));
        assert!(report["differences"][0].get("input").is_none());
    }

    #[test]
    fn only_the_last_differences_are_remembered() {
        let differences = Differences::new(Timestamp(0));
        for second in 0..50 {
            let query = Query::new("".into(), Arc::default(), Instant::now());
            differences.note(Timestamp(second * 1000), &query, Sighting::Error("e".to_owned()), &Secrets::default());
        }
        let report = json!(differences.report(&"r".into(), "http", Percent(10), BTreeSet::from(["etag".to_owned()])));
        let all = report["differences"].as_array().unwrap();
        assert_eq!((all.len(), &all[0]["at"]), (MAX_DIFFERENCES, &json!("1970-01-01T00:00:49Z")));
        assert!(all[0].get("applicationSet").is_none());
        assert_eq!((&report["sample"], &report["noise"]), (&json!("10%"), &json!(["etag"])));
    }
}
