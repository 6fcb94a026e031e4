//! `shadow`: the candidate for the place of a route's backend.

use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use backend::{BackendConfig, BuildContext};
use domain::{
    problem::{Path, Problems, Severity},
    units::{HumanDuration, Percent},
};
use engine::{
    guard::{Identity, identity::check_keys},
    shadow::{Shadow, ShadowParts},
    shape::{Shape, ShapeConfig},
};
use lang::scope::ValueType;
use source::Backend;
use telemetry::metrics::Metrics;

/// A second backend, the candidate. It is asked what the route's backend has just answered, and the answers are compared. Callers never
/// get its answers, and do not wait for it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ShadowConfig {
    /// The candidate.
    pub(crate) backend: BackendConfig,
    /// Its `output`; the route's unless set.
    output: Option<IndexMap<String, String>>,
    /// After which share of the runs of the route's backend the candidate is asked.
    #[serde(default = "default_sample")]
    sample: Percent,
    /// The keys that tell which sets of the two answers belong together; the guard's `identity` unless set.
    identity: Option<Identity>,
    /// Keys that are not compared. Keys that vary between answers of the route's own backend are not compared either.
    #[serde(default)]
    ignore: Vec<String>,
    /// When the candidate is given up; the route's `deadline` unless set.
    timeout: Option<HumanDuration>,
}

const fn default_sample() -> Percent {
    Percent(100)
}

/// What a shadow takes over from its route.
pub(crate) struct ShadowOf<'a> {
    /// The route's name.
    pub(crate) route: &'a str,
    /// The route's configuration as a document.
    pub(crate) raw: &'a Value,
    /// The route's own backend, unless something is wrong with it.
    pub(crate) primary: Option<&'a Arc<dyn Backend>>,
    /// How its answers look.
    pub(crate) shape: ShapeConfig<'a>,
    /// The keys that its parameter sets can have, if that is known.
    pub(crate) keys: Option<Vec<&'a str>>,
    /// What the guard tells its sets apart by.
    pub(crate) identity: &'a Identity,
    /// When a call of it is given up.
    pub(crate) deadline: HumanDuration,
}

impl ShadowConfig {
    /// The shadow. `None` if something is wrong with it, which is noted below `path`, or with its route.
    pub(crate) fn build(
        &self,
        of: &ShadowOf<'_>,
        around: BuildContext<'_>,
        metrics: &Metrics,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Arc<Shadow>> {
        self.check(of, path, problems);
        // With the keys of a route that backends look at.
        let raw = json!({ "input": of.raw["input"], "backend": of.raw["shadow"]["backend"] });
        let evaluator =
            around.apart.map_or_else(|| around.evaluator.of_another_route(), |apart| apart.evaluators.of_route());
        let around = BuildContext { raw: &raw, evaluator: &evaluator, ..around };
        let around = around.apart.map_or(around, |apart| BuildContext {
            outbound: &apart.outbound,
            registries: &apart.registries,
            launchers: &apart.launchers,
            ..around
        });
        let backend = self.backend.build(around, &path.key("backend"), problems);
        let item = backend.as_deref().map(Backend::item).unwrap_or_default();
        let shape = self.shape(&item, of, around, path, problems);
        self.check_keys(of, shape.possible_keys(&item).as_deref(), path, problems);
        let parts = ShadowParts {
            route: of.route.into(),
            kind: self.backend.kind(),
            backend: backend?,
            primary: Arc::clone(of.primary?),
            shape,
            sample: self.sample,
            identity: self.identity.as_ref().unwrap_or(of.identity).clone(),
            ignore: self.ignore.iter().cloned().collect(),
            timeout: self.timeout.unwrap_or(of.deadline),
            clock: Arc::clone(around.clock),
            metrics: metrics.shadows.of_route(of.route),
        };
        Some(Arc::new(Shadow::new(parts)))
    }

    /// Notes what contradicts itself.
    fn check(&self, of: &ShadowOf<'_>, path: &Path, problems: &mut Problems) {
        if self.sample.0 == 0 {
            let help = "leave `shadow` out, or name a share such as `10%`";
            problems.error_with_help(&path.key("sample"), "with 0% the candidate is never asked", help);
        }
        if let Some(timeout) = self.timeout {
            problems.check_not_zero(&path.key("timeout"), timeout.0);
        }
        let identity = self.identity.as_ref().unwrap_or(of.identity);
        let Identity::Keys(keys) = identity else { return };
        for (index, key) in self.ignore.iter().enumerate().filter(|(_, key)| keys.contains(key)) {
            let help = "sets that belong together have the same value there; remove it from one of the two";
            problems.error_with_help(&path.key("ignore").index(index), format!("`{key}` is in `identity`"), help);
        }
    }

    /// Notes the keys in `identity` that one of the two backends cannot have, and those in `ignore` that none can have. `keys` are those of the
    /// candidate's parameter sets, if they are known.
    fn check_keys(&self, of: &ShadowOf<'_>, keys: Option<&[&str]>, path: &Path, problems: &mut Problems) {
        let known: Vec<&[&str]> = [of.keys.as_deref(), keys].into_iter().flatten().collect();
        let is_common = |key: &&str| known.iter().all(|keys| keys.contains(key));
        let common: Vec<&str> =
            known.first().into_iter().flat_map(|keys| keys.iter().copied()).filter(is_common).collect();
        let of_guard = |key: &&String| !common.contains(&key.as_str()) && known.len() == 2;
        match (&self.identity, of.identity) {
            (Some(identity), _) => identity.check_keys(&common, &path.key("identity"), problems),
            (None, Identity::Keys(all)) => {
                for key in all.iter().filter(of_guard).filter(|key| known[0].contains(&key.as_str())) {
                    let message = format!("its parameter sets have no key `{key}`, which `guard.identity` names");
                    let help = "give the shadow an `identity` of its own: keys that both backends have";
                    problems.mistake(&path.key("backend"), message, help);
                }
            }
            (None, Identity::Auto) => {}
        }
        if let [one, two] = &known[..] {
            check_keys(&self.ignore, &[*one, *two].concat(), &path.key("ignore"), problems);
        }
    }

    /// How the candidate's answers look. Problems of the route's own keys have been noted already.
    fn shape(
        &self,
        item: &ValueType,
        of: &ShadowOf<'_>,
        around: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Shape {
        let mut found = Problems::default();
        let shape = ShapeConfig { output: self.output.as_ref().or(of.shape.output), ..of.shape };
        let shape = Shape::build(shape, &around.scope.with_keys_of(item), around.evaluator, path, &mut found);
        let output = path.key("output");
        for problem in found.into_vec().into_iter().filter(|problem| problem.path.is_within(&output)) {
            if self.output.is_some() {
                problems.add(problem);
            } else if problem.severity == Severity::Mistake {
                // The template is good, but not for this backend.
                let message = format!("with the route's `output`: {}", problem.message);
                let help = "give the candidate an `output` of its own: `shadow: { output: … }`";
                problems.mistake(&path.key("backend"), message, help);
            }
        }
        shape
    }
}
