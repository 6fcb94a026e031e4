//! A list of tags: repositories by name or pattern, tags by pattern, the newest of each; one parameter set for each.

mod selection;

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use semver::Version;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::selection::{Candidate, Selection};
pub use self::selection::{Sort, TagsConfig};
use super::shared_for;
use crate::{
    backend::Surroundings,
    error::BackendError,
    generator::{Evidence, Outcome, ParameterSet, Query},
    oci::{
        Contents, Lookup, Patience, Reference, Registries, Target,
        reference::{canonical_registry, is_registry, is_repository},
    },
    problem::{Path, Problems},
    template::{INPUT_SCOPE, Place, Template, input_context},
};

/// The most tags that are opened for one answer.
const MOST_OPENED: usize = 500;
/// How many are looked at in one go; the registry's own `concurrency` goes before this.
const AT_ONCE: usize = 32;

/// Which tags of which repositories.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListConfig {
    /// `registry/repository` by name, or with `*` and `**` as a pattern over the registry's catalogue; templates over
    /// `params` and `applicationSet`. The registry stands in them as it is.
    pub repositories: Vec<String>,
    /// Which of their tags; all unless set.
    #[serde(default)]
    pub tags: TagsConfig,
    /// In which order, the newest first; `semver` where the tags are selected by it, else `alphabetical`.
    pub sort: Option<Sort>,
    /// How many of each repository.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// Only what has these annotations; `*` and `?` in a value are wildcards.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Only artifacts of this type.
    pub artifact_type: Option<String>,
    /// What it means that a repository does not exist.
    #[serde(default)]
    pub missing_repository: MissingRepository,
}

/// What it means that a repository, which is called by its name, does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MissingRepository {
    /// Its name is wrong, or a right is missing.
    #[default]
    Error,
    /// It has no tags.
    Absent,
}

/// A list, ready to be read.
#[derive(Debug)]
pub struct List {
    repositories: Vec<Template>,
    selection: Selection,
    limit: usize,
    annotations: Vec<(String, GlobMatcher)>,
    artifact_type: Option<String>,
    missing_repository: MissingRepository,
    registries: Registries,
}

/// A repository whose tags are wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Repository {
    registry: String,
    name: String,
    /// Whether the catalogue named it, which may be behind.
    is_found: bool,
}

/// A tag that was opened.
struct Opened {
    candidate: Candidate,
    reference: Reference,
    target: Target,
    contents: Arc<Contents>,
}

impl List {
    /// Parses patterns and templates.
    pub fn build(config: &ListConfig, around: Surroundings<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        if config.repositories.is_empty() {
            problems.error_with_help(&path.key("repositories"), "there are no repositories", "name at least one");
        }
        let mut repositories = Vec::new();
        for (index, text) in config.repositories.iter().enumerate() {
            let path = path.key("repositories").index(index);
            repositories.extend(problems.note(&path, parse_repository(text)));
        }
        if config.limit == Some(0) {
            problems.error(&path.key("limit"), "with 0 nothing is selected");
        }
        let mut annotations = Vec::new();
        for (name, pattern) in &config.annotations {
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            let glob = problems.note(&path.key("annotations").key(name), glob);
            annotations.extend(glob.map(|glob| (name.clone(), glob.compile_matcher())));
        }
        Some(Self {
            repositories,
            selection: Selection::build(&config.tags, config.sort, path, problems)?,
            limit: config.limit.unwrap_or(usize::MAX),
            annotations,
            artifact_type: config.artifact_type.clone(),
            missing_repository: config.missing_repository,
            registries: around.registries.clone(),
        })
    }

    /// Reads the lists and opens what they select.
    ///
    /// # Errors
    /// When one of them is not known whole.
    pub async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let repositories = self.repositories(query).await?;
        let selected = stream::iter(repositories.clone())
            .map(async |repository| self.select(&repository, query).await)
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        let asked: Vec<String> =
            repositories.iter().map(|each| format!("the tags of {}/{}", each.registry, each.name)).collect();
        let sets: Vec<ParameterSet> = selected.into_iter().flatten().collect();
        let asked = if asked.is_empty() { "the catalogue".to_owned() } else { asked.join(", ") };
        Ok(Outcome::of_list(sets, asked, "none of them is selected"))
    }

    /// The repositories that are meant now, each once, in order.
    async fn repositories(&self, query: &Query) -> Result<Vec<Repository>, BackendError> {
        let context = input_context(query);
        let invalid = |error: String| BackendError::invalid_input(format!("repositories: {error}"));
        let mut all = Vec::new();
        for template in &self.repositories {
            let text = template.render(&context).map_err(invalid)?;
            let (registry, name) = text.split_once('/').unwrap_or((&text, ""));
            let registry = canonical_registry(registry);
            if !is_pattern(name) {
                if !is_repository(name) {
                    return Err(invalid(format!("`{}` is no repository", text.escape_debug())));
                }
                let is_official = registry == "docker.io" && !name.contains('/');
                let name = if is_official { format!("library/{name}") } else { name.to_owned() };
                all.push(Repository { registry: registry.to_owned(), name, is_found: false });
                continue;
            }
            let glob = GlobBuilder::new(name).literal_separator(true).build().map_err(|e| invalid(e.to_string()))?;
            let glob = glob.compile_matcher();
            let names = self.registries.repositories(registry, query.deadline).await?;
            let mut fitting: Vec<Repository> = names
                .into_iter()
                .filter(|name| glob.is_match(name))
                .map(|name| Repository { registry: registry.to_owned(), name, is_found: true })
                .collect();
            fitting.sort();
            all.extend(fitting);
        }
        let mut seen = std::collections::HashSet::new();
        all.retain(|repository| seen.insert((repository.registry.clone(), repository.name.clone())));
        Ok(all)
    }

    /// The parameter sets of one repository.
    async fn select(&self, repository: &Repository, query: &Query) -> Result<Vec<ParameterSet>, BackendError> {
        let Repository { registry, name, is_found } = repository;
        let tags = match self.registries.tags(registry, name, query.deadline).await? {
            Ok(tags) => tags,
            Err(_) if *is_found || self.missing_repository == MissingRepository::Absent => Vec::new(),
            Err(missing) => {
                let asked = format!("the tags of {registry}/{name}");
                let message =
                    format!("{asked}: {}; `missingRepository: absent` takes that for no tags", missing.as_str());
                let evidence = vec![Evidence::unknown(asked, missing.as_str())];
                return Err(BackendError { evidence, ..BackendError::invalid_output(message) });
            }
        };
        let mut candidates = self.selection.select(tags, &input_context(query))?;
        let looks_inside =
            self.selection.sort() == Sort::Created || !self.annotations.is_empty() || self.artifact_type.is_some();
        if !looks_inside {
            candidates.truncate(self.limit);
        }
        if candidates.len() > MOST_OPENED {
            return Err(BackendError::invalid_output(format!(
                "{registry}/{name}: {} tags are selected, and {MOST_OPENED} at most are opened; narrow `tags`, or set a `limit`",
                candidates.len()
            )));
        }
        let mut opened = stream::iter(candidates)
            .map(|candidate| self.open(repository, candidate, query))
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        opened.retain(|opened| self.fits(&opened.contents));
        if self.selection.sort() == Sort::Created {
            opened.sort_by_cached_key(|opened| Reverse(opened.contents.created_at()));
        }
        opened.truncate(self.limit);
        Ok(opened.into_iter().map(Opened::into_set).collect())
    }

    async fn open(&self, repository: &Repository, candidate: Candidate, query: &Query) -> Result<Opened, BackendError> {
        let Repository { registry, name, .. } = repository;
        let reference = Reference::parse(&format!("{registry}/{name}:{}", candidate.tag))
            .map_err(|error| BackendError::invalid_output(format!("the registry lists a tag that is none: {error}")))?;
        let patience = Patience { deadline: query.deadline, max_age: shared_for(query.ttl) };
        let target = match self.registries.look_up(&reference, patience).await? {
            Lookup::There(target) => target,
            Lookup::Missing(missing) => {
                let why =
                    format!("{reference} is listed, and not there ({}): the list changed meanwhile", missing.as_str());
                return Err(BackendError::unavailable(why));
            }
        };
        let contents = self.registries.contents(registry, name, &target.digest, query.deadline).await?;
        Ok(Opened { candidate, reference, target, contents })
    }

    fn fits(&self, contents: &Contents) -> bool {
        let has = |(name, pattern): &(String, GlobMatcher)| {
            contents.annotations.get(name).is_some_and(|value| pattern.is_match(value))
        };
        let is_type = self.artifact_type.as_ref().is_none_or(|wanted| contents.artifact_type.as_ref() == Some(wanted));
        is_type && self.annotations.iter().all(has)
    }

    /// Whether what is asked depends on the ApplicationSet's name.
    pub fn reads_application_set(&self) -> bool {
        self.repositories.iter().any(Template::reads_application_set) || self.selection.reads_application_set()
    }

    /// Forgets what was learned for others.
    pub fn forget(&self) {
        self.registries.forget_tags();
    }
}

impl Opened {
    fn into_set(self) -> ParameterSet {
        let Self { candidate, reference, target, contents } = self;
        let mut set = Map::new();
        if let Value::Object(parts) = super::images::parts(&reference, target.digest.as_str()) {
            set.extend(parts);
        }
        let platforms: Vec<String> = contents.platforms.iter().map(ToString::to_string).collect();
        set.insert("mediaType".to_owned(), target.media_type.into());
        set.insert("artifactType".to_owned(), contents.artifact_type.clone().unwrap_or_default().into());
        set.insert("created".to_owned(), contents.created.clone().unwrap_or_default().into());
        set.insert("revision".to_owned(), contents.revision.clone().unwrap_or_default().into());
        set.insert("platforms".to_owned(), platforms.into());
        set.insert("annotations".to_owned(), json!(contents.annotations));
        if let Some(version) = &candidate.version {
            set.insert("semver".to_owned(), parts_of(version));
        }
        set.extend(candidate.captures.map(|captures| ("captures".to_owned(), captures)));
        ParameterSet(set)
    }
}

fn parts_of(version: &Version) -> Value {
    json!({
        "major": version.major,
        "minor": version.minor,
        "patch": version.patch,
        "prerelease": version.pre.as_str(),
        "build": version.build.as_str(),
    })
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}

fn parse_repository(text: &str) -> Result<Template, String> {
    let template = Template::parse(text, Place::Reference, INPUT_SCOPE)?;
    let fixed = template.fixed_prefix();
    let (registry, name) = fixed.split_once('/').unwrap_or((fixed, ""));
    if !is_registry(registry) || !fixed.contains('/') {
        return Err(
            "a repository begins with its registry's host, such as `registry.example.com/org/front`; no `{{` may \
                    stand in it"
                .to_owned(),
        );
    }
    if fixed != text {
        return Ok(template);
    }
    if is_pattern(name) {
        GlobBuilder::new(name).build().map_err(|error| error.to_string())?;
    } else if !is_repository(name) {
        return Err(format!("`{name}` is no repository; tags are selected with `tags`"));
    }
    Ok(template)
}
