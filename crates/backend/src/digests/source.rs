//! One image: where the gateway looks it up, the result, and whether that image may be deployed.

mod origin;
mod platforms;

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    origin::ImageSource,
    platforms::{Images, PlatformSource, Wanted},
};
use super::{
    commit::Commit,
    found::{FoundImage, first_value, unclear},
    note::LazyNote,
    shared_for,
    signatures::SignedImage,
};
use crate::{BuildContext, Building};
use domain::{
    error::BackendError,
    generator::{Evidence, Parameters},
};
use lang::evaluator::Context;
use oci::{Contents, Digest, Lookup, Patience, Reference, Registries, Target};

/// The first query about an image, in evidence.
const REFERENCE: &str = "its reference";
/// How long a tag that names a whole commit is accepted not to move.
const COMMIT_TAG: Duration = Duration::from_mins(10);

/// One image.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageConfig {
    /// `registry/repository:tag`, or `oci:folder:name` for an OCI image layout; a template over `params` and
    /// `applicationSet`, and, with a `revision` or a `gate`, over `commit`. The registry or folder must be literal.
    pub image: String,
    /// Take the image for this platform, such as `linux/amd64`, in place of the index of all. A template over `params` and `applicationSet`.
    pub platform: Option<String>,
    /// Platforms that the index must have; before that it is not built. Templates as `platform`.
    #[serde(default)]
    pub(crate) require_platforms: Vec<String>,
    /// With `onMissing: placeholder`, the image to run meanwhile: `registry/repository:tag@sha256:…`.
    pub placeholder: Option<String>,
}

/// An image, parsed as far as it goes without parameters.
#[derive(Debug)]
pub(super) struct Image {
    source: ImageSource,
    platform: Option<PlatformSource>,
    required: Vec<PlatformSource>,
    /// Whether it must be opened: the registry's word on its digest is not enough.
    is_opened: bool,
}

/// The requirements for images.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demands {
    /// Whether the revision is checked, so that an image must be opened.
    pub(crate) is_checked: bool,
    /// Whether references may name a `commit`.
    pub(crate) has_commit: bool,
    /// Whether a signature is demanded.
    pub is_signed: bool,
}

/// The parameters of a lookup of images.
pub(super) struct ImageLookup<'a> {
    pub context: &'a Context,
    pub registries: &'a Registries,
    /// The note on earlier answers, which has contents of images.
    pub before: &'a LazyNote,
    pub deadline: Instant,
    /// How old knowledge from earlier requests may be.
    pub ttl: Duration,
    /// Whether nothing may be used of earlier requests.
    pub must_ask: bool,
    /// Whether an image that cannot exist counts as missing (`onMissing: omit`). Otherwise it is an error.
    pub(crate) omits_impossible: bool,
    /// Whether signed provenance names the commit, in place of the label.
    pub(crate) proves_commits: bool,
}

impl ImageLookup<'_> {
    /// The contents of `digest`: from memory, otherwise as noted, otherwise from the registry. A note has no annotations, which lists
    /// need, so it does not go into memory.
    async fn contents(&self, reference: &Reference, digest: &Digest) -> Result<Arc<Contents>, BackendError> {
        // A note of an earlier version does not say what else an index holds.
        let is_whole = |contents: &&Arc<Contents>| contents.unplaced.is_some();
        let noted = || self.before.get().known.get(digest).filter(is_whole).map(Arc::clone);
        if let Some(known) = self.registries.known_contents(digest).or_else(noted) {
            return Ok(known);
        }
        let Reference { registry, repository, .. } = reference;
        let contents = self.registries.contents(registry, repository, digest, self.deadline).await;
        contents.map_err(|error| unclear(&format!("the contents of {registry}/{repository}@{digest}"), error))
    }
}

impl Image {
    /// The registry and the repository, if no parameter is part of them.
    pub(crate) fn fixed_repository(&self) -> Option<&str> {
        self.source.fixed_repository()
    }

    /// Parses the configuration of an image, which is looked up with `demands`.
    pub(super) fn build(config: &ImageConfig, demands: Demands, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        let scope = &context.scope.with_all(if demands.has_commit { &["commit"] } else { &[] });
        let mut image = building.key("image");
        let source = image.note(ImageSource::parse(&config.image, scope, context.base));
        if let Some(source) = &source {
            image.with(BuildContext { scope, ..context }).check_template(source.template());
        }
        let mut all = building.key("requirePlatforms");
        let required = config.require_platforms.iter().enumerate();
        let required =
            required.filter_map(|(index, text)| PlatformSource::build(text, &mut all.index(index))).collect();
        let platform = config.platform.as_ref();
        let platform = platform.and_then(|text| PlatformSource::build(text, &mut building.key("platform")));
        let is_opened = demands.is_checked || config.platform.is_some() || !config.require_platforms.is_empty();
        let source = source?;
        if demands.is_signed && matches!(source, ImageSource::Layout { .. }) {
            building.key("image").error_with_help(
                "an image layout holds no signatures, so the image would never be answered",
                "use a registry, or leave `signature` and `provenance` out",
            );
        } else if is_opened && matches!(source, ImageSource::Layout { .. }) {
            building.key("image").error_with_help(
                "an image layout is not opened, so neither its revision nor its platforms are known",
                "use a registry",
            );
        }
        Some(Self { source, platform, required, is_opened })
    }

    /// Looks the image up.
    ///
    /// # Errors
    /// When the parameters make no reference, or the registry gives no clear answer in time.
    pub(super) async fn find(&self, lookup: &ImageLookup<'_>) -> Result<FoundImage, BackendError> {
        let is_tied = self.needs_commit();
        let text = match self.source.reference(lookup.context).await {
            Ok(text) => text,
            Err(refused) if refused.is_impossible && lookup.omits_impossible => {
                let why = format!("there can be no such image: {}", refused.error.message);
                return Ok(FoundImage::unopened(None, String::new(), is_tied, Evidence::absent(REFERENCE, why)));
            }
            Err(refused) => return Err(unclear(REFERENCE, refused.error)),
        };
        match &self.source {
            ImageSource::Registry(_) => {
                let invalid = |why| unclear(REFERENCE, BackendError::invalid_input(why));
                let reference = Reference::parse(&text).map_err(invalid)?;
                self.find_in_registry(&reference, lookup).await
            }
            ImageSource::Layout { layout, .. } => {
                let query = format!("the manifest of {text} in {}", layout.folder().display());
                let digest = layout.digest(&text).await.map_err(|error| unclear(&query, error))?;
                let tag = text.rsplit_once(':').map_or(text.as_str(), |(_, tag)| tag).to_owned();
                let evidence = match &digest {
                    Some(digest) => Evidence::present(query, digest.as_str()),
                    None => Evidence::absent(query, "the index names none"),
                };
                let parts = digest.map(|digest| object(json!({ "tag": tag, "digest": digest.as_str() })));
                Ok(FoundImage::unopened(parts, tag, is_tied, evidence))
            }
        }
    }

    async fn find_in_registry(
        &self,
        reference: &Reference,
        lookup: &ImageLookup<'_>,
    ) -> Result<FoundImage, BackendError> {
        let (query, is_tied) = (format!("the manifest of {}", reference.text()), self.needs_commit());
        let (required, platform) = self.wanted(lookup.context).await?;
        let tag = reference.tag.clone().unwrap_or_default();
        let max_age = if lookup.ttl.is_zero() || !is_commit_tag(&tag) { shared_for(lookup.ttl) } else { COMMIT_TAG };
        let patience = Patience { deadline: lookup.deadline, max_age, joins: !lookup.must_ask };
        let result = lookup.registries.look_up(reference, patience).await.map_err(|error| unclear(&query, error))?;
        let Target { digest, .. } = match result {
            Lookup::There(target) => target,
            Lookup::Missing(missing) => {
                let evidence = Evidence::absent(query, missing.as_str());
                return Ok(FoundImage::unopened(None, tag, is_tied, evidence));
            }
        };
        let evidence = Evidence::present(&query, digest.as_str());
        if !self.is_opened {
            let parts = parts(reference, digest.as_str());
            let image = Some(signed(reference, [Some(digest), None]));
            return Ok(FoundImage { image, ..FoundImage::unopened(Some(parts), tag, is_tied, evidence) });
        }
        let top = lookup.contents(reference, &digest).await?;
        let wanted: Vec<&Wanted> = required.iter().chain(&platform).collect();
        let images = Images::find(&top, &wanted, reference, lookup).await?;
        let lacking: Vec<&str> = wanted.iter().filter(|one| !images.has(one)).map(|one| one.text.as_str()).collect();
        let lacking = (!lacking.is_empty()).then(|| lacking.join(", "));
        let picked = platform.as_ref().and_then(|wanted| images.digest(wanted));
        // Which revisions matter: that of the picked image, otherwise those of the required images, unless the index names a
        // revision for all.
        let matter: Vec<Digest> = match &picked {
            _ if top.own_revision().is_some() => Vec::new(),
            Some(picked) => vec![picked.clone()],
            None => required.iter().filter_map(|wanted| images.digest(wanted)).collect(),
        };
        let mut contents = vec![(digest.clone(), Arc::clone(&top))];
        for image in matter {
            let of_image = lookup.contents(reference, &image).await?;
            contents.push((image, of_image));
        }
        // The index itself comes first, and is checked only if no image is.
        let skipped = usize::from(contents.len() > 1);
        let checked: Vec<Arc<Contents>> =
            contents[skipped..].iter().map(|(_, of_image)| Arc::clone(of_image)).collect();
        let mut parts = parts(reference, picked.as_ref().unwrap_or(&digest).as_str());
        let platforms: Vec<String> = top.platforms.iter().map(ToString::to_string).collect();
        let revision = first_value(&checked, |contents| &contents.revision);
        let created = first_value(&checked, |contents| &contents.created);
        parts.insert("revision".to_owned(), revision.unwrap_or_default().into());
        parts.insert("created".to_owned(), created.unwrap_or_default().into());
        parts.insert("platforms".to_owned(), platforms.into());
        // A label of the index speaks for the picked image. A signature of that image alone does not cover it.
        let counts = lookup.proves_commits || top.own_revision().is_none();
        let image = Some(signed(reference, [Some(digest), picked.filter(|_| counts)]));
        Ok(FoundImage { parts: Some(parts), contents, checked, tag, lacking, is_tied, image, evidence })
    }

    /// The platforms that are required, and the one that is picked.
    async fn wanted(&self, context: &Context) -> Result<(Vec<Wanted>, Option<Wanted>), BackendError> {
        let mut required = Vec::new();
        for source in &self.required {
            required.push(source.render("requirePlatforms", context).await?);
        }
        Ok(match &self.platform {
            Some(source) => (required, Some(source.render("platform", context).await?)),
            None => (required, None),
        })
    }

    /// Whether the reference names the commit of the gate's verdict.
    pub(crate) fn needs_commit(&self) -> bool {
        self.source.template().reads("commit")
    }

    /// Whether the reference has a parameter whose name looks like that of a commit.
    pub(crate) fn has_commit_parameter(&self) -> bool {
        self.source.has_commit_parameter()
    }
}

/// Whether a tag has a whole commit in it, such as `sha-` and 40 digits: such tags do not move.
fn is_commit_tag(tag: &str) -> bool {
    tag.split(['-', '_', '.']).any(|part| Commit::parse(part).is_ok())
}

/// The image of `reference` with its `digests`.
fn signed(reference: &Reference, digests: [Option<Digest>; 2]) -> SignedImage {
    let Reference { registry, repository, .. } = reference;
    let digests = digests.into_iter().flatten().collect();
    SignedImage { registry: registry.clone(), repository: repository.clone(), digests }
}

fn object(value: Value) -> Parameters {
    if let Value::Object(parts) = value { parts } else { Parameters::new() }
}

/// An image's parts, under the names that templates use.
pub(super) fn parts(reference: &Reference, digest: &str) -> Parameters {
    let Reference { registry, repository, tag, .. } = reference;
    let pinned = format!("{registry}/{repository}@{digest}");
    let values = [
        ("registry", registry.as_str()),
        ("repository", repository),
        ("tag", tag.as_deref().unwrap_or_default()),
        ("digest", digest),
        ("pinned", &pinned),
    ];
    // Room for the three values of an image that is opened.
    let mut parts = Parameters::with_capacity(values.len() + 3);
    parts.extend(values.map(|(name, value)| (name.to_owned(), Value::from(value))));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_names_a_commit_does_not_move() {
        let sha = "0a".repeat(20);
        for (tag, expected) in [
            (sha.clone(), true),
            (format!("sha-{sha}"), true),
            (format!("main-{sha}-amd64"), true),
            (sha[..7].to_owned(), false),
            ("main".to_owned(), false),
        ] {
            assert_eq!(is_commit_tag(&tag), expected, "{tag}");
        }
    }
}
