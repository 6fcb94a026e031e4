//! The registry of signed images: a tag, and the signature of its image under the fallback tag. The fault affects the requests for the
//! signatures of the next image, while the tag itself works. No answer may have that image.

use std::sync::LazyLock;

use oci::Digest;
use serde_json::json;

use super::rendition::{JSON, MANIFEST, OCI, UNKNOWN, digest};
use crate::support::{
    signing::{BUNDLE, Key},
    upstream::{Request, Step},
};

/// The next image, of which no signature is known.
pub(super) const NEXT: &str =
    r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","annotations":{"build":"next"}}"#;
/// The file with the signer's public key.
pub(super) const KEY_FILE: &str = "cosign.pub";

/// The signer of all images.
pub(super) static KEY: LazyLock<Key> = LazyLock::new(Key::new);
static SIGNATURE: LazyLock<String> = LazyLock::new(|| KEY.signature(digest(MANIFEST).as_str()));

/// Whether `request` is for the tag.
pub(super) fn is_tag(request: &Request) -> bool {
    request.target.ends_with("/manifests/1")
}

/// The tag, with the image whose manifest is `content`.
pub(super) fn tag(request: &Request, content: &str) -> Vec<Step> {
    found(request, OCI, content)
}

/// The answer of a registry in which [`MANIFEST`] is signed.
pub(super) fn well(request: &Request) -> Vec<Step> {
    let (target, layer) = (&*request.target, digest(&SIGNATURE));
    let layers = [json!({"mediaType": BUNDLE, "digest": layer.as_str(), "size": SIGNATURE.len()})];
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let signed = json!({"schemaVersion": 2, "mediaType": kind, "artifactType": BUNDLE, "layers": layers}).to_string();
    let signed_digest = digest(&signed);
    if is_tag(request) {
        tag(request, MANIFEST)
    } else if target.contains("/referrers/") {
        request.answer(404, "Content-Type: text/plain", "404 page not found\n")
    } else if target.ends_with(&format!("/manifests/{}", fallback(&digest(MANIFEST)))) {
        let listed = [json!({"mediaType": kind, "digest": signed_digest.as_str(), "size": signed.len()})];
        let index = json!({"schemaVersion": 2, "manifests": listed});
        found(request, "Content-Type: application/vnd.oci.image.index.v1+json", &index.to_string())
    } else if target.ends_with(signed_digest.as_str()) {
        found(request, OCI, &signed)
    } else if target.ends_with(layer.as_str()) {
        request.answer(200, "Content-Type: application/octet-stream", &*SIGNATURE)
    } else {
        request.answer(404, JSON, UNKNOWN)
    }
}

fn found(request: &Request, content_type: &str, body: &str) -> Vec<Step> {
    request.answer(200, &format!("{content_type}\r\nDocker-Content-Digest: {}", digest(body)), body)
}

/// The tag that lists the signatures of `digest`.
fn fallback(digest: &Digest) -> String {
    digest.as_str().replace(':', "-")
}
