//! Manifests and image configurations: the documents behind a digest. Source: OCI image specification 1.1.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::{Digest, platform::Platform};
use domain::document::{self, DocumentError};

/// All kinds of manifests that an image reference may lead to.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                                 application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The media type of an index, also of a list of referrers.
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media types of indexes.
const INDEXES: [&str; 2] = [INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"];
/// The media types of image configurations. Other types are configurations of artifacts.
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// Key-value pairs of a manifest or the labels of an image.
pub type Annotations = BTreeMap<String, String>;

/// An image index, or the manifest of one image or artifact.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    schema_version: u32,
    /// The kind of an artifact.
    pub artifact_type: Option<String>,
    /// Its annotations.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: Annotations,
    /// The images of an index.
    pub manifests: Option<Vec<Descriptor>>,
    /// The configuration of an image.
    pub config: Option<Descriptor>,
}

/// A pointer to content.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The digest of the content.
    pub digest: Digest,
    /// The media type of the content.
    #[serde(default)]
    pub media_type: String,
    /// The platform of the content.
    platform: Option<Platform>,
    /// The kind of the artifact that the content is.
    #[serde(default)]
    artifact_type: Option<String>,
    /// The annotations of the pointer.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: Annotations,
}

/// The parts of an image's configuration that matter here.
#[derive(Debug, Clone, Deserialize)]
pub struct OciImageConfig {
    /// When it was built (RFC 3339), if it is known.
    pub created: Option<String>,
    os: Option<String>,
    #[serde(rename = "os.version")]
    os_version: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
    config: Option<Execution>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Execution {
    #[serde(rename = "Labels")]
    labels: Option<Annotations>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether `content_type`, the value of a header, is that of a manifest.
pub(super) fn is_manifest(content_type: &str) -> bool {
    ACCEPT.split(", ").any(|known| same_type(known, content_type))
}

/// Whether two media types are one: their case and their parameters do not count (RFC 9110, section 8.3.1).
#[must_use]
pub fn same_type(one: &str, other: &str) -> bool {
    let essence = |text: &str| text.split(';').next().map(str::trim).unwrap_or_default().to_ascii_lowercase();
    essence(one) == essence(other)
}

/// Whether `media_type` is that of the configuration of an image, and not of an artifact.
#[must_use]
pub(crate) fn is_image_config(media_type: &str) -> bool {
    CONFIGS.iter().any(|known| same_type(known, media_type))
}

/// Why a document of a registry is not the expected one.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not a manifest.
    #[error("no manifest: {0}")]
    NoManifest(#[source] DocumentError),
    /// It is a manifest of this version.
    #[error("a manifest of version {0}, not 2")]
    Version(u32),
    /// It is not the configuration of an image.
    #[error("no image configuration: {0}")]
    NoConfig(#[source] DocumentError),
}

impl From<ManifestError> for String {
    fn from(error: ManifestError) -> Self {
        error.to_string()
    }
}

impl Manifest {
    /// Reads a manifest's bytes.
    ///
    /// # Errors
    /// When they are not manifests.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = document::parse_object(bytes).map_err(ManifestError::NoManifest)?;
        match manifest.schema_version {
            2 => Ok(manifest),
            other => Err(ManifestError::Version(other)),
        }
    }

    /// The images of an index that can run. Builders also add attestations, which cannot.
    pub fn images(&self) -> impl Iterator<Item = &Descriptor> {
        let is_image = |descriptor: &&Descriptor| {
            !descriptor.annotations.contains_key("vnd.docker.reference.type")
                && descriptor.platform.as_ref().is_none_or(|platform| !platform.is_unknown())
        };
        self.manifests.iter().flatten().filter(is_image)
    }

    /// The digest of the first of them.
    pub(super) fn first_image(&self) -> Option<Digest> {
        self.images().next().map(|image| image.digest.clone())
    }

    /// The configuration, if it is that of an image.
    #[must_use]
    pub fn image_config(&self) -> Option<&Descriptor> {
        self.config.as_ref().filter(|config| is_image_config(&config.media_type))
    }

    /// The kind of the artifact: its own type, else the type of its configuration (image specification 1.1, "Guidelines for
    /// Artifact Usage").
    #[must_use]
    pub fn artifact_type(&self) -> Option<&str> {
        let of_config = self.config.as_ref().map(|config| config.media_type.as_str());
        self.artifact_type.as_deref().or(of_config)
    }
}

impl OciImageConfig {
    /// Reads a configuration's bytes.
    ///
    /// # Errors
    /// When they are not a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        document::parse_object(bytes).map_err(ManifestError::NoConfig)
    }

    /// The label called `name`.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// The platform of the image.
    #[must_use]
    pub fn platform(&self) -> Option<Platform> {
        let (os, architecture) = (self.os.clone()?, self.architecture.clone()?);
        let (variant, os_version) = (self.variant.clone(), self.os_version.clone());
        Some(Platform { os, architecture, variant, os_version }).filter(Platform::is_named)
    }
}

impl Descriptor {
    /// The platform of the image, if the index names it. An index in an index has the platforms of its images.
    #[must_use]
    pub fn platform(&self) -> Option<&Platform> {
        self.platform.as_ref().filter(|platform| platform.is_named() && !self.is_index())
    }

    /// Whether it is an index, or an image whose platform only its configuration names.
    pub(super) fn is_unplaced(&self) -> bool {
        let may_be_image = self.media_type.is_empty() || is_manifest(&self.media_type);
        self.platform().is_none() && may_be_image && self.artifact_type.as_deref().is_none_or(is_image_config)
    }

    fn is_index(&self) -> bool {
        INDEXES.iter().any(|known| same_type(known, &self.media_type))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_index_names_images_and_what_is_beside_them() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let entry = |os: &str, architecture: &str| json!({"digest": digest, "mediaType": "x", "platform": {"os": os, "architecture": architecture}});
        let mut attestation = entry("linux", "amd64");
        attestation["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
        let index = json!({"schemaVersion": 2, "annotations": null,
            "manifests": [entry("unknown", "unknown"), attestation, entry("linux", "amd64"), entry("linux", "arm64")]});
        let index = Manifest::parse(index.to_string().as_bytes()).unwrap();
        let platforms: Vec<String> = index.images().filter_map(|image| Some(image.platform()?.to_string())).collect();
        assert_eq!(platforms, ["linux/amd64", "linux/arm64"]);
        assert!(Manifest::parse(br#"{"schemaVersion":1}"#).unwrap_err().to_string().contains("version 1"));
        assert!(Manifest::parse(br#"{"schemaVersion":2,"manifests":[{"digest":"x"}]}"#).is_err());
        for bad in ["<html>", "[2,null,null,null,null,null]", r#"{"schemaVersion":2,"a":1,"a":2}"#] {
            assert!(Manifest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(OciImageConfig::parse(br#"[null,"linux","amd64",null,null]"#).is_err());
    }
}
