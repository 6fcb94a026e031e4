//! The configuration of signers and of provenance.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// The required signers of an image.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignatureConfig {
    /// Signers of whom one is enough, such as the old and the new key while keys are rotated. Or `all`.
    #[serde(default)]
    pub any: Vec<SignerConfig>,
    /// Signers who must all have signed. Each identity or key counts for one of them. Or `any`.
    #[serde(default)]
    pub all: Vec<SignerConfig>,
    /// The forms of signatures that are searched. `legacy` costs more requests.
    #[serde(default = "bundles")]
    pub formats: Vec<Format>,
}

/// One signer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignerConfig {
    /// The owner of a key.
    Key(KeyConfig),
    /// Somebody who showed their identity to an authority, such as Fulcio, and got a certificate for minutes.
    Keyless(KeylessConfig),
}

/// A public key. Only it decides the algorithm: ECDSA on P-256 with SHA-256 or on P-384 with SHA-384, Ed25519, or RSA (PKCS #1 v1.5 with
/// SHA-256, at least 2048 bits).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyConfig {
    /// A PEM file with one public key, relative to the configuration file. It is read again when it changes.
    pub file: PathBuf,
}

/// The identity in a certificate, and the authorities that may have issued it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeylessConfig {
    /// The exact issuer of the identity, such as `https://token.actions.githubusercontent.com`.
    pub issuer: String,
    /// The identity, a glob for the whole of it, such as `https://github.com/org/repo/.github/workflows/build.yml@refs/heads/*`. A `*` also
    /// matches `/`. Without it, everybody with an account at the issuer may sign.
    pub identity: Option<String>,
    /// A JSON file with the trusted root, relative to the configuration file. It is read again when it changes.
    pub(crate) trusted_root: PathBuf,
    /// Whether the signature must be in a transparency log of the trusted root, and the certificate too. `false` is for an authority that
    /// writes to none, such as GitHub's own for private repositories; a time stamp is required then.
    #[serde(default = "yes")]
    pub(crate) transparency_log: bool,
}

/// A form of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// Sigstore bundles, attached to the image as OCI referrers.
    Bundle,
    /// The signatures of cosign before version 3, with a key, in a tag `sha256-<hex>.sig`.
    Legacy,
}

/// The demands on signed provenance (SLSA v1). One of the signers must have signed it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvenanceConfig {
    /// The exact repository that was built: `https://github.com/org/repo`.
    pub repository: Option<String>,
    /// The exact path of the workflow that ran: `.github/workflows/build.yml`.
    pub workflow: Option<String>,
    /// The builder, a glob for the whole of it, such as `https://github.com/org/ci/.github/workflows/*`. A `*` also matches `/`.
    pub builder: Option<String>,
    /// The full commit, a template over `params` and `applicationSet`. By default that of `revision.expect`.
    pub commit: Option<String>,
    /// The events that may have caused the build, such as `push`. By default all.
    #[serde(default)]
    pub events: Vec<String>,
}

impl SignerConfig {
    /// Whether both describe the same signer, with any content of their files.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(key), Self::Key(other)) => key.file == other.file,
            (Self::Keyless(keyless), Self::Keyless(other)) => {
                keyless.issuer == other.issuer && keyless.identity == other.identity
            }
            _ => false,
        }
    }
}

/// Which forms of signatures are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats {
    /// Bundles, by the referrers API or its fallback tag.
    pub bundle: bool,
    /// The tag `sha256-<hex>.sig`.
    pub legacy: bool,
}

fn bundles() -> Vec<Format> {
    vec![Format::Bundle]
}

const fn yes() -> bool {
    true
}
