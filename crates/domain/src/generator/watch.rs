//! Records how an answer came about, step by step, when an operator requests it.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::ParameterSet;

/// One backend's part in an answer. Without output and error, it did not finish in time.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStep {
    /// Its name: `step 2`, `step 2, backend 1`, or the route's name.
    pub name: String,
    /// The backend's kind.
    pub kind: &'static str,
    /// The number of items of the previous step, if there was one.
    pub input: Option<Arc<Value>>,
    /// How long it took.
    pub took: Option<Duration>,
    /// Its outcome.
    pub output: Option<Vec<Value>>,
    /// Its error.
    pub error: Option<String>,
    /// The end of what a program wrote to stderr, without secrets.
    pub stderr: Option<String>,
    /// The CPU time of a program and its children.
    pub cpu: Option<Duration>,
    /// The most memory that a program had at once, in bytes.
    pub peak_memory: Option<u64>,
}

/// Records the steps of one request. Clones write to the same list. Each stands for one step.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    steps: Arc<Mutex<Vec<RecordedStep>>>,
    at: Option<usize>,
}

impl Watch {
    /// Begins a step within this one.
    #[must_use]
    pub fn begin(&self, name: &str, kind: &'static str, input: Option<Arc<Value>>) -> Self {
        let mut steps = self.lock();
        // The first step is the whole route, whose name is left out.
        let within = self.at.filter(|at| *at > 0).and_then(|at| steps.get(at));
        let name = within.map_or_else(|| name.to_owned(), |step| format!("{}, {name}", step.name));
        steps.push(RecordedStep {
            name,
            kind,
            input,
            took: None,
            output: None,
            error: None,
            stderr: None,
            cpu: None,
            peak_memory: None,
        });
        let at = Some(steps.len() - 1);
        drop(steps);
        Self { steps: Arc::clone(&self.steps), at }
    }

    /// Ends the step with its outcome or error.
    pub fn end(&self, took: Duration, found: Result<&[ParameterSet], &str>) {
        let (output, error) = match found {
            Ok(sets) => (Some(sets.iter().map(|set| Value::Object(set.0.clone())).collect()), None),
            Err(error) => (None, Some(error.to_owned())),
        };
        self.note(|step| {
            step.took = Some(took);
            step.output = output;
            step.error = error;
        });
    }

    /// Changes the record of the step.
    pub fn note(&self, add: impl FnOnce(&mut RecordedStep)) {
        let mut steps = self.lock();
        if let Some(step) = self.at.and_then(|at| steps.get_mut(at)) {
            add(step);
        }
    }

    /// All steps in the order in which they began. The whole is left out if it has parts.
    #[must_use]
    pub fn steps(&self) -> Vec<RecordedStep> {
        let mut steps = self.lock().clone();
        if steps.len() > 1 {
            steps.remove(0);
        }
        steps
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RecordedStep>> {
        self.steps.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_within_their_whole_which_is_left_out() {
        let watch = Watch::default();
        let whole = watch.begin("route", "pipeline", None);
        assert_eq!(watch.steps().len(), 1, "it has no parts yet");
        let second = whole.begin("step 2", "merge", None);
        let part = second.begin("backend 1", "script", None);
        part.note(|step| step.stderr = Some("why".into()));
        part.end(Duration::from_millis(7), Err("no"));
        second.end(Duration::from_millis(8), Ok(&[ParameterSet::default()]));
        let steps = watch.steps();
        let names: Vec<_> = steps.iter().map(|step| (&*step.name, step.kind)).collect();
        assert_eq!(names, [("step 2", "merge"), ("step 2, backend 1", "script")]);
        assert_eq!(steps[0].output, Some(vec![serde_json::json!({})]));
        assert_eq!((steps[1].error.as_deref(), steps[1].stderr.as_deref()), (Some("no"), Some("why")));
    }
}
