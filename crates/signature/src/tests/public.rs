//! Real public signatures, and the verdicts after changes of them. `tests/signatures/public/README.md` says where they are from.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{
    keyless::{ISSUER, Made, WORKFLOW},
    *,
};

/// Real signatures: their file, digest, issuer, identity and root.
pub(super) const STAGING: [&str; 4] =
    ["staging.json", "a0cfc71271d6e278e57cd332ff957c3f7043fdda354c4cbb190a30d56efa01bf", "root-staging.json", "*"];
pub(super) const CONDA: [&str; 4] = [
    "conda.json",
    "54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f",
    "root.json",
    "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main",
];

/// The folder with the root of a real signature, the configuration for it, and its bundle.
pub(super) fn public([file, _, root, identity]: [&str; 4], issuer: &str) -> (Folder, Value, Value) {
    let folder = Folder::with(&[("root.json", &fixture(&format!("public/{root}")).to_string())]);
    let keyless = json!({"issuer": issuer, "identity": identity, "trustedRoot": "root.json"});
    (folder, json!({"signature": {"any": [{"keyless": keyless}]}}), fixture(&format!("public/{file}")))
}

pub(super) fn issuer_of(bundle: &Value) -> String {
    let leaf = STANDARD.decode(bundle["verificationMaterial"]["certificate"]["rawBytes"].as_str().unwrap()).unwrap();
    let leaf = sigstore_verify::types::DerCertificate::new(leaf);
    sigstore_verify::crypto::parse_certificate_info(&leaf).unwrap().issuer.unwrap()
}

#[test]
fn real_public_signatures_are_verified() {
    let issuer = issuer_of(&fixture("public/staging.json"));
    let (folder, mut config, staging) = public(STAGING, &issuer);
    let verdict = evaluate(&folder.policy(&config), STAGING[1], vec![bundle(&staging)]);
    assert_eq!(shown(&verdict).0, "present", "{verdict:?}");
    // It is provenance, and says nothing of a commit.
    config["provenance"] = json!({});
    let (verdict, text) = shown(&evaluate(&folder.policy(&config), STAGING[1], vec![bundle(&staging)]));
    assert!(verdict == "bad" && text.contains("names no commit"), "{verdict}: {text}");
    // It is verified, and of another kind.
    let (folder, config, conda) = public(CONDA, ISSUER);
    let (verdict, text) = shown(&evaluate(&folder.policy(&config), CONDA[1], vec![bundle(&conda)]));
    assert!(
        verdict == "absent" && text.contains("signed it, but a statement of the type `https://schemas.conda.org"),
        "{verdict}: {text}"
    );
    // GitHub's own authority writes to no log.
    let root = fixture("public/root-github.json").to_string();
    let folder = Folder::with(&[("root.json", &root)]);
    let (policy, problems) = folder.try_policy(
        &json!({"signature": {"any": [{"keyless": {"issuer": "i", "identity": "x", "trustedRoot": "root.json"}}]}}),
    );
    assert!(policy.is_none() && problems[0].contains("set `transparencyLog: false`"), "{problems:?}");
}

/// `bundle` with a change of its entry in the log.
fn with_entry(bundle: &Value, change: impl Fn(&mut Value)) -> Form {
    with(bundle, |bundle| change(&mut bundle["verificationMaterial"]["tlogEntries"][0]))
}

fn entry(file: &str) -> Value {
    fixture(&format!("public/{file}"))["verificationMaterial"]["tlogEntries"][0].clone()
}

#[test]
fn changed_entries_of_a_log_are_refused() {
    let (folder, config, conda) = public(CONDA, ISSUER);
    let policy = folder.policy(&config);
    let without = |key: &str| with_entry(&conda, |entry| _ = entry.as_object_mut().unwrap().remove(key));
    let set =
        |pointer: &str, value: Value| with_entry(&conda, |entry| *entry.pointer_mut(pointer).unwrap() = value.clone());
    let none = with(&conda, |bundle| bundle["verificationMaterial"]["tlogEntries"] = json!([]));
    let unchecked = with_entry(&conda, |entry| {
        entry["inclusionProof"].as_object_mut().unwrap().remove("checkpoint");
    });
    let out_of_time = "certificate chain validation failed";
    let cases = vec![
        ("no entry", none, "bad", "must have an inclusion proof"),
        ("no proof of inclusion", without("inclusionProof"), "bad", "inclusion proof"),
        ("no checkpoint", unchecked, "bad", "checkpoint"),
        ("no promise", without("inclusionPromise"), "bad", "no verified timestamp"),
        ("another time", set("/integratedTime", json!("1700000000")), "bad", "SET"),
        ("another index", set("/inclusionProof/logIndex", json!("1")), "bad", "inclusion"),
        ("another hash", set("/inclusionProof/hashes/0", json!(STANDARD.encode([0; 32]))), "bad", "inclusion proof"),
        (
            "an unknown log",
            set("/logId/keyId", json!(STANDARD.encode([7; 32]))),
            "unknown",
            "not have the transparency log",
        ),
        (
            "an earlier entry",
            with_entry(&conda, |own| *own = entry("two-signatures.json")),
            "bad",
            "must have an inclusion proof",
        ),
        ("the entry of a blob", with_entry(&conda, |own| *own = entry("blob.json")), "bad", out_of_time),
        ("two signatures", bundle(&fixture("public/two-signatures.json")), "absent", "it claims to be by"),
        (
            "GitHub's authority",
            bundle(&fixture("public/github.json")),
            "absent",
            "`https://dotcom.releases.github.com` of ``",
        ),
    ];
    check(&policy, CONDA[1], cases);
    check(
        &policy,
        &digest('0'),
        vec![("another digest", bundle(&conda), "bad", "its statement is about another digest")],
    );
}

/// The specification lets a bundle v0.1 have the log's mere promise. But everybody who may push can write any version.
#[test]
fn a_promise_of_the_log_is_no_proof() {
    let (folder, config, conda) = public(CONDA, ISSUER);
    let policy = folder.policy(&config);
    let earlier = |proven: bool| {
        with(&conda, |bundle| {
            bundle["mediaType"] = json!("application/vnd.dev.sigstore.bundle+json;version=0.1");
            if !proven {
                bundle["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionProof");
            }
        })
    };
    let cases = vec![
        ("v0.1 with the proof", earlier(true), "absent", "signed it, but a statement of the type"),
        ("v0.1 with the mere promise", earlier(false), "unknown", "only the promise of the transparency log"),
    ];
    check(&policy, CONDA[1], cases);
}

#[test]
fn an_entry_of_another_bundle_is_refused() {
    let issuer = issuer_of(&fixture("public/staging.json"));
    let (folder, config, staging) = public(STAGING, &issuer);
    let policy = folder.policy(&config);
    let times = "/verificationMaterial/timestampVerificationData";
    let foreign_time = with(&staging, |bundle| {
        *bundle.pointer_mut(times).unwrap() = Made::read().bundle("good").pointer(times).unwrap().clone();
    });
    let other_time = with(&staging, |bundle| {
        *bundle.pointer_mut(times).unwrap() = fixture("public/staging-blob.json").pointer(times).unwrap().clone();
    });
    let cases = vec![
        // Its proof and checkpoint are good (CVE-2022-36056).
        (
            "an entry of the same log",
            with_entry(&staging, |own| *own = entry("staging-blob.json")),
            "bad",
            "hash mismatch",
        ),
        (
            "an entry of another log",
            with_entry(&staging, |own| *own = entry("conda.json")),
            "unknown",
            "the transparency log",
        ),
        ("time by another authority", foreign_time, "unknown", "not have the authority that signed the time stamp"),
        ("time of another signature", other_time, "bad", "message hash mismatch"),
    ];
    check(&policy, STAGING[1], cases);
}

#[test]
fn a_certificate_must_be_in_a_log() {
    // An own authority, whose certificates are in no log, and the logs of staging.
    let made = Made::read();
    let mut root = made.made["trustedRoot"].clone();
    for logs in ["tlogs", "ctlogs"] {
        root[logs] = fixture("public/root-staging.json")[logs].clone();
    }
    made.folder.put("root.json", &root.to_string());
    let mut config = Made::config(WORKFLOW);
    config["signature"]["any"][0]["keyless"]["transparencyLog"] = json!(true);
    let logged = with(&made.bundle("good"), |bundle| {
        bundle["verificationMaterial"]["tlogEntries"] = json!([entry("staging.json")]);
    });
    let cases = vec![
        ("in none", bundle(&made.bundle("good")), "bad", "must have an inclusion proof"),
        ("only the signature", logged, "bad", "missing SCT"),
    ];
    check(&made.folder.policy(&config), made.digest(), cases);
}
