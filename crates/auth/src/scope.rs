//! The routes and ApplicationSets that a caller may ask for.
//!
//! The caller itself chooses the ApplicationSet's name in a call. Globs over that name prevent mistakes between several Argo CDs; they are no
//! protection against an attacker.

use super::Role;
use domain::{
    glob::{NameGlob, NameGlobs},
    problem::{Path, Problems},
};

/// The routes and ApplicationSets that a caller may ask for.
#[derive(Debug, Clone)]
pub struct Scope {
    routes: Names,
    application_sets: Names,
}

/// The names that one of some globs matches; `None` for every name.
type Names = Option<NameGlobs>;

impl Scope {
    /// Everything.
    #[cfg(test)]
    pub fn all() -> Self {
        Self { routes: None, application_sets: None }
    }

    /// The scope of these globs; `None` as globs means everything. Problems are noted at `routes` and `applicationSets` below `path`.
    pub fn build(
        role: Role,
        routes: Option<&[String]>,
        application_sets: Option<&[String]>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut globs = |patterns: Option<&[String]>, key: &str| {
            let Some(patterns) = patterns else { return Some(None) };
            if role != Role::Caller {
                problems.error_with_help(
                    &path.key(key),
                    format!("the role `{}` may not call routes", role.as_str()),
                    format!("leave `{key}` out, and name another token for callers"),
                );
            }
            build_globs(patterns, &path.key(key), problems).map(Some)
        };
        let (routes, application_sets) = (globs(routes, "routes"), globs(application_sets, "applicationSets"));
        Some(Self { routes: routes?, application_sets: application_sets? })
    }

    /// Whether it includes the route of this name.
    #[must_use]
    pub(crate) fn has_route(&self, route: &str) -> bool {
        self.routes.as_ref().is_none_or(|globs| globs.matches(route))
    }

    /// Whether it includes the ApplicationSet of this name. The name is empty if a call has none.
    #[must_use]
    pub fn has_application_set(&self, name: &str) -> bool {
        self.application_sets.as_ref().is_none_or(|globs| globs.matches(name))
    }
}

/// The globs `patterns`. `None` if one is invalid; each invalid glob is noted.
pub(super) fn build_globs(patterns: &[String], path: &Path, problems: &mut Problems) -> Option<NameGlobs> {
    let globs = patterns.iter().enumerate();
    let globs: Vec<_> = globs.map(|(index, glob)| problems.note(&path.index(index), NameGlob::parse(glob))).collect();
    globs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(routes: Option<&[&str]>, application_sets: Option<&[&str]>) -> (Option<Scope>, Vec<String>) {
        let owned =
            |globs: Option<&[&str]>| globs.map(|globs| globs.iter().map(|&glob| glob.into()).collect::<Vec<_>>());
        let (routes, application_sets) = (owned(routes), owned(application_sets));
        let mut problems = Problems::default();
        let (routes, application_sets) = (routes.as_deref(), application_sets.as_deref());
        let scope = Scope::build(Role::Caller, routes, application_sets, &Path::root(), &mut problems);
        (scope, problems.into_vec().into_iter().map(|problem| problem.path.to_string()).collect())
    }

    #[test]
    fn a_scope_without_globs_includes_everything() {
        for scope in [Scope::all(), scope(None, None).0.unwrap()] {
            assert!(scope.has_route("a") && scope.has_application_set("a/b") && scope.has_application_set(""));
        }
        let scope = scope(Some(&["pr-*", "x"]), Some(&["fb-*"])).0.unwrap();
        assert!(scope.has_route("pr-digests") && scope.has_route("x") && !scope.has_route("tenants"));
        assert!(scope.has_application_set("fb-1") && !scope.has_application_set("") && !scope.has_application_set("1"));
    }

    #[test]
    fn an_empty_list_includes_nothing() {
        let scope = scope(Some(&[]), Some(&[])).0.unwrap();
        assert!(!scope.has_route("a") && !scope.has_application_set("a"));
    }

    #[test]
    fn all_invalid_globs_are_noted() {
        let (scope, messages) = scope(Some(&["a", "[", "{"]), Some(&["["]));
        assert!(scope.is_none());
        assert_eq!(messages, ["routes[1]", "routes[2]", "applicationSets[0]"]);
    }
}
