//! Forgeries of the signatures of cosign before version 3.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::super::{
    keys::{Owner, critical, one_key, simple},
    *,
};

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
