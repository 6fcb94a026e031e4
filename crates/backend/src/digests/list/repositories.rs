//! The repositories of a list: by name, or by a pattern over a registry's catalogue.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::Building;
use domain::{
    error::{BackendError, ErrorKind},
    generator::{Evidence, Query},
    glob::NameGlob,
};
use lang::{
    evaluator::{Context, Evaluator},
    scope::NameScope,
    template::{Template, TemplateError, ValueContext},
};
use oci::{
    Missing, Registries,
    reference::{canonical_registry, is_registry, is_repository},
};

/// The treatment of a repository that does not exist, and of a pattern without a repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MissingRepository {
    /// An error: its name is wrong, or a right is missing.
    #[default]
    Error,
    /// The repository has no tags.
    Absent,
}

/// The repositories, as configured.
#[derive(Debug)]
pub(super) struct Repositories {
    templates: Vec<Template>,
    missing: MissingRepository,
}

/// A repository of a list, or a pattern for some.
#[derive(Debug, Clone)]
pub(super) struct ListedRepository {
    /// The registry's host.
    pub registry: String,
    /// The name or the pattern within it.
    pub name: String,
    /// What names it.
    pub named_by: NamedBy,
}

/// What names a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedBy {
    /// The configuration, by its name.
    Configuration,
    /// Only the catalogue, which may be out of date.
    Catalogue,
    /// Nothing: it is a pattern for names of the catalogue.
    Pattern,
}

impl Repositories {
    /// Parses names and patterns.
    pub(super) fn build(texts: &[String], missing: MissingRepository, building: &mut Building<'_>) -> Self {
        if texts.is_empty() {
            building.error_with_help("there are no repositories", "name at least one");
        }
        let mut templates = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let parsed = parse(text, building.context.scope);
            templates.extend(building.index(index).parsed(parsed));
        }
        Self { templates, missing }
    }

    /// The repositories for `query`, each once, in the order of the configuration and then by name.
    ///
    /// # Errors
    /// When the parameters make no valid name, or a catalogue is not known whole.
    pub(super) async fn find(
        &self,
        query: &Query,
        evaluator: &Evaluator,
        registries: &Registries,
    ) -> Result<Vec<ListedRepository>, BackendError> {
        let context = Context::of_input(query, evaluator);
        let invalid = |error: RepositoryError| BackendError::invalid_input(format!("repositories: {error}"));
        let mut all = IndexMap::<(String, String), NamedBy>::new();
        for template in &self.templates {
            let text = context.render(template).await;
            let text =
                text.map_err(|error| error.within("repositories").into_backend_error(BackendError::invalid_input))?;
            check(split(&text).1).map_err(invalid)?;
            let (registry, name) = full(&text);
            if is_pattern(&name) {
                for name in self.fitting(registry, &name, query, registries).await? {
                    all.entry((registry.to_owned(), name)).or_insert(NamedBy::Catalogue);
                }
            } else {
                all.insert((registry.to_owned(), name), NamedBy::Configuration);
            }
        }
        Ok(all.into_iter().map(|((registry, name), named_by)| ListedRepository { registry, name, named_by }).collect())
    }

    /// In words, that there is no `repository`.
    ///
    /// # Errors
    /// When a missing repository is an error.
    pub(super) fn accepts(&self, repository: &ListedRepository, missing: Missing) -> Result<String, BackendError> {
        self.miss(repository, missing).map(|_| format!("answers {}", missing.as_str()))
    }

    /// Those in which no parameter stands.
    pub(super) fn fixed(&self) -> impl Iterator<Item = ListedRepository> {
        let fixed = self.templates.iter().filter(|template| template.fixed_prefix() == template.source());
        fixed.map(|template| {
            let (registry, name) = full(template.source());
            let named_by = if is_pattern(&name) { NamedBy::Pattern } else { NamedBy::Configuration };
            ListedRepository { registry: registry.to_owned(), name, named_by }
        })
    }

    /// The names in the catalogue of `registry` that fit `pattern`, in order.
    async fn fitting(
        &self,
        registry: &str,
        pattern: &str,
        query: &Query,
        registries: &Registries,
    ) -> Result<Vec<String>, BackendError> {
        let glob = NameGlob::parse_path(pattern).map_err(BackendError::invalid_input)?;
        let mut names = registries.repositories(registry, query.deadline).await.map_err(|mut error| {
            if matches!(error.kind, ErrorKind::Denied | ErrorKind::InvalidOutput) {
                error.message.push_str("; some registries offer no catalogue: if so, name the repositories");
            }
            error
        })?;
        names.retain(|name| glob.matches(name));
        names.sort_unstable();
        if let Some(name) = names.iter().find(|name| !is_repository(name)) {
            let shown: String = name.chars().take(80).collect();
            let why = format!("registry {registry}: its catalogue: `{}` is not a repository", shown.escape_debug());
            return Err(BackendError::invalid_output(why));
        }
        if names.is_empty() && self.missing == MissingRepository::Error {
            return Err(unclear(
                &format!("the repositories {registry}/{pattern}"),
                "no repository of the catalogue fits; is the pattern right, and may the credential see the repositories?",
            ));
        }
        Ok(names)
    }

    /// The tags of a `repository` that does not exist: none.
    ///
    /// # Errors
    /// When a missing repository is an error.
    pub(super) fn miss(&self, repository: &ListedRepository, missing: Missing) -> Result<Vec<String>, BackendError> {
        if repository.named_by == NamedBy::Catalogue || self.missing == MissingRepository::Absent {
            return Ok(Vec::new());
        }
        Err(unclear(&format!("the tags of {repository}"), missing.as_str()))
    }
}

impl fmt::Display for ListedRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)
    }
}

fn unclear(subject: &str, answered: &str) -> BackendError {
    let message = format!("{subject}: {answered}; with `missingRepository: absent` the repository has no tags");
    BackendError { evidence: vec![Evidence::unknown(subject, answered)], ..BackendError::invalid_output(message) }
}

/// Why a text is neither a repository nor a pattern of some. The texts are beginnings of it.
#[derive(Debug, thiserror::Error)]
enum RepositoryError {
    /// It is not a template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// It has no registry, or one that a parameter would choose.
    #[error(
        "a repository begins with its registry's host, such as `registry.example.com/org/front`; no `{{{{` may stand in it"
    )]
    Host,
    /// It has a character that no repository has.
    #[error(
        "`{}` is not a repository: lower-case letters, digits and single separators, and `*`, `**` and `?` for a pattern; \
         tags are selected with `tags`",
        .0.escape_debug()
    )]
    Characters(String),
    /// Its separators are not those of a repository.
    #[error("`{}` is not a repository", .0.escape_debug())]
    Separators(String),
}

fn parse(text: &str, scope: &NameScope) -> Result<Template, RepositoryError> {
    let template = Template::parse(text, ValueContext::Reference, scope)?;
    let fixed = template.fixed_prefix();
    let (registry, name) = split(fixed);
    if !is_registry(registry) || !fixed.contains('/') {
        return Err(RepositoryError::Host);
    }
    let checked = if fixed == text { check(name) } else { check_part(name) };
    checked?;
    Ok(template)
}

fn split(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((text, ""))
}

/// The registry and the whole name of a repository or pattern. Docker Hub's official repositories have a folder that is left out.
fn full(text: &str) -> (&str, String) {
    let (registry, name) = split(text);
    let registry = canonical_registry(registry);
    let is_official = registry == "docker.io" && !name.contains('/') && !is_pattern(name);
    (registry, if is_official { format!("library/{name}") } else { name.to_owned() })
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Checks that `name` is a repository's, or a pattern that a repository may fit.
fn check(name: &str) -> Result<(), RepositoryError> {
    check_part(name)?;
    if is_repository(&name.replace(['*', '?'], "a")) {
        return Ok(());
    }
    Err(RepositoryError::Separators(name.to_owned()))
}

/// Checks the characters before the first parameter.
fn check_part(name: &str) -> Result<(), RepositoryError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '/' | '*' | '?');
    if name.chars().all(fits) {
        return Ok(());
    }
    Err(RepositoryError::Characters(name.chars().take(80).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_are_accepted_and_others_refused() {
        for good in ["a.example/x", "a.example/*", "a.example/**/front", "a.example/x-?/*-y", "h:5000/{{ params.x }}/y"]
        {
            assert!(parse(good, &NameScope::input()).is_ok(), "{good}: {:?}", parse(good, &NameScope::input()));
        }
        for (bad, says) in [
            ("front", "registry's host"),
            ("org/front", "registry's host"),
            ("{{ params.x }}/front", "registry's host"),
            ("a.example/", "is not a repository"),
            ("a.example/x:1", "`tags`"),
            ("a.example/x@sha256:0", "`tags`"),
            ("a.example/[ab]", "is not a repository"),
            ("a.example/Org/{{ params.x }}", "is not a repository"),
            ("a.example/Org-*", "is not a repository"),
            ("a.example/*/", "is not a repository"),
            ("a.example/../*", "is not a repository"),
            ("a.example/{{ x }}", "unknown name"),
        ] {
            assert!(
                parse(bad, &NameScope::input()).unwrap_err().to_string().contains(says),
                "{bad}: {:?}",
                parse(bad, &NameScope::input())
            );
        }
    }
}
