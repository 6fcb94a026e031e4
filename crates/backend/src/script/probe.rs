//! A command beside a backend, such as `discover.find.command` of a Config Management Plugin, which decides whether a route takes
//! a request. The command ends well, and its output is blank (no) or not (yes). Any failure is *unknown*, and never a "no".

use async_trait::async_trait;
use bytes::Bytes;

use super::{CommandConfig, Config, Script};
use crate::{BackendConfig, Building};
use domain::{
    error::BackendError,
    generator::Query,
    problem::{Path, Problem, Problems, Segment},
};
use source::{Backend as _, Probe};

/// The command, ready to run.
#[derive(Debug)]
pub struct CommandProbe(Script);

impl CommandProbe {
    /// Finds the program. It runs with the settings of `backend` if that is a script, and else with all defaults.
    pub fn build(command: &CommandConfig, backend: &BackendConfig, building: &mut Building<'_>) -> Option<Self> {
        let mut config = match backend {
            BackendConfig::Script(config) => (**config).clone(),
            _ => Config::of(command.words()),
        };
        (config.command, config.init, config.parameters) = (command.words(), None, None);
        // Building the backend reports the problems of all other settings.
        let mut own = Problems::default();
        let script = Path::root().key("backend").key("script");
        let built = Script::build(&config, &mut Building::new(building.context, script.clone(), &mut own));
        let of_command = script.key("command");
        for problem in own.into_vec().into_iter().filter(|problem| problem.path.is_within(&of_command)) {
            let word = match problem.path.segments().last() {
                Some(Segment::Index(index)) => Some(*index),
                _ => None,
            };
            let path = match (word, building.path.parent()) {
                (Some(index), Some(parent)) if index >= command.command.len() => {
                    parent.key("args").index(index - command.command.len())
                }
                (Some(index), _) => building.path.index(index),
                (None, _) => building.path.clone(),
            };
            building.problems.add(Problem { path, ..problem });
        }
        built.map(Self)
    }
}

#[async_trait]
impl Probe for CommandProbe {
    async fn wants(&self, query: &Query) -> Result<bool, BackendError> {
        Ok(!self.output(query).await?.trim_ascii().is_empty())
    }

    async fn output(&self, query: &Query) -> Result<Bytes, BackendError> {
        let (run, _) = self.0.run(query).await?;
        Ok(run.output)
    }

    fn redact(&self, text: &str) -> String {
        self.0.secrets().redact(text)
    }
}
