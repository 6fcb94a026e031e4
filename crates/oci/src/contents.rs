//! The contents of a digest: annotations, platforms, the commit and the time of the build. A digest never changes, so its
//! contents are kept.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    Digest,
    lookup::verified_manifest,
    manifest::{Annotations, Manifest, OciImageConfig, is_image_config},
    platform::Platform,
    registry::{Registry, RegistryRequest},
};
use domain::{
    bounded_cache::Recent,
    error::{BackendError, ErrorKind},
};

/// The annotation and label that names the commit (image specification 1.1, "Pre-Defined Annotation Keys").
const REVISION: &str = "org.opencontainers.image.revision";
/// The annotation and label that names the time of the build.
const CREATED: &str = "org.opencontainers.image.created";
/// The annotation and label with the name of the build: a version, or the branch or pull request.
const VERSION: &str = "org.opencontainers.image.version";

/// The contents of one digest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Contents {
    /// The kind of the artifact.
    pub artifact_type: Option<String>,
    /// The annotations of the index or manifest.
    pub annotations: Annotations,
    /// The annotations of the first image of an index that has none itself.
    pub image_annotations: Annotations,
    /// The platforms of its images.
    pub platforms: Vec<Platform>,
    /// The commit, by the annotations or else by the image's labels.
    pub revision: Option<String>,
    /// When it was built (RFC 3339).
    pub created: Option<String>,
    /// The version, by the annotations or else by the image's labels.
    pub version: Option<String>,
    /// The digest for each platform of an index.
    pub images: Vec<(Platform, Digest)>,
    /// The other documents of an index: other indexes, and images whose platform only they themselves name. `None` in notes of
    /// earlier versions.
    pub unplaced: Option<Vec<Digest>>,
}

/// How deep an index may lie in another.
pub const MAX_DEPTH: usize = 4;

impl Contents {
    /// The contents without annotations, except those that name the commit and the time.
    #[must_use]
    pub fn without_annotations(&self) -> Self {
        let found = [REVISION, CREATED].into_iter().filter_map(|name| self.annotations.get_key_value(name));
        let annotations = found.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { annotations, image_annotations: Annotations::new(), ..self.clone() }
    }

    /// The annotations of the index or manifest, or those of its first image if it has none. Builders use either.
    #[must_use]
    pub fn build_annotations(&self) -> &Annotations {
        if self.annotations.is_empty() { &self.image_annotations } else { &self.annotations }
    }

    /// The commit that the index or manifest itself names, for all of its images.
    #[must_use]
    pub fn own_revision(&self) -> Option<&str> {
        self.annotations.get(REVISION).map(String::as_str).filter(|revision| !revision.is_empty())
    }

    /// Whether it holds no other images: it is one image, or an artifact.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.images.is_empty() && self.unplaced.as_ref().is_none_or(Vec::is_empty)
    }

    /// Whether it is an artifact and no image, so that it has no platform.
    #[must_use]
    pub fn is_artifact(&self) -> bool {
        self.artifact_type.as_deref().is_some_and(|name| !is_image_config(name)) && self.platforms.is_empty()
    }

    /// When it was built. `None` if that is not known.
    #[must_use]
    pub fn created_at(&self) -> Option<jiff::Timestamp> {
        self.created.as_deref()?.parse().ok()
    }

    /// The approximate weight in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let all = self.annotations.iter().chain(&self.image_annotations);
        let annotations: usize = all.map(|(key, value)| key.len() + value.len() + 64).sum();
        512 + annotations + (self.images.len() + self.unplaced.as_ref().map_or(0, Vec::len)) * 256
    }
}

impl Registry {
    /// Reads the contents of `digest`. Fields that the index lacks are read from its first image, and those that this image's manifest
    /// lacks, from its configuration.
    ///
    /// # Errors
    /// When one of them is not read by `deadline`.
    pub(super) async fn contents(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<Contents, BackendError> {
        if self.is_low(repository).await {
            let why = "little is left of what it allows, so that contents are not read until it allows more";
            return Err(BackendError::new(ErrorKind::Throttled { retry_after: None }, why));
        }
        let top = self.manifest(repository, digest, deadline).await?;
        let mut contents = Contents::named_by(&top);
        let (mut image, mut depth) = (top, 0);
        while depth < MAX_DEPTH
            && let Some(first) = image.first_image()
        {
            contents.add(&image);
            if !contents.is_wanting() {
                return Ok(contents);
            }
            image = self.manifest(repository, &first, deadline).await?;
            depth += 1;
        }
        contents.add(&image);
        // Such an index does not name the time of the build either, so its first image has just been read.
        if contents.annotations.is_empty() {
            contents.image_annotations.clone_from(&image.annotations);
        }
        if (contents.is_wanting() || contents.platforms.is_empty())
            && let Some(config) = image.image_config()
        {
            let config = self.image_config(repository, &config.digest, deadline).await?;
            let label = |name: &str| config.label(name).map(str::to_owned);
            contents.revision = contents.revision.or_else(|| label(REVISION));
            contents.version = contents.version.or_else(|| label(VERSION));
            contents.created = contents.created.or_else(|| label(CREATED)).or_else(|| config.created.clone());
            if contents.images.is_empty() {
                contents.platforms.extend(config.platform());
            }
        }
        Ok(contents)
    }

    async fn manifest(&self, repository: &str, digest: &Digest, deadline: Instant) -> Result<Manifest, BackendError> {
        Ok(self.checked_manifest(repository, digest, deadline).await?.0)
    }

    /// The bytes of the manifest `digest`, which have that digest.
    ///
    /// # Errors
    /// When they are not read by `deadline`, or are not manifests.
    pub(super) async fn manifest_bytes(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<Bytes, BackendError> {
        Ok(self.checked_manifest(repository, digest, deadline).await?.1)
    }

    async fn checked_manifest(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<(Manifest, Bytes), BackendError> {
        let path = format!("manifests/{digest}");
        let request = RegistryRequest { method: Method::GET, repository, path: &path, query: None, url: None };
        let reply = self.fetch(&request, deadline).await?;
        if reply.status.as_u16() != 200 {
            return Err(reply.refusal().within(format_args!("the content of {digest}")));
        }
        let (target, manifest) = verified_manifest(&reply).map_err(|error| error.within(digest))?;
        check(digest, &target.digest)?;
        Ok((manifest, reply.body))
    }

    async fn image_config(
        &self,
        repository: &str,
        digest: &Digest,
        deadline: Instant,
    ) -> Result<OciImageConfig, BackendError> {
        let within = |error: BackendError| error.within(format_args!("the image configuration {digest}"));
        let reply = self.blob(repository, digest.as_str(), deadline).await.map_err(within)?;
        check(digest, &Digest::of(&reply.body))?;
        OciImageConfig::parse(&reply.body).map_err(|error| within(BackendError::invalid_output(error)))
    }
}

impl Contents {
    /// The fields that the manifest itself has, except for those that it may leave to its first image.
    fn named_by(top: &Manifest) -> Self {
        let images = top.images().filter_map(|image| Some((image.platform()?.clone(), image.digest.clone())));
        let images: Vec<_> = images.collect();
        let unplaced = top.images().filter(|image| image.is_unplaced()).map(|image| image.digest.clone());
        Self {
            artifact_type: top.artifact_type().map(str::to_owned),
            annotations: top.annotations.clone(),
            platforms: images.iter().map(|(platform, _)| platform.clone()).collect(),
            images,
            unplaced: Some(unplaced.collect()),
            ..Self::default()
        }
    }

    fn add(&mut self, manifest: &Manifest) {
        let annotation = |name: &str| manifest.annotations.get(name).filter(|value| !value.is_empty()).cloned();
        self.revision = self.revision.take().or_else(|| annotation(REVISION));
        self.created = self.created.take().or_else(|| annotation(CREATED));
        self.version = self.version.take().or_else(|| annotation(VERSION));
    }

    const fn is_wanting(&self) -> bool {
        self.revision.is_none() || self.created.is_none()
    }
}

fn check(wanted: &Digest, got: &Digest) -> Result<(), BackendError> {
    if wanted == got {
        return Ok(());
    }
    Err(BackendError::invalid_output(format!("the content of {wanted} has the digest {got}")))
}

/// The cached contents of digests.
pub(super) type CachedContents = Recent<Digest, Arc<Contents>>;
