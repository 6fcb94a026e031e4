//! A clock that is off. Signatures are verified for the time at which they were made; a clock that is behind is unknown, never *bad*.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::PublicKeyData as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    keyless::{ISSUER, Made, WORKFLOW},
    keys::Owner,
    public::{CONDA, STAGING, issuer_of, public},
    *,
};

/// The year 2999, in seconds since 1970.
const FUTURE: u64 = 32_472_144_000;

/// Certificates are valid for minutes. That of the good signature ended long ago, as it would have by a clock that is fast.
#[test]
fn a_certificate_must_have_been_valid_then() {
    let made = Made::read();
    let good = made.bundle("good");
    let certificate =
        STANDARD.decode(good["verificationMaterial"]["certificate"]["rawBytes"].as_str().unwrap()).unwrap();
    let certificate = sigstore_verify::types::DerCertificate::new(certificate);
    let ended = sigstore_verify::crypto::parse_certificate_info(&certificate).unwrap().not_after.as_second();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(u64::try_from(ended).unwrap() < now, "it is not valid any more");
    let policy = made.folder.policy(&Made::config(WORKFLOW));
    assert_eq!(shown(&evaluate(&policy, made.digest(), vec![bundle(&good)])).0, "present");
}

/// By a clock that is behind, the authorities and logs of the root begin in the future.
#[test]
fn an_authority_or_log_of_the_future_is_unknown() {
    let future = json!({"start": "2999-01-01T00:00:00Z"});
    let says = "begins to be valid in the future, by the clock of this machine";
    let made = Made::read();
    let mut root = made.made["trustedRoot"].clone();
    root["timestampAuthorities"][0]["validFor"] = future.clone();
    made.folder.put("root.json", &root.to_string());
    let good = bundle(&made.bundle("good"));
    check(&made.folder.policy(&Made::config(WORKFLOW)), made.digest(), vec![("time", good, "unknown", says)]);

    for (real, issuer) in [(STAGING, issuer_of(&fixture("public/staging.json"))), (CONDA, ISSUER.to_owned())] {
        let (folder, config, signed) = public(real, &issuer);
        let mut root = fixture(&format!("public/{}", real[2]));
        for log in root["tlogs"].as_array_mut().unwrap() {
            log["publicKey"]["validFor"] = future.clone();
        }
        folder.put("root.json", &root.to_string());
        check(&folder.policy(&config), real[1], vec![("log", bundle(&signed), "unknown", says)]);
    }
}

/// A log has signed that the entry is of the future.
#[test]
fn an_entry_of_the_future_is_unknown() {
    let (made, log) = (Made::read(), Owner::new());
    let (key, id) = (STANDARD.encode(log.0.subject_public_key_info()), log.hint());
    let mut root = made.made["trustedRoot"].clone();
    root["tlogs"] = json!([{"baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256", "logId": {"keyId": id},
        "publicKey": {"rawBytes": key, "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": {"start": "2020-01-01T00:00:00Z"}}}]);
    made.folder.put("root.json", &root.to_string());
    let policy = made.folder.policy(&Made::config(WORKFLOW));
    let logged = |time: u64| {
        let mut entry = fixture("public/conda.json")["verificationMaterial"]["tlogEntries"][0].clone();
        let name = base16ct::lower::encode_string(&Sha256::digest(log.0.subject_public_key_info()));
        let [body, index] = ["canonicalizedBody", "logIndex"].map(|key| entry[key].as_str().unwrap().to_owned());
        let signed = format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{name}","logIndex":{index}}}"#);
        entry["logId"]["keyId"] = json!(id);
        entry["integratedTime"] = json!(time.to_string());
        entry["inclusionPromise"]["signedEntryTimestamp"] = json!(STANDARD.encode(log.sign(signed.as_bytes())));
        with(&made.bundle("good"), |bundle| bundle["verificationMaterial"]["tlogEntries"] = json!([entry]))
    };
    let cases = vec![
        ("the future", logged(FUTURE), "unknown", "it was signed in the future, by the clock of this machine"),
        // Before the certificate was valid.
        ("the past", logged(1_600_000_000), "bad", "certificate"),
    ];
    check(&policy, made.digest(), cases);
}
