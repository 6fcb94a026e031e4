//! Configurations and key files that cannot be used.

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use super::{keys::Owner, *};

fn problems(folder: &Folder, config: &Value) -> Vec<String> {
    folder.try_policy(config).1
}

#[test]
fn unusable_keys_are_named() {
    let (one, two) = (Owner::new().pem(), Owner::new().pem());
    let pair = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["a".into()]).unwrap().self_signed(&pair).unwrap().pem();
    let openssl = |arguments: &[&str]| {
        let output = std::process::Command::new("openssl").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let public = |arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let file = file.to_str().unwrap();
        openssl(&[&["genpkey", "-out", file], arguments].concat());
        openssl(&["pkey", "-in", file, "-pubout"])
    };
    let folder = Folder::with(&[]);
    let config = json!({"signature": {"any": [{"key": {"file": "key.pub"}}]}});
    assert!(problems(&folder, &config)[0].contains("cannot read"), "{:?}", problems(&folder, &config));
    for (name, text, says) in [
        ("empty", String::new(), "it is empty"),
        ("blank", " \n".to_owned(), "it is empty"),
        ("garbage", "key".to_owned(), "it holds no public key in PEM form"),
        ("two keys", format!("{one}{two}"), "it holds 2 keys; write each to a file of its own"),
        ("the same key twice", format!("{one}{one}"), "it holds 2 keys"),
        ("a private key", pair.serialize_pem(), "it holds a private key"),
        (
            "a private key of cosign",
            "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
                .to_owned(),
            "a private key",
        ),
        ("both keys", format!("{one}{}", pair.serialize_pem()), "a private key"),
        ("a certificate", certificate, "it holds a certificate, not a public key"),
        ("the form of PKCS #1", one.replace("PUBLIC", "RSA PUBLIC"), "PKCS #1"),
        ("no end", one.replace("-----END PUBLIC KEY-----", ""), "is not whole"),
        ("not base64", "-----BEGIN PUBLIC KEY-----\n????\n-----END PUBLIC KEY-----\n".to_owned(), "is not whole"),
        ("no key", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".to_owned(), "cannot be read"),
        ("RSA of 1024 bits", public(&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]), "less than 2048"),
        (
            "P-521",
            public(&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"]),
            "the curve of its key is not P-256 or P-384",
        ),
        ("secp256k1", public(&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]), "the curve of its key"),
        ("X25519", public(&["-algorithm", "X25519"]), "its key is not of ECDSA, Ed25519 or RSA"),
        ("large", "x".repeat(2 * 1024 * 1024), "it is larger than 1 MiB"),
    ] {
        folder.put("key.pub", &text);
        let (policy, found) = folder.try_policy(&config);
        assert!(policy.is_none(), "{name}");
        let [found] = &*found else { panic!("{name}: {found:?}") };
        assert!(
            found.starts_with("signature.any[0].key.file: ") && found.contains("key.pub") && found.contains(says),
            "{name}: {found}"
        );
    }
    folder.put("key.pub", &format!("# the key of CI\r\n{}", one.replace('\n', "\r\n")));
    assert_eq!(problems(&folder, &config), Vec::<String>::new());
}

#[test]
fn configurations_that_make_no_sense_are_named() {
    let folder = Folder::with(&[("key.pub", &Owner::new().pem())]);
    let key = json!({"key": {"file": "key.pub"}});
    for (config, says) in [
        (json!({"signature": {}}), "signature: it needs signers, under exactly one of `any` and `all`"),
        (json!({"signature": {"any": [], "all": []}}), "exactly one of `any` and `all`"),
        (json!({"signature": {"any": [key], "all": [key]}}), "exactly one of `any` and `all`"),
        (json!({"signature": {"any": [key], "formats": []}}), "signature.formats: it is empty"),
        (
            json!({"signature": {"any": [{"keyless": {"issuer": "i", "identity": "a", "trustedRoot": "r"}}], "formats": ["legacy"]}}),
            "`keyless` needs `bundle`",
        ),
        (
            json!({"signature": {"any": [key], "formats": ["legacy"]}, "provenance": {"repository": "r"}}),
            "signature.formats: `provenance` needs `bundle`",
        ),
        (
            json!({"signature": {"any": [{"keyless": {"issuer": "", "identity": "a", "trustedRoot": "r"}}]}}),
            "keyless.issuer: it is empty",
        ),
        (
            json!({"signature": {"any": [{"keyless": {"issuer": "i", "identity": "", "trustedRoot": "r"}}]}}),
            "keyless.identity: it is empty",
        ),
        (
            json!({"signature": {"any": [{"keyless": {"issuer": "i", "identity": "a[", "trustedRoot": "r"}}]}}),
            "keyless.identity: it is not a glob",
        ),
        (json!({"signature": {"any": [key]}, "provenance": {"repository": ""}}), "provenance.repository: it is empty"),
        (
            json!({"signature": {"any": [key]}, "provenance": {"repository": "r", "builder": "{"}}),
            "provenance.builder: it is not a glob",
        ),
    ] {
        let (policy, found) = folder.try_policy(&config);
        assert!(policy.is_none() && found.iter().any(|found| found.contains(says)), "{config}: {found:?}");
    }
    let doubtful = json!({"signature": {"any": [key]}, "provenance": {"events": ["push", "pull_request"]}});
    let (policy, found) = folder.try_policy(&doubtful);
    assert!(policy.is_some());
    assert!(found[0].starts_with("provenance: builds of every repository are accepted"), "{found:?}");
    assert!(found[1].starts_with("provenance.events[1]: a build for `pull_request` is of a merge commit"), "{found:?}");
}

#[test]
fn forms_are_those_that_are_wanted() {
    let folder = Folder::with(&[("key.pub", &Owner::new().pem())]);
    let reads = |formats: Option<Value>| {
        let mut config = json!({"signature": {"any": [{"key": {"file": "key.pub"}}]}});
        if let Some(formats) = formats {
            config["signature"]["formats"] = formats;
        }
        folder.policy(&config).reads()
    };
    assert_eq!(reads(None), Formats { bundle: true, legacy: false });
    assert_eq!(reads(Some(json!(["legacy"]))), Formats { bundle: false, legacy: true });
    assert_eq!(reads(Some(json!(["legacy", "bundle"]))), Formats { bundle: true, legacy: true });
}

#[test]
fn offline_no_file_is_read() {
    let config = json!({"signature": {"any": [{"key": {"file": "key.pub"}}]}});
    let (policy, found) = try_policy_at(&config, &BaseDir::new("/").offline());
    assert_eq!(found, Vec::<String>::new());
    let owner = Owner::new();
    let form = bundle(&owner.bundle(&keys_statement()));
    let (verdict, text) = shown(&evaluate(&policy.unwrap(), &digest('a'), vec![form]));
    assert!(verdict == "unknown" && text.contains("key.pub was not read"), "{verdict}: {text}");
}

fn keys_statement() -> Value {
    super::keys::statement(&digest('a'))
}
