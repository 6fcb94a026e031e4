//! Parameters that a command announces, like `parameters.dynamic` of a Config Management Plugin. The accepted parameters may
//! depend on the state of the source.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use crate::route::{
    announcement::Announcement,
    input::{Input, InputParameter},
};
use domain::{
    clock::{Clock, Timestamp},
    document::{self, DocumentError},
    error::BackendError,
    generator::{Parameters, Query},
    problem::{Path, Problems},
};
use source::Probe;

/// How long the command's output is used.
const FRESH: Duration = Duration::from_mins(1);
/// When a command that failed is run again, if an earlier output is known.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why an output is not a list of announcements.
#[derive(Debug, thiserror::Error)]
enum AnnouncedError {
    /// It is not JSON.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It has another form.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// It announces parameters that cannot be; the text has the reasons.
    #[error("{0}")]
    Problems(String),
}

/// The parameters of a route, some of which a command announces.
pub struct Announced {
    probe: Arc<dyn Probe>,
    fixed: Vec<InputParameter>,
    clock: Arc<dyn Clock>,
    known: Mutex<Option<Known>>,
}

/// The command's last output.
struct Known {
    input: Arc<Input>,
    /// When the command last ran.
    at: Timestamp,
    /// For how long it does not run again.
    lasts: Duration,
}

impl Announced {
    /// Asks nothing yet. The parameters in `fixed` are accepted whatever `probe` announces.
    #[must_use]
    pub fn new(probe: Arc<dyn Probe>, fixed: &[InputParameter], clock: &Arc<dyn Clock>) -> Self {
        Self { probe, fixed: fixed.to_vec(), clock: Arc::clone(clock), known: Mutex::default() }
    }

    /// All parameters. All waiting callers share one run of the command.
    ///
    /// # Errors
    /// When the command has never succeeded, and does not before `until`.
    pub async fn input(&self, until: Instant) -> Result<Arc<Input>, BackendError> {
        let late = |_| BackendError::timeout("another call waits for it already");
        let mut known = timeout_at(until, self.known.lock()).await.map_err(late)?;
        let is_fresh = |known: &&Known| self.clock.now().since(known.at).is_some_and(|age| age < known.lasts);
        if let Some(known) = known.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(&known.input));
        }
        let (input, lasts) = match (self.ask(until).await, &*known) {
            (Ok(input), _) => (Arc::new(input), FRESH),
            (Err(why), Some(known)) => {
                tracing::warn!(%why, "the parameters of a route cannot be announced again; the last announced ones are used");
                (Arc::clone(&known.input), PATIENCE)
            }
            (Err(why), None) => return Err(why),
        };
        *known = Some(Known { input: Arc::clone(&input), at: self.clock.now(), lasts });
        Ok(input)
    }

    async fn ask(&self, until: Instant) -> Result<Input, BackendError> {
        let query = Query::new("".into(), Arc::new(Parameters::new()), until);
        let output = self.probe.output(&query).await?;
        read(&output, &self.fixed).map_err(|error| {
            let error = format!("its output is not a list of announcements: {error}");
            BackendError::invalid_output(self.probe.redact(&error))
        })
    }
}

/// The parameters that `output` announces, without the `fixed` ones.
fn read(output: &[u8], fixed: &[InputParameter]) -> Result<Input, AnnouncedError> {
    let document = document::parse(output)?;
    let announced: Vec<Announcement> = serde_json::from_value(document)?;
    let (mut all, mut problems) = (fixed.to_vec(), Problems::default());
    for (index, one) in announced.iter().enumerate() {
        let parameter = one.parameter(&Path::root().index(index), &mut problems);
        if !fixed.iter().any(|fixed| fixed.name == parameter.name) {
            all.push(parameter);
        }
    }
    let input = Input::build(&all, &Path::root(), &mut problems);
    let problems: Vec<String> =
        problems.into_vec().iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
    if problems.is_empty() { Ok(input) } else { Err(AnnouncedError::Problems(problems.join("; "))) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fixed() -> Vec<InputParameter> {
        serde_json::from_value(json!([{"name": "zone", "type": "number", "default": 1}])).unwrap()
    }

    #[test]
    fn what_is_fixed_stands_and_all_else_is_added() {
        let output =
            br#"[{"name": "zone", "string": "a"}, {"name": "sizes", "collectionType": "array", "array": ["s"]}]"#;
        let input = read(output, &fixed()).unwrap();
        let accept = |parameters: Value| {
            let accepted = input.accept(parameters.as_object().unwrap().clone());
            accepted.map(Value::Object).map_err(|error| error.to_string())
        };
        assert_eq!(accept(json!({})), Ok(json!({"zone": 1, "sizes": ["s"]})));
        assert_eq!(accept(json!({"zone": "2", "sizes": []})), Ok(json!({"zone": 2, "sizes": []})));
        assert!(accept(json!({"other": 1})).unwrap_err().contains("this route has: zone, sizes"));
    }

    #[test]
    fn what_is_no_announcement() {
        for (output, says) in [
            ("", "blank"),
            ("{}", "expected a sequence"),
            ("[{}]", "missing field `name`"),
            (r#"[{"name": ""}]"#, "name is not empty"),
            (r#"[{"name": "a", "colour": 1}]"#, "unknown field `colour`"),
            (r#"[{"name": "a", "array": []}]"#, "the parameter is of another type"),
            (r#"[{"name": "a"}, {"name": "a"}]"#, "two parameters are called `a`"),
            (r#"[{"name": "a", "itemType": "number", "string": "x"}]"#, "must be a number"),
        ] {
            let error = read(output.as_bytes(), &fixed()).unwrap_err().to_string();
            assert!(error.contains(says), "{output}: {error}");
        }
    }
}
