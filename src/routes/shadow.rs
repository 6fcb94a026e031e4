//! `shadow`: the candidate for the place of a route's backend.

use std::sync::Arc;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use backend::{BackendConfig, BuildContext, Building};
use domain::{
    problem::{Problems, Severity},
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

/// A second backend, the candidate. It gets the query that the route's backend has just answered, and the answers are compared. Callers never
/// get its answers, and do not wait for it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ShadowConfig {
    /// The candidate.
    pub(crate) backend: BackendConfig,
    /// Its `output`; the route's unless set.
    output: Option<IndexMap<String, String>>,
    /// After which share of the runs of the route's backend the candidate is called.
    #[serde(default = "default_sample")]
    sample: Percent,
    /// The keys by which sets of the two answers belong together; the guard's `identity` unless set.
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

/// The parts that a shadow takes over from its route.
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
    /// By which keys the guard identifies its sets.
    pub(crate) identity: &'a Identity,
    /// When a call of it is given up.
    pub(crate) deadline: HumanDuration,
}

impl ShadowConfig {
    /// The shadow. `None` if something is wrong with it, which is noted, or with its route.
    pub(crate) fn build(
        &self,
        of: &ShadowOf<'_>,
        metrics: &Metrics,
        building: &mut Building<'_>,
    ) -> Option<Arc<Shadow>> {
        self.check(of, building);
        // With the keys of a route that backends look at.
        let raw = json!({ "input": of.raw["input"], "backend": of.raw["shadow"]["backend"] });
        let context = building.context;
        let evaluator = match context.isolated {
            Some(isolated) => isolated.evaluators.of_route(),
            None => context.evaluator.of_another_route(),
        };
        let context = BuildContext { raw: &raw, evaluator: &evaluator, ..context };
        let context = context.isolated.map_or(context, |isolated| BuildContext {
            outbound: &isolated.outbound,
            registries: &isolated.registries,
            launchers: &isolated.launchers,
            ..context
        });
        let building = &mut building.with(context);
        let backend = self.backend.build(&mut building.key("backend"));
        let item = backend.as_ref().map(|backend| backend.nature().item.clone()).unwrap_or_default();
        let shape = self.shape(&item, of, building);
        self.check_keys(of, shape.possible_keys(&item).as_deref(), building);
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
            clock: Arc::clone(context.clock),
            metrics: metrics.shadows.of_route(of.route),
        };
        Some(Arc::new(Shadow::new(parts)))
    }

    /// Notes contradictions.
    fn check(&self, of: &ShadowOf<'_>, building: &mut Building<'_>) {
        if self.sample.0 == 0 {
            let help = "leave `shadow` out, or name a share such as `10%`";
            building.key("sample").error_with_help("with 0% the candidate is never called", help);
        }
        if let Some(timeout) = self.timeout {
            building.problems.check_not_zero(&building.path.key("timeout"), timeout.0);
        }
        let identity = self.identity.as_ref().unwrap_or(of.identity);
        let Identity::Keys(keys) = identity else { return };
        for (index, key) in self.ignore.iter().enumerate().filter(|(_, key)| keys.contains(key)) {
            let help = "sets that belong together have the same value there; remove it from one of the two";
            building.key("ignore").index(index).error_with_help(format!("`{key}` is in `identity`"), help);
        }
    }

    /// Notes the keys in `identity` that one of the two backends cannot have, and those in `ignore` that none can have. `keys` are those of the
    /// candidate's parameter sets, if they are known.
    fn check_keys(&self, of: &ShadowOf<'_>, keys: Option<&[&str]>, building: &mut Building<'_>) {
        let known: Vec<&[&str]> = [of.keys.as_deref(), keys].into_iter().flatten().collect();
        let is_common = |key: &&str| known.iter().all(|keys| keys.contains(key));
        let common: Vec<&str> =
            known.first().into_iter().flat_map(|keys| keys.iter().copied()).filter(is_common).collect();
        let of_guard = |key: &&String| !common.contains(&key.as_str()) && known.len() == 2;
        match (&self.identity, of.identity) {
            (Some(identity), _) => {
                identity.check_keys(&common, &building.path.key("identity"), building.problems);
            }
            (None, Identity::Keys(all)) => {
                for key in all.iter().filter(of_guard).filter(|key| known[0].contains(&key.as_str())) {
                    let message = format!("its parameter sets have no key `{key}`, which `guard.identity` names");
                    let help = "give the shadow an `identity` of its own: keys that both backends have";
                    building.key("backend").mistake(message, help);
                }
            }
            (None, Identity::Auto) => {}
        }
        if let [one, two] = &known[..] {
            check_keys(&self.ignore, &[*one, *two].concat(), &building.path.key("ignore"), building.problems);
        }
    }

    /// How the candidate's answers look. Problems of the route's own keys have been noted already.
    fn shape(&self, item: &ValueType, of: &ShadowOf<'_>, building: &mut Building<'_>) -> Shape {
        let BuildContext { scope, evaluator, .. } = building.context;
        let mut found = Problems::default();
        let shape = ShapeConfig { output: self.output.as_ref().or(of.shape.output), ..of.shape };
        let shape = Shape::build(shape, &scope.with_keys_of(item), evaluator, &building.path, &mut found);
        let output = building.path.key("output");
        for problem in found.into_vec().into_iter().filter(|problem| problem.path.is_within(&output)) {
            if self.output.is_some() {
                building.problems.add(problem);
            } else if problem.severity == Severity::Mistake {
                // The template is good, but not for this backend.
                let message = format!("with the route's `output`: {}", problem.message);
                let help = "give the candidate an `output` of its own: `shadow: { output: … }`";
                building.key("backend").mistake(message, help);
            }
        }
        shape
    }
}
