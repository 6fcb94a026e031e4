//! Forgeries of signatures by key.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256};
use serde_json::{Value, json};

use super::{
    keys::{IN_TOTO, Owner, critical, one_key, pae, simple, statement},
    *,
};

#[test]
fn bundles_that_cannot_be_read_are_refused() {
    let owner = Owner::new();
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let own = digest('a');
    let good = owner.bundle(&statement(&own));
    let text = good.to_string();
    let raw = |text: String| Form::Bundle(text.into());
    let material = |material: Value| with(&good, |bundle| bundle["verificationMaterial"] = material.clone());
    check(
        &policy,
        &own,
        vec![
            ("nothing", raw(String::new()), "absent", "it is blank"),
            ("no JSON", raw("signature".into()), "absent", "it is not one JSON document"),
            ("two documents", raw(format!("{text}{text}")), "absent", "trailing characters"),
            ("half", raw(text[..text.len() / 2].into()), "absent", "EOF"),
            ("a list", raw(format!("[{text}]")), "absent", "it is no bundle"),
            (
                "a repeated key",
                raw(text.replacen('{', r#"{"dsseEnvelope":{},"#, 1)),
                "absent",
                "the key `dsseEnvelope` stands twice",
            ),
            (
                "a repeated hint",
                raw(text.replace(r#"{"hint""#, r#"{"hint":"x","hint""#)),
                "absent",
                "the key `hint` stands twice",
            ),
            ("deep", raw("[".repeat(100_000)), "absent", "recursion limit"),
            ("10 MB", raw(format!("{text}{}", " ".repeat(10_000_000))), "unknown", "and at most 1048576 are read"),
            ("another document", raw("{}".into()), "absent", "it is no bundle"),
            (
                "another type",
                with(&good, |bundle| bundle["mediaType"] = json!("text/plain")),
                "absent",
                "it is no bundle",
            ),
            (
                "version 0.4",
                with(&good, |bundle| bundle["mediaType"] = json!("application/vnd.dev.sigstore.bundle.v0.4+json")),
                "unknown",
                "a bundle of an unknown version",
            ),
            (
                "no material",
                with(&good, |bundle| _ = bundle.as_object_mut().unwrap().remove("verificationMaterial")),
                "absent",
                "it has no `verificationMaterial`",
            ),
            ("neither", material(json!({})), "absent", "exactly one of `publicKey`"),
            (
                "both",
                material(json!({"publicKey": {"hint": owner.hint()}, "certificate": {"rawBytes": ""}})),
                "absent",
                "exactly one of `publicKey`",
            ),
            ("a number as hint", material(json!({"publicKey": {"hint": 7}})), "absent", "its `hint` is not a text"),
            (
                "a certificate",
                material(json!({"certificate": {"rawBytes": "AAAA"}})),
                "absent",
                "with a certificate, not with a key",
            ),
            (
                "no certificate",
                material(json!({"x509CertificateChain": {"certificates": []}})),
                "absent",
                "its certificate has no `rawBytes`",
            ),
            (
                "bytes",
                with(&good, |bundle| {
                    let bundle = bundle.as_object_mut().unwrap();
                    bundle.remove("dsseEnvelope");
                    bundle.insert("messageSignature".into(), json!({"signature": "AAAA"}));
                }),
                "unknown",
                "it signs bytes, not a statement",
            ),
            (
                "both contents",
                with(&good, |bundle| bundle["messageSignature"] = json!({})),
                "bad",
                "exactly one of `dsseEnvelope`",
            ),
            (
                "no content",
                with(&good, |bundle| _ = bundle.as_object_mut().unwrap().remove("dsseEnvelope")),
                "bad",
                "exactly one of `dsseEnvelope`",
            ),
            (
                "Notation",
                Form::Unsupported("application/vnd.cncf.notary.signature".into()),
                "unknown",
                "not supported: application/vnd.cncf.notary",
            ),
        ],
    );
}

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
        super::bundle(&bundle)
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
            ("the payload alone is signed", signing(payload.as_bytes()), "bad", unsigned),
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

#[test]
fn signed_statements_about_something_else_are_refused() {
    let owner = Owner::new();
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let own = digest('a');
    let signed = |change: &dyn Fn(&mut Value)| {
        let mut statement = statement(&own);
        change(&mut statement);
        bundle(&owner.bundle(&statement))
    };
    let subject = |subject: Value| signed(&|statement| statement["subject"] = subject.clone());
    let kind = |kind: &str| signed(&|statement| statement["predicateType"] = json!(kind));
    let text = statement(&own).to_string();
    let repeated = text.replacen('{', &format!(r#"{{"subject":[{{"digest":{{"sha256":"{own}"}}}}],"#), 1);
    check(
        &policy,
        &own,
        vec![
            (
                "another digest",
                bundle(&owner.bundle(&statement(&digest('b')))),
                "bad",
                "its statement is about another digest, sha256:bbbb",
            ),
            (
                "upper case",
                subject(json!([{"digest": {"sha256": own.to_uppercase()}}])),
                "bad",
                "another digest, sha256:AAAA",
            ),
            (
                "with a prefix",
                subject(json!([{"digest": {"sha256": format!("sha256:{own}")}}])),
                "bad",
                "another digest, sha256:sha256:aaaa",
            ),
            ("with a space", subject(json!([{"digest": {"sha256": format!("{own} ")}}])), "bad", "another digest"),
            ("a beginning", subject(json!([{"digest": {"sha256": own[..63]}}])), "bad", "another digest"),
            (
                "another algorithm",
                subject(json!([{"digest": {"sha512": own}}])),
                "bad",
                "its statement names no SHA-256 digest",
            ),
            ("only its name", subject(json!([{"name": own, "digest": {}}])), "bad", "names no SHA-256 digest"),
            ("no subjects", subject(json!([])), "bad", "names no SHA-256 digest"),
            ("one subject", subject(json!({"digest": {"sha256": own}})), "bad", "names no SHA-256 digest"),
            ("a list of digests", subject(json!([{"digest": {"sha256": [own]}}])), "bad", "names no SHA-256 digest"),
            (
                "no type",
                signed(&|statement| _ = statement.as_object_mut().unwrap().remove("_type")),
                "bad",
                "it has no `_type`",
            ),
            (
                "another type",
                signed(&|statement| statement["_type"] = json!("https://in-toto.io/Statement/v2")),
                "bad",
                "no statement, but `https://in-toto.io/Statement/v2`",
            ),
            ("a list", bundle(&owner.bundle(&json!([statement(&own)]))), "bad", "it has no `_type`"),
            ("not JSON", bundle(&owner.bundle_of(b"signed")), "bad", "its statement is not one JSON document"),
            ("a repeated key", bundle(&owner.bundle_of(repeated.as_bytes())), "bad", "the key `subject` stands twice"),
            (
                "no predicate type",
                signed(&|statement| _ = statement.as_object_mut().unwrap().remove("predicateType")),
                "bad",
                "no `predicateType`",
            ),
            (
                "a scan",
                kind("https://cosign.sigstore.dev/attestation/vuln/v1"),
                "absent",
                "attestation/vuln/v1` does not vouch for an image",
            ),
            (
                "a type that begins alike",
                kind("https://sigstore.dev/cosign/sign/v11"),
                "absent",
                "cosign/sign/v11` does not vouch",
            ),
            (
                "earlier provenance",
                kind("https://slsa.dev/provenance/v0.2"),
                "absent",
                "provenance/v0.2` does not vouch",
            ),
        ],
    );
}

#[test]
fn another_algorithm_of_the_same_key_is_refused() {
    let own = digest('a');
    let payload = statement(&own).to_string();
    let (message, random) = (pae(IN_TOTO, payload.as_bytes()), SystemRandom::new());
    let check_one = |owner: &Owner, signature: &[u8]| {
        let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
        check(
            &policy,
            &own,
            vec![(
                "algorithm",
                bundle(&owner.bundle_with(payload.as_bytes(), signature)),
                "bad",
                "the key did not sign it",
            )],
        );
    };
    let owner = Owner::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &owner.0.serialize_der()).unwrap();
    check_one(&owner, key.sign(&random, &message).unwrap().as_ref());
    let folder = Folder::with(&[("key.pem", &owner.0.serialize_pem())]);
    std::fs::write(folder.0.path().join("message"), &message).unwrap();
    let arguments = ["dgst", "-sha384", "-sign", "key.pem", "message"];
    let signed = std::process::Command::new("openssl").args(arguments).current_dir(folder.0.path()).output().unwrap();
    assert!(signed.status.success());
    check_one(&owner, &signed.stdout);
    let owner = Owner(KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap());
    let key = RsaKeyPair::from_pkcs8(&owner.0.serialize_der()).unwrap();
    let other: [&'static dyn RsaEncoding; 2] = [&RSA_PSS_SHA256, &RSA_PKCS1_SHA512];
    for encoding in other {
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(encoding, &random, &message, &mut signature).unwrap();
        check_one(&owner, &signature);
    }
}

#[test]
fn forged_legacy_signatures_are_refused() {
    let (owner, other) = (Owner::new(), Owner::new());
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let own = digest('a');
    let payload = critical(&format!("sha256:{own}"));
    let signature = STANDARD.encode(owner.sign(payload.as_bytes()));
    let Form::SimpleSigning { layer_digest, .. } = owner.simple(&payload) else { panic!() };
    let changed = payload.replace("registry.example", "registry.evil");
    let damaged =
        Form::SimpleSigning { payload: changed.clone().into(), layer_digest, signature: Some(signature.clone()) };
    let large = format!("{payload}{}", " ".repeat(10_000_000));
    check(
        &policy,
        &own,
        vec![
            ("a changed payload", simple(&changed, Some(&signature)), "absent", "the key did not sign it"),
            ("not the layer", damaged, "unknown", "its bytes are not those that its manifest names"),
            ("no annotation", simple(&payload, None), "absent", "it has no annotation with a signature"),
            ("not in base64", simple(&payload, Some("?")), "absent", "its signature is not in base64"),
            ("by another key", other.simple(&payload), "absent", "the key did not sign it"),
            (
                "another digest",
                owner.simple(&critical(&format!("sha256:{}", digest('b')))),
                "bad",
                "it signs another digest, sha256:bbbb",
            ),
            ("no algorithm", owner.simple(&critical(&own)), "bad", "it signs another digest, aaaa"),
            (
                "another algorithm",
                owner.simple(&critical(&format!("sha512:{own}"))),
                "bad",
                "it signs another digest, sha512:aaaa",
            ),
            (
                "another type",
                owner.simple(&payload.replace("cosign container image signature", "atomic container signature")),
                "bad",
                "does not say that it is a signature",
            ),
            (
                "not critical",
                owner.simple(&payload.replace("critical", "optional2")),
                "bad",
                "its payload has no `critical`",
            ),
            (
                "no digest",
                owner.simple(&payload.replace("docker-manifest-digest", "digest")),
                "bad",
                "its payload names no digest",
            ),
            (
                "a repeated key",
                owner.simple(&payload.replace(r#""image""#, r#""image":{},"image""#)),
                "bad",
                "the key `image` stands twice",
            ),
            ("not JSON", owner.simple("signed"), "bad", "its payload is not one JSON document"),
            ("10 MB", owner.simple(&large), "unknown", "and at most 1048576 are read"),
        ],
    );
}
