//! Manifests and image configurations: what a digest contains. Source: OCI image specification 1.1.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};

use super::Digest;
use crate::domain::document;

/// All kinds of manifests that an image reference may lead to.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                                 application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The media type of an index, also of a list of referrers.
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media types of image configurations. Other types are configurations of artifacts.
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// Key-value pairs of a manifest or the labels of an image.
pub(crate) type Annotations = BTreeMap<String, String>;

/// An image index, or the manifest of one image or artifact.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    schema_version: u32,
    /// The kind of an artifact.
    pub(crate) artifact_type: Option<String>,
    /// Its annotations.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) annotations: Annotations,
    /// The images of an index.
    pub(crate) manifests: Option<Vec<Descriptor>>,
    /// The configuration of an image.
    pub(crate) config: Option<Descriptor>,
}

/// A pointer to content.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The digest of the content.
    pub digest: Digest,
    /// The media type of the content.
    #[serde(default)]
    pub(crate) media_type: String,
    /// The platform of the content.
    pub(crate) platform: Option<Platform>,
    /// The annotations of the pointer.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) annotations: Annotations,
}

/// A platform, written `linux/amd64` or `linux/arm/v7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`
    pub(crate) os: String,
    /// `amd64`
    pub(crate) architecture: String,
    /// `v7`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
}

/// The parts of an image's configuration that matter here.
#[derive(Debug, Clone, Deserialize)]
pub struct OciImageConfig {
    /// When it was built (RFC 3339), if that is given.
    pub(crate) created: Option<String>,
    os: Option<String>,
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
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    ACCEPT.split(", ").any(|known| known.eq_ignore_ascii_case(essence))
}

impl Manifest {
    /// Reads a manifest's bytes.
    ///
    /// # Errors
    /// When they are no manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = document::parse_object(bytes).map_err(|error| format!("no manifest: {error}"))?;
        match manifest.schema_version {
            2 => Ok(manifest),
            other => Err(format!("a manifest of version {other}, not 2")),
        }
    }

    /// The images of an index that can run. Builders also add attestations, which cannot.
    pub fn images(&self) -> impl Iterator<Item = &Descriptor> {
        let is_image = |descriptor: &&Descriptor| {
            !descriptor.annotations.contains_key("vnd.docker.reference.type")
                && descriptor.platform.as_ref().is_none_or(|platform| platform.os != "unknown")
        };
        self.manifests.iter().flatten().filter(is_image)
    }

    /// The configuration, if it is that of an image.
    #[must_use]
    pub fn image_config(&self) -> Option<&Descriptor> {
        self.config.as_ref().filter(|config| CONFIGS.contains(&&*config.media_type))
    }

    /// The kind of the artifact: its own type, else the type of its configuration (image specification 1.1, "Guidelines for
    /// Artifact Usage").
    #[must_use]
    pub(crate) fn artifact_type(&self) -> Option<&str> {
        let of_config = self.config.as_ref().map(|config| config.media_type.as_str());
        self.artifact_type.as_deref().or(of_config)
    }
}

impl OciImageConfig {
    /// Reads a configuration's bytes.
    ///
    /// # Errors
    /// When they are no configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        document::parse_object(bytes).map_err(|error| format!("no image configuration: {error}"))
    }

    /// The label called `name`.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// The platform of the image.
    #[must_use]
    pub fn platform(&self) -> Option<Platform> {
        let (os, architecture) = (self.os.clone()?, self.architecture.clone()?);
        Some(Platform { os, architecture, variant: self.variant.clone() })
    }
}

impl Platform {
    /// Whether an image for `self` runs on `wanted`, which may leave the variant open.
    #[must_use]
    pub fn suits(&self, wanted: &Self) -> bool {
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && (wanted.variant.is_none() || self.variant == wanted.variant)
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return Err(format!("`{}` is no platform such as `linux/amd64`", text.escape_debug())),
        };
        if parts.iter().any(|part| part.is_empty()) {
            return Err(format!("`{}` is no platform such as `linux/amd64`", text.escape_debug()));
        }
        Ok(Self { os: os.to_owned(), architecture: architecture.to_owned(), variant: variant.map(str::to_owned) })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
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
        let platforms: Vec<String> =
            index.images().filter_map(|image| Some(image.platform.as_ref()?.to_string())).collect();
        assert_eq!(platforms, ["linux/amd64", "linux/arm64"]);
        assert!(Manifest::parse(br#"{"schemaVersion":1}"#).unwrap_err().contains("version 1"));
        assert!(Manifest::parse(br#"{"schemaVersion":2,"manifests":[{"digest":"x"}]}"#).is_err());
        for bad in ["<html>", "[2,null,null,null,null,null]", r#"{"schemaVersion":2,"a":1,"a":2}"#] {
            assert!(Manifest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(OciImageConfig::parse(br#"[null,"linux","amd64",null,null]"#).is_err());
    }

    #[test]
    fn platforms_with_and_without_a_variant() {
        let parse = |text: &str| text.parse::<Platform>();
        assert_eq!(parse("linux/arm/v7").unwrap().to_string(), "linux/arm/v7");
        assert!(parse("linux/arm/v7").unwrap().suits(&parse("linux/arm").unwrap()));
        assert!(!parse("linux/arm").unwrap().suits(&parse("linux/arm/v7").unwrap()));
        for bad in ["", "linux", "linux/", "/amd64", "a/b/c/d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
