//! What the registry said about one image, judged.

use std::sync::Arc;

use crate::{
    clients::oci::{Contents, Digest},
    domain::generator::{Evidence, Parameters},
};

/// The result for one image.
#[derive(Debug)]
pub(super) struct Finding {
    /// The image's name in the configuration.
    pub(crate) name: String,
    /// Whether the image may be deployed.
    pub(crate) state: ImageState,
    /// The contents of the tag's manifest, and of those of its images that matter, by digest; empty if they were not read.
    pub(crate) contents: Vec<(Digest, Arc<Contents>)>,
    /// What was asked and answered.
    pub(crate) evidence: Vec<Evidence>,
}

/// Whether an image may be deployed.
#[derive(Debug)]
pub(super) enum ImageState {
    /// It may be deployed.
    Built(Built),
    /// The registry has no such image.
    Missing,
    /// The image is of another commit, or lacks a required platform.
    Unfit,
}

/// An image that may be deployed.
#[derive(Debug)]
pub(super) struct Built {
    /// The image's values, under the names that templates use.
    pub(crate) parts: Parameters,
    /// When it was built, if it says so.
    pub(crate) created: Option<String>,
    /// The commit that its label names.
    pub(crate) revision: Option<String>,
}
