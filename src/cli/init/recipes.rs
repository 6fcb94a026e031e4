//! The recipes of the gallery (`docs/gallery`), as the program has them.

use clap::builder::PossibleValuesParser;

use super::files::NewText;

/// The entry of the caller's token in each recipe's configuration. The one that was chosen takes its place.
const TOKEN: &str = "file: secrets/argocd-token";

/// A recipe.
#[derive(Debug)]
pub(super) struct Recipe {
    name: &'static str,
    /// What it generates from.
    source: &'static str,
    config: &'static str,
    cases: &'static str,
    application_set: &'static str,
    /// The programs that its configuration names.
    programs: &'static [(&'static str, &'static str)],
}

/// The recipe whose files in `config/gallery` have this name.
macro_rules! recipe {
    ($name:literal, $source:literal) => {
        recipe!($name, $source, [])
    };
    ($name:literal, $source:literal, [$($program:literal)*]) => {
        Recipe {
            name: $name,
            source: $source,
            config: include_str!(concat!("../../../config/gallery/", $name, ".yaml")),
            cases: include_str!(concat!("../../../config/gallery/tests/", $name, ".yaml")),
            application_set: include_str!(concat!("../../../config/gallery/applicationsets/", $name, ".yaml")),
            programs: &[$(($program, include_str!(concat!("../../../config/gallery/", $program))))*],
        }
    };
}

/// All recipes, in the order of the gallery's index.
const RECIPES: &[Recipe] = &[
    recipe!("github-pull-requests", "the open pull requests of a repository on GitHub"),
    recipe!("gitlab-merge-requests", "the open merge requests of a project on GitLab"),
    recipe!("bitbucket-pull-requests", "the open pull requests of a repository on Bitbucket Cloud"),
    recipe!("azure-devops-pull-requests", "the active pull requests of a repository on Azure DevOps"),
    recipe!("gitea-pull-requests", "the open pull requests of a repository on Gitea or Forgejo"),
    recipe!("grouped-branches", "the branches of several repositories, grouped by name"),
    recipe!("gitlab-environments", "the review environments of a project on GitLab"),
    recipe!("github-repositories", "the repositories of an organisation on GitHub"),
    recipe!("backstage", "the components of a Backstage catalog"),
    recipe!("netbox", "the clusters or devices in NetBox"),
    recipe!("servicenow", "the applications of ServiceNow's CMDB"),
    recipe!("database", "the rows of a PostgreSQL, MySQL or MariaDB database"),
    recipe!("terraform-outputs", "the outputs of Terraform workspaces"),
    recipe!("vault", "the paths and metadata in Vault"),
    recipe!("consul-services", "the services in Consul"),
    recipe!("prometheus", "a query to Prometheus"),
    recipe!("s3-list", "the folders of a bucket in S3"),
    recipe!("cluster-namespaces", "the namespaces of all clusters"),
    recipe!("eks-clusters", "the clusters of an AWS account"),
    recipe!("gke-clusters", "the clusters of a Google Cloud project"),
    recipe!("rancher-clusters", "the clusters in Rancher"),
    recipe!("image-tags", "the tags of an image registry"),
    recipe!("helm-charts", "the charts of a Helm repository in OCI"),
    recipe!("helm-index", "the charts of a Helm repository with an index.yaml"),
    recipe!("ripe-versions", "the newest version that has been there for two days"),
    recipe!("script", "a script", ["teams.py"]),
    recipe!("own-plugin", "a plugin that you have already"),
    recipe!("jira-tickets", "tickets in Jira"),
    recipe!("maintenance-window", "a maintenance window on a status page"),
];

/// Reads the name of a recipe.
pub(super) fn parser() -> PossibleValuesParser {
    PossibleValuesParser::new(RECIPES.iter().map(|recipe| recipe.name))
}

/// A line for each recipe: its name, and what it generates from.
pub(super) fn list() -> String {
    let width = RECIPES.iter().map(|recipe| recipe.name.len()).max().unwrap_or_default();
    let lines: Vec<String> =
        RECIPES.iter().map(|recipe| format!("{:width$}  {}", recipe.name, recipe.source)).collect();
    lines.join("\n")
}

impl Recipe {
    /// The recipe with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Its files, with `entry` as the caller's token.
    pub(super) fn files(&self, entry: &str) -> Vec<NewText> {
        let new = |name, text: String| NewText { name, text, mode: 0o666 };
        let mut files = vec![
            new("gateway.yaml", self.config.replace(TOKEN, entry)),
            new("tests/gateway.yaml", self.cases.to_owned()),
            new("applicationset.yaml", self.application_set.to_owned()),
        ];
        files.extend(self.programs.iter().map(|(name, text)| new(name, (*text).to_owned())));
        files
    }

    /// The files of secrets that its configuration names, beside the caller's token.
    pub(super) fn secrets(&self) -> Vec<&'static str> {
        let starts = self.config.match_indices(" secrets/").map(|(at, _)| &self.config[at + 1..]);
        let ends = |text: &str| text.find([' ', ',', '}', '\n']).unwrap_or(text.len());
        let mut found: Vec<&str> =
            starts.map(|text| &text[..ends(text)]).filter(|name| !TOKEN.ends_with(name)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each names exactly one caller, whose entry can be replaced.
    #[test]
    fn the_token_of_each_recipe_can_be_replaced() {
        for recipe in RECIPES {
            assert_eq!(recipe.config.matches(TOKEN).count(), 1, "{}", recipe.name);
            let files = recipe.files("env: TOKEN");
            assert!(
                files[0].text.starts_with("auth: { tokens: [ { name: argocd, env: TOKEN } ] }\n"),
                "{}",
                recipe.name
            );
        }
    }

    #[test]
    fn the_secrets_are_named_once_each() {
        let secrets = |name| Recipe::named(name).unwrap().secrets();
        assert_eq!(secrets("github-pull-requests"), ["secrets/docker-config.json", "secrets/github-token"]);
        assert_eq!(secrets("own-plugin"), ["secrets/hello-plugin-token"]);
        // The files of a pod are not the user's own.
        assert!(secrets("script").is_empty() && secrets("cluster-namespaces").is_empty());
        assert!(Recipe::named("nothing").is_none());
    }
}
