//! `match`: which calls a route takes.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use backend::{
    BackendConfig, Building,
    script::{CommandConfig, probe::CommandProbe},
};
use domain::glob::NameGlob;
use engine::route::matching::Matcher;
use source::Probe;

/// Conditions that must all hold. Without conditions, every call fits.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MatchConfig {
    /// A glob over the ApplicationSet's name.
    pub(crate) application_set: Option<String>,
    /// A glob over the ApplicationSet's namespace. Argo CD up to 3.5 does not send it, and then the route takes no call.
    pub(crate) application_set_namespace: Option<String>,
    /// Parameters that must be there, each with a glob over its value; `"*"` takes any value.
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, String>,
    /// A program that wants the call when it ends well and prints something that is not blank. It runs after all
    /// routes without one, and only when the other conditions hold; it runs as the route's script does.
    pub(crate) command: Option<Vec<String>>,
    /// More arguments of `command`.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// A folder that must hold a certain file.
    #[serde(skip)]
    pub(crate) file: Option<FileIn>,
}

/// A file that a folder must hold.
#[derive(Debug, Clone)]
pub(crate) struct FileIn {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// A glob over paths in it; `*` is any text without a `/`, `**` any number of folders.
    pub(crate) glob: String,
}

impl MatchConfig {
    /// Whether there is no condition.
    #[must_use]
    pub(crate) fn takes_everything(&self) -> bool {
        self.application_set.as_deref().is_none_or(|glob| glob == "*")
            && self.application_set_namespace.is_none()
            && self.parameters.is_empty()
            && self.command.is_none()
            && self.file.is_none()
    }

    /// Whether each call that `other` takes is surely taken by this one too.
    #[must_use]
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_sure = self.command.is_none() && self.file.is_none();
        let covers = |own: Option<&String>, other: Option<&String>| match (own, other) {
            (None, _) => true,
            (Some(own), Some(other)) => covers_glob(own, other),
            (Some(_), None) => false,
        };
        is_sure
            && covers(self.application_set.as_ref(), other.application_set.as_ref())
            && covers(self.application_set_namespace.as_ref(), other.application_set_namespace.as_ref())
            && self
                .parameters
                .iter()
                .all(|(name, glob)| other.parameters.get(name).is_some_and(|other| covers_glob(glob, other)))
    }

    /// Compiles all globs and finds the command. Returns `None` after noting the problems.
    pub(crate) fn build(&self, backend: &BackendConfig, building: &mut Building<'_>) -> Option<Matcher> {
        if self.command.is_none() && !self.args.is_empty() {
            building.key("args").error("there is no `command` that they are for");
        }
        let file = self
            .file
            .as_ref()
            .map(|file| Some((file.folder.clone(), building.key("file").note(NameGlob::parse_path(&file.glob))?)));
        let probe = self.command.as_ref().map(|command| {
            let command = CommandConfig { command: command.clone(), args: self.args.clone() };
            CommandProbe::build(&command, backend, &mut building.key("command"))
        });
        let compile = |glob: &str, mut building: Building<'_>| building.note(NameGlob::parse(glob));
        let application_set = self.application_set.as_ref();
        let application_set = application_set.map(|glob| compile(glob, building.key("applicationSet")));
        let namespace = self.application_set_namespace.as_ref();
        let namespace = namespace.map(|glob| compile(glob, building.key("applicationSetNamespace")));
        let mut all = building.key("parameters");
        let parameters = self.parameters.iter();
        let parameters: Vec<_> =
            parameters.map(|(name, glob)| Some((name.clone(), compile(glob, all.key(name))?))).collect();
        Some(Matcher {
            application_set: match application_set {
                Some(compiled) => Some(compiled?),
                None => None,
            },
            namespace: match namespace {
                Some(compiled) => Some(compiled?),
                None => None,
            },
            parameters: parameters.into_iter().collect::<Option<_>>()?,
            file: match file {
                Some(file) => Some(file?),
                None => None,
            },
            probe: match probe {
                Some(probe) => Some(Arc::new(probe?) as Arc<dyn Probe>),
                None => None,
            },
        })
    }
}

/// Whether `glob` surely matches all texts that `other` matches: it is the same, `other` is a text that it matches, or it ends with a `*` and
/// what stands before that matches the text that `other` begins with. It may cover more.
fn covers_glob(glob: &str, other: &str) -> bool {
    if glob == other {
        return true;
    }
    let matches = |glob: &str, text: &str| NameGlob::parse(glob).is_ok_and(|glob| glob.matches(text));
    let Some(end) = other.find(['*', '?', '[', '{', '\\']) else { return matches(glob, other) };
    let beginning = &other[..end];
    let mut beginnings = (0..=end).filter_map(|end| beginning.get(..end));
    glob.strip_suffix('*').is_some_and(|before| beginnings.any(|text| matches(before, text)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use backend::BuildContext;
    use domain::{
        clock::{Clock, SystemClock},
        file::base_dir::BaseDir,
        generator::Query,
        problem::{Path, Problems},
        section::Section,
    };
    use lang::{evaluator::Evaluator, scope::NameScope};
    use launcher::Launchers;
    use oci::{Registries, RegistriesMeans};
    use outbound::Outbound;

    fn build(config: &MatchConfig, problems: &mut Problems) -> Option<Matcher> {
        let backend: BackendConfig = serde_json::from_value(json!({"fixed": {"parameters": []}})).unwrap();
        let (base, clock) = (BaseDir::default(), Arc::new(SystemClock) as Arc<dyn Clock>);
        let outbound = Arc::new(Outbound::new(Arc::clone(&clock)));
        let launchers = Arc::new(Launchers::new("/proc/self/exe".into(), 1));
        let root = Path::root();
        let means = RegistriesMeans { outbound: &outbound, launchers: &launchers, clock: &clock };
        let registries =
            Registries::build(&BTreeMap::default(), means, &mut Section::new(&base, root.clone(), problems));
        let context = BuildContext {
            base: &base,
            clock: &clock,
            outbound: &outbound,
            launchers: &launchers,
            evaluator: &Evaluator::none(),
            raw: &Value::Null,
            registries: &registries,
            scope: &NameScope::input(),
            is_route: true,
            package: None,
            isolated: None,
        };
        config.build(&backend, &mut Building::new(context, root.key("match"), problems))
    }

    #[test]
    fn all_conditions_must_hold() {
        let config: MatchConfig =
            serde_json::from_value(json!({"applicationSet": "fb-*", "parameters": {"branch": "*", "n": "1*"}}))
                .unwrap();
        let matcher = build(&config, &mut Problems::default()).unwrap();
        let query = |set: &str, parameters: &Value| {
            Query::new(set.into(), parameters.as_object().unwrap().clone().into(), tokio::time::Instant::now())
        };
        let fits = |set: &str, parameters: Value| matcher.fits(&query(set, &parameters));
        assert!(fits("fb-matrix", json!({"branch": "a/b", "n": 12, "x": 1})));
        assert!(!fits("matrix", json!({"branch": "a", "n": 12})));
        assert!(!fits("fb-matrix", json!({"n": 12})));
        assert!(!fits("fb-matrix", json!({"branch": "a", "n": 2})));
    }

    #[test]
    fn a_namespace_is_matched_if_the_caller_says_it() {
        let config: MatchConfig = serde_json::from_value(json!({"applicationSetNamespace": "team-*"})).unwrap();
        assert!(!config.takes_everything());
        let matcher = build(&config, &mut Problems::default()).unwrap();
        for (namespace, expected) in [(Some("team-a"), true), (Some("argocd"), false), (None, false)] {
            let query = Query::new("x".into(), Arc::default(), tokio::time::Instant::now());
            assert_eq!(
                matcher.fits(&Query { namespace: namespace.map(Arc::from), ..query }),
                expected,
                "{namespace:?}"
            );
        }
    }

    #[test]
    fn what_a_glob_covers_is_known_for_sure() {
        for (glob, other, expected) in [
            ("*", "fb-*", true),
            ("f*", "fb-*", true),
            ("fb-*", "f*", false),
            ("fb-*", "fb-main", true),
            ("*-main", "fb-main", true),
            ("fb-?", "fb-*", false),
            ("fb-*", "fb-*", true),
            ("a*", "{a,b}", false),
            ("f?-*", "fb-*", true),
            ("[a-f]*", "fb-*", true),
            ("{fb,x}-*", "fb-*", true),
            ("*-*", "fb-*", true),
            ("f?*", "fb-?", true),
            ("[x-z]*", "fb-*", false),
            ("f??-*", "fb-*", false),
            ("f?-\\*", "fb-*", false),
            ("f?-*x", "fb-*", false),
        ] {
            assert_eq!(covers_glob(glob, other), expected, "{glob} {other}");
        }
        let of = |value: Value| serde_json::from_value::<MatchConfig>(value).unwrap();
        let (broad, narrow) =
            (json!({"applicationSet": "f*"}), json!({"applicationSet": "fb-*", "parameters": {"a": "1"}}));
        assert!(of(broad.clone()).covers(&of(narrow.clone())) && !of(narrow.clone()).covers(&of(broad)));
        assert!(!of(json!({"parameters": {"a": "2"}})).covers(&of(narrow.clone())));
        assert!(!of(json!({"applicationSet": "f*", "command": ["true"]})).covers(&of(narrow)));
    }

    #[test]
    fn a_bad_glob_is_a_problem_at_its_place() {
        let config = MatchConfig { application_set: Some("a{".into()), ..MatchConfig::default() };
        let mut problems = Problems::default();
        assert!(build(&config, &mut problems).is_none());
        assert_eq!(problems.into_vec()[0].path.to_string(), "match.applicationSet");
    }
}
