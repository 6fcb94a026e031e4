//! Signatures with certificates: of an own authority, and real public ones.

use serde_json::json;

use super::*;

pub(super) const ISSUER: &str = "https://token.actions.githubusercontent.com";
pub(super) const WORKFLOW: &str = "https://github.com/org/repo/.github/workflows/build.yml@refs/heads/main";

/// The signatures of `tests/signatures/make`.
pub(super) struct Made {
    pub(super) made: Value,
    pub(super) folder: Folder,
}

impl Made {
    pub(super) fn read() -> Self {
        let made = fixture("keyless.json");
        let folder = Folder::with(&[("root.json", &made["trustedRoot"].to_string())]);
        Self { made, folder }
    }

    pub(super) fn digest(&self) -> &str {
        self.made["digest"].as_str().unwrap()
    }

    pub(super) fn bundle(&self, name: &str) -> Value {
        let found = self.made["bundles"].get(name);
        found.unwrap_or_else(|| panic!("no bundle `{name}`: run `make signatures`")).clone()
    }

    /// The result of cosign, without the conditions on builds.
    fn cosign(&self, name: &str) -> bool {
        self.made["cosign"][name].as_bool().unwrap()
    }

    pub(super) fn config(identity: &str) -> Value {
        let keyless =
            json!({"issuer": ISSUER, "identity": identity, "trustedRoot": "root.json", "transparencyLog": false});
        json!({"signature": {"any": [{"keyless": keyless}]}})
    }

    pub(super) fn evaluate(&self, config: &Value, bundle: &Value, commit: Option<&str>) -> (&'static str, String) {
        let policy = self.folder.policy(config);
        shown(&evaluate_for_commit(&policy, self.digest(), commit, vec![super::bundle(bundle)]))
    }
}

fn provenance(mut config: Value) -> Value {
    config["provenance"] = json!({
        "repository": "https://github.com/org/repo",
        "workflow": ".github/workflows/build.yml",
        "builder": "https://github.com/org/repo/.github/workflows/*",
        "events": ["push"],
    });
    config
}

#[test]
fn signatures_of_the_identity_are_verified() {
    let made = Made::read();
    for name in ["good", "signature", "issuer by its first extension"] {
        for identity in [
            WORKFLOW,
            "https://github.com/org/repo/.github/workflows/build.yml@refs/heads/*",
            "https://github.com/org/*",
        ] {
            let (verdict, text) = made.evaluate(&Made::config(identity), &made.bundle(name), None);
            assert!(verdict == "present" && text == format!("{identity} of {ISSUER}"), "{name}: {verdict}: {text}");
        }
        assert!(made.cosign(name), "cosign agrees on {name}");
    }
    let policy = made.folder.policy(&provenance(Made::config(WORKFLOW)));
    let PolicyVerdict::Present(proof) = evaluate(&policy, made.digest(), vec![bundle(&made.bundle("good"))]) else {
        panic!()
    };
    assert_eq!(proof.commit.as_deref(), made.made["commit"].as_str());
    let PolicyVerdict::Present(proof) =
        evaluate(&made.folder.policy(&Made::config(WORKFLOW)), made.digest(), vec![bundle(&made.bundle("good"))])
    else {
        panic!()
    };
    assert_eq!(proof.commit, None, "a mere signature proves no commit");
}

#[test]
fn forged_certificates_and_identities_are_refused() {
    let made = Made::read();
    let config = Made::config(WORKFLOW);
    let mut wrong = Vec::new();
    for (name, verdict, says) in [
        ("expired", "bad", "CertExpired"),
        ("not yet valid", "bad", "CertNotValidYet"),
        ("for servers", "bad", "RequiredEkuNotFound"),
        ("for nothing", "bad", "RequiredEkuNotFound"),
        ("authority of the same name", "unknown", "does not have the authority that issued the certificate"),
        ("unknown authority", "unknown", "does not have the authority that issued the certificate"),
        ("unknown clock", "unknown", "does not have the authority that signed the time stamp"),
        ("no time", "bad", "must have at least one tlog entry or timestamp"),
        ("time of another signature", "bad", "message hash mismatch"),
        ("key of another certificate", "bad", "DSSE signature verification failed"),
        ("another digest", "bad", "its statement is about another digest"),
        ("another payload type", "bad", "the payload type of its envelope is `text/plain`"),
        ("scan", "absent", "is not a signature of an image"),
        ("branch that begins alike", "absent", "build.yml@refs/heads/main-2` of"),
        ("organisation that begins alike", "absent", "https://github.com/organisation/repo"),
        ("prefix before the identity", "absent", "https://evil.example/https://github.com"),
        ("issuer that begins alike", "absent", "githubusercontent.com.evil.example`"),
        ("issuer with a slash", "unknown", "in a slash only"),
        ("no issuer", "absent", "of ``"),
        ("later issuer wins", "absent", "of `https://evil.example`"),
        ("name of a host", "absent", "it claims to be by `` of"),
        ("email", "absent", "`somebody@example.com` of `https://accounts.example`"),
        ("reusable workflow", "absent", "https://github.com/org/ci/"),
    ] {
        let (found, text) = made.evaluate(&config, &made.bundle(name), None);
        if found != verdict || !text.to_lowercase().contains(&says.to_lowercase()) {
            wrong.push(format!("{name}: {found}: {text}\n  not {verdict}: {says}"));
        }
        // cosign accepts other predicates, certificates without a usage, and the deprecated extension for the issuer.
        let is_stricter = ["scan", "for nothing", "later issuer wins"].contains(&name);
        assert_eq!(made.cosign(name), is_stricter, "cosign on {name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A glob is for the whole identity.
    for identity in [
        "https://github.com/org/repo/.github/workflows/build.yml",
        "github.com/org/repo/*",
        "https://github.com/org",
        "https://GitHub.com/other/*",
    ] {
        assert_eq!(made.evaluate(&Made::config(identity), &made.bundle("good"), None).0, "absent", "{identity}");
    }
    // A signer who is only written in another case is neither accepted nor taken for missing.
    let (found, text) = made.evaluate(&Made::config("https://GitHub.com/Org/*"), &made.bundle("good"), None);
    assert!(found == "unknown" && text.contains("differs from that in case"), "{found}: {text}");
}

#[test]
fn builds_that_are_not_as_demanded_are_refused() {
    let made = Made::read();
    let config = provenance(Made::config("https://github.com/org/*"));
    let commit = made.made["commit"].as_str().unwrap();
    let mut wrong = Vec::new();
    for (name, verdict, says) in [
        ("good", "present", ""),
        ("signature", "absent", "it is a signature, not provenance"),
        (
            "another commit",
            "other commit",
            "its provenance names the commit 2222222222222222222222222222222222222222, not 1111",
        ),
        ("pull request", "other commit", "it was built for `pull_request`, so the commit is that of a merge"),
        ("reusable workflow", "bad", "is of the builder `https://github.com/org/ci/"),
        (
            "commits disagree",
            "bad",
            "its certificate names the commit `1111111111111111111111111111111111111111`, and its provenance `2222",
        ),
        (
            "repositories disagree",
            "bad",
            "its certificate names the repository `https://github.com/org/repo`, and its provenance `https://github.com/org/other`",
        ),
        (
            "workflows disagree",
            "bad",
            "its certificate names the workflow `.github/workflows/build.yml`, and its provenance `.github/workflows/other.yml`",
        ),
        ("events disagree", "bad", "its certificate names the event `push`, and its provenance `workflow_dispatch`"),
        ("builders disagree", "bad", "is of the builder `https://evil.example/builder`"),
        (
            "another repository",
            "bad",
            "is of the repository `https://github.com/org/other`, not `https://github.com/org/repo`",
        ),
        ("another workflow", "bad", "is of the workflow `.github/workflows/test.yml`"),
        ("workflow of another repository", "bad", "is of the workflow `https://github.com/org/repository/"),
        ("another event", "bad", "is of the event `workflow_dispatch`"),
        ("certificate without commit", "bad", "its certificate names no commit"),
        ("certificate without repository", "bad", "its certificate names no repository"),
        ("certificate without workflow", "bad", "its certificate names no workflow"),
        ("certificate without event", "bad", "its certificate names no event"),
        ("certificate without builder", "bad", "its certificate names no builder"),
        ("no commit", "bad", "its provenance names no commit"),
        ("two commits", "bad", "its provenance names 2 commits"),
        ("short commit", "bad", "`111111111111` in its provenance is not a full commit"),
        ("no definition", "bad", "its provenance has no `buildDefinition`"),
        ("definition is a list", "bad", "its provenance has no `buildDefinition`"),
    ] {
        let (found, text) = made.evaluate(&config, &made.bundle(name), Some(commit));
        if found != verdict || !text.contains(says) {
            wrong.push(format!("{name}: {found}: {text}\n  not {verdict}: {says}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_merge_commit_gets_a_hint() {
    let made = Made::read();
    let mut config = provenance(Made::config(WORKFLOW));
    config["provenance"]["events"] = json!([]);
    let (verdict, text) = made.evaluate(&config, &made.bundle("pull request"), made.made["commit"].as_str());
    assert!(
        verdict == "other commit"
            && text.contains("the commit is that of a merge, which is in no branch: build on `push`"),
        "{verdict}: {text}"
    );
    let (_, text) = made.evaluate(&config, &made.bundle("another commit"), made.made["commit"].as_str());
    assert!(!text.contains("merge"), "{text}");
}

#[test]
fn changed_bundles_are_refused() {
    let made = Made::read();
    let policy = made.folder.policy(&Made::config(WORKFLOW));
    let (good, other) = (made.bundle("good"), made.bundle("signature"));
    let swapped = |pointer: &str| {
        with(&good, |bundle| *bundle.pointer_mut(pointer).unwrap() = other.pointer(pointer).unwrap().clone())
    };
    let half = with(&good, |bundle| {
        let certificate = &mut bundle["verificationMaterial"]["certificate"]["rawBytes"];
        *certificate = json!(certificate.as_str().unwrap()[4..]);
    });
    let twice = with(&good, |bundle| {
        let signatures = bundle["dsseEnvelope"]["signatures"].as_array_mut().unwrap();
        signatures.extend(signatures.clone());
    });
    let bytes = with(&good, |bundle| {
        bundle.as_object_mut().unwrap().remove("dsseEnvelope");
        bundle["messageSignature"] = json!({"signature": "AAAA"});
    });
    let chain = with(&good, |bundle| {
        let material = bundle["verificationMaterial"].as_object_mut().unwrap();
        let one = material.remove("certificate");
        material.insert("x509CertificateChain".to_owned(), json!({"certificates": [one]}));
    });
    let unsigned = "DSSE signature verification failed";
    let cases = vec![
        ("certificate of another run", swapped("/verificationMaterial/certificate"), "bad", unsigned),
        ("payload of another run", swapped("/dsseEnvelope/payload"), "bad", unsigned),
        ("time of another run", swapped("/verificationMaterial/timestampVerificationData"), "bad", "mismatch"),
        ("half a certificate", half, "absent", "its certificate cannot be read"),
        ("two signatures", twice, "bad", "has 2 signatures"),
        ("bytes", bytes, "unknown", "it signs bytes, not a statement"),
        ("a chain in version 0.3", chain, "bad", "bundle"),
    ];
    check(&policy, made.digest(), cases);
}
