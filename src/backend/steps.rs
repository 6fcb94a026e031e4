//! Backends that are parts of another: the steps of a pipeline, what a merge asks. Each is known by its number or name in
//! everything that is told of it.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Backend, BuildContext, ask, step::StepConfig};
use crate::{
    domain::{
        error::BackendError,
        generator::{Evidence, Lasting, Outcome, ParameterSet, Parameters, Query},
        problem::{Path, Problems},
        secret::Secrets,
    },
    telemetry::trace::{self, SpanKind},
};

/// One part, ready to be asked.
struct Step {
    /// `step 2`, or `step owners`.
    name: String,
    /// `step 2 (script)`.
    label: String,
    kind: &'static str,
    backend: Arc<dyn Backend>,
}

/// All parts of a backend, in their order.
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// Builds the parts, each of which is a `word`, at `path`, where `raw` stands. With `is_sequence` each but the first
    /// has items.
    pub(crate) fn build(
        configs: &[StepConfig],
        word: &str,
        is_sequence: bool,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut parts = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            let path = path.index(index);
            let name = config.name.clone().unwrap_or_else(|| (index + 1).to_string());
            if name.trim().is_empty() || name.contains(char::is_control) {
                problems.error(&path.key("name"), "a name is one line of text");
            }
            if configs[..index].iter().any(|other| config.name.is_some() && other.name == config.name) {
                problems.error(&path.key("name"), format!("another {word} is called `{}`", name.escape_debug()));
            }
            let has_items = context.has_items || (is_sequence && index > 0);
            // As a route has it, for those who look for themselves in it.
            let raw = json!({ "backend": context.raw.get(index).unwrap_or(context.raw) });
            let built = config.build(is_sequence, BuildContext { raw: &raw, has_items, ..context }, &path, problems);
            parts.push(built.map(|(kind, backend)| {
                let name = format!("{word} {name}");
                Step { label: format!("{name} ({kind})"), name, kind, backend }
            }));
        }
        parts.into_iter().collect::<Option<_>>().map(Self)
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }

    /// What the part at `index` is called, such as `step 2 (script)`.
    pub(crate) fn label(&self, index: usize) -> &str {
        &self.0[index].label
    }

    /// Asks the part at `index`, which gets `items`.
    ///
    /// # Errors
    /// As the part's backend; the message names the part, and holds no secret of any part.
    pub(crate) async fn ask(
        &self,
        index: usize,
        query: &Query,
        items: Option<Arc<Value>>,
    ) -> Result<Outcome, BackendError> {
        let Step { name, label, kind, backend } = &self.0[index];
        let has_items = items.is_some();
        let asked = async {
            if Instant::now() >= query.deadline {
                return Err(BackendError::timeout("there was no time left for it"));
            }
            let query = Query { items, before: query.before.of_part(label), ..query.clone() };
            ask(&**backend, name, kind, &query).await
        };
        let span = trace::begin(SpanKind::Internal, || label.clone());
        // What one part found may hold its secrets, and be repeated by another.
        let by = |evidence: Vec<Evidence>| self.tell(evidence, label, has_items);
        match span.instrument(asked).await {
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

    /// `evidence` as learned by the part called `label`, without secrets that may have come with its items.
    fn tell(&self, evidence: Vec<Evidence>, label: &str, has_items: bool) -> Vec<Evidence> {
        let has_secrets = has_items && !evidence.is_empty();
        let secrets = if has_secrets { self.secrets() } else { Secrets::default() };
        let clean = |each: Evidence| Evidence {
            asked: secrets.redact(&each.asked),
            answered: secrets.redact(&each.answered),
            ..each.by(label)
        };
        evidence.into_iter().map(clean).collect()
    }

    /// `outcome` with what all parts said of evidence, how long they last, and their notes.
    pub(crate) fn conclude(&self, outcome: Outcome, said: Vec<StepReport>, ttl: Duration) -> Outcome {
        let mut notes = Parameters::new();
        let (mut lasting, mut evidence) = (Vec::new(), Vec::new());
        for (part, said) in self.0.iter().zip(said) {
            notes.extend(said.note.map(|note| (part.label.clone(), Arc::unwrap_or_clone(note))));
            evidence.extend(said.evidence);
            // These never get old.
            if !matches!(part.kind, "fixed" | "select") {
                lasting.push(said.lasting);
            }
        }
        let note = (!notes.is_empty()).then(|| Arc::new(Value::Object(notes)));
        Outcome { lasting: shortest(&lasting, ttl), note, ..outcome }.having_learned(evidence)
    }

    /// Whether one of them reads the ApplicationSet's name.
    pub(crate) fn reads_application_set(&self) -> bool {
        self.0.iter().any(|part| part.backend.reads_application_set())
    }

    /// Whether one of them takes notes.
    pub(crate) fn takes_notes(&self) -> bool {
        self.0.iter().any(|part| part.backend.takes_notes())
    }

    /// Lets all of them forget.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|part| part.backend.forget());
    }

    /// Lets all of them start what they want ready.
    pub(crate) fn start_ahead(&self) {
        self.0.iter().for_each(|part| part.backend.start_ahead());
    }

    /// The secrets of all of them.
    pub(crate) fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        self.0.iter().for_each(|part| secrets.extend(part.backend.secrets()));
        secrets
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|part| &part.label)).finish()
    }
}

/// What a part said besides its items.
pub(crate) struct StepReport {
    evidence: Vec<Evidence>,
    lasting: Option<Lasting>,
    note: Option<Arc<Value>>,
}

impl StepReport {
    /// Takes an outcome apart, into its items and the rest.
    pub(crate) fn apart(outcome: Outcome) -> (Vec<ParameterSet>, Self) {
        let Outcome { sets, evidence, lasting, note } = outcome;
        (sets, Self { evidence, lasting, note })
    }

    /// What belongs to a part alone in the outcome of the last one, which becomes that of the whole.
    pub(crate) fn besides(last: &mut Outcome) -> Self {
        Self { evidence: Vec::new(), lasting: last.lasting.take(), note: last.note.take() }
    }
}

/// For how long a whole is fresh whose parts last so long, where `ttl` is what a part lasts that says nothing.
fn shortest(parts: &[Option<Lasting>], ttl: Duration) -> Option<Lasting> {
    let said = parts.iter().flatten().map(|lasting| match lasting {
        Lasting::For(time) | Lasting::AtMost(time) => *time,
    });
    let least = said.min()?;
    if parts.iter().any(|lasting| matches!(lasting, Some(Lasting::AtMost(_)))) {
        return Some(Lasting::AtMost(least));
    }
    let is_bound_by_ttl = parts.contains(&None) && ttl < least;
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
        for (parts, whole) in [
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
            assert_eq!(shortest(parts, seconds(60)), whole, "{parts:?}");
        }
    }
}
