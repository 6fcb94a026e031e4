//! The outline of a configuration: the path of each value, and a hash of it. Comparing two outlines shows the changed paths without showing
//! values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::config::Loaded;
use domain::{problem::Path, units::plural};

/// The parts that are read once, at the start.
const AT_THE_START: [&str; 10] = [
    "server.listen",
    "server.admin",
    "server.hooks",
    "server.tls",
    "server.adminTls",
    "server.connections",
    "log",
    "traces",
    "cache",
    "scripts",
];
/// The parts that all routes are built with.
const OF_ALL_ROUTES: [&str; 4] = ["server.deadline", "outbound", "identities", "registries"];

/// The paths of values, such as `backend.script.timeout`, and the first half of each value's SHA-256 in hexadecimal.
type Leaves = BTreeMap<String, String>;

/// How a value changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Difference {
    /// It was added.
    New,
    /// It was removed.
    Gone,
    /// It has another value.
    Changed,
}

/// The paths of values that changed, and how.
type Differences = BTreeMap<String, Difference>;

/// The outline of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Outline {
    /// Everything except the routes.
    general: Leaves,
    /// The routes in order; those of plugins come last.
    routes: IndexMap<String, Leaves>,
}

/// The changes by a new configuration.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Routes that were added.
    pub new: Vec<String>,
    /// Routes that were removed.
    pub gone: Vec<String>,
    /// Routes that changed, with the paths of the changes.
    pub(crate) changed: BTreeMap<String, Differences>,
    /// How many routes are unchanged.
    pub same: usize,
    /// Whether the remaining routes are tried in another order.
    pub is_reordered: bool,
    /// Changes outside the routes.
    pub(crate) general: Differences,
}

impl Outline {
    /// The outline of `loaded`.
    #[must_use]
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let mut general = Leaves::new();
        let mut routes = IndexMap::new();
        for (name, value) in loaded.raw.as_object().into_iter().flatten() {
            if name == "routes" {
                let named = value.as_array().into_iter().flatten();
                routes.extend(named.filter_map(|route| Some((route.get("name")?.as_str()?.to_owned(), leaves(route)))));
            } else {
                add(value, &Path::root().key(name), &mut general);
            }
        }
        let of_plugins = loaded.plugins.iter().flat_map(|plugin| &plugin.routes);
        routes.extend(of_plugins.map(|(config, raw)| (config.name.clone(), leaves(raw))));
        Self { general, routes }
    }

    /// Whether the part `name` of the configuration `raw` is the same as in this outline.
    #[must_use]
    pub(crate) fn is_same(&self, name: &str, raw: &Value) -> bool {
        let mut own = Leaves::new();
        if let Some(value) = raw.get(name) {
            add(value, &Path::root().key(name), &mut own);
        }
        own.iter().eq(self.general.iter().filter(|(path, _)| is_below(path, name)))
    }

    /// The changes by `other`.
    #[must_use]
    pub(crate) fn changes(&self, other: &Self) -> Changes {
        let only = |one: &Self, two: &Self| {
            one.routes.keys().filter(|name| !two.routes.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        let stay = |one: &Self, two: &Self| {
            one.routes.keys().filter(|name| two.routes.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        let mut changed = BTreeMap::new();
        for (name, leaves) in &self.routes {
            if let Some(others) = other.routes.get(name)
                && leaves != others
            {
                changed.insert(name.clone(), differing(leaves, others));
            }
        }
        let stays = stay(self, other);
        Changes {
            new: only(other, self),
            gone: only(self, other),
            same: stays.len() - changed.len(),
            is_reordered: stays != stay(other, self),
            changed,
            general: differing(&self.general, &other.general),
        }
    }
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        let Self { new, gone, changed, same: _, is_reordered, general } = self;
        new.is_empty() && gone.is_empty() && changed.is_empty() && !is_reordered && general.is_empty()
    }

    /// Whether all routes stay as they are, in the same order.
    #[must_use]
    pub(crate) fn leaves_routes(&self) -> bool {
        self.new.is_empty() && self.gone.is_empty() && self.changed.is_empty() && !self.is_reordered
    }

    /// The routes whose lineage changed.
    pub(crate) fn with_other_lineage(&self) -> impl Iterator<Item = &str> {
        let has_other = |differences: &Differences| differences.keys().any(|path| is_below(path, "lineage"));
        self.changed.iter().filter(move |(_, differences)| has_other(differences)).map(|(name, _)| name.as_str())
    }

    /// The changes that take effect only at the next start.
    #[must_use]
    pub fn at_the_next_start(&self) -> Vec<String> {
        let is_late = |path: &&String| AT_THE_START.iter().any(|part| is_below(path, part));
        self.general.keys().filter(is_late).cloned().collect()
    }
}

/// One line per change.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "nothing changes");
        }
        let is_of_all = |path: &String| OF_ALL_ROUTES.iter().any(|part| is_below(path, part));
        let begins_anew = self.general.keys().any(is_of_all);
        for (name, differences) in &self.changed {
            let described: Vec<_> = differences.iter().map(|(path, how)| format!("{path} {how}")).collect();
            writeln!(f, "route {name}: {}", described.join(", "))?;
        }
        for name in &self.new {
            writeln!(f, "route {name}: new")?;
        }
        for name in &self.gone {
            writeln!(f, "route {name}: gone")?;
        }
        if self.same > 0 {
            let what = if begins_anew {
                "the same, restarted with other connections and workers"
            } else {
                "the same, with their answers, workers and runs under way"
            };
            let s = plural(self.same);
            writeln!(f, "{} route{s}: {what}", self.same)?;
        }
        if self.is_reordered {
            writeln!(f, "routes are tried in another order")?;
        }
        let late = self.at_the_next_start();
        for (path, how) in &self.general {
            let when = if late.contains(path) { ", from the next start on" } else { "" };
            writeln!(f, "{path}: {how}{when}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Changed => "changed",
        })
    }
}

fn is_below(path: &str, part: &str) -> bool {
    path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The differences from `one` to `two`.
fn differing(one: &Leaves, two: &Leaves) -> Differences {
    let in_two = two.iter().filter_map(|(path, hash)| match one.get(path) {
        None => Some((path.clone(), Difference::New)),
        Some(before) if before != hash => Some((path.clone(), Difference::Changed)),
        Some(_) => None,
    });
    let gone = one.keys().filter(|path| !two.contains_key(*path)).map(|path| (path.clone(), Difference::Gone));
    in_two.chain(gone).collect()
}

fn leaves(value: &Value) -> Leaves {
    let mut leaves = Leaves::new();
    add(value, &Path::root(), &mut leaves);
    leaves
}

fn add(value: &Value, path: &Path, leaves: &mut Leaves) {
    let mut leaf = |value: &str| {
        let hash = Sha256::digest(value);
        leaves.insert(path.to_string(), base16ct::lower::encode_string(&hash[..16]));
    };
    match value {
        Value::Object(map) if !map.is_empty() => map.iter().for_each(|(key, value)| add(value, &path.key(key), leaves)),
        Value::Array(list) if !list.is_empty() => match names(list) {
            // One more of them makes no other ones of those that follow; only their order is the list's own.
            Some(names) => {
                leaf(&names.join("\0"));
                list.iter().zip(names).for_each(|(value, name)| add(value, &path.key(name), leaves));
            }
            None => list.iter().enumerate().for_each(|(index, value)| add(value, &path.index(index), leaves)),
        },
        value => leaf(&value.to_string()),
    }
}

/// The names of the items of `list`, if each has one of its own.
fn names(list: &[Value]) -> Option<Vec<&str>> {
    let names: Vec<_> = list.iter().map(|item| item.get("name")?.as_str()).collect::<Option<_>>()?;
    let is_unique = names.iter().collect::<BTreeSet<_>>().len() == names.len();
    is_unique.then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::file::base_dir::BaseDir;

    fn outline(config: &str) -> Outline {
        Outline::of(&Loaded::parse("t.yaml", config.to_owned(), BaseDir::default()).unwrap())
    }

    const ONE: &str = "server: { deadline: 20s }\n\
        outbound: { allowAddresses: [10.0.0.0/8] }\n\
        routes:\n\
        - { name: a, backend: { script: { command: [a, b], timeout: 5s } } }\n\
        - { name: b, backend: { fixed: { parameters: [] } } }\n\
        - { name: c, backend: { fixed: { parameters: [] } } }\n";

    #[test]
    fn what_is_the_same_is_the_same() {
        let one = outline(ONE);
        let changes = one.changes(&outline(&format!("# with a comment\n{ONE}")));
        assert!(changes.is_empty());
        assert_eq!((changes.same, changes.to_string().as_str()), (3, "nothing changes\n"));
    }

    #[test]
    fn differences_are_listed_by_path() {
        let other = outline(
            "server: { deadline: 20s, listen: \"127.0.0.1:1\" }\n\
             routes:\n\
             - { name: d, backend: { fixed: { parameters: [] } } }\n\
             - { name: c, backend: { fixed: { parameters: [] } } }\n\
             - { name: a, backend: { script: { command: [a, c, d] } }, cache: { ttl: 1s } }\n",
        );
        let changes = outline(ONE).changes(&other);
        assert_eq!(
            changes.to_string(),
            "route a: backend.script.command[1] changed, backend.script.command[2] new, backend.script.timeout gone, cache.ttl new\n\
             route d: new\n\
             route b: gone\n\
             1 route: the same, restarted with other connections and workers\n\
             routes are tried in another order\n\
             outbound.allowAddresses[0]: gone\n\
             server.listen: new, from the next start on\n"
        );
        assert_eq!(changes.at_the_next_start(), ["server.listen"]);
    }

    #[test]
    fn items_are_known_by_their_names() {
        let one = outline("auth: { tokens: [ { name: a, file: a }, { name: b, file: b } ] }");
        let changes = |config: &str| one.changes(&outline(config)).to_string();
        assert_eq!(
            changes("auth: { tokens: [ { name: c, file: c }, { name: a, file: x }, { name: b, file: b } ] }"),
            "auth.tokens: changed\nauth.tokens.a.file: changed\nauth.tokens.c.file: new\nauth.tokens.c.name: new\n"
        );
        assert_eq!(
            changes("auth: { tokens: [ { name: b, file: b }, { name: a, file: a } ] }"),
            "auth.tokens: changed\n"
        );
        let twice = changes("auth: { tokens: [ { name: a, file: a }, { name: a, file: b } ] }");
        assert!(twice.contains("auth.tokens[1].file: new"), "{twice}");
    }

    #[test]
    fn no_value_is_shown() {
        let text = serde_json::to_string(&outline(&ONE.replace("command: [a", "command: [canary"))).unwrap();
        assert!(text.contains("backend.script.command[0]") && !text.contains("canary"), "{text}");
    }

    #[test]
    fn a_part_is_compared_whole() {
        let (one, other) = (outline(ONE), |raw: &str| serde_json::from_str::<Value>(raw).unwrap());
        assert!(
            one.is_same("auth", &other("{}")) && !one.is_same("auth", &other(r#"{"auth":{"tokens":[{"name":"a"}]}}"#))
        );
        assert!(one.is_same("server", &other(r#"{"server":{"deadline":"20s"}}"#)));
        assert!(!one.is_same("server", &other(r#"{"server":{"deadline":"20s","drain":"1s"}}"#)));
        assert!(!one.is_same("server", &other("{}")));
    }
}
