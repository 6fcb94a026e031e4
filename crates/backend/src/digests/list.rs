//! A list of tags: repositories by name or pattern, tags by pattern, the newest of each; one parameter set for each.
//!
//! The names of a repository's tags are read in one list. Each selected tag is then looked up and opened. The contents of a
//! digest never change and are kept in memory, so the next answer costs a list and one `HEAD` per tag.

mod opened;
mod pattern;
mod repositories;
pub mod selection;
mod signed;

use std::{cmp::Reverse, collections::BTreeMap};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

pub use self::repositories::MissingRepository;
pub use self::selection::{Sort, TagsConfig};
use self::{
    opened::{ContentFilter, OpenedTag},
    repositories::{ListedRepository, NamedBy, Repositories},
    selection::{Candidate, Selection},
    signed::{Kept, Notes, SignedQuery},
};
use super::{Config, shared_for, signatures::Signatures};
use crate::{Backend, Building, Nature, Reached};
use domain::{
    error::BackendError,
    generator::{BackendNote, Outcome, Query, Trust},
};
use lang::{
    evaluator::{Context, Evaluator},
    scope::ValueType,
};
use oci::{Lookup, Patience, Reference, Registries};

/// The most tags of one repository that are opened.
const MAX_OPENED: usize = 500;
/// How many repositories, and how many tags of each, are read at once. The registry's own `concurrency` may be lower.
const CONCURRENT_READS: usize = 32;

/// Which tags of which repositories.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListConfig {
    /// `registry/repository` by name, or as a pattern over the registry's catalogue, in which `*` stands for text without a
    /// `/` and `**` for any number of folders; templates over `params` and `applicationSet`. The registry is written out.
    pub repositories: Vec<String>,
    /// Which of their tags; all unless set. Tags that tools keep beside an image, `sha256-` and its digest (signatures,
    /// attestations), are always left out.
    #[serde(default)]
    pub tags: TagsConfig,
    /// The order, newest first; `semver` if `tags.semver` is set, otherwise `alphabetical`.
    pub sort: Option<Sort>,
    /// How many tags of each repository.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// Only tags with these annotations, on the index or manifest that the tag names, or on the first image of an index without
    /// annotations. `*` and `?` in a value are wildcards. An image's labels are not annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Only artifacts of this type. The type of an image is the media type of its configuration. An index for several platforms
    /// has a type only if its builder set one.
    pub artifact_type: Option<String>,
    /// The treatment of a repository that does not exist, and of a pattern without a repository.
    #[serde(default)]
    pub(crate) missing_repository: MissingRepository,
}

/// A list, ready to be read.
#[derive(Debug)]
pub struct List {
    repositories: Repositories,
    selection: Selection,
    filter: ContentFilter,
    signatures: Option<Signatures>,
    limit: usize,
    registries: Registries,
    evaluator: Evaluator,
    nature: Nature,
}

/// A tag that the registry lists, and then denies to have.
struct Vanished(Reference);

impl List {
    /// Parses patterns and templates. `config` is the `list` of `backend`.
    pub fn build(backend: &Config, config: &ListConfig, building: &mut Building<'_>) -> Option<Self> {
        let (signature, provenance) = (backend.signature.as_ref(), backend.provenance.as_ref());
        let signatures = Signatures::build(signature, provenance, building);
        let mut building = building.key("list");
        if config.limit == Some(0) {
            building.key("limit").error("with 0 no tag is selected");
        }
        let context = building.context;
        let mut repositories = building.key("repositories");
        let repositories = Repositories::build(&config.repositories, config.missing_repository, &mut repositories);
        let selection = Selection::build(&config.tags, config.sort, context.scope, &building.path, building.problems);
        building.note_reads(selection.reads_application_set());
        let filter = ContentFilter::build(&config.annotations, config.artifact_type.as_deref(), &mut building);
        let signatures = signatures.ok()?;
        Some(Self {
            nature: Nature { takes_notes: signatures.is_some(), ..building.nature(item()) },
            repositories,
            selection,
            filter,
            signatures,
            limit: config.limit.unwrap_or(usize::MAX),
            registries: context.registries.clone(),
            evaluator: context.evaluator.clone(),
        })
    }

    /// The selected tags of one repository.
    async fn read(
        &self,
        repository: &ListedRepository,
        query: &Query,
        signed: &SignedQuery,
    ) -> Result<Kept, BackendError> {
        let Vanished(reference) = match self.read_once(repository, query, signed).await? {
            Ok(kept) => return Ok(kept),
            Err(vanished) => vanished,
        };
        // A tag that was deleted after the list was read is not on the next list.
        tracing::info!(%reference, "a listed tag does not exist; the list is read again");
        self.read_once(repository, query, signed).await?.map_err(|Vanished(reference)| {
            BackendError::unavailable(format!(
                "{reference} is listed again, and does not exist; delete this tag, or leave it out with `tags.ignore`"
            ))
        })
    }

    async fn read_once(
        &self,
        repository: &ListedRepository,
        query: &Query,
        signed: &SignedQuery,
    ) -> Result<Result<Kept, Vanished>, BackendError> {
        let tags = match self.registries.tags(&repository.registry, &repository.name, query.deadline).await? {
            Ok(tags) => tags,
            Err(missing) => self.repositories.miss(repository, missing)?,
        };
        let mut candidates = self.selection.select(tags, &Context::of_input(query, &self.evaluator)).await?;
        let is_by_time = self.selection.sort() == Sort::Created;
        if self.filter.is_any() && !is_by_time && self.signatures.is_none() {
            candidates.truncate(self.limit);
        }
        // Whether a tag is signed is only known once it is opened. So as many as are wanted are opened at first, then as many again.
        let is_stepwise = self.signatures.is_some() && !is_by_time && self.limit < candidates.len();
        let step = if is_stepwise { self.limit.clamp(1, CONCURRENT_READS) } else { candidates.len().max(1) };
        let (all, mut done, mut kept) = (candidates.len(), 0, Kept::default());
        while !candidates.is_empty() && kept.tags.len() < self.limit {
            let rest = candidates.split_off(step.min(candidates.len()));
            let next = std::mem::replace(&mut candidates, rest);
            done += next.len();
            if done > MAX_OPENED {
                return Err(too_many(repository, all));
            }
            let opened = stream::iter(next)
                .map(async |candidate| self.open(repository, candidate, query).await)
                .buffered(CONCURRENT_READS)
                .try_collect::<Vec<_>>()
                .await?;
            let mut opened = match opened.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(opened) => opened,
                Err(vanished) => return Ok(Err(vanished)),
            };
            opened.retain(|opened| self.filter.fits(&opened.contents));
            if is_by_time {
                opened.sort_by_cached_key(|opened| Reverse(opened.contents.created_at()));
            }
            self.keep_signed(opened, &mut kept, query, signed).await?;
        }
        Ok(Ok(kept))
    }

    async fn open(
        &self,
        repository: &ListedRepository,
        candidate: Candidate,
        query: &Query,
    ) -> Result<Result<OpenedTag, Vanished>, BackendError> {
        let reference = reference(repository, &candidate.tag)?;
        let max_age = shared_for(query.reuses_for());
        let patience = Patience { deadline: query.deadline, max_age, joins: !query.must_ask };
        let target = match self.registries.look_up(&reference, patience).await? {
            Lookup::There(target) => target,
            Lookup::Missing(_) => return Ok(Err(Vanished(reference))),
        };
        let ListedRepository { registry, name, .. } = repository;
        let contents = self.registries.contents(registry, name, &target.digest, query.deadline).await;
        let contents = contents.map_err(|error| error.within(format_args!("the contents of {reference}")))?;
        Ok(Ok(OpenedTag { candidate, reference, target, contents }))
    }
}

#[async_trait]
impl Backend for List {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let repositories = self.repositories.find(query, &self.evaluator, &self.registries).await?;
        let names: Vec<String> = repositories.iter().map(|repository| format!("the tags of {repository}")).collect();
        let signed = self.signed_query(query).await?;
        let selected = stream::iter(repositories)
            .map(async |repository| self.read(&repository, query, &signed).await)
            .buffered(CONCURRENT_READS)
            .try_collect::<Vec<_>>()
            .await?;
        if names.is_empty() {
            return Ok(Outcome::of_list(Vec::new(), "the catalogue", "no repository fits"));
        }
        let evidence = names.into_iter().zip(&selected).flat_map(|(subject, kept)| kept.evidence(subject));
        let evidence = evidence.collect();
        let mut notes = Notes::default();
        let mut sets = Vec::new();
        for kept in selected {
            sets.extend(kept.tags.into_iter().map(|tag| notes.add(tag)));
        }
        let outcome = Outcome::of_sources(sets, evidence);
        Ok(if self.signatures.is_some() { outcome.noting(BackendNote::of(&notes)) } else { outcome })
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    /// Reads the list of each repository that is named without parameters, and the catalogue for patterns.
    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        let mut reached = Vec::new();
        for repository in self.repositories.fixed() {
            let ListedRepository { registry, name, named_by } = &repository;
            let needs = self.registries.needs(registry);
            let result = if *named_by == NamedBy::Pattern {
                let listed = self.registries.repositories(registry, deadline).await;
                listed.map(|_| "answers, and lets the gateway list its repositories".to_owned())
            } else {
                let listed = self.registries.tags(registry, name, deadline).await;
                listed.and_then(|listed| match listed {
                    Ok(_) => Ok("answers, and lets the gateway list its tags".to_owned()),
                    Err(missing) => self.repositories.accepts(&repository, missing),
                })
            };
            reached.push(Reached { source: format!("tags of {repository}"), result, needs });
        }
        reached
    }

    fn trust(&self) -> Trust {
        self.signatures.as_ref().map_or(Trust::NONE, Signatures::trust)
    }

    fn forget(&self) {
        self.registries.forget_tags();
        self.signatures.iter().for_each(Signatures::forget);
    }
}

/// The type of an item, which is a tag.
fn item() -> ValueType {
    let keys =
        ["registry", "repository", "tag", "digest", "pinned", "mediaType", "artifactType", "created", "revision"];
    let more = ["platforms", "annotations", "semver", "captures"];
    ValueType::object(keys.into_iter().chain(more))
}

fn too_many(repository: &ListedRepository, tags: usize) -> BackendError {
    BackendError::invalid_output(format!(
        "{repository}: {tags} tags must be opened, and {MAX_OPENED} is the limit; narrow `tags`, or set a `limit`, which helps unless \
         `sort: created`, annotations or an artifact type are set, or too many tags are not signed"
    ))
}

/// The reference of a tag that the registry listed. The name is checked, since a registry may list anything.
fn reference(repository: &ListedRepository, tag: &str) -> Result<Reference, BackendError> {
    let wrong = || {
        let shown: String = tag.chars().take(80).collect();
        BackendError::invalid_output(format!("the tags of {repository}: `{}` is not a tag", shown.escape_debug()))
    };
    let reference = Reference::parse(&format!("{repository}:{tag}")).map_err(|_| wrong())?;
    let is_that = reference.tag.as_deref() == Some(tag) && reference.repository == repository.name;
    if is_that && reference.digest.is_none() { Ok(reference) } else { Err(wrong()) }
}
