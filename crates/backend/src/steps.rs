//! The steps of a pipeline, or the backends that a merge joins, built. Messages call each by its name or number.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Backend, BuildContext, Building, ITEMS, Nature, fetch_watched,
    step::{BuiltStep, StepConfig},
};
use domain::{
    error::BackendError,
    generator::{BackendNote, Evidence, Lasting, Outcome, ParameterSet, Query},
    secret::Secrets,
};
use lang::scope::ValueType;
use telemetry::trace::{self, SpanKind};

/// One step, ready to be called.
struct Step {
    /// `step 2`, or `step owners`.
    name: String,
    /// `step 2 (script)`.
    label: String,
    built: BuiltStep,
}

/// All steps of a backend, in their order.
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// Builds the steps of a list. Messages call each a `word`. In a pipeline each step but the first has items.
    pub(crate) fn build(
        configs: &[StepConfig],
        word: &str,
        is_pipeline: bool,
        building: &mut Building<'_>,
    ) -> Option<Self> {
        let context = building.context;
        let mut steps = Vec::<Option<Step>>::new();
        for (index, config) in configs.iter().enumerate() {
            let mut building = building.index(index);
            let name = config.name.clone().unwrap_or_else(|| (index + 1).to_string());
            if name.trim().is_empty() || name.contains(char::is_control) {
                building.key("name").error("a name is one line of text");
            }
            if configs[..index].iter().any(|other| config.name.is_some() && other.name == config.name) {
                building.key("name").error(format!("another {word} is called `{}`", name.escape_debug()));
            }
            let before = steps.last().filter(|_| is_pipeline);
            let item = before.map(|step| step.as_ref().map_or(ValueType::Anything, |step| step.nature().item.clone()));
            let scope = &match item {
                Some(item) => context.scope.with(ITEMS, ValueType::List(Box::new(item))),
                None => context.scope.clone(),
            };
            // Shaped like a route's configuration, in which a backend finds its own.
            let raw = json!({ "backend": context.raw.get(index).unwrap_or(context.raw) });
            let built = config
                .build(is_pipeline, &mut building.with(BuildContext { raw: &raw, scope, is_route: false, ..context }));
            steps.push(built.map(|built| {
                let name = format!("{word} {name}");
                Step { label: format!("{name} ({})", built.kind), name, built }
            }));
        }
        steps.into_iter().collect::<Option<_>>().map(Self)
    }

    /// The types of an item of each step.
    pub(crate) fn items(&self) -> impl DoubleEndedIterator<Item = ValueType> {
        self.0.iter().map(|step| step.nature().item.clone())
    }

    /// The backends of all steps.
    pub(crate) fn backends(&self) -> Vec<&dyn Backend> {
        self.0.iter().map(|step| &*step.built.backend).collect()
    }

    /// The nature of a backend that is made of the steps, with items of the type `item`.
    pub(crate) fn nature(&self, item: ValueType) -> Nature {
        Nature::of_parts(self.0.iter().map(Step::nature), item)
    }

    /// The number of steps.
    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }

    /// The label of the step at `index`, such as `step 2 (script)`.
    pub(crate) fn label(&self, index: usize) -> &str {
        &self.0[index].label
    }

    /// Calls the step at `index`, which gets `items`.
    ///
    /// # Errors
    /// As the step's backend. The message names the step, and holds no secret of any step.
    pub(crate) async fn fetch(
        &self,
        index: usize,
        query: &Query,
        items: Option<Arc<Value>>,
    ) -> Result<Outcome, BackendError> {
        let Step { name, label, built } = &self.0[index];
        let has_items = items.is_some();
        let fetched = async {
            if Instant::now() >= query.deadline {
                return Err(BackendError::timeout("there was no time left for it"));
            }
            let query = Query { items, before: query.before.of_part(label), ..query.clone() };
            fetch_watched(&*built.backend, name, built.kind, &query).await
        };
        let span = trace::begin(SpanKind::Internal, || label.clone());
        // The items of one step may hold its secrets, and another step may repeat them.
        let by = |evidence: Vec<Evidence>| self.labelled(evidence, label, has_items);
        match span.instrument(fetched).await {
            Ok(outcome) => {
                span.note(|record| record.set("appset_gateway.parameter_sets", outcome.sets.len()));
                Ok(Outcome { evidence: by(outcome.evidence), ..outcome })
            }
            Err(error) => {
                span.note(|record| record.fail(error.kind.as_str()));
                let error = self.secrets().clean(&error).within(label);
                Err(BackendError { evidence: by(error.evidence), ..error })
            }
        }
    }

    /// `evidence` of the step with this `label`, without secrets that may have come with its items.
    fn labelled(&self, evidence: Vec<Evidence>, label: &str, has_items: bool) -> Vec<Evidence> {
        let has_secrets = has_items && !evidence.is_empty();
        let secrets = if has_secrets { self.secrets() } else { Secrets::default() };
        let clean = |each: Evidence| Evidence {
            query: secrets.redact(&each.query),
            answer: secrets.redact(&each.answer),
            ..each.by(label)
        };
        evidence.into_iter().map(clean).collect()
    }

    /// `outcome` with the evidence, the lifetimes and the notes of all steps.
    pub(crate) fn conclude(&self, outcome: Outcome, reports: Vec<StepReport>, ttl: Duration) -> Outcome {
        let mut notes = IndexMap::new();
        let (mut lasting, mut evidence) = (Vec::new(), Vec::new());
        for (step, report) in self.0.iter().zip(reports) {
            if let Some(note) = report.note {
                notes.insert(&*step.label, note);
            }
            evidence.extend(report.evidence);
            if step.nature().gets_old {
                lasting.push(report.lasting);
            }
        }
        let note = if notes.is_empty() { None } else { BackendNote::of(&notes) };
        Outcome { lasting: shortest(&lasting, ttl), note, ..outcome }.having_learned(evidence)
    }

    /// The secrets of all steps.
    pub(crate) fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        self.0.iter().for_each(|step| secrets.extend(step.built.backend.secrets()));
        secrets
    }
}

impl Step {
    fn nature(&self) -> &Nature {
        self.built.backend.nature()
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|step| &step.label)).finish()
    }
}

/// The report of a step besides its items.
pub(crate) struct StepReport {
    evidence: Vec<Evidence>,
    lasting: Option<Lasting>,
    note: Option<BackendNote>,
}

impl StepReport {
    /// Splits an outcome into its items and everything else.
    pub(crate) fn split(outcome: Outcome) -> (Vec<ParameterSet>, Self) {
        let Outcome { sets, evidence, lasting, note } = outcome;
        (sets, Self { evidence, lasting, note })
    }

    /// Takes the parts that belong only to the last step out of its outcome, which becomes the outcome of the whole.
    pub(crate) fn of_last(last: &mut Outcome) -> Self {
        Self { evidence: Vec::new(), lasting: last.lasting.take(), note: last.note.take() }
    }
}

/// How long an answer is fresh if its steps last so long. A step without a lifetime lasts `ttl`.
fn shortest(steps: &[Option<Lasting>], ttl: Duration) -> Option<Lasting> {
    let times = steps.iter().flatten().map(|lasting| match lasting {
        Lasting::For(time) | Lasting::AtMost(time) => *time,
    });
    let least = times.min()?;
    if steps.iter().any(|lasting| matches!(lasting, Some(Lasting::AtMost(_)))) {
        return Some(Lasting::AtMost(least));
    }
    let is_bound_by_ttl = steps.contains(&None) && ttl < least;
    (!is_bound_by_ttl).then_some(Lasting::For(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_life_wins() {
        let seconds = Duration::from_secs;
        let (long, short) = (Some(Lasting::For(seconds(90))), Some(Lasting::For(seconds(10))));
        let brief = Some(Lasting::AtMost(seconds(15)));
        for (steps, whole) in [
            (&[][..], None),
            (&[None, None], None),
            (&[long], long),
            (&[long, short], short),
            (&[long, None], None),
            (&[short, None], short),
            (&[brief, None], brief),
            (&[brief, long], brief),
            (&[brief, short], Some(Lasting::AtMost(seconds(10)))),
        ] {
            assert_eq!(shortest(steps, seconds(60)), whole, "{steps:?}");
        }
    }
}
