//! Signatures and provenance as cosign makes them with a key, for tests.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The media type of a bundle.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The repository of [`Key::provenance`].
pub(crate) const REPOSITORY: &str = "https://github.com/org/app";
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// A signer's key: ECDSA on P-256, as cosign makes it.
pub(crate) struct Key(KeyPair);

impl Key {
    /// A new key.
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    /// Writes the public key to `file`, as PEM.
    pub(crate) fn write(&self, file: &Path) {
        std::fs::write(file, self.0.public_key_pem()).unwrap();
    }

    /// A bundle with a signature of `digest`.
    pub(crate) fn signature(&self, digest: &str) -> String {
        self.bundle(&statement(digest, "https://sigstore.dev/cosign/sign/v1", &json!({})))
    }

    /// A bundle with provenance: `digest` was built from `commit`.
    pub(crate) fn provenance(&self, digest: &str, commit: &str) -> String {
        let workflow =
            json!({"repository": REPOSITORY, "path": ".github/workflows/build.yml", "ref": "refs/heads/main"});
        let predicate = json!({
            "buildDefinition": {
                "buildType": "https://actions.github.io/buildtypes/workflow/v1",
                "externalParameters": {"workflow": workflow},
                "internalParameters": {"github": {"event_name": "push"}},
                "resolvedDependencies": [{"uri": format!("git+{REPOSITORY}@refs/heads/main"), "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": "https://github.com/org/ci/.github/workflows/build.yml@refs/heads/main"}},
        });
        self.bundle(&statement(digest, "https://slsa.dev/provenance/v1", &predicate))
    }

    /// The payload and the signature of cosign before version 3.
    pub(crate) fn legacy(&self, digest: &str) -> (String, String) {
        let payload =
            json!({"critical": {"identity": {"docker-reference": "any"}, "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature"}, "optional": null})
            .to_string();
        let signature = STANDARD.encode(self.0.sign(payload.as_bytes()).unwrap());
        (payload, signature)
    }

    fn bundle(&self, statement: &str) -> String {
        let signed = format!("DSSEv1 {} {IN_TOTO} {} {statement}", IN_TOTO.len(), statement.len());
        let hint = STANDARD.encode(Sha256::digest(self.0.subject_public_key_info()));
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": hint}},
            "dsseEnvelope": {"payload": STANDARD.encode(statement), "payloadType": IN_TOTO,
                "signatures": [{"sig": STANDARD.encode(self.0.sign(signed.as_bytes()).unwrap())}]},
        })
        .to_string()
    }
}

fn statement(digest: &str, kind: &str, predicate: &Value) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap();
    json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": kind, "predicate": predicate,
        "subject": [{"name": "app", "digest": {"sha256": hex}}]})
    .to_string()
}
