//! CI gates, called directly: each against a server that answers as documented, and against failing servers.

mod bitbucket;
mod budget;
mod fake_github;
mod forge;
mod generic;
mod gitea;
mod github;
mod github_app;
mod github_history;
mod github_namesakes;
mod github_pages;
mod gitlab;
mod systems;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backend::{
    BuildContext, Building,
    digests::gate::{CiState, CiVerdict, Gate, GateConfig, GateQuery},
};
use domain::{
    clock::Clock,
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    generator::{Parameters, Query},
    problem::{Path, Problems},
    section::Section,
};
use lang::{
    evaluator::{Context, Evaluator},
    scope::NameScope,
};
use launcher::Launchers;
use oci::{Registries, RegistriesMeans};
use outbound::Outbound;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::app::TestClock;

/// The commit of the tests.
pub(crate) const HEAD: &str = "d6fde92930d4715a2b49857d24b940956b26d2d3";

/// Everything that gates are built with.
pub(crate) struct GateContext {
    /// The folder of the secrets.
    pub folder: TempDir,
    /// The time.
    pub clock: Arc<TestClock>,
}

impl GateContext {
    /// An empty folder, and the time.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: TestClock::standing() }
    }

    /// Writes a secret.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Builds the gate of `config`, which may have warnings but no problems.
    #[track_caller]
    pub(crate) fn gate(&self, config: Value) -> Arc<dyn Gate> {
        let (gate, problems) = self.build(config);
        gate.unwrap_or_else(|| panic!("{problems:?}"))
    }

    /// The problems of `config`, as `path: message (help)`.
    pub(crate) fn problems(&self, config: Value) -> Vec<String> {
        self.build(config).1
    }

    fn build(&self, config: Value) -> (Option<Arc<dyn Gate>>, Vec<String>) {
        let config: GateConfig = serde_json::from_value(config).unwrap();
        let (base, mut problems) = (BaseDir::new(self.folder.path()), Problems::default());
        let clock: Arc<dyn Clock> = self.clock.clone();
        let outbound = Arc::new(Outbound::new(Arc::clone(&clock)));
        let launchers = Arc::new(Launchers::new(std::path::PathBuf::new(), 1));
        let means = RegistriesMeans { outbound: &outbound, launchers: &launchers, clock: &clock };
        let mut section = Section::new(&base, Path::root(), &mut problems);
        let registries = Registries::build(&BTreeMap::new(), means, &mut section);
        let context = BuildContext {
            launchers: &launchers,
            evaluator: &Evaluator::none(),
            raw: &Value::Null,
            base: &base,
            clock: &clock,
            outbound: &outbound,
            registries: &registries,
            scope: &NameScope::input(),
            is_route: true,
            package: None,
            isolated: None,
        };
        let gate = config.build(&mut Building::new(context, Path::root().key("gate"), &mut problems));
        let messages = problems.into_vec().into_iter().map(|problem| match problem.help {
            Some(help) => format!("{}: {} ({help})", problem.path, problem.message),
            None => format!("{}: {}", problem.path, problem.message),
        });
        (gate, messages.collect())
    }
}

/// Asks `gate` with `parameters`.
pub(crate) async fn ask_with(
    gate: &Arc<dyn Gate>,
    parameters: Value,
    may_reuse: bool,
) -> Result<CiVerdict, BackendError> {
    let parameters: Arc<Parameters> = Arc::new(serde_json::from_value(parameters).unwrap());
    let deadline = Instant::now() + Duration::from_secs(5);
    let query = Query::new("apps".into(), Arc::clone(&parameters), deadline);
    let context = Context::of_input(&query, &Evaluator::none());
    gate.check(GateQuery { context: &context, parameters: &parameters, item: None, deadline, may_reuse }).await
}

/// Asks `gate` about [`HEAD`], without cached verdicts.
pub(crate) async fn ask(gate: &Arc<dyn Gate>) -> Result<CiVerdict, BackendError> {
    ask_with(gate, serde_json::json!({"head_sha": HEAD}), false).await
}

/// Asserts that a gate's result is a verdict of `state`.
#[track_caller]
pub(crate) fn is(result: Result<CiVerdict, BackendError>, state: CiState) -> CiVerdict {
    let verdict = result.unwrap();
    assert_eq!(verdict.state, state, "{:?}", verdict.evidence);
    verdict
}

/// Asserts that a gate's result is an error of `kind` whose message contains `says`.
#[track_caller]
pub(crate) fn unknown(result: Result<CiVerdict, BackendError>, kind: &str, says: &str) -> BackendError {
    let error = result.unwrap_err();
    assert_eq!(error.kind.as_str(), kind, "{}", error.message);
    assert!(error.message.contains(says), "`{}` does not say `{says}`", error.message);
    assert!(matches!(error.kind, ErrorKind::InvalidInput) || !error.message.contains(char::is_control));
    error
}
