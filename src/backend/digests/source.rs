//! One image: where it is looked up, what was found, and what that is worth.

mod origin;

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::origin::ImageSource;
use super::{
    commit::Commit,
    decision::{Built, Finding, ImageState},
    note::Known,
    revision::{self, Policy, Verdict},
    shared_for,
};
use crate::{
    clients::oci::{Contents, Digest, Lookup, Patience, Platform, Reference, Registries, Target},
    domain::{
        error::BackendError,
        generator::{Evidence, Parameters},
        problem::{Path, Problems},
    },
    file::base_dir::BaseDir,
    lang::evaluator::Context,
};

/// What is asked first of an image, in evidence.
const REFERENCE: &str = "its reference";
/// For how long a tag that names a whole commit is believed to stay where it is.
const COMMIT_TAG: Duration = Duration::from_mins(10);

/// One image.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ImageConfig {
    /// `registry/repository:tag`, or `oci:folder:name` for an OCI image layout; a template over `params` and
    /// `applicationSet`, and, with a `revision` or a `gate`, over `commit`. The registry or folder stands in it as it is.
    pub(crate) image: String,
    /// Take the image for this platform, such as `linux/amd64`, in place of the index of all.
    pub(crate) platform: Option<String>,
    /// Platforms that the index must have; before that it is not built.
    #[serde(default)]
    pub(crate) require_platforms: Vec<String>,
    /// With `onMissing: placeholder`, the image to run meanwhile: `registry/repository:tag@sha256:…`.
    pub(crate) placeholder: Option<String>,
}

/// An image, parsed as far as it goes without parameters.
#[derive(Debug)]
pub(super) struct Image {
    source: ImageSource,
    platform: Option<Platform>,
    required: Vec<Platform>,
    /// Whether it must be opened: the registry's word on its digest is not enough.
    is_opened: bool,
}

/// With what an image is looked for.
pub(super) struct Wanted<'a> {
    pub(crate) context: &'a Context,
    pub(crate) registries: &'a Registries,
    /// What was noted of digests.
    pub(crate) known: &'a Known,
    pub(crate) deadline: Instant,
    /// For how long the route's answers are fresh.
    pub(crate) ttl: Duration,
    /// Whether an image that cannot exist counts as missing, as `onMissing: omit` wants; else it is an error.
    pub(crate) omits_impossible: bool,
}

impl Wanted<'_> {
    /// What `digest` holds: as it was noted, else as the registry says.
    async fn contents(&self, reference: &Reference, digest: &Digest) -> Result<Arc<Contents>, BackendError> {
        if let Some(known) = self.known.get(digest) {
            return Ok(Arc::clone(known));
        }
        let Reference { registry, repository, .. } = reference;
        let contents = self.registries.contents(registry, repository, digest, self.deadline).await;
        contents.map_err(|error| unclear(&format!("what {registry}/{repository}@{digest} holds"), error))
    }
}

/// By what an image is judged.
pub(super) struct Rules<'a> {
    /// What its revision must be,
    pub(crate) policy: Policy,
    /// of which commit, where one is expected.
    pub(crate) expected: Option<&'a Commit>,
    /// The commit before the one that was asked about, to which CI's word goes.
    pub(crate) earlier: Option<&'a Commit>,
    /// Whether CI has nothing more to say of the commit.
    pub(crate) is_ci_done: bool,
}

/// What is known of one image.
#[derive(Debug)]
pub(super) struct Found {
    parts: Option<Parameters>,
    /// What the manifest under the tag holds, by its digest.
    holds: Vec<(Digest, Arc<Contents>)>,
    /// Those of them whose revision matters.
    judged: Vec<Arc<Contents>>,
    tag: String,
    lacking: Option<String>,
    /// Whether its tag names the commit to which CI's word goes.
    is_tied: bool,
    evidence: Evidence,
}

impl Image {
    /// Parses the configuration of an image. With `is_judged` its revision is looked at; with `has_commit` its reference may
    /// hold a commit.
    pub(crate) fn build(
        config: &ImageConfig,
        is_judged: bool,
        has_commit: bool,
        base: &BaseDir,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let source = problems.note(&path.key("image"), ImageSource::parse(&config.image, has_commit, base));
        let platform = config.platform.as_ref().and_then(|text| problems.note(&path.key("platform"), text.parse()));
        let mut required = Vec::new();
        for (index, text) in config.require_platforms.iter().enumerate() {
            required.extend(problems.note(&path.key("requirePlatforms").index(index), text.parse::<Platform>()));
        }
        let is_opened = is_judged || config.platform.is_some() || !config.require_platforms.is_empty();
        let source = source?;
        if is_opened && matches!(source, ImageSource::Layout { .. }) {
            problems.error_with_help(
                &path.key("image"),
                "an image layout is not opened, so neither its revision nor its platforms are known",
                "ask a registry for them",
            );
        }
        Some(Self { source, platform, required, is_opened })
    }

    /// Looks the image up.
    ///
    /// # Errors
    /// When the parameters make no reference, or its source gives no clear answer in time. What was asked is the evidence.
    pub(crate) async fn find(&self, wanted: &Wanted<'_>) -> Result<Found, BackendError> {
        let is_tied = self.needs_commit();
        let text = match self.source.reference(wanted.context).await {
            Ok(text) => text,
            Err(refused) if refused.is_impossible && wanted.omits_impossible => {
                let why = format!("there can be no such image: {}", refused.error.message);
                return Ok(Found::unopened(None, String::new(), is_tied, Evidence::absent(REFERENCE, why)));
            }
            Err(refused) => return Err(unclear(REFERENCE, refused.error)),
        };
        match &self.source {
            ImageSource::Registry(_) => {
                let invalid = |why| unclear(REFERENCE, BackendError::invalid_input(why));
                let reference = Reference::parse(&text).map_err(invalid)?;
                self.find_in_registry(&reference, wanted).await
            }
            ImageSource::Layout { layout, .. } => {
                let asked = format!("the manifest of {text} in {}", layout.folder().display());
                let digest = layout.digest(&text).await.map_err(|error| unclear(&asked, error))?;
                let tag = text.rsplit_once(':').map_or(text.as_str(), |(_, tag)| tag).to_owned();
                let evidence = match &digest {
                    Some(digest) => Evidence::present(asked, digest.as_str()),
                    None => Evidence::absent(asked, "the index names none"),
                };
                let parts = digest.map(|digest| object(json!({ "tag": tag, "digest": digest.as_str() })));
                Ok(Found::unopened(parts, tag, is_tied, evidence))
            }
        }
    }

    async fn find_in_registry(&self, reference: &Reference, wanted: &Wanted<'_>) -> Result<Found, BackendError> {
        let (asked, is_tied) = (format!("the manifest of {reference}"), self.needs_commit());
        let tag = reference.tag.clone().unwrap_or_default();
        let shared_for = if wanted.ttl.is_zero() || !is_commit_tag(&tag) { shared_for(wanted.ttl) } else { COMMIT_TAG };
        let patience = Patience { deadline: wanted.deadline, max_age: shared_for };
        let lookup = wanted.registries.look_up(reference, patience).await.map_err(|error| unclear(&asked, error))?;
        let Target { digest, .. } = match lookup {
            Lookup::There(target) => target,
            Lookup::Missing(missing) => {
                let evidence = Evidence::absent(asked, missing.as_str());
                return Ok(Found::unopened(None, tag, is_tied, evidence));
            }
        };
        let evidence = Evidence::present(&asked, digest.as_str());
        if !self.is_opened {
            let parts = object(parts(reference, digest.as_str()));
            return Ok(Found::unopened(Some(parts), tag, is_tied, evidence));
        }
        let top = wanted.contents(reference, &digest).await?;
        let image_for =
            |wanted: &Platform| top.images.iter().find(|(own, _)| own.suits(wanted)).map(|(_, of)| of.clone());
        let is_there = |wanted: &&Platform| top.platforms.iter().any(|own| own.suits(wanted));
        let lacking: Vec<String> =
            self.required.iter().chain(&self.platform).filter(|one| !is_there(one)).map(ToString::to_string).collect();
        let lacking = (!lacking.is_empty()).then(|| lacking.join(", "));
        let picked = self.platform.as_ref().and_then(image_for);
        // Whose revisions matter: that of the image that is picked, else of those that must be there, unless the index
        // speaks for all of them.
        let matter: Vec<Digest> = match &picked {
            _ if top.own_revision().is_some() => Vec::new(),
            Some(picked) => vec![picked.clone()],
            None => self.required.iter().filter_map(image_for).collect(),
        };
        let mut holds = vec![(digest.clone(), Arc::clone(&top))];
        for image in matter {
            let contents = wanted.contents(reference, &image).await?;
            holds.push((image, contents));
        }
        let is_of_image = usize::from(holds.len() > 1);
        let judged: Vec<Arc<Contents>> =
            holds[is_of_image..].iter().map(|(_, contents)| Arc::clone(contents)).collect();
        let mut parts = object(parts(reference, picked.as_ref().unwrap_or(&digest).as_str()));
        let platforms: Vec<String> = top.platforms.iter().map(ToString::to_string).collect();
        let told = |told: fn(&Contents) -> &Option<String>| judged.iter().find_map(|one| told(one).clone());
        parts.insert("revision".to_owned(), told(|contents| &contents.revision).unwrap_or_default().into());
        parts.insert("created".to_owned(), told(|contents| &contents.created).unwrap_or_default().into());
        parts.insert("platforms".to_owned(), platforms.into());
        Ok(Found { parts: Some(parts), holds, judged, tag, lacking, is_tied, evidence })
    }

    /// Whether the reference depends on what the gate says.
    pub(crate) fn needs_commit(&self) -> bool {
        self.source.template().reads("commit")
    }

    /// Whether the reference holds a parameter that is called like a commit.
    pub(crate) fn has_commit_parameter(&self) -> bool {
        self.source.has_commit_parameter()
    }

    /// Whether the reference depends on the ApplicationSet's name.
    pub(crate) fn reads_application_set(&self) -> bool {
        self.source.template().reads_application_set()
    }
}

impl Found {
    /// What is known without looking into it.
    const fn unopened(parts: Option<Parameters>, tag: String, is_tied: bool, evidence: Evidence) -> Self {
        Self { parts, holds: Vec::new(), judged: Vec::new(), tag, lacking: None, is_tied, evidence }
    }

    /// How it is known that it is there, or not.
    pub(crate) const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What there is of the image called `name`, by `rules`.
    ///
    /// # Errors
    /// When it does not say of which commit it is, and must.
    pub(crate) fn judge(self, name: &str, rules: &Rules<'_>) -> Result<Finding, BackendError> {
        let Self { parts, holds, judged, tag, lacking, is_tied, evidence } = self;
        let mut finding = Finding { name: name.to_owned(), is: ImageState::Missing, holds, evidence: vec![evidence] };
        let Some(parts) = parts else { return Ok(finding) };
        finding.is = ImageState::Unfit;
        if let Some(lacking) = lacking {
            let asked = format!("its platforms under {tag}");
            finding.evidence.push(Evidence::absent(asked, format!("it has none for {lacking}")));
            return Ok(finding);
        }
        let asked = format!("its revision under {tag}");
        for (expected, contents) in
            rules.expected.into_iter().flat_map(|expected| judged.iter().map(move |one| (expected, one)))
        {
            let verdict = revision::judge(rules.policy, expected, contents, &tag, rules.is_ci_done);
            match verdict.map_err(|error| unclear(&asked, error))? {
                Verdict::Fits(told) => finding.evidence.push(Evidence::present(&asked, told)),
                Verdict::Other(why) => {
                    finding.evidence.push(Evidence::absent(asked, why));
                    return Ok(finding);
                }
            }
        }
        let is_of = |commit: &Commit| {
            !judged.is_empty() && judged.iter().all(|contents| contents.revision.as_deref() == Some(commit.as_str()))
        };
        if let Some(earlier) = rules.earlier.filter(|earlier| !is_tied && !is_of(earlier)) {
            let why = format!("CI passed {earlier}, an earlier commit, and nothing says that the image is of that one");
            finding.evidence.push(Evidence::absent(asked, why));
            return Ok(finding);
        }
        let told = |told: fn(&Contents) -> &Option<String>| judged.iter().find_map(|one| told(one).clone());
        let (created, revision) = (told(|contents| &contents.created), told(|contents| &contents.revision));
        finding.is = ImageState::Built(Built { parts, created, revision });
        Ok(finding)
    }
}

/// Whether a tag holds a whole commit, such as `sha-` and 40 digits: such tags do not move.
fn is_commit_tag(tag: &str) -> bool {
    tag.split(['-', '_', '.']).any(|part| Commit::parse(part).is_ok())
}

fn object(value: Value) -> Parameters {
    if let Value::Object(parts) = value { parts } else { Parameters::new() }
}

/// `error`, with what was asked as evidence.
fn unclear(asked: &str, mut error: BackendError) -> BackendError {
    error.evidence = vec![Evidence::unknown(asked, error.message.as_str())];
    error
}

/// An image's parts, under the names that templates use.
pub(super) fn parts(reference: &Reference, digest: &str) -> Value {
    json!({
        "registry": reference.registry,
        "repository": reference.repository,
        "tag": reference.tag.as_deref().unwrap_or_default(),
        "digest": digest,
        "pinned": format!("{}/{}@{digest}", reference.registry, reference.repository),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_names_a_commit_stays() {
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
