//! Opens one document beside an image: its manifest, and the layers that may be signatures. Everything is read by digest, and checked.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    super::{Digest, documents::Documents, registry::Registry},
    MAX_DOCUMENT_BYTES, MAX_OPENED, Room,
};
use crate::{
    domain::{
        document,
        error::{BackendError, ErrorKind},
    },
    signature::{Candidate, Form, Formats},
};

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

/// A layer that may be a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bundle,
    SimpleSigning,
}

impl Artifact {
    /// Whether it is of the type `name`, by its own word or by that of its configuration.
    fn is(&self, name: &str) -> bool {
        let of_config = self.config.as_ref().map(|config| config.media_type.as_str());
        self.kind.as_deref() == Some(name) || of_config == Some(name)
    }
}

impl Layer {
    fn kind(&self) -> Option<Kind> {
        let essence = self.media_type.split(';').next().unwrap_or_default().trim();
        if essence.starts_with(BUNDLE) {
            Some(Kind::Bundle)
        } else if essence == SIMPLE_SIGNING {
            Some(Kind::SimpleSigning)
        } else {
            None
        }
    }
}

impl Registry {
    /// The signatures in the document `referrer`, of the wanted `formats`.
    pub(super) async fn documents(
        &self,
        repository: &str,
        referrer: &Digest,
        formats: Formats,
        room: &Room,
        deadline: Instant,
    ) -> Documents {
        let within = |error: BackendError| error.within(format_args!("the document {referrer}"));
        let mut found = Documents::default();
        let artifact = match self.artifact(repository, referrer, deadline).await {
            Ok(artifact) => artifact,
            Err(error) => return Documents { gap: Some(within(error)), ..found },
        };
        let unsupported = if artifact.is(NOTATION) {
            Some("a signature of Notation")
        } else if artifact.layers.iter().flatten().any(|layer| layer.media_type == ENVELOPE) {
            Some("an attestation without a bundle")
        } else {
            None
        };
        let place = referrer.to_string();
        let unsupported = unsupported.map(|name| Form::Unsupported(name.to_owned()));
        found.candidates.extend(unsupported.map(|form| Candidate { place: place.clone(), form }));
        let wanted = |kind| match kind {
            Kind::Bundle => true,
            Kind::SimpleSigning => formats.legacy,
        };
        self.read_layers(&mut found, repository, &place, artifact, wanted, room, deadline).await;
        found
    }

    /// The signatures under cosign's older tag for `digest`.
    pub(super) async fn legacy(&self, repository: &str, digest: &Digest, room: &Room, deadline: Instant) -> Documents {
        let tag = format!("sha256-{}.sig", digest.hex());
        let mut found = Documents { places: vec!["the tag `sha256-….sig`"], ..Documents::default() };
        let read = self.tagged(repository, &tag, deadline).await;
        let parsed = read.and_then(|reply| reply.map(|reply| parse(&reply.body)).transpose());
        match parsed {
            Ok(Some(artifact)) => {
                let wanted = |kind| kind == Kind::SimpleSigning;
                self.read_layers(&mut found, repository, &tag, artifact, wanted, room, deadline).await;
            }
            Ok(None) => {}
            Err(error) => found.miss(error.within(format_args!("the tag {tag}"))),
        }
        found
    }

    /// Reads the layers of `artifact` that are `wanted`, one after the other, until the registry has trouble.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    async fn read_layers(
        &self,
        found: &mut Documents,
        repository: &str,
        place: &str,
        artifact: Artifact,
        wanted: impl Fn(Kind) -> bool,
        room: &Room,
        deadline: Instant,
    ) {
        let mut layers: Vec<(Kind, Layer)> = artifact
            .layers
            .into_iter()
            .flatten()
            .filter_map(|layer| Some((layer.kind().filter(|kind| wanted(*kind))?, layer)))
            .collect();
        if layers.len() > MAX_OPENED {
            let why = format!("{place} has {} signatures, of which only {MAX_OPENED} are read", layers.len());
            found.miss(BackendError::invalid_output(why));
            layers.truncate(MAX_OPENED);
        }
        for (kind, layer) in layers {
            let bytes = match self.layer(repository, &layer, room, deadline).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    let is_down = error.kind != ErrorKind::InvalidOutput;
                    found.miss(error.within(format_args!("{} in {place}", Shown(&layer.digest))));
                    if is_down {
                        break;
                    }
                    continue;
                }
            };
            let form = match kind {
                Kind::Bundle => Form::Bundle(bytes),
                Kind::SimpleSigning => Form::SimpleSigning {
                    payload: bytes,
                    signature: layer.annotations.unwrap_or_default().remove(SIGNATURE),
                    layer_digest: layer.digest,
                },
            };
            found.candidates.push(Candidate { place: place.to_owned(), form });
        }
    }

    async fn artifact(&self, repository: &str, referrer: &Digest, deadline: Instant) -> Result<Artifact, BackendError> {
        parse(&self.manifest_bytes(repository, referrer, deadline).await?)
    }

    /// The bytes of `layer`, which have its digest.
    async fn layer(
        &self,
        repository: &str,
        layer: &Layer,
        room: &Room,
        deadline: Instant,
    ) -> Result<Bytes, BackendError> {
        let too_large =
            || BackendError::invalid_output(format!("it has more than the {MAX_DOCUMENT_BYTES} bytes that are read"));
        if layer.size.is_some_and(|size| size > MAX_DOCUMENT_BYTES as u64) {
            return Err(too_large());
        }
        let digest = Digest::parse(&layer.digest).map_err(BackendError::invalid_output)?;
        let reply = self.blob(repository, digest.as_str(), deadline).await?;
        if reply.body.len() > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        let got = Digest::of(&reply.body);
        if got != digest {
            return Err(BackendError::invalid_output(format!("its content has the digest {got}")));
        }
        room.take(reply.body.len())?;
        Ok(reply.body)
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
