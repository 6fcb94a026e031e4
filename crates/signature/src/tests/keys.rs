//! Signatures by key.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _,
    SigningKey as _,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;

pub(super) const IN_TOTO: &str = "application/vnd.in-toto+json";
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// A key, and documents that it signs.
pub(super) struct Owner(pub(super) KeyPair);

impl Owner {
    pub(super) fn new() -> Self {
        Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.public_key_pem()
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.sign(bytes).unwrap()
    }

    pub(super) fn hint(&self) -> String {
        STANDARD.encode(Sha256::digest(self.0.subject_public_key_info()))
    }

    /// A bundle with `signature`, which says that it is by this key.
    pub(super) fn bundle_with(&self, payload: &[u8], signature: &[u8]) -> Value {
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": self.hint()}},
            "dsseEnvelope": {
                "payload": STANDARD.encode(payload),
                "payloadType": IN_TOTO,
                "signatures": [{"sig": STANDARD.encode(signature)}],
            },
        })
    }

    /// A bundle as cosign makes it.
    pub(super) fn bundle(&self, statement: &Value) -> Value {
        self.bundle_of(statement.to_string().as_bytes())
    }

    pub(super) fn bundle_of(&self, payload: &[u8]) -> Value {
        self.bundle_with(payload, &self.sign(&pae(IN_TOTO, payload)))
    }

    pub(super) fn simple(&self, payload: &str) -> Form {
        simple(payload, Some(&STANDARD.encode(self.sign(payload.as_bytes()))))
    }
}

pub(super) fn pae(kind: &str, payload: &[u8]) -> Vec<u8> {
    [format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).as_bytes(), payload].concat()
}

pub(super) fn statement(digest: &str) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": digest}}],
        "predicateType": SIGN,
        "predicate": {},
    })
}

pub(super) fn simple(payload: &str, signature: Option<&str>) -> Form {
    Form::SimpleSigning {
        payload: payload.to_owned().into(),
        layer_digest: format!("sha256:{}", base16ct::lower::encode_string(&Sha256::digest(payload))),
        signature: signature.map(str::to_owned),
    }
}

pub(super) fn critical(digest: &str) -> String {
    json!({
        "critical": {
            "identity": {"docker-reference": "registry.example/other"},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
}

pub(super) fn one_key() -> Value {
    json!({"signature": {"any": [{"key": {"file": "key.pub"}}], "formats": ["bundle", "legacy"]}})
}

#[test]
fn signatures_by_cosign_are_verified() {
    let made = fixture("keys.json");
    let digest = made["digest"].as_str().unwrap();
    for (kind, key) in made["keys"].as_object().unwrap() {
        let folder = Folder::with(&[("key.pub", key["pem"].as_str().unwrap())]);
        let policy = folder.policy(&one_key());
        let legacy = &key["legacy"];
        let legacy = Form::SimpleSigning {
            payload: legacy["payload"].as_str().unwrap().to_owned().into(),
            layer_digest: legacy["layerDigest"].as_str().unwrap().to_owned(),
            signature: legacy["signature"].as_str().map(str::to_owned),
        };
        let forms = [bundle(&key["sign"]), legacy];
        for (form, other) in forms.into_iter().zip(["bad", "absent"]) {
            let (verdict, text) = shown(&evaluate(&policy, digest, vec![form.clone()]));
            // cosign refuses these too: see `tests/signatures/make`.
            let expected = if kind == "ed25519" { (other, "Ed25519ph") } else { ("present", "the key key.pub") };
            assert!(verdict == expected.0 && text.contains(expected.1), "{kind}: {verdict}: {text}");
            let (verdict, text) = shown(&evaluate(&policy, &super::digest('0'), vec![form]));
            assert!(
                kind == "ed25519" || verdict == "bad" && text.contains("another digest"),
                "{kind}: {verdict}: {text}"
            );
        }
        let foreign = made["keys"].as_object().unwrap().iter().filter(|(other, _)| *other != kind);
        let foreign = foreign.map(|(_, other)| bundle(&other["sign"])).collect();
        let (verdict, text) = shown(&evaluate(&policy, digest, foreign));
        assert!(verdict == "absent" && text.contains("it names another key"), "{kind}: {verdict}: {text}");
    }
    let key = &made["keys"]["p256"];
    let folder = Folder::with(&[("key.pub", key["pem"].as_str().unwrap())]);
    let mut config = one_key();
    let policy = folder.policy(&config);
    assert_eq!(shown(&evaluate(&policy, digest, vec![bundle(&key["provenance"])])).0, "present");
    let (verdict, text) = shown(&evaluate(&policy, digest, vec![bundle(&key["scan"])]));
    assert!(verdict == "absent" && text.contains("`https://example.com/scan` is not a signature"), "{verdict}: {text}");
    config["provenance"] = json!({"repository": "https://github.com/org/repo", "workflow": ".github/workflows/build.yml",
        "builder": "https://github.com/org/repo/*", "events": ["push"]});
    let PolicyVerdict::Present(proof) = evaluate(&folder.policy(&config), digest, vec![bundle(&key["provenance"])])
    else {
        panic!()
    };
    assert_eq!(proof.commit.as_deref(), Some("1111111111111111111111111111111111111111"));
}

#[test]
fn each_kind_of_key_verifies_by_its_own_algorithm() {
    let own = digest('a');
    for kind in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519, &PKCS_RSA_SHA256] {
        let owner = Owner(KeyPair::generate_for(kind).unwrap());
        let folder = Folder::with(&[("key.pub", &owner.pem())]);
        let policy = folder.policy(&one_key());
        let mut signed = owner.bundle(&statement(&own));
        for hint in [owner.hint(), String::new(), "my-key".to_owned()] {
            signed["verificationMaterial"]["publicKey"]["hint"] = json!(hint);
            assert_eq!(shown(&evaluate(&policy, &own, vec![bundle(&signed)])).0, "present", "{kind:?} {hint}");
        }
        let legacy = owner.simple(&critical(&format!("sha256:{own}")));
        assert_eq!(shown(&evaluate(&policy, &own, vec![legacy])).0, "present", "{kind:?}");
    }
}

#[test]
fn a_signature_may_be_of_the_index_or_of_the_image() {
    let owner = Owner::new();
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let digests = [digest('a'), digest('b')];
    for digest in &digests {
        let candidate = Candidate { place: "p".into(), form: bundle(&owner.bundle(&statement(digest))) };
        let verdict = policy.check(&ExpectedImage { digests: &digests, commit: None }, &[candidate]);
        assert_eq!(shown(&verdict).0, "present");
    }
}
