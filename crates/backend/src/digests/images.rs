//! Named images: one parameter set with all of them, if all are built.

mod checks;
mod verify;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::join_all;
use indexmap::IndexMap;
use minijinja::context;
use tokio::time::Instant;

use self::checks::{build_fallback, check_ties};
use super::{
    Config,
    commit::Commit,
    fingerprint::fingerprint,
    found::{FoundImage, ImageRules},
    gate::{CiState, CiVerdict, Gate, GateQuery},
    image_verdict::ImageVerdict,
    note::{LazyNote, Proofs},
    outcome::{Checks, Fallback},
    revision::RevisionPolicy,
    signatures::Signatures,
    source::{Demands, Image, ImageConfig, ImageLookup},
};
use crate::{Backend, Building, Nature, Reached};
use domain::{
    clock::Clock,
    error::BackendError,
    generator::{Evidence, Outcome, Query, Trust},
};
use lang::{
    evaluator::{Context, Evaluator},
    scope::ValueType,
    template::Template,
};
use oci::{Patience, Reference, Registries};

/// Names that a parameter set uses for other values than images.
const RESERVED_NAMES: [&str; 6] = ["stale", "revision", "builtAt", "runUrl", "params", "applicationSet"];

/// The tag that `check --connect` looks up. It need not exist.
const TRIED_TAG: &str = "appset-gateway-check";

/// The images, parsed, and the checks of them.
pub struct Images {
    named: Vec<(String, Image)>,
    expect: Option<Template>,
    policy: RevisionPolicy,
    gate: Option<Arc<dyn Gate>>,
    signatures: Option<Signatures>,
    fallback: Fallback,
    registries: Registries,
    evaluator: Evaluator,
    clock: Arc<dyn Clock>,
    /// The configuration's fingerprint.
    made_by: String,
    /// Whether a reference names the commit of the gate's verdict, so that the gate comes first.
    needs_commit: bool,
    nature: Nature,
}

impl Images {
    /// Parses the references and templates.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        if config.images.is_empty() {
            building.key("images").error_with_help(
                "there are no images",
                "name at least one, `images: { app: { image: … } }`, or select tags with `list`",
            );
        }
        let gate = config.gate.as_ref().map(|gate| gate.build(&mut building.key("gate")));
        let (signature, provenance) = (config.signature.as_ref(), config.provenance.as_ref());
        let signatures = Signatures::build(signature, provenance, building);
        let demands = Demands {
            is_checked: config.revision.is_some() || config.provenance.is_some(),
            has_commit: config.revision.is_some() || gate.is_some(),
            is_signed: config.signature.is_some(),
        };
        let mut images = Vec::new();
        for (name, image) in &config.images {
            let mut all = building.key("images");
            let mut building = all.key(name);
            if RESERVED_NAMES.contains(&name.as_str()) {
                building.error(format!("`{name}` already means something else in a parameter set"));
            }
            let image = Image::build(image, demands, &mut building);
            images.extend(image.map(|image| (name.clone(), image)));
        }
        let expect = config
            .revision
            .as_ref()
            .and_then(|revision| Commit::template(&revision.expect, &mut building.key("revision").key("expect")));
        check_ties(config, &images, &mut building.key("gate"));
        let (gate, signatures) = (gate.map_or(Some(None), |gate| gate.map(Some))?, signatures.ok()?);
        let fallback = build_fallback(config, building)?;
        Some(Self {
            nature: Nature { takes_notes: true, ..building.nature(item(&config.images)) },
            needs_commit: images.iter().any(|(_, image)| image.needs_commit()),
            named: images,
            expect,
            policy: config.revision.as_ref().map(|revision| revision.policy).unwrap_or_default(),
            gate,
            signatures,
            fallback,
            registries: context.registries.clone(),
            evaluator: context.evaluator.clone(),
            clock: Arc::clone(context.clock),
            made_by: fingerprint(context.raw.pointer("/backend/digests").unwrap_or(context.raw)),
        })
    }

    /// The commit that the images must be of, by `revision` or by `provenance`.
    async fn expected(&self, context: &Context) -> Result<Option<Commit>, BackendError> {
        let render = async |template: Option<&Template>, key: &str| match template {
            Some(template) => Commit::render(template, context).await.map(Some).map_err(|error| error.within(key)),
            None => Ok(None),
        };
        let by_revision = render(self.expect.as_ref(), "revision.expect").await?;
        let by_provenance = render(self.proof_commit(), "provenance.commit").await?;
        match (&by_revision, &by_provenance) {
            (Some(one), Some(other)) if one != other => Err(BackendError::invalid_input(format!(
                "the revision is to be {one}, and the provenance {other}; let both name one parameter"
            ))),
            _ => Ok(by_revision.or(by_provenance)),
        }
    }

    /// The template of the commit that `provenance` demands by itself.
    fn proof_commit(&self) -> Option<&Template> {
        self.signatures.as_ref().and_then(Signatures::commit)
    }

    async fn find(
        &self,
        context: &Context,
        before: &LazyNote,
        query: &Query,
    ) -> Vec<(&str, Result<FoundImage, BackendError>)> {
        let lookup = ImageLookup {
            context,
            registries: &self.registries,
            before,
            deadline: query.deadline,
            ttl: query.reuses_for(),
            must_ask: query.must_ask,
            omits_impossible: matches!(self.fallback, Fallback::Omit),
            proves_commits: self.proves_commits(),
        };
        let lookups = self.named.iter().map(async |(name, image)| (name.as_str(), image.find(&lookup).await));
        join_all(lookups).await
    }

    /// CI's verdict on the commit; `None` without a gate.
    async fn ci(&self, context: &Context, query: &Query) -> Result<Option<CiVerdict>, BackendError> {
        let Some(gate) = &self.gate else { return Ok(None) };
        let of_commit = GateQuery {
            context,
            parameters: &query.parameters,
            item: query.item(),
            deadline: query.deadline,
            may_reuse: !query.reuses_for().is_zero(),
        };
        gate.check(of_commit).await.map(Some).map_err(|mut error| {
            if error.evidence.is_empty() {
                error.evidence = vec![Evidence::unknown("CI's verdict on the commit", error.message.as_str())];
            }
            error.within("gate")
        })
    }

    /// Whether signed provenance names the commit, in place of the label.
    fn proves_commits(&self) -> bool {
        self.signatures.as_ref().is_some_and(Signatures::proves_commits)
    }
}

#[async_trait]
impl Backend for Images {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let context = Context::of_input(query, &self.evaluator);
        let before = LazyNote::new(&query.before);
        let expected = self.expected(&context).await?;
        let (ci, found) = if self.needs_commit {
            let ci = self.ci(&context, query).await?;
            let commit = commit_of(ci.as_ref(), expected.as_ref())?;
            let commit =
                commit.map(|commit| context.clone().map(|input| context! { commit => commit.as_str(), ..input }));
            (ci, self.find(commit.as_ref().unwrap_or(&context), &before, query).await)
        } else {
            let (ci, found) = tokio::join!(self.ci(&context, query), self.find(&context, &before, query));
            (ci.map_err(|error| with_image_evidence(error, &found))?, found)
        };
        let commit = commit_of(ci.as_ref(), expected.as_ref())?;
        let is_compared = self.expect.is_some() && self.policy != RevisionPolicy::Ignore;
        let rules = ImageRules {
            policy: self.policy,
            expected: commit.as_ref().filter(|_| self.expect.is_some()),
            proven: commit.as_ref().filter(|_| is_compared || self.expect.is_none() || self.proof_commit().is_some()),
            proves_commits: self.proves_commits(),
            earlier: commit.as_ref().filter(|_| ci.as_ref().is_some_and(|ci| ci.is_earlier)),
            is_ci_done: ci.as_ref().is_none_or(|ci| ci.state == CiState::Passed),
        };
        let checks = found.into_iter().map(async |(name, found)| {
            self.check(name, found, &rules, &before, query).await.map_err(|mut error| {
                error.evidence = error.evidence.into_iter().map(|each| each.of(name)).collect();
                error.within(format_args!("image {name}"))
            })
        });
        let with_ci = |mut error: BackendError| {
            error.evidence.extend(ci.iter().flat_map(|ci| ci.evidence.iter().cloned()));
            error
        };
        let images = join_results(join_all(checks).await.into_iter()).map_err(with_ci)?;
        let names_origin = self.expect.is_some() || self.gate.is_some() || rules.proves_commits;
        let is_built = rules.is_ci_done && images.iter().all(ImageVerdict::is_built);
        let last_proofs =
            if is_built { Ok(Proofs::new()) } else { self.last_proofs(&before, query).await.map_err(with_ci)? };
        let (made_by, now) = (self.made_by.clone(), self.clock.now());
        let is_signed = self.signatures.is_some();
        Checks { images, ci, names_origin, before, is_signed, last_proofs, made_by, now }.outcome(&self.fallback)
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    /// Tries the registry of each image: a tag that need not exist is looked up in its repository.
    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        let mut reached = Vec::new();
        for (name, image) in &self.named {
            let Some(repository) = image.fixed_repository() else { continue };
            let Ok(reference) = Reference::parse(&format!("{repository}:{TRIED_TAG}")) else { continue };
            let patience = Patience { deadline, max_age: Duration::ZERO, joins: true };
            let result = self.registries.look_up(&reference, patience).await;
            let result = result.map(|_| "answers, and lets the gateway read it".to_owned());
            let needs = self.registries.needs(&reference.registry);
            reached.push(Reached { source: format!("image {name}: {repository}"), result, needs });
        }
        reached
    }

    fn trust(&self) -> Trust {
        self.signatures.as_ref().map_or(Trust::NONE, Signatures::trust)
    }

    fn forget(&self) {
        self.registries.forget_tags();
        self.gate.iter().for_each(|gate| gate.forget());
        self.signatures.iter().for_each(Signatures::forget);
    }
}

/// The type of the one item: a part for each image, and the results of the checks.
fn item(images: &IndexMap<String, ImageConfig>) -> ValueType {
    // The last three are there if the image is opened.
    let keys = ["registry", "repository", "tag", "digest", "pinned", "revision", "created", "platforms"];
    let images = images.keys().map(|name| (name.clone(), ValueType::object(keys)));
    let more = ["stale", "revision", "builtAt", "runUrl"].map(|key| (key.to_owned(), ValueType::Anything));
    ValueType::Object(images.chain(more).collect())
}

/// The commit whose images are wanted: the commit that the gate walked back to, otherwise the expected commit, otherwise
/// the gate's.
fn commit_of(ci: Option<&CiVerdict>, expected: Option<&Commit>) -> Result<Option<Commit>, BackendError> {
    let named = ci.and_then(|ci| Some((ci.commit.as_ref()?, ci.is_earlier)));
    match (named, expected) {
        (Some((named, false)), Some(expected)) if named != expected => Err(BackendError::invalid_input(format!(
            "the gate is about the commit {named}, and the revision is to be {expected}; let both name one parameter"
        ))),
        (Some((named, _)), _) => Ok(Some(named.clone())),
        (None, expected) => Ok(expected.cloned()),
    }
}

/// `error`, with the evidence of the images that were looked up meanwhile.
fn with_image_evidence(mut error: BackendError, all: &[(&str, Result<FoundImage, BackendError>)]) -> BackendError {
    for (name, found) in all {
        let learned = match found {
            Ok(found) => std::slice::from_ref(found.evidence()),
            Err(error) => &error.evidence,
        };
        error.evidence.extend(learned.iter().map(|each| each.clone().of(name)));
    }
    error
}

/// All verdicts, or all errors joined in one: a single unknown image makes the whole unknown (invariant I3).
fn join_results(
    checked: impl Iterator<Item = Result<ImageVerdict, BackendError>>,
) -> Result<Vec<ImageVerdict>, BackendError> {
    let (mut verdicts, mut errors) = (Vec::new(), Vec::new());
    for each in checked {
        match each {
            Ok(verdict) => verdicts.push(verdict),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        return Ok(verdicts);
    }
    let of_verdicts = verdicts.into_iter().flat_map(|verdict| {
        let name = verdict.name;
        verdict.evidence.into_iter().map(move |each| each.of(&name))
    });
    let evidence = of_verdicts.chain(errors.iter().flat_map(|error| error.evidence.clone())).collect();
    BackendError::of_all(&errors, evidence).map_or(Ok(Vec::new()), Err)
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Images").field("images", &self.named).finish_non_exhaustive()
    }
}
