//! Opens one document beside an image: its manifest, and the layers that may be signatures. Everything is read by digest, and checked.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use serde::Deserialize;

use super::{
    super::{
        Digest,
        documents::Documents,
        manifest::same_type,
        reading::{Next, SignatureLayer},
    },
    Beside,
};
use domain::{document, error::BackendError};
use signature::{Candidate, Form};

/// The most bytes of one signature. Real ones have about 15 KiB.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// The beginning of the media types of Sigstore bundles, of all versions.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The media type of cosign's older signatures.
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation with the signature of such a layer.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The media type of an attestation without a bundle, as cosign wrote it before.
const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The type of Notation's signatures.
const NOTATION: &str = "application/vnd.cncf.notary.signature";

#[derive(Debug, Deserialize)]
struct Artifact {
    #[serde(rename = "artifactType")]
    kind: Option<String>,
    config: Option<Layer>,
    #[serde(default)]
    layers: Option<Vec<Layer>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Artifact {
    /// Whether it is of the type `name`, by its own word or by that of its configuration.
    fn is(&self, name: &str) -> bool {
        let of_config = self.config.as_ref().map(|config| config.media_type.as_str());
        [self.kind.as_deref(), of_config].into_iter().flatten().any(|own| same_type(own, name))
    }
}

impl Layer {
    /// How it is to be read, if it may be a signature.
    fn kind(&self) -> Option<SignatureLayer> {
        let is_bundle = self.media_type.trim().to_ascii_lowercase().starts_with(BUNDLE);
        if is_bundle {
            Some(SignatureLayer::Bundle)
        } else if same_type(&self.media_type, SIMPLE_SIGNING) {
            let signature = self.annotations.as_ref().and_then(|annotations| annotations.get(SIGNATURE));
            Some(SignatureLayer::SimpleSigning(signature.cloned()))
        } else {
            None
        }
    }
}

impl Beside<'_> {
    /// The signatures in the document `referrer`.
    pub(super) async fn documents(&self, referrer: &Digest) -> Documents {
        let within = |error: BackendError| error.within(format_args!("the document {referrer}"));
        let mut found = Documents::default();
        let artifact = match self.artifact(referrer).await {
            Ok(artifact) => artifact,
            Err(error) => {
                self.reading.fail(&error);
                return Documents { gap: Some(within(error)), ..found };
            }
        };
        let unsupported = if artifact.is(NOTATION) {
            Some("a signature of Notation")
        } else if artifact.layers.iter().flatten().any(|layer| same_type(&layer.media_type, ENVELOPE)) {
            Some("an attestation without a bundle")
        } else {
            None
        };
        let place = referrer.to_string();
        let unsupported = unsupported.map(|name| Form::Unsupported(name.to_owned()));
        found.candidates.extend(unsupported.map(|form| Candidate { place: place.clone(), form }));
        let wanted = |layer: &SignatureLayer| *layer == SignatureLayer::Bundle || self.formats.legacy;
        self.read_layers(&mut found, &place, artifact, wanted).await;
        found
    }

    /// The signatures under cosign's older tag.
    pub(super) async fn legacy(&self) -> Documents {
        let tag = format!("sha256-{}.sig", self.digest.hex());
        let mut found = Documents { places: vec!["the tag `sha256-….sig`"], ..Documents::default() };
        let read = async {
            let Some(reply) = self.registry.tagged(self.repository, &tag, self.deadline).await? else {
                return Ok(None);
            };
            self.reading.take(reply.body.len())?;
            parse(&reply.body).map(Some)
        };
        match read.await {
            Ok(Some(artifact)) => {
                let wanted = |layer: &SignatureLayer| *layer != SignatureLayer::Bundle;
                self.read_layers(&mut found, &tag, artifact, wanted).await;
            }
            Ok(None) => {}
            Err(error) => found.miss(error.within(format_args!("the tag {tag}"))),
        }
        found
    }

    /// Reads the layers of `artifact` that are `wanted`, one after the other.
    async fn read_layers(
        &self,
        found: &mut Documents,
        place: &str,
        artifact: Artifact,
        wanted: impl Fn(&SignatureLayer) -> bool,
    ) {
        for layer in artifact.layers.into_iter().flatten() {
            let Some(kind) = layer.kind().filter(&wanted) else { continue };
            let read = match Digest::parse(&layer.digest).map_err(BackendError::invalid_output) {
                Err(why) => Err(why),
                Ok(digest) => match self.reading.find(&digest, &kind) {
                    Next::New => self.layer(&digest, layer.size).await,
                    Next::Known => continue,
                    Next::Over(gap) => {
                        if let Some(gap) = gap {
                            found.miss(gap);
                        }
                        return;
                    }
                },
            };
            let form = match (read, kind) {
                (Ok(bytes), SignatureLayer::Bundle) => Form::Bundle(bytes),
                (Ok(payload), SignatureLayer::SimpleSigning(signature)) => {
                    Form::SimpleSigning { payload, signature, layer_digest: layer.digest }
                }
                (Err(error), _) => {
                    found.miss(error.within(format_args!("{} in {place}", Shown(&layer.digest))));
                    continue;
                }
            };
            found.candidates.push(Candidate { place: place.to_owned(), form });
        }
    }

    async fn artifact(&self, referrer: &Digest) -> Result<Artifact, BackendError> {
        let bytes = self.registry.manifest_bytes(self.repository, referrer, self.deadline).await?;
        self.reading.take(bytes.len())?;
        parse(&bytes)
    }

    /// The bytes of the layer `digest`, which have that digest. Its manifest says that they are `size`.
    async fn layer(&self, digest: &Digest, size: Option<u64>) -> Result<Bytes, BackendError> {
        let too_large =
            || BackendError::invalid_output(format!("it has more than the {MAX_DOCUMENT_BYTES} bytes that are read"));
        if size.is_some_and(|size| size > MAX_DOCUMENT_BYTES as u64) {
            return Err(too_large());
        }
        let read = async {
            let reply = self.registry.blob(self.repository, digest.as_str(), self.deadline).await;
            let body = reply.inspect_err(|error| self.reading.fail(error))?.body;
            self.reading.take(body.len())?;
            if body.len() > MAX_DOCUMENT_BYTES {
                return Err(too_large());
            }
            match Digest::of(&body) {
                got if got == *digest => Ok(body),
                got => Err(BackendError::invalid_output(format!("its content has the digest {got}"))),
            }
        };
        self.reading.blob(digest).get_or_init(|| read).await.clone()
    }
}

fn parse(bytes: &[u8]) -> Result<Artifact, BackendError> {
    document::parse_object(bytes).map_err(|error| BackendError::invalid_output(format!("no manifest: {error}")))
}

/// A text of the registry, for a message.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().take(80).flat_map(char::escape_debug).try_for_each(|c| fmt::Write::write_char(f, c))
    }
}
