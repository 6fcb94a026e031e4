//! Envelopes whose signature is by somebody else, or of other bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384};
use serde_json::{Value, json};

use super::super::{
    keys::{IN_TOTO, Owner, one_key, pae, statement},
    *,
};

#[test]
fn forged_envelopes_are_refused() {
    let (owner, other) = (Owner::new(), Owner::new());
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let own = digest('a');
    let payload = statement(&own).to_string();
    let good = owner.bundle_of(payload.as_bytes());
    let signing = |bytes: &[u8]| bundle(&owner.bundle_with(payload.as_bytes(), &owner.sign(bytes)));
    let signatures = |list: Value| with(&good, |bundle| bundle["dsseEnvelope"]["signatures"] = list.clone());
    let sig = good["dsseEnvelope"]["signatures"][0].clone();
    let by_p384 =
        Owner(KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap()).sign(&pae(IN_TOTO, payload.as_bytes()));
    let typed = |kind: &str| {
        let mut bundle = owner.bundle_with(payload.as_bytes(), &owner.sign(&pae(kind, payload.as_bytes())));
        bundle["dsseEnvelope"]["payloadType"] = json!(kind);
        super::super::bundle(&bundle)
    };
    let unsigned = "the key did not sign it";
    check(
        &policy,
        &own,
        vec![
            ("by another key", bundle(&other.bundle(&statement(&own))), "absent", "it names another key"),
            (
                "by another key of the same kind",
                bundle(&owner.bundle_with(payload.as_bytes(), &other.sign(&pae(IN_TOTO, payload.as_bytes())))),
                "bad",
                unsigned,
            ),
            ("by a key of another kind", bundle(&owner.bundle_with(payload.as_bytes(), &by_p384)), "bad", unsigned),
            (
                "by another key, without a hint",
                with(&other.bundle(&statement(&own)), |bundle| bundle["verificationMaterial"]["publicKey"] = json!({})),
                "absent",
                unsigned,
            ),
            ("two signatures", signatures(json!([sig, sig])), "bad", "its envelope has 2 signatures, not exactly one"),
            (
                "a foreign one first",
                signatures(json!([{"sig": STANDARD.encode(other.sign(payload.as_bytes()))}, sig])),
                "bad",
                "has 2 signatures",
            ),
            ("no signature", signatures(json!([])), "bad", "has 0 signatures"),
            ("an empty signature", signatures(json!([{"sig": ""}])), "bad", unsigned),
            ("a signature not in base64", signatures(json!([{"sig": "?"}])), "bad", "its signature is not in base64"),
            ("a signature without `sig`", signatures(json!([{}])), "bad", "its signature has no `sig`"),
            ("only the payload is signed", signing(payload.as_bytes()), "bad", unsigned),
            (
                "the text in base64 is signed",
                signing(&pae(IN_TOTO, STANDARD.encode(&payload).as_bytes())),
                "bad",
                unsigned,
            ),
            (
                "DSSEv2 is signed",
                signing(&[b"DSSEv2", &pae(IN_TOTO, payload.as_bytes())[6..]].concat()),
                "bad",
                unsigned,
            ),
            ("lengths are not signed", signing(format!("DSSEv1 {IN_TOTO} {payload}").as_bytes()), "bad", unsigned),
            ("another type is signed", typed("text/plain"), "bad", "the payload type of its envelope is `text/plain`"),
            (
                "a type that begins alike",
                typed("application/vnd.in-toto+json; v=2"),
                "bad",
                "the payload type of its envelope is",
            ),
            (
                "no type",
                with(&good, |bundle| _ = bundle["dsseEnvelope"].as_object_mut().unwrap().remove("payloadType")),
                "bad",
                "no `payloadType`",
            ),
            (
                "no payload",
                with(&good, |bundle| _ = bundle["dsseEnvelope"].as_object_mut().unwrap().remove("payload")),
                "bad",
                "no `payload`",
            ),
            (
                "a payload not in base64",
                with(&good, |bundle| bundle["dsseEnvelope"]["payload"] = json!("{}")),
                "bad",
                "the payload of its envelope is not in base64",
            ),
            (
                "another payload",
                with(&good, |bundle| {
                    bundle["dsseEnvelope"]["payload"] = json!(STANDARD.encode(payload.replace("sign/v1", "sign/v2")));
                }),
                "bad",
                unsigned,
            ),
        ],
    );
}
