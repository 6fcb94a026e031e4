//! `script`: runs a program for each request. The program reads the request from stdin and its environment, and writes a list
//! to stdout in the format of its `protocol`. Any other output, also blank output, is *unknown*. A [`worker`] keeps running
//! and answers many requests.

mod build;
mod capture;
mod config;
mod confinement;
mod environment;
mod executable;
mod exit;
mod interpreter;
mod names;
mod package;
mod pipes;
pub mod probe;
mod protocol;
mod run;
mod worker;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

pub use self::protocol::Protocol;
pub use self::{
    config::{CommandConfig, Config, ScriptsConfig},
    confinement::{AllowConfig, LimitsConfig},
    package::{Package, PackageSource},
    worker::{Mode, WorkerConfig},
};
use self::{
    protocol::Reading,
    run::{Job, Run, run},
    worker::Pool,
};
use super::{
    Backend, Building, ITEM, KindConfig, Nature,
    mapping::{self, Inputs},
};
use domain::{
    error::BackendError,
    file::base_dir::BaseDir,
    generator::{Outcome, Query},
    replay::Sources,
    secret::{Secret, Secrets, TextOrSecret},
    units::HumanDuration,
};
use lang::{
    evaluator::{Evaluator, Variables},
    expression::Expression,
};
use launcher::{Environment, LaunchError, LauncherPool, Program};
use source::{Load, work_on};
use telemetry::trace::{self, Span, SpanKind};

/// Inherited variables whose values are not secret.
const PUBLIC: [&str; 3] = ["PATH", "LANG", "TZ"];
/// The length from which an inherited value counts as a secret, in bytes.
const SHORTEST_SECRET: usize = 8;

/// A program, found and ready to run.
#[derive(Debug)]
pub struct Script {
    program: Arc<Program>,
    package: Option<Package>,
    protocol: Protocol,
    parameters: Option<Arc<Expression>>,
    inherited: Vec<(String, OsString)>,
    env: BTreeMap<String, TextOrSecret>,
    base: BaseDir,
    timeout: HumanDuration,
    max_output: usize,
    launchers: LauncherPool,
    /// Only with `mode: worker`.
    workers: Option<Pool>,
    evaluator: Evaluator,
    /// The words of its command, for messages about replies in its place.
    command: String,
    /// Lists in place of the program, or notes of them.
    sources: Option<Arc<dyn Sources>>,
    nature: Nature,
}

impl Script {
    /// The configured environment of a run, and the secrets in it.
    fn environment(&self) -> Result<(Environment<'_>, Secrets), BackendError> {
        let inherited = self.inherited.iter().map(|(name, value)| (name.into(), value.into()));
        let mut variables: Environment<'_> = inherited.collect();
        let inherited = self.inherited.iter().filter(|(name, _)| !PUBLIC.contains(&name.as_str()));
        let inherited =
            inherited.filter_map(|(_, value)| value.to_str().filter(|value| value.len() >= SHORTEST_SECRET));
        let mut secrets: Secrets = inherited.map(|value| Secret::from(value.to_owned())).collect();
        for (name, value) in &self.env {
            let value: Cow<'_, OsStr> = match value {
                TextOrSecret::Text(text) => OsStr::new(text).into(),
                TextOrSecret::Secret(reference) => {
                    let secret = reference.read(&self.base).map_err(BackendError::unavailable)?;
                    let value = OsString::from(secret.expose()).into();
                    secrets.push(secret);
                    value
                }
            };
            variables.push((environment::alias(name).into(), value.clone()));
            variables.push((name.into(), value));
        }
        if let Some(package) = &self.package {
            package.add_to_path(&mut variables);
        }
        Ok((variables, secrets))
    }
}

impl KindConfig for Config {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Script::build(self, building)?))
    }
}

#[async_trait]
impl Backend for Script {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let name = self.name();
        if let Some(list) = self.sources.as_ref().and_then(|sources| sources.list(&self.command)) {
            let items = list.map_err(|error| error.within(&name))?;
            let reading = self.map(Reading::from(items), Load::Unknown, query).await?;
            return Ok(Outcome::of_list(reading.items, format!("replayed {name}"), "an explicit []"));
        }
        if let Some(workers) = &self.workers {
            let (environment, secrets) = self.environment()?;
            let job = self.job(query, &secrets);
            let span = self.span("worker");
            let reading = span.instrument(workers.call(&self.program, environment, &job)).await;
            let reading = record_failure(&span, reading.map_err(|error| self.explain(error).within(&name)));
            self.note(&reading);
            let reading = reading?;
            let reading =
                self.map(reading, Load::Unknown, query).await.map_err(|error| secrets.clean(&error).within(&name))?;
            return Ok(Outcome::of_list(reading.items, format!("called {name}"), "an explicit []").lasting(reading.ttl));
        }
        let span = self.span("script");
        let ran = record_failure(&span, span.instrument(self.run(query)).await);
        if let Err(error) = &ran {
            self.note(&Err(error.clone()));
        }
        let (run, secrets) = ran?;
        let reading = self.read(run.output, run.is_whole, query, &secrets).await.map_err(|error| {
            let error = secrets.clean(&error).within("its output").within(&name);
            BackendError { message: error.message + &run.stderr.tail(&secrets), ..error }
        })?;
        Ok(Outcome::of_list(reading.items, format!("ran {name}"), "an explicit []").lasting(reading.ttl))
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn start(&self) {
        let Some(workers) = &self.workers else { return };
        match self.environment() {
            Ok((environment, _)) => workers.start(&self.program, environment),
            Err(why) => {
                tracing::warn!(%why, program = %self.program.path.display(), "no worker starts before the first request");
            }
        }
    }

    fn secrets(&self) -> Secrets {
        self.environment().map(|(_, secrets)| secrets).unwrap_or_default()
    }
}

impl Script {
    /// The program's name in messages.
    fn name(&self) -> Cow<'_, str> {
        self.program.path.file_name().unwrap_or_default().to_string_lossy()
    }

    /// A span of the request's trace. `kind` is `script` or `worker`.
    fn span(&self, kind: &str) -> Span {
        let span = trace::begin(SpanKind::Internal, || format!("{kind} {}", self.name()));
        span.note(|record| record.set("process.executable.name", self.name().into_owned()));
        span
    }

    /// The error for a caller. Says why an existing program could not be started.
    fn explain(&self, error: LaunchError) -> BackendError {
        let failure = match error {
            LaunchError::NotStarted(failure) => failure,
            LaunchError::Other(error) => return error,
        };
        let program = match &self.program.first {
            Some(first) if failure.is_first => &first.path,
            _ => &self.program.path,
        };
        let folder = self.package.as_ref().map_or(self.base.as_path(), Package::working);
        interpreter::explain(&failure, &folder.join(program), folder)
    }

    fn job<'a>(&'a self, query: &'a Query, secrets: &'a Secrets) -> Job<'a> {
        let own_deadline = Instant::now() + self.timeout.0;
        Job {
            launchers: &self.launchers,
            input: self.protocol.input(query),
            max_output: self.max_output,
            secrets,
            deadline: query.deadline.min(own_deadline),
            limit: if own_deadline < query.deadline {
                format!("its `timeout` of {}", self.timeout).into()
            } else {
                "the deadline of the whole call".into()
            },
            watch: query.watch.as_ref(),
        }
    }

    /// Runs the program once. Returns a run that ended well, and the secrets that were passed to the program.
    async fn run(&self, query: &Query) -> Result<(Run, Secrets), BackendError> {
        let (mut environment, mut secrets) = self.environment()?;
        if let Some(package) = &self.package {
            package.add_source(&mut environment, query)?;
        }
        environment::add(&mut environment, &query.parameters)?;
        environment::add_trace(&mut environment);
        secrets.hide(environment::dump_pattern(&query.parameters));
        let name = self.name();
        let run = run(&self.program, &environment, self.job(query, &secrets)).await;
        let run = run.map_err(|error| self.explain(error).within(&name))?;
        exit::check(&run, &secrets).map_err(|error| {
            let error = if run.ended.is_first { error.within("init") } else { error };
            error.within(&name)
        })?;
        Ok((run, secrets))
    }

    /// Reads `output` and maps the list.
    async fn read(
        &self,
        output: Bytes,
        is_whole: bool,
        query: &Query,
        secrets: &Secrets,
    ) -> Result<Reading, BackendError> {
        if !is_whole && !self.protocol.has_end() {
            return Err(BackendError::invalid_output(
                "a process that it had started was still writing 250 ms after its end and was killed, so output may be \
                 missing (let the program wait for the processes that it starts)",
            ));
        }
        let (protocol, secrets) = (self.protocol, secrets.clone());
        let load = if protocol.expands() { Load::Unknown } else { Load::Bytes(output.len()) };
        let reading = work_on(load, move || protocol.read(&output, &secrets)).await;
        self.note(&reading);
        let reading = reading?;
        self.map(reading, load, query).await
    }

    /// Records the list of the program, if lists are recorded.
    fn note(&self, reading: &Result<Reading, BackendError>) {
        let Some(sources) = &self.sources else { return };
        sources.note_list(&self.command, reading.as_ref().map(|reading| &*reading.items));
    }

    /// Maps the list with the expression `parameters`.
    async fn map(&self, reading: Reading, load: Load, query: &Query) -> Result<Reading, BackendError> {
        let Some(expression) = &self.parameters else { return Ok(reading) };
        let items = reading.items.into_iter().map(|item| Value::Object(item.0)).collect::<Vec<_>>();
        let mut variables = Variables::default().value("items", Value::Array(items));
        if expression.mentions("params") {
            variables = variables.value("params", Value::Object((*query.parameters).clone()));
        }
        if let Some(item) = query.item() {
            variables = variables.value(ITEM, Arc::clone(item));
        }
        let (deadline, invalid) = (query.deadline, BackendError::invalid_output);
        let value = mapping::evaluate(&self.evaluator, expression, Inputs { variables, load }, deadline, invalid).await;
        Ok(Reading { items: mapping::mapped(value)?, ttl: reading.ttl })
    }
}

/// Records the kind of an error of `result` in `span`.
fn record_failure<T>(span: &Span, result: Result<T, BackendError>) -> Result<T, BackendError> {
    result.inspect_err(|error| span.note(|record| record.fail(error.kind.as_str())))
}
