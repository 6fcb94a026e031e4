//! The verdict on one image.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::signatures::{ProofKey, Proven, SignedImage};
use domain::generator::{Evidence, Parameters};
use oci::{Contents, Digest};

/// The verdict on one image.
#[derive(Debug)]
pub(super) struct ImageVerdict {
    /// The image's name in the configuration.
    pub name: String,
    /// Whether the image may be deployed.
    pub state: ImageState,
    /// The contents of the tag's manifest, and of those of its images that matter, by digest; empty if they were not read.
    pub contents: Vec<(Digest, Arc<Contents>)>,
    /// The queries and the answers.
    pub evidence: Vec<Evidence>,
}

impl ImageVerdict {
    /// Whether the image may be deployed.
    pub(super) const fn is_built(&self) -> bool {
        matches!(self.state, ImageState::Built(_))
    }

    /// Whether its signature is verified.
    pub(super) const fn is_proven(&self) -> bool {
        matches!(self.state, ImageState::Built(Built { proof: Some(_), .. }))
    }
}

/// Whether an image may be deployed.
#[derive(Debug)]
pub(super) enum ImageState {
    /// It may be deployed.
    Built(Built),
    /// The registry has no such image.
    Missing,
    /// The image is of another commit, lacks a required platform, or is not signed yet.
    Unfit,
    /// A signature or its provenance is not good. The image must never be deployed.
    Bad,
}

/// An image that may be deployed.
#[derive(Debug)]
pub(super) struct Built {
    /// The image's values, under the names that templates use.
    pub parts: Parameters,
    /// When it was built, if it is known.
    pub created: Option<String>,
    /// The commit that its signed provenance proves, or else that its label names.
    pub revision: Option<String>,
    /// The image in a registry, with its index, whose signature may be demanded later. `None` if it has a proof, which names it.
    pub image: Option<SignedImage>,
    /// The proof of its signature, if one is demanded.
    pub proof: Option<Box<NotedProof>>,
}

/// A proven image, as a note keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NotedProof {
    /// The image.
    pub image: SignedImage,
    /// The subject of the proof.
    pub key: ProofKey,
    /// The proof.
    pub proven: Arc<Proven>,
}
