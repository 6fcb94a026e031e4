//! Verifies images: signatures, and signed build provenance. This crate does no requests. It gets the documents that were found
//! beside an image, and returns a [`PolicyVerdict`] over all of them. It reads the public keys and trusted roots of the
//! configuration from files, again while the gateway runs.
//!
//! Start at [`Policy`], which is built from a [`SignatureConfig`], and its [`Policy::check`].
//!
//! - Documents: `bundle` (Sigstore), `simple` (cosign before version 3), and `statement`, the signed content of a bundle.
//! - One document: `signer` compares its identity or key with the configuration, `key` verifies with a public key, `keyless` verifies a
//!   certificate chain (`claims` are the certificate's), and `provenance` compares the build. `document_verdict` is the result.
//! - All documents of an image: `check` verifies each once, and `verdict` combines the results.

mod bundle;
mod check;
mod claims;
mod config;
mod document_verdict;
mod key;
#[cfg(feature = "keyless")]
mod keyless;
mod policy;
mod provenance;
mod signer;
mod simple;
mod statement;
#[cfg(test)]
mod tests;
mod verdict;

use bytes::Bytes;

pub use self::{
    check::PolicyCheck,
    config::{Formats, ProvenanceConfig, SignatureConfig},
    policy::{KeysInUse, Policy},
    verdict::{PolicyVerdict, Proof},
};

/// The image that is expected.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedImage<'a> {
    /// The digests that a signature may name, each as 64 lowercase hexadecimal digits of SHA-256: the image that was picked, and the index
    /// that it was picked from.
    pub digests: &'a [String],
    /// The full commit that the provenance must name. `None`: any commit, which the [`Proof`] then names.
    pub commit: Option<&'a str>,
}

/// A document that was found beside an image, and may be its signature.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Where it was found, for messages: the digest of a referrer, or a tag.
    pub place: String,
    /// The document.
    pub form: Form,
}

/// The form of a [`Candidate`].
#[derive(Debug, Clone)]
pub enum Form {
    /// A layer with the media type `application/vnd.dev.sigstore.bundle.v0.3+json`, or an earlier version.
    Bundle(Bytes),
    /// A layer of a tag `sha256-<hex>.sig`, with the media type `application/vnd.dev.cosign.simplesigning.v1+json`.
    SimpleSigning {
        /// The layer.
        payload: Bytes,
        /// Its digest in the manifest: `sha256:<hex>`.
        layer_digest: String,
        /// Its annotation `dev.cosignproject.cosign/signature`.
        signature: Option<String>,
    },
    /// A known form that cannot be verified, such as Notation. The text names it.
    Unsupported(String),
}
