//! The former names of a route. A route keeps its records when it gets another name: the keys of its queries are made
//! with its oldest name.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;

use domain::problem::{Path, Problems};

/// One former name, or several: the last one first.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a name, or a list of names")]
pub(crate) enum FormerNames {
    /// The only one.
    One(String),
    /// The last one first.
    Several(Vec<String>),
}

impl FormerNames {
    /// The last one first.
    #[must_use]
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }

    /// Where each of them is, below `path`, the route's `formerly`.
    fn paths(&self, path: &Path) -> Vec<Path> {
        match self {
            Self::One(_) => vec![path.clone()],
            Self::Several(names) => (0..names.len()).map(|index| path.index(index)).collect(),
        }
    }
}

/// A former name that a route claims.
#[derive(Debug)]
pub(super) struct Claim {
    name: String,
    route: String,
    path: Path,
}

impl Claim {
    /// The former names of the route `route`, in its `formerly` at `path`.
    pub(super) fn all(names: &FormerNames, route: &str, path: &Path) -> Vec<Self> {
        let all = names.names().iter().zip(names.paths(path));
        all.map(|(name, path)| Self { name: name.clone(), route: route.to_owned(), path }).collect()
    }
}

/// Notes claims of names that a route still has, or that two routes claim. `routes` are the names of all routes.
pub(super) fn check(claims: &[Claim], routes: &HashSet<String>, problems: &mut Problems) {
    for (index, Claim { name, route, path }) in claims.iter().enumerate() {
        let shown = name.escape_debug();
        let earlier = claims[..index].iter().find(|earlier| earlier.name == *name);
        if name.is_empty() {
            problems.error_with_help(path, "it is empty", "leave it out, or name the route as it was called");
        } else if name == route {
            problems.error_with_help(path, "this is the name that the route has now", "leave it out");
        } else if routes.contains(name) {
            let help = "a route takes over the records of a former route; remove that route, or leave this name out";
            problems.error_with_help(path, format!("there is still a route `{shown}`"), help);
        } else if let Some(earlier) = earlier.filter(|earlier| earlier.route != *route) {
            let message = format!("the route `{}` was formerly `{shown}` too", earlier.route);
            problems.error_with_help(path, message, "only one route can take over what it remembers");
        } else if earlier.is_some() {
            problems.error_with_help(path, format!("`{shown}` is there twice"), "leave one of them out");
        }
    }
}
