//! Image layouts written by hand, for images that no builder here can make.

use std::path::Path;

use oci::Digest;
use serde_json::{Value, json};

use super::registry::demo_images;

/// The media type of an image index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an image's configuration.
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An empty layout in `folder`.
pub(crate) fn create(folder: &Path) {
    std::fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
    std::fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    std::fs::write(folder.join("index.json"), r#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
}

/// Adds a blob and returns its descriptor.
pub(crate) fn blob(folder: &Path, media_type: &str, content: &[u8]) -> Value {
    let digest = Digest::of(content);
    std::fs::write(folder.join("blobs/sha256").join(digest.hex()), content).unwrap();
    json!({"mediaType": media_type, "digest": digest.as_str(), "size": content.len()})
}

/// Adds an image for `platform` with `labels`, and returns its descriptor.
pub(crate) fn image(folder: &Path, platform: &Value, labels: &Value, annotations: &Value) -> Value {
    let layer = json_of(&demo_images().join("index.json"))["manifests"][0]["digest"].clone();
    let layer = json_of(&demo_blob(&layer))["layers"][0].clone();
    let copy = std::fs::read(demo_blob(&layer["digest"])).unwrap();
    blob(folder, "", &copy);
    let mut config = json!({"created": "2026-01-02T03:04:05Z", "config": {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}});
    config.as_object_mut().unwrap().extend(platform.as_object().unwrap().clone());
    let config = blob(folder, CONFIG, config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        "annotations": annotations});
    let mut descriptor = blob(folder, MANIFEST, manifest.to_string().as_bytes());
    descriptor["platform"] = platform.clone();
    descriptor
}

/// Adds an index of `images`, and returns its descriptor.
pub(crate) fn index(folder: &Path, images: &[Value], annotations: &Value) -> Value {
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": annotations});
    blob(folder, INDEX, index.to_string().as_bytes())
}

/// Names the target of `descriptor` `name`, and returns its digest.
pub(crate) fn name(folder: &Path, name: &str, mut descriptor: Value) -> Digest {
    let file = folder.join("index.json");
    let mut list = json_of(&file);
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    let digest = Digest::parse(descriptor["digest"].as_str().unwrap()).unwrap();
    list["manifests"].as_array_mut().unwrap().push(descriptor);
    std::fs::write(file, list.to_string()).unwrap();
    digest
}

fn demo_blob(digest: &Value) -> std::path::PathBuf {
    demo_images().join("blobs").join(digest.as_str().unwrap().replace(':', "/"))
}

fn json_of(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}
