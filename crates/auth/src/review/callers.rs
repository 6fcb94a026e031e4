//! Turns a cluster's user into a caller.

use std::sync::Arc;

use super::{answer::User, config::ReviewedConfig};
use crate::{Allowance, Caller, check_name, scope::build_globs};
use domain::{
    glob::NameGlobs,
    problem::{Path, Problems},
};

/// One entry of `callers`.
#[derive(Debug)]
pub(super) struct Reviewed {
    user: NameGlobs,
    groups: Option<NameGlobs>,
    /// Called as the entry: its `name`, or else its `user`.
    caller: Caller,
    /// Whether all users have the caller's name. Otherwise each keeps its own.
    is_named: bool,
}

impl Reviewed {
    /// Checks `config`, at `path`.
    pub(super) fn build(config: &ReviewedConfig, path: &Path, problems: &mut Problems) -> Option<Self> {
        if let Some(name) = &config.name {
            check_name(name, &path.key("name"), problems);
        }
        if config.user == "*" && config.groups.is_none() {
            problems.warning(
                &path.key("user"),
                "every pod of the cluster can get a token for any audience, so all of them may call",
                "name service accounts: system:serviceaccount:argocd:*",
            );
        }
        let user = build_globs(std::slice::from_ref(&config.user), &path.key("user"), problems);
        let groups = config.groups.as_ref().map(|groups| build_globs(groups, &path.key("groups"), problems));
        let label = config.name.as_ref().unwrap_or(&config.user);
        let caller = config.grants(config.role).caller(label, path, problems);
        let groups = match groups {
            Some(groups) => Some(groups?),
            None => None,
        };
        Some(Self { user: user?, groups, caller: caller?, is_named: config.name.is_some() })
    }

    /// Its name, and the limits of its callers.
    pub(crate) fn allowance(&self) -> (&str, &Arc<Allowance>) {
        self.caller.allowance()
    }

    /// The same, for replacing the limits.
    pub(crate) fn allowance_mut(&mut self) -> (&str, &mut Arc<Allowance>) {
        self.caller.allowance_mut()
    }

    /// The caller for `user`, if the entry matches.
    pub(super) fn caller(&self, user: &User) -> Option<Arc<Caller>> {
        let is_member = |groups: &NameGlobs| user.groups.iter().any(|group| groups.matches(group));
        if !self.user.matches(&user.username) || !self.groups.as_ref().is_none_or(is_member) {
            return None;
        }
        let mut caller = self.caller.clone();
        if !self.is_named {
            caller.name.clone_from(&user.username);
        }
        Some(Arc::new(caller))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(config: &Value) -> (Option<Reviewed>, Vec<String>) {
        let mut problems = Problems::default();
        let config = serde_json::from_value(config.clone()).unwrap();
        let reviewed = Reviewed::build(&config, &Path::root(), &mut problems);
        let messages = problems.into_vec().into_iter().map(|problem| format!("{}: {}", problem.path, problem.message));
        (reviewed, messages.collect())
    }

    #[test]
    fn a_user_fits_by_name_and_group() {
        let name = |config: &Value, groups: &[&str]| {
            let groups = groups.iter().map(|&group| group.to_owned()).collect();
            let user = User { username: "system:serviceaccount:argocd:appset".to_owned(), groups };
            build(config).0.unwrap().caller(&user).map(|caller| caller.name.clone())
        };
        let own = Some("system:serviceaccount:argocd:appset".to_owned());
        assert_eq!(name(&json!({"user": "system:serviceaccount:argocd:*"}), &[]), own);
        assert_eq!(name(&json!({"user": "system:serviceaccount:argo:*"}), &[]), None);
        let config = json!({"user": "*", "groups": ["ops", "system:serviceaccounts:*"], "name": "argocd"});
        assert_eq!(name(&config, &["x", "system:serviceaccounts:argocd"]), Some("argocd".to_owned()));
        assert_eq!(name(&config, &["x"]), None);
        assert_eq!(name(&json!({"user": "*", "groups": []}), &["x"]), None);
    }

    #[test]
    fn problems_are_noted_at_their_paths() {
        for (config, path) in [
            (json!({"user": "["}), "user[0]: "),
            (json!({"user": "a", "groups": ["["]}), "groups[0]: "),
            (json!({"user": "a", "name": ""}), "name: "),
            (json!({"user": "a", "routes": ["["]}), "routes[0]: "),
            (json!({"user": "a", "role": "admin", "applicationSets": ["a"]}), "applicationSets: the role `admin`"),
            (json!({"user": "*"}), "user: every pod"),
        ] {
            let messages = build(&config).1;
            assert!(messages.len() == 1 && messages[0].starts_with(path), "{config}: {messages:?}");
        }
    }
}
