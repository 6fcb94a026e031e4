//! Signatures by the right key and another algorithm than its own.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
    },
};
use rcgen::{KeyPair, PKCS_RSA_SHA256};

use super::super::{
    keys::{IN_TOTO, Owner, one_key, pae, statement},
    *,
};

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
