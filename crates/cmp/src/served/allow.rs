//! Which Applications may use a plugin.

use crate::{config::Allow, run::RunEnvironment};
use domain::{
    glob::{GlobError, NameGlob, NameGlobs},
    secret::forms,
    visible::one_line,
};

/// The variable with the Application's project. Argo CD sets it.
const PROJECT: &str = "ARGOCD_APP_PROJECT_NAME";
/// The variable with the URL of the repository. Argo CD sets it.
pub(crate) const REPOSITORY: &str = "ARGOCD_APP_SOURCE_REPO_URL";

/// The variable with the Application's path in the repository. Argo CD sets it.
pub(crate) const PATH: &str = "ARGOCD_APP_SOURCE_PATH";

/// The Applications that may use a plugin.
#[derive(Debug)]
pub(crate) struct AllowRules {
    projects: Option<NameGlobs>,
    repositories: Option<NameGlobs>,
}

impl AllowRules {
    /// # Errors
    /// When a glob is invalid.
    pub(crate) fn new(config: &Allow) -> Result<Self, GlobError> {
        let globs = |texts: &Option<Vec<String>>| {
            texts.as_ref().map(|texts| texts.iter().map(|text| NameGlob::parse(text)).collect()).transpose()
        };
        Ok(Self { projects: globs(&config.projects)?, repositories: globs(&config.repositories)? })
    }

    /// Whether an Application with these variables may use the plugin. An unknown project or repository is not allowed.
    ///
    /// # Errors
    /// Names what is not allowed.
    pub(crate) fn check(&self, environment: &RunEnvironment) -> Result<(), String> {
        for (rules, key, variable) in
            [(&self.projects, "projects", PROJECT), (&self.repositories, "repositories", REPOSITORY)]
        {
            let value = environment.get(variable).unwrap_or_default();
            if rules.as_ref().is_some_and(|globs| !globs.matches(value)) {
                let value = forms::redact(value);
                return Err(format!("the plugin is not allowed for `{}` (`allow.{key}`)", one_line(&value)));
            }
        }
        Ok(())
    }
}
