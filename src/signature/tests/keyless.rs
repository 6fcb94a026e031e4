//! Signatures with certificates: of an own authority, and real public ones.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::*;

const ISSUER: &str = "https://token.actions.githubusercontent.com";
const WORKFLOW: &str = "https://github.com/org/repo/.github/workflows/build.yml@refs/heads/main";

/// The signatures of `tests/signatures/make`.
struct Made {
    made: Value,
    folder: Folder,
}

impl Made {
    fn read() -> Self {
        let made = fixture("keyless.json");
        let folder = Folder::with(&[("root.json", &made["trustedRoot"].to_string())]);
        Self { made, folder }
    }

    fn digest(&self) -> &str {
        self.made["digest"].as_str().unwrap()
    }

    fn bundle(&self, name: &str) -> Value {
        let found = self.made["bundles"].get(name);
        found.unwrap_or_else(|| panic!("no bundle `{name}`: run `make signatures`")).clone()
    }

    /// What cosign says to it, without the conditions on builds.
    fn cosign(&self, name: &str) -> bool {
        self.made["cosign"][name].as_bool().unwrap()
    }

    fn config(identity: &str) -> Value {
        let keyless =
            json!({"issuer": ISSUER, "identity": identity, "trustedRoot": "root.json", "transparencyLog": false});
        json!({"signature": {"any": [{"keyless": keyless}]}})
    }

    fn judge(&self, config: &Value, bundle: &Value, commit: Option<&str>) -> (&'static str, String) {
        let policy = self.folder.policy(config);
        shown(&judge_commit(&policy, self.digest(), commit, vec![super::bundle(bundle)]))
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
            let (verdict, text) = made.judge(&Made::config(identity), &made.bundle(name), None);
            assert!(verdict == "present" && text == format!("{identity} of {ISSUER}"), "{name}: {verdict}: {text}");
        }
        assert!(made.cosign(name), "cosign agrees on {name}");
    }
    let policy = made.folder.policy(&provenance(Made::config(WORKFLOW)));
    let Verdict::Present(proof) = judge(&policy, made.digest(), vec![bundle(&made.bundle("good"))]) else { panic!() };
    assert_eq!(proof.commit.as_deref(), made.made["commit"].as_str());
    let Verdict::Present(proof) =
        judge(&made.folder.policy(&Made::config(WORKFLOW)), made.digest(), vec![bundle(&made.bundle("good"))])
    else {
        panic!()
    };
    assert_eq!(proof.commit, None, "a signature alone proves no commit");
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
        ("scan", "absent", "does not vouch for an image"),
        ("branch that begins alike", "absent", "build.yml@refs/heads/main-2` of"),
        ("organisation that begins alike", "absent", "https://github.com/organisation/repo"),
        ("prefix before the identity", "absent", "https://evil.example/https://github.com"),
        ("issuer that begins alike", "absent", "githubusercontent.com.evil.example`"),
        ("issuer with a slash", "absent", "githubusercontent.com/`"),
        ("no issuer", "absent", "of ``"),
        ("later issuer wins", "absent", "of `https://evil.example`"),
        ("name of a host", "absent", "it claims to be by `` of"),
        ("email", "absent", "`somebody@example.com` of `https://accounts.example`"),
        ("reusable workflow", "absent", "https://github.com/org/ci/"),
    ] {
        let (found, text) = made.judge(&config, &made.bundle(name), None);
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
        "https://GitHub.com/org/*",
    ] {
        assert_eq!(made.judge(&Made::config(identity), &made.bundle("good"), None).0, "absent", "{identity}");
    }
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
        ("pull request", "bad", "is of the event `pull_request`, not `push`"),
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
        ("short commit", "bad", "`111111111111` in its provenance is no full commit"),
        ("no definition", "bad", "its provenance has no `buildDefinition`"),
        ("definition is a list", "bad", "its provenance has no `buildDefinition`"),
    ] {
        let (found, text) = made.judge(&config, &made.bundle(name), Some(commit));
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
    let (verdict, text) = made.judge(&config, &made.bundle("pull request"), made.made["commit"].as_str());
    assert!(
        verdict == "other commit"
            && text.contains("the commit is that of a merge, which is in no branch: build on `push`"),
        "{verdict}: {text}"
    );
    let (_, text) = made.judge(&config, &made.bundle("another commit"), made.made["commit"].as_str());
    assert!(!text.contains("merge"), "{text}");
}

#[test]
fn changed_bundles_are_refused() {
    let made = Made::read();
    let config = Made::config(WORKFLOW);
    let good = made.bundle("good");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut bundle = good.clone();
        change(&mut bundle);
        made.judge(&config, &bundle, None)
    };
    let other = made.bundle("signature");
    let cut = |text: &Value| json!(text.as_str().unwrap()[4..]);
    for (name, found, verdict, says) in [
        (
            "certificate of another run",
            changed(&|bundle| {
                bundle["verificationMaterial"]["certificate"] = other["verificationMaterial"]["certificate"].clone()
            }),
            "bad",
            "DSSE signature verification failed",
        ),
        (
            "payload of another run",
            changed(&|bundle| bundle["dsseEnvelope"]["payload"] = other["dsseEnvelope"]["payload"].clone()),
            "bad",
            "DSSE signature verification failed",
        ),
        (
            "time of another run",
            changed(&|bundle| {
                bundle["verificationMaterial"]["timestampVerificationData"] =
                    other["verificationMaterial"]["timestampVerificationData"].clone()
            }),
            "bad",
            "mismatch",
        ),
        (
            "half a certificate",
            changed(&|bundle| {
                bundle["verificationMaterial"]["certificate"]["rawBytes"] =
                    cut(&bundle["verificationMaterial"]["certificate"]["rawBytes"])
            }),
            "absent",
            "its certificate cannot be read",
        ),
        (
            "two signatures",
            changed(&|bundle| {
                let one = bundle["dsseEnvelope"]["signatures"][0].clone();
                bundle["dsseEnvelope"]["signatures"].as_array_mut().unwrap().push(one);
            }),
            "bad",
            "has 2 signatures",
        ),
        (
            "bytes",
            changed(&|bundle| {
                bundle.as_object_mut().unwrap().remove("dsseEnvelope");
                bundle["messageSignature"] = json!({"signature": "AAAA"});
            }),
            "unknown",
            "it signs bytes, not a statement",
        ),
        (
            "a chain in version 0.3",
            changed(&|bundle| {
                let one = bundle["verificationMaterial"]["certificate"].take();
                bundle["verificationMaterial"].as_object_mut().unwrap().remove("certificate");
                bundle["verificationMaterial"]["x509CertificateChain"] = json!({"certificates": [one]});
            }),
            "bad",
            "bundle",
        ),
    ] {
        assert!(found.0 == verdict && found.1.to_lowercase().contains(&says.to_lowercase()), "{name}: {found:?}");
    }
}

#[test]
fn a_root_that_may_be_outdated_is_unknown() {
    let made = Made::read();
    let ended = json!({"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"});
    for (list, says) in [
        ("certificateAuthorities", "has no authority that was valid then"),
        ("timestampAuthorities", "has no authority for time stamps that was valid then"),
    ] {
        let mut root = made.made["trustedRoot"].clone();
        root[list][0]["validFor"] = ended.clone();
        made.folder.put("root.json", &root.to_string());
        let (verdict, text) = made.judge(&Made::config(WORKFLOW), &made.bundle("good"), None);
        assert!(
            verdict == "unknown" && text.contains(says) && text.contains("renew the file"),
            "{list}: {verdict}: {text}"
        );
    }
}

/// Real signatures: their file, digest, issuer, identity and root.
const STAGING: [&str; 4] =
    ["staging.json", "a0cfc71271d6e278e57cd332ff957c3f7043fdda354c4cbb190a30d56efa01bf", "root-staging.json", "*"];
const CONDA: [&str; 4] = [
    "conda.json",
    "54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f",
    "root.json",
    "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main",
];

/// The folder with the root of a real signature, the configuration for it, and its bundle.
fn public([file, _, root, identity]: [&str; 4], issuer: &str) -> (Folder, Value, Value) {
    let folder = Folder::with(&[("root.json", &fixture(&format!("public/{root}")).to_string())]);
    let keyless = json!({"issuer": issuer, "identity": identity, "trustedRoot": "root.json"});
    (folder, json!({"signature": {"any": [{"keyless": keyless}]}}), fixture(&format!("public/{file}")))
}

fn issuer_of(bundle: &Value) -> String {
    let leaf = STANDARD.decode(bundle["verificationMaterial"]["certificate"]["rawBytes"].as_str().unwrap()).unwrap();
    let leaf = sigstore_verify::types::DerCertificate::new(leaf);
    sigstore_verify::crypto::parse_certificate_info(&leaf).unwrap().issuer.unwrap()
}

#[test]
fn real_public_signatures_are_verified() {
    let issuer = issuer_of(&fixture("public/staging.json"));
    let (folder, mut config, staging) = public(STAGING, &issuer);
    let verdict = judge(&folder.policy(&config), STAGING[1], vec![bundle(&staging)]);
    assert_eq!(shown(&verdict).0, "present", "{verdict:?}");
    // It is provenance, and says nothing of a commit.
    config["provenance"] = json!({});
    let (verdict, text) = shown(&judge(&folder.policy(&config), STAGING[1], vec![bundle(&staging)]));
    assert!(verdict == "bad" && text.contains("names no commit"), "{verdict}: {text}");
    // It is verified, and of another kind.
    let (folder, config, conda) = public(CONDA, ISSUER);
    let (verdict, text) = shown(&judge(&folder.policy(&config), CONDA[1], vec![bundle(&conda)]));
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

#[test]
fn changed_public_signatures_are_refused() {
    let issuer = issuer_of(&fixture("public/staging.json"));
    let (of_staging, config_of_staging, staging) = public(STAGING, &issuer);
    let staging_policy = of_staging.policy(&config_of_staging);
    let (of_conda, config_of_conda, conda) = public(CONDA, ISSUER);
    let conda_policy = of_conda.policy(&config_of_conda);
    let made = Made::read();
    let mut wrong = Vec::new();
    let mut judge_one = |name: &str,
                         policy: &Policy,
                         digest: &str,
                         of: &Value,
                         change: &dyn Fn(&mut Value),
                         verdict: &str,
                         says: &str| {
        let mut changed = of.clone();
        change(&mut changed);
        let (found, text) = shown(&judge(policy, digest, vec![bundle(&changed)]));
        if found != verdict || !text.to_lowercase().contains(&says.to_lowercase()) {
            wrong.push(format!("{name}: {found}: {text}\n  not {verdict}: {says}"));
        }
    };
    let entry = |bundle: &Value| bundle["verificationMaterial"]["tlogEntries"][0].clone();
    let (of_conda_entry, of_staging_entry) = (entry(&conda), entry(&staging));
    let mut on_conda = |name: &str, change: &dyn Fn(&mut Value), verdict: &str, says: &str| {
        judge_one(
            name,
            &conda_policy,
            CONDA[1],
            &conda,
            &|bundle| change(&mut bundle["verificationMaterial"]),
            verdict,
            says,
        );
    };
    on_conda("no entry of a log", &|of| of["tlogEntries"] = json!([]), "bad", "must have an inclusion proof");
    on_conda(
        "no proof of inclusion",
        &|of| _ = of["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionProof"),
        "bad",
        "inclusion proof",
    );
    on_conda(
        "no checkpoint",
        &|of| _ = of["tlogEntries"][0]["inclusionProof"].as_object_mut().unwrap().remove("checkpoint"),
        "bad",
        "checkpoint",
    );
    on_conda(
        "no promise",
        &|of| _ = of["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionPromise"),
        "bad",
        "no verified timestamp",
    );
    on_conda("another time", &|of| of["tlogEntries"][0]["integratedTime"] = json!("1700000000"), "bad", "SET");
    on_conda(
        "another index",
        &|of| of["tlogEntries"][0]["inclusionProof"]["logIndex"] = json!("1"),
        "bad",
        "inclusion",
    );
    on_conda(
        "another hash",
        &|of| of["tlogEntries"][0]["inclusionProof"]["hashes"][0] = json!(STANDARD.encode([0; 32])),
        "bad",
        "inclusion proof",
    );
    on_conda(
        "an unknown log",
        &|of| of["tlogEntries"][0]["logId"]["keyId"] = json!(STANDARD.encode([7; 32])),
        "unknown",
        "does not have the transparency log",
    );
    on_conda(
        "an entry of another bundle",
        &|of| {
            of["tlogEntries"][0] =
                fixture("public/two-signatures.json")["verificationMaterial"]["tlogEntries"][0].clone();
        },
        "bad",
        "",
    );
    on_conda(
        "the entry of a blob",
        &|of| {
            of["tlogEntries"][0] = fixture("public/blob.json")["verificationMaterial"]["tlogEntries"][0].clone();
        },
        "bad",
        "",
    );
    judge_one(
        "another digest",
        &conda_policy,
        &digest('0'),
        &conda,
        &|_| {},
        "bad",
        "its statement is about another digest",
    );
    judge_one(
        "two signatures",
        &conda_policy,
        CONDA[1],
        &fixture("public/two-signatures.json"),
        &|_| {},
        "absent",
        "it claims to be by",
    );
    judge_one(
        "an entry of another log",
        &staging_policy,
        STAGING[1],
        &staging,
        &|bundle| {
            bundle["verificationMaterial"]["tlogEntries"][0] = of_conda_entry.clone();
        },
        "unknown",
        "transparency log",
    );
    judge_one(
        "time of another signature",
        &staging_policy,
        STAGING[1],
        &staging,
        &|bundle| {
            bundle["verificationMaterial"]["timestampVerificationData"] =
                made.bundle("good")["verificationMaterial"]["timestampVerificationData"].clone();
        },
        "unknown",
        "does not have the authority that signed the time stamp",
    );
    // An own authority, whose certificates are in no log, and the logs of staging.
    let mut root = made.made["trustedRoot"].clone();
    for logs in ["tlogs", "ctlogs"] {
        root[logs] = fixture("public/root-staging.json")[logs].clone();
    }
    made.folder.put("root.json", &root.to_string());
    let mut config = Made::config(WORKFLOW);
    config["signature"]["any"][0]["keyless"]["transparencyLog"] = json!(true);
    let logged = made.folder.policy(&config);
    judge_one(
        "no log at all",
        &logged,
        made.digest(),
        &made.bundle("good"),
        &|_| {},
        "bad",
        "must have an inclusion proof",
    );
    judge_one(
        "no entry of the certificate in a log",
        &logged,
        made.digest(),
        &made.bundle("good"),
        &|bundle| {
            bundle["verificationMaterial"]["tlogEntries"] = json!([of_staging_entry]);
        },
        "bad",
        "missing SCT",
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unusable_roots_are_named() {
    let made = Made::read();
    let root = &made.made["trustedRoot"];
    let with = |change: &dyn Fn(&mut Value)| {
        let mut root = root.clone();
        change(&mut root);
        root.to_string()
    };
    let text = root.to_string();
    for (name, root, says) in [
        ("empty", String::new(), "it is blank"),
        ("no JSON", "root".to_owned(), "it is not one JSON document"),
        ("two roots", format!("{text}\n{text}"), "`gh attestation trusted-root` writes several roots"),
        ("a repeated key", text.replacen('{', r#"{"tlogs":[],"#, 1), "the key `tlogs` stands twice"),
        ("another document", "{}".to_owned(), "it is no trusted root"),
        ("a bundle", made.bundle("good").to_string(), "it is no trusted root"),
        (
            "no authority",
            with(&|root| root["certificateAuthorities"] = json!([])),
            "it has no authority for certificates",
        ),
        (
            "no authority for time stamps",
            with(&|root| root["timestampAuthorities"] = json!([])),
            "it has no authority for time stamps",
        ),
        (
            "half a certificate",
            with(&|root| root["certificateAuthorities"][0]["certChain"]["certificates"][0]["rawBytes"] = json!("MIIB")),
            "it is no usable trusted root",
        ),
        (
            "an empty chain",
            with(&|root| root["certificateAuthorities"][0]["certChain"]["certificates"] = json!([])),
            "it is no usable trusted root",
        ),
    ] {
        made.folder.put("root.json", &root);
        let (policy, found) = made.folder.try_policy(&Made::config(WORKFLOW));
        assert!(policy.is_none() && found.len() == 1, "{name}: {found:?}");
        assert!(
            found[0].starts_with("signature.any[0].keyless.trustedRoot: ") && found[0].contains(says),
            "{name}: {found:?}"
        );
    }
    made.folder.put("root.json", &text);
    for identity in [None, Some("*"), Some("**")] {
        let mut config = Made::config("");
        config["signature"]["any"][0]["keyless"]["identity"] = json!(identity);
        let (policy, found) = made.folder.try_policy(&config);
        assert!(policy.is_some() && found[0].contains("everybody that"), "{found:?}");
    }
}
