//! `script`: a program that is run for each question. It reads the request as JSON on stdin and in its
//! environment, and writes one JSON document on stdout: a list of objects, or Argo CD's own
//! `{"output":{"parameters":[…]}}`. Anything else, blank output included, is *unknown*.

mod confinement;
mod environment;
mod exit;
mod names;
mod run;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path as FilePath, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    confinement::{AllowConfig, Confinement, LimitsConfig},
    run::{Job, describe, run},
};
use super::{Backend, Surroundings, parameter_sets};
use crate::{
    base_dir::BaseDir,
    document::{self, kind_of},
    error::BackendError,
    generator::{Outcome, ParameterSet, Query},
    launcher::{Bay, How, Network, Program},
    problem::{Path, Problems},
    secret::{Secret, Secrets, TextOrSecret},
    units::{ByteSize, HumanDuration},
};

/// A program and what it is given.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ScriptBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The program and its arguments. No shell is involved. A bare name is looked up in `PATH` at the
    /// start; the program runs in the folder of the configuration file.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Environment variables. A value is text, or a secret reference. Each is passed on as `ARGOCD_ENV_<name>` too.
    #[serde(default)]
    pub env: BTreeMap<String, TextOrSecret>,
    /// Variables of the gateway's own environment that are passed on. All others are not. Like those of `env`,
    /// their values never show in a message.
    #[serde(default = "default_inherit_env")]
    pub inherit_env: Vec<String>,
    /// How long a run may take.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// The largest output that is accepted.
    #[serde(default = "default_max_output")]
    pub max_output: ByteSize,
    /// How many runs of it there may be at once; others wait for their turn, as long as their deadline allows.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1))]
    pub concurrency: usize,
    /// Files and folders that it may use, besides those of the system, of its program and of its own work folder.
    #[serde(default)]
    pub allow: AllowConfig,
    /// What each of its processes may use.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// As whom it runs, by name or number (`nobody`, `65534`, `1000:1000`); the gateway must be root for that. As the
    /// gateway unless set.
    pub user: Option<String>,
    /// Whether it has a network.
    #[serde(default)]
    pub network: Network,
}

/// What all scripts share.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptsConfig {
    /// How many runs of all scripts there may be at once.
    #[schemars(range(min = 1))]
    pub concurrency: usize,
}

impl Default for ScriptsConfig {
    fn default() -> Self {
        Self { concurrency: 32 }
    }
}

/// Variables that everyone may see.
const PUBLIC: [&str; 3] = ["PATH", "LANG", "TZ"];
/// An inherited value that is shorter is no secret, in bytes.
const SHORTEST_SECRET: usize = 8;

/// What may help a script that was denied something.
const HINT: &str = "; a script may use the system's files, its program's and its own folder (TMPDIR), and what `allow` \
                    names besides";

fn default_inherit_env() -> Vec<String> {
    PUBLIC.map(str::to_owned).into()
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_concurrency() -> usize {
    8
}

const fn default_max_output() -> ByteSize {
    ByteSize::mib(4)
}

/// Environment variables and their values.
type Environment = Vec<(String, OsString)>;

/// A program, found and ready to run.
#[derive(Debug)]
pub struct Script {
    program: PathBuf,
    arguments: Vec<String>,
    inherited: Environment,
    env: BTreeMap<String, TextOrSecret>,
    base: BaseDir,
    timeout: HumanDuration,
    max_output: usize,
    bay: Bay,
}

impl Script {
    /// Finds the program and checks the environment.
    pub fn build(config: &Config, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        for (name, value) in &config.env {
            if let TextOrSecret::Secret(secret) = value {
                secret.check(around.base, &path.key("env").key(name), problems);
            }
        }
        names::check(config, around.raw, path, problems);
        problems.check_not_zero(&path.key("timeout"), config.timeout.0);
        let (script_path, path) = (path, &path.key("command"));
        let Some((program, arguments)) = config.command.split_first() else {
            problems.error_with_help(path, "the command is empty", "name a program: `command: [python3, branches.py]`");
            return None;
        };
        let program = problems.note(path, find_program(program, around.base));
        if config.concurrency == 0 {
            problems.error(&script_path.key("concurrency"), "with 0 it would never run");
        }
        let confinement = Confinement {
            allow: &config.allow,
            limits: config.limits,
            user: config.user.as_deref(),
            network: config.network,
        };
        let known = program.as_deref().unwrap_or(FilePath::new(""));
        let terms = confinement.terms(known, arguments, around.base, script_path, problems);
        let (program, terms) = (program?, terms?);
        Some(Self {
            program,
            arguments: arguments.to_vec(),
            inherited: config
                .inherit_env
                .iter()
                .filter_map(|name| Some((name.clone(), std::env::var_os(name)?)))
                .collect(),
            env: config.env.clone(),
            base: around.base.clone(),
            timeout: config.timeout,
            max_output: config.max_output.as_usize(),
            bay: Bay::new(around.launchers, terms, config.concurrency),
        })
    }

    /// The environment of a run, and the secrets in it.
    fn environment(&self) -> Result<(Environment, Secrets), BackendError> {
        let mut variables = self.inherited.clone();
        let inherited = self.inherited.iter().filter(|(name, _)| !PUBLIC.contains(&name.as_str()));
        let inherited =
            inherited.filter_map(|(_, value)| value.to_str().filter(|value| value.len() >= SHORTEST_SECRET));
        let mut secrets: Secrets = inherited.map(|value| Secret::from(value.to_owned())).collect();
        for (name, value) in &self.env {
            let value: OsString = match value {
                TextOrSecret::Text(text) => text.into(),
                TextOrSecret::Secret(reference) => {
                    let secret = reference.read(&self.base).map_err(BackendError::unavailable)?;
                    let value = secret.expose().into();
                    secrets.push(secret);
                    value
                }
            };
            variables.push((environment::alias(name), value.clone()));
            variables.push((name.clone(), value));
        }
        Ok((variables, secrets))
    }
}

#[async_trait]
impl Backend for Script {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let (mut environment, mut secrets) = self.environment()?;
        environment::add(&mut environment, &query.parameters)?;
        secrets.hide(environment::dumped(&query.parameters));
        let request = json!({
            "applicationSetName": *query.application_set,
            "input": { "parameters": *query.parameters },
        });
        let program = Program {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            environment: environment.into_iter().map(|(name, value)| (name, value.into())).collect(),
            folder: Some(self.base.as_path().to_owned()),
        };
        let job = Job {
            bay: &self.bay,
            program,
            input: format!("{request}\n").into_bytes(),
            most: self.max_output,
            until: query.deadline.min(Instant::now() + self.timeout.0),
        };
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        let run = run(job).await.map_err(|error| error.within(&name))?;
        let output = exit::output(run, &secrets).map_err(|error| error.within(&name))?;
        let (sets, ttl) =
            read_output(&output, &secrets).map_err(|error| secrets.clean(&error).within("its output").within(&name))?;
        Ok(Outcome::of_list(sets, format!("ran {name}"), "an explicit []").lasting(ttl))
    }
}

/// The parameter sets of an output, and for how long it says that they last.
fn read_output(output: &[u8], secrets: &Secrets) -> Result<(Vec<ParameterSet>, Option<Duration>), BackendError> {
    let document = document::parse(output).map_err(|error| {
        let shown = secrets.excerpt(output, 120);
        let shown = if shown.is_empty() { String::new() } else { format!(" (it begins with `{shown}`)") };
        BackendError::invalid_output(format!("not one JSON document: {error}{shown}"))
    })?;
    match document {
        Value::Object(mut map) => {
            let is_said = |key: &&str| map.get(*key).is_some_and(|value| !is_blank(value));
            if let Some(key) = ["error", "errors"].into_iter().find(is_said) {
                return Err(BackendError::invalid_output(format!("it holds `{key}`: {}", map[key])));
            }
            let ttl = map.remove("cache").map(read_ttl).transpose()?;
            let parameters = map.get_mut("output").and_then(|output| output.get_mut("parameters")).map(Value::take);
            let parameters = parameters.ok_or_else(|| {
                BackendError::invalid_output(
                    "an object without `output.parameters`; write a list, or Argo CD's own form",
                )
            })?;
            let sets = parameter_sets(parameters).map_err(|error| error.within("output.parameters"))?;
            Ok((sets, ttl))
        }
        Value::Array(_) => Ok((parameter_sets(document)?, None)),
        other => Err(BackendError::invalid_output(format!("expected a list of objects, found {}", kind_of(&other)))),
    }
}

/// Whether a program that always writes its `error` says with `value` that there was none.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Reads `{"ttl": "30s"}`. A life that cannot be read is an error: whoever set one meant it.
fn read_ttl(cache: Value) -> Result<Duration, BackendError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cache {
        ttl: HumanDuration,
    }
    let cache: Cache = document::read_object(cache)
        .map_err(|error| BackendError::invalid_output(format!("cache: {error}; write {{\"ttl\": \"30s\"}}")))?;
    Ok(cache.ttl.0)
}

/// The program's absolute path: an environment that was cleared finds no bare name, and an unknown
/// program is better known at the start.
fn find_program(name: &str, base: &BaseDir) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path = base.resolve(name);
        return if is_executable(&path) {
            Ok(path)
        } else {
            Err(format!("{} is not an executable file", path.display()))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_absolute() && is_executable(candidate))
        .ok_or_else(|| format!("there is no program `{name}` in PATH"))
}

fn is_executable(path: &FilePath) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_of_output() {
        let read = |output| read_output(output, &Secrets::default());
        let lengths = |output| read(output).map(|(sets, ttl)| (sets.len(), ttl)).unwrap();
        assert_eq!(lengths(b"[{\"a\":1}]"), (1, None));
        assert_eq!(lengths(br#"{"output":{"parameters":[]},"error":"","errors":[]}"#), (0, None));
        let lasting = br#"{"output":{"parameters":[{}]},"cache":{"ttl":"1m30s"}}"#;
        assert_eq!(lengths(lasting), (1, Some(Duration::from_secs(90))));
        for (bad, says) in [
            (&b""[..], "blank"),
            (b"[1]", "item 0 is a number"),
            (b"{}", "without `output.parameters`"),
            (br#"{"parameters":[]}"#, "without `output.parameters`"),
            (br#"{"output":{"parameters":null}}"#, "found null"),
            (b"null", "found null"),
            (b"<html>", "begins with `<html>`"),
            (b"[] []", "trailing"),
            (br#"{"output":{"parameters":[]},"error":"x"}"#, "it holds `error`"),
            (br#"{"output":{"parameters":[]},"cache":{"ttl":30}}"#, "cache: "),
            (br#"{"output":{"parameters":[]},"cache":{"ttl":"soon"}}"#, "`soon` is not a duration"),
            (br#"{"output":{"parameters":[]},"cache":{"swr":"1s"}}"#, "unknown field `swr`"),
            (br#"{"output":{"parameters":[]},"cache":null}"#, "cache: expected an object"),
            (br#"{"output":{"parameters":[]},"cache":["30s"]}"#, "cache: expected an object"),
        ] {
            let error = read(bad).unwrap_err().message;
            assert!(error.contains(says), "{error}");
        }
    }
}
