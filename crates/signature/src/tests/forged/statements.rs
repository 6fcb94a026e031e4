//! Good signatures of statements that are not signatures of the image.

use serde_json::{Value, json};

use super::super::{
    keys::{Owner, one_key, statement},
    *,
};

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
                "not a statement, but `https://in-toto.io/Statement/v2`",
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
                "attestation/vuln/v1` is not a signature of an image",
            ),
            (
                "a type that begins alike",
                kind("https://sigstore.dev/cosign/sign/v11"),
                "absent",
                "cosign/sign/v11` is not a signature",
            ),
            (
                "earlier provenance",
                kind("https://slsa.dev/provenance/v0.2"),
                "absent",
                "provenance/v0.2` is not a signature",
            ),
        ],
    );
}
