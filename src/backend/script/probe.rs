//! A command beside a backend, such as one that says whether a call is wanted (`discover.find.command` of a Config Management
//! Plugin): it ends well, and what it prints is blank or not. All else is *unknown*, and never a "no".

use bytes::Bytes;

use super::{CommandConfig, Config, Script};
use crate::{
    backend::{Backend as _, BackendConfig, BuildContext},
    domain::{
        error::BackendError,
        generator::Query,
        problem::{Path, Problem, Problems},
    },
};

/// The command, ready to run.
#[derive(Debug)]
pub(crate) struct Probe(Script);

impl Probe {
    /// Finds the program. It runs as the script of `backend` does, and as a script with all defaults where that is none.
    pub(crate) fn build(
        command: &CommandConfig,
        backend: &BackendConfig,
        around: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut config = match backend {
            BackendConfig::Script(config) => (**config).clone(),
            _ => Config::of(command.words()),
        };
        (config.command, config.init, config.parameters) = (command.words(), None, None);
        // What is wrong with the rest is told where the backend is built.
        let mut own = Problems::default();
        let built = Script::build(&config, around, &Path::root().key("backend").key("script"), &mut own);
        let of_command = Path::root().key("backend").key("script").key("command");
        for problem in own.into_vec().into_iter().filter(|problem| problem.path.is_within(&of_command)) {
            problems.add(Problem { path: path.clone(), ..problem });
        }
        built.map(Self)
    }

    /// Whether it wants the call.
    ///
    /// # Errors
    /// When that is not known.
    pub(crate) async fn wants(&self, query: &Query) -> Result<bool, BackendError> {
        Ok(!self.output(query).await?.trim_ascii().is_empty())
    }

    /// What it prints when it ends well.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) async fn output(&self, query: &Query) -> Result<Bytes, BackendError> {
        let (run, _) = self.0.run(query).await?;
        Ok(run.output)
    }

    /// `text` without the secrets that it knows.
    #[must_use]
    pub(crate) fn redact(&self, text: &str) -> String {
        self.0.secrets().redact(text)
    }
}
