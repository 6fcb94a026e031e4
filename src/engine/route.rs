//! Which route answers a call: the one that the path names, else the first whose `match` fits, in the
//! order of the configuration.

mod announced;
pub(crate) mod announcement;
pub(crate) mod input;
pub(crate) mod matching;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use self::{
    announced::Announced,
    input::{Input, InputParameter},
    matching::{MatchConfig, Matcher},
};
use crate::{
    backend::{
        Backend, BackendConfig, BuildContext,
        script::{CommandConfig, Package, probe::Probe},
    },
    domain::{
        clock::Timestamp,
        error::BackendError,
        generator::{Parameters, Query, Question},
        problem::{Path, Problems},
        units::HumanDuration,
    },
    engine::{
        cache::{CacheConfig, Freshness, Key, KeyPrefix, Life, Policy, Revision},
        guard::{Guard, GuardConfig},
        shape::{Nulls, Shape},
    },
    file::base_dir::BaseDir,
    telemetry::metrics::{Metrics, RouteMetrics},
};

/// One route: which calls it takes, who answers them and what the answer looks like.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RouteConfig {
    /// The name, by which `/{name}/api/v1/getparams.execute` goes there directly: lower-case letters,
    /// digits, `-`, `_` and `.`.
    pub(crate) name: String,
    /// Which calls to `/api/v1/getparams.execute` it takes. Without it the route is reached by name
    /// only; `match: {}` takes every call.
    #[serde(rename = "match")]
    pub(crate) matches: Option<MatchConfig>,
    /// The parameters that it understands. Without it, any are accepted; with it, others are refused.
    pub(crate) input: Option<Vec<InputParameter>>,
    /// A program that announces more parameters: it prints a JSON list of them, in the words of a Config Management
    /// Plugin. It is asked once a minute at most, and runs as the route's script does.
    pub(crate) dynamic_input: Option<CommandConfig>,
    /// Where the answers come from.
    pub(crate) backend: BackendConfig,
    /// Each parameter set as templates over the backend's item and over `params` and `applicationSet`.
    /// Without it, the item is passed on as it is.
    pub(crate) output: Option<IndexMap<String, String>>,
    /// Input parameters that are copied into each parameter set.
    #[serde(default)]
    pub(crate) echo: Vec<String>,
    /// Write numbers as text. Argo CD would print 1000000 as `1e+06`.
    #[serde(default = "default_stringify")]
    pub(crate) stringify: bool,
    /// What a `null` means.
    #[serde(default)]
    pub(crate) nulls: Nulls,
    /// How long answers live.
    #[serde(default)]
    pub(crate) cache: CacheConfig,
    /// The parameters that stay when a commit moves on, such as the branch: the answer to the commit before stands
    /// in for one that is not known yet. Without it, a question is followed by itself only.
    pub(crate) lineage: Option<Vec<String>>,
    /// What an answer may lose before it is held.
    #[serde(default)]
    pub(crate) guard: GuardConfig,
    /// When a call is given up; the server's `deadline` unless set.
    pub(crate) deadline: Option<HumanDuration>,
}

const fn default_stringify() -> bool {
    true
}

/// A route, ready to answer.
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// Its backend's kind.
    pub(crate) kind: &'static str,
    /// Its backend.
    pub(crate) backend: Arc<dyn Backend>,
    /// How answers look.
    pub(crate) shape: Shape,
    /// How long they live.
    pub(crate) policy: Policy,
    /// What they may lose.
    pub(crate) guard: Guard,
    /// When a call is given up.
    pub deadline: Duration,
    /// What is counted.
    pub(crate) metrics: RouteMetrics,
    input: Accepts,
    lineage: Option<Vec<String>>,
    matcher: Option<Matcher>,
    prefix: KeyPrefix,
    revision: Revision,
    origin: Origin,
}

/// What a route was built from, but for what all routes share.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    raw: Value,
    base: BaseDir,
    deadline: HumanDuration,
    package: Option<Package>,
}

/// Which parameters a route accepts.
enum Accepts {
    /// Any.
    All,
    /// Those that are declared.
    Declared(Input),
    /// Those that a command announces.
    Announced(Box<Announced>),
}

impl Route {
    /// The parameters of a call as the backend gets them: checked, converted, with defaults.
    ///
    /// # Errors
    /// With everything that is wrong with them, or when it is not known before `until` which there are.
    pub(crate) async fn admit(
        &self,
        parameters: Arc<Parameters>,
        until: Instant,
    ) -> Result<Arc<Parameters>, BackendError> {
        let accepted = match &self.input {
            Accepts::All => return Ok(parameters),
            Accepts::Declared(input) => input.accept(Arc::unwrap_or_clone(parameters)),
            Accepts::Announced(announced) => {
                // Rare, and larger than the rest of a request.
                let input = Box::pin(announced.input(until)).await;
                let input = input.map_err(|error| error.within("which parameters it has is not known"))?;
                input.accept(Arc::unwrap_or_clone(parameters))
            }
        };
        accepted.map(Arc::new).map_err(BackendError::invalid_input)
    }

    /// The identity of `query` on this route.
    #[must_use]
    pub fn key(&self, query: &Query) -> Key {
        self.prefix.key(query)
    }

    /// Whether `parameters`, which an earlier configuration accepted, would be accepted as they are, as far as that is known
    /// without asking.
    #[must_use]
    pub(crate) fn accepts(&self, parameters: &Parameters) -> bool {
        match &self.input {
            Accepts::All | Accepts::Announced(_) => true,
            Accepts::Declared(input) => input.accept(parameters.clone()).is_ok_and(|same| same == *parameters),
        }
    }

    /// What makes its answers what they are.
    #[must_use]
    pub(crate) const fn revision(&self) -> Revision {
        self.revision
    }

    /// The state at `now` of an answer that `revision` made at `stored_at`, and that is fresh for `life`. What another
    /// revision made is of no use to callers.
    #[must_use]
    pub(crate) fn state(&self, revision: Revision, stored_at: Timestamp, life: Life, now: Timestamp) -> Freshness {
        if revision == self.revision { self.policy.state(stored_at, life, now) } else { Freshness::Expired }
    }

    /// What `query` is called in a message: its key, and the values of the parameters that the lineage names.
    #[must_use]
    pub(crate) fn describe(&self, query: &Query) -> String {
        let value = |name: &String| {
            let text = match query.parameters.get(name)? {
                Value::String(text) => text.escape_debug().to_string(),
                other => other.to_string(),
            };
            Some(format!("{name}={}, ", text.chars().take(80).collect::<String>()))
        };
        let named: String = self.lineage.iter().flatten().filter_map(value).collect();
        format!("{named}key {}", self.key(query))
    }

    /// Whether its answers may depend on the ApplicationSet that asks, whose name is then part of each question.
    #[must_use]
    pub(crate) const fn depends_on_application_set(&self) -> bool {
        self.prefix.has_application_set()
    }

    /// What is kept of `query` with its answer.
    #[must_use]
    pub(crate) fn question(&self, query: &Query) -> Question {
        Question {
            route: Arc::clone(&self.name),
            application_set: self.depends_on_application_set().then(|| Arc::clone(&query.application_set)),
            parameters: Arc::clone(&query.parameters),
        }
    }

    /// `question` asked again, now.
    #[must_use]
    pub(crate) fn query(&self, question: &Question) -> Query {
        let application_set = question.application_set.clone().unwrap_or_default();
        Query::new(application_set, Arc::clone(&question.parameters), Instant::now() + self.deadline)
    }

    /// What `query`, whose key is `key`, has in common with those that it follows: nothing, unless all the parameters are
    /// there that the lineage names.
    #[must_use]
    pub(crate) fn lineage(&self, query: &Query, key: Key) -> Key {
        let Some(names) = &self.lineage else { return key };
        let is_there = |name: &String| {
            query.parameters.get(name).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
        };
        if names.iter().all(is_there) { self.prefix.lineage(query, names) } else { key }
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// All routes.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Arc<Route>>,
    by_name: HashMap<Arc<str>, Arc<Route>>,
    /// The names of all that were added, good or not.
    names: HashSet<String>,
    /// The first route that takes every call.
    catch_all: Option<String>,
}

impl RouteTable {
    /// Builds all routes. `raw` is the list as it stands in the configuration: a route whose answers are made in another
    /// way serves none of its former ones.
    pub(crate) fn build(
        configs: &[RouteConfig],
        raw: &[Value],
        deadline: HumanDuration,
        around: BuildContext<'_>,
        metrics: &Metrics,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let mut table = Self { routes: Vec::new(), by_name: HashMap::new(), names: HashSet::new(), catch_all: None };
        for (index, config) in configs.iter().enumerate() {
            let raw = raw.get(index).unwrap_or(&Value::Null);
            table.add(config, raw, deadline, around, metrics, &path.index(index), problems);
        }
        table
    }

    /// Builds one more route, which stands at `path`.
    #[expect(clippy::too_many_arguments, reason = "they are those of `build`")]
    pub(crate) fn add(
        &mut self,
        config: &RouteConfig,
        raw: &Value,
        deadline: HumanDuration,
        around: BuildContext<'_>,
        metrics: &Metrics,
        path: &Path,
        problems: &mut Problems,
    ) {
        check_name(config, !self.names.insert(config.name.clone()), path, problems);
        if let (Some(first), Some(_)) = (&self.catch_all, &config.matches) {
            problems.warning(
                &path.key("match"),
                format!("never used: the route `{first}` before it takes every call"),
                "routes are tried in the order of the file; move the one that takes all to the end",
            );
        }
        if config.matches.as_ref().is_some_and(MatchConfig::takes_everything) {
            self.catch_all.get_or_insert_with(|| config.name.clone());
        }
        if let Some(route) = build_route(config, raw, deadline, around, metrics, path, problems) {
            let route = Arc::new(route);
            self.by_name.insert(Arc::clone(&route.name), Arc::clone(&route));
            self.routes.push(route);
        }
    }

    /// The route called `name`.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Route>> {
        self.by_name.get(name)
    }

    /// The route that takes a call: the first of those without a command whose `match` fits, else the first of the others
    /// whose `match` fits and whose command wants it.
    ///
    /// # Errors
    /// When a command does not say, with its route: one behind it must not answer in its place.
    pub(crate) async fn by_match(&self, query: &Query) -> Result<Option<&Arc<Route>>, (Arc<Route>, BackendError)> {
        let fits = |matcher: &Matcher| matcher.fits(&query.application_set, &query.parameters);
        let all = || self.routes.iter().filter_map(|route| Some((route, route.matcher.as_ref()?)));
        if let Some((route, _)) = all().find(|(_, matcher)| !matcher.must_look() && fits(matcher)) {
            return Ok(Some(route));
        }
        for (route, matcher) in all().filter(|(_, matcher)| matcher.must_look() && fits(matcher)) {
            // Rare, and larger than the rest of a request.
            if Box::pin(matcher.looks(query)).await.map_err(|error| (Arc::clone(route), error))? {
                return Ok(Some(route));
            }
        }
        Ok(None)
    }

    /// Takes over the routes of `before` that were built from the same, with all that they hold. How many there are.
    pub(crate) fn keep(&mut self, before: &Self) -> usize {
        let mut kept = 0;
        for route in &mut self.routes {
            if let Some(same) = before.by_name(&route.name).filter(|before| before.origin == route.origin) {
                *route = Arc::clone(same);
                self.by_name.insert(Arc::clone(&route.name), Arc::clone(same));
                kept += 1;
            }
        }
        kept
    }

    /// The routes that were not taken over from `before`.
    pub(crate) fn new_beside(&self, before: &Self) -> impl Iterator<Item = &Arc<Route>> {
        let is_new = |route: &&Arc<Route>| before.by_name(&route.name).is_none_or(|before| !Arc::ptr_eq(before, route));
        self.routes.iter().filter(is_new)
    }

    /// Puts another backend behind all routes, which nobody may have taken yet.
    #[cfg(test)]
    pub(crate) fn replace_backends(&mut self, backend: &Arc<dyn Backend>) {
        self.by_name.clear();
        for route in &mut self.routes {
            if let Some(route) = Arc::get_mut(route) {
                route.backend = Arc::clone(backend);
            }
            self.by_name.insert(Arc::clone(&route.name), Arc::clone(route));
        }
    }

    /// Whether nothing was ever added.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All routes in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }
}

/// Notes what is wrong with a deadline for Argo CD's calls.
pub(crate) fn check_deadline(deadline: HumanDuration, path: &Path, problems: &mut Problems) {
    problems.check_not_zero(path, deadline.0);
    if deadline.0.as_secs() >= 30 {
        problems.warning(
            path,
            "Argo CD gives up after 30 s and then shows no reason",
            "keep it below 30 s, or raise `requestTimeout` in the plugin's ConfigMap",
        );
    }
}

fn check_name(config: &RouteConfig, is_taken: bool, path: &Path, problems: &mut Problems) {
    let path = path.key("name");
    let name = &config.name;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > 63
        || !name.chars().all(fits)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        problems.error(
            &path,
            format!(
                "`{}` cannot be a route's name: up to 63 of a-z, 0-9, `-`, `_` and `.`, first a letter or digit",
                name.escape_debug()
            ),
        );
    }
    if is_taken {
        problems.error(&path, format!("two routes are called `{name}`"));
    }
}

/// Says what is wrong with a lineage, or that there should be one: a commit that is asked about for the first time
/// has no answer of its own, and an empty one deletes the preview of the commit before.
fn check_lineage(config: &RouteConfig, raw: &Value, path: &Path, problems: &mut Problems) {
    let path = path.key("lineage");
    let declared: Vec<&str> = config.input.iter().flatten().map(|parameter| parameter.name.as_str()).collect();
    let is_all = config.input.is_some() && config.dynamic_input.is_none();
    let Some(lineage) = &config.lineage else {
        let text = raw.to_string();
        let uses = |name: &&&str| declared.contains(name) || text.contains(&format!("params.{name}"));
        if let Some(commit) = COMMITS.iter().find(uses) {
            problems.warning(
                &path,
                format!("the route uses the commit `{commit}` and names no lineage"),
                "name the parameters that stay when the commit moves on, such as `lineage: [branch]`; else each new commit \
                 begins without a last good answer",
            );
        }
        return;
    };
    if lineage.is_empty() {
        problems.error_with_help(
            &path,
            "the lineage is empty, so that all questions would be one",
            "leave it out, or name parameters",
        );
    }
    for (index, name) in lineage.iter().enumerate().filter(|(_, name)| is_all && !declared.contains(&name.as_str())) {
        problems.error_with_help(
            &path.index(index),
            format!("`{name}` is not declared in `input`"),
            format!("declared: {}", declared.join(", ")),
        );
    }
}

/// What generators call a commit; Argo CD's pull request generator gives the first three.
const COMMITS: [&str; 6] = ["head_sha", "head_short_sha", "head_short_sha_7", "sha", "commit", "revision"];

fn build_route(
    config: &RouteConfig,
    raw: &Value,
    deadline: HumanDuration,
    around: BuildContext<'_>,
    metrics: &Metrics,
    path: &Path,
    problems: &mut Problems,
) -> Option<Route> {
    let evaluator = around.evaluator.of_another_route();
    let around = BuildContext { raw, evaluator: &evaluator, ..around };
    let build = |matches| Matcher::build(matches, &config.backend, around, &path.key("match"), problems);
    let matcher = config.matches.as_ref().map(build);
    let input = config.input.as_ref().map(|input| Input::build(input, &path.key("input"), problems));
    let announces = config.dynamic_input.as_ref().map(|command| {
        let path = path.key("dynamicInput").key("command");
        Probe::build(command, &config.backend, around, &path, problems)
    });
    if let (Some(input), Some(declared), None) = (&input, &config.input, &announces) {
        for (index, name) in config.echo.iter().enumerate().filter(|(_, name)| !input.has(name)) {
            let known: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).collect();
            problems.error_with_help(
                &path.key("echo").index(index),
                format!("`{name}` is not declared in `input`"),
                format!("declared: {}", known.join(", ")),
            );
        }
    }
    let shape =
        Shape::build(config.output.as_ref(), &config.echo, config.stringify, config.nulls, &evaluator, path, problems);
    check_lineage(config, raw, path, problems);
    let deadline_path = path.key("deadline");
    if let Some(deadline) = config.deadline {
        check_deadline(deadline, &deadline_path, problems);
    }
    let backend = config.backend.build(around, &path.key("backend"), problems);
    let input = match (input, announces) {
        (fixed, Some(probe)) => {
            let fixed = fixed.and(config.input.as_deref()).unwrap_or_default();
            Accepts::Announced(Box::new(Announced::new(probe?, fixed, around.clock)))
        }
        (Some(input), None) => Accepts::Declared(input),
        (None, None) => Accepts::All,
    };
    let backend = backend?;
    let reads_application_set = backend.reads_application_set() || shape.reads_application_set();
    Some(Route {
        name: config.name.as_str().into(),
        kind: config.backend.kind(),
        input,
        shape,
        policy: Policy::new(config.cache),
        guard: Guard::build(&config.guard, &path.key("guard"), problems),
        lineage: config.lineage.clone(),
        deadline: config.deadline.unwrap_or(deadline).0,
        metrics: metrics.route(&config.name, config.backend.kind()),
        matcher: matcher.flatten(),
        prefix: KeyPrefix::new(&config.name, reads_application_set),
        revision: Revision::of(raw),
        origin: Origin { raw: raw.clone(), base: around.base.clone(), deadline, package: around.package.cloned() },
        backend,
    })
}
