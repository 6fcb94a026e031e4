//! `check` reads the files with keys and trusted roots, and says what is wrong with them.

use rcgen::KeyPair;

use super::*;
use crate::support::binary::command;

/// What `check` says of a configuration with `signer`, whose file `signer.file` has the content `text`.
fn check(signer: &Value, text: &str, options: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("signer.file"), text).unwrap();
    let images = json!({"app": {"image": "registry.example.com/org/app:1"}});
    let digests = json!({"images": images, "signature": {"any": [signer]}});
    let config = format!("{}routes: {}\n", TestApp::auth(), json!([{"name": "d", "backend": {"digests": digests}}]));
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let output = command().args(["check", "-o", "json"]).args(options).arg("-c").arg(file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn unusable_keys_and_roots_are_found() {
    let (pair, made) = (KeyPair::generate().unwrap(), keyless());
    let (public, private) = (pair.public_key_pem(), pair.serialize_pem());
    let root = made["trustedRoot"].to_string();
    let key = json!({"key": {"file": "signer.file"}});
    let of_identity = json!({"keyless": {"issuer": "https://issuer.example", "identity": "https://ci.example/build",
        "trustedRoot": "signer.file", "transparencyLog": false}});
    let bundle = made["bundles"]["good"].to_string();
    let repeated = root.replacen('{', r#"{"tlogs":[],"#, 1);
    for (signer, at, text, says) in [
        (&key, "key.file", String::new(), "it is empty"),
        (&key, "key.file", format!("{public}{public}"), "it holds 2 keys"),
        (&key, "key.file", private.clone(), "it holds a private key"),
        (&key, "key.file", format!("{public}{private}"), "it holds a private key"),
        (&key, "key.file", root.clone(), "it holds no public key"),
        (&of_identity, "keyless.trustedRoot", String::new(), "it is not one JSON document"),
        (&of_identity, "keyless.trustedRoot", public.clone(), "it is not one JSON document"),
        (&of_identity, "keyless.trustedRoot", bundle, "it is not a trusted root"),
        (&of_identity, "keyless.trustedRoot", repeated, "the key `tlogs` stands twice"),
    ] {
        let (code, said) = check(signer, &text, &[]);
        assert_eq!(code, Some(78), "{says}: {said}");
        let place = format!("routes[0].backend.digests.signature.any[0].{at}");
        assert!(said.contains(&place) && said.contains("signer.file") && said.contains(says), "{says}: {said}");
        let secret = private.lines().nth(1).unwrap();
        assert!(!said.contains(secret), "it shows the private key: {said}");
        // A file that is there must be right without secrets too.
        assert_eq!(check(signer, &text, &["--no-secrets"]).0, Some(78), "{says}");
    }
    for (signer, text) in [(&key, &public), (&of_identity, &root)] {
        let (code, said) = check(signer, text, &[]);
        assert_eq!(code, Some(0), "{said}");
    }
}
