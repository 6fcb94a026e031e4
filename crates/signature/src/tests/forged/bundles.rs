//! Documents that are not bundles, and bundles that do not say who signed what.

use serde_json::{Value, json};

use super::super::{
    keys::{Owner, one_key, statement},
    *,
};

#[test]
fn documents_that_are_no_bundle_are_refused() {
    let owner = Owner::new();
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let own = digest('a');
    let good = owner.bundle(&statement(&own));
    let text = good.to_string();
    let raw = |text: String| Form::Bundle(text.into());
    check(
        &policy,
        &own,
        vec![
            ("nothing", raw(String::new()), "absent", "it is blank"),
            ("no JSON", raw("signature".into()), "absent", "it is not one JSON document"),
            ("two documents", raw(format!("{text}{text}")), "absent", "trailing characters"),
            ("half", raw(text[..text.len() / 2].into()), "absent", "EOF"),
            ("a list", raw(format!("[{text}]")), "absent", "it is not a bundle"),
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
            ("another document", raw("{}".into()), "absent", "it is not a bundle"),
            (
                "another type",
                with(&good, |bundle| bundle["mediaType"] = json!("text/plain")),
                "absent",
                "it is not a bundle",
            ),
            (
                "version 0.4",
                with(&good, |bundle| bundle["mediaType"] = json!("application/vnd.dev.sigstore.bundle.v0.4+json")),
                "unknown",
                "a bundle of an unknown version",
            ),
        ],
    );
}

#[test]
fn bundles_that_do_not_say_who_signed_what_are_refused() {
    let owner = Owner::new();
    let policy = Folder::with(&[("key.pub", &owner.pem())]).policy(&one_key());
    let own = digest('a');
    let good = owner.bundle(&statement(&own));
    let material = |material: Value| with(&good, |bundle| bundle["verificationMaterial"] = material.clone());
    check(
        &policy,
        &own,
        vec![
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
