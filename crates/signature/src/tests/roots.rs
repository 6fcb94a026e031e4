//! Trusted roots that are not roots, are outdated, or lack a part that a signature needs.

use serde_json::json;

use super::{
    keyless::{Made, WORKFLOW},
    public::{STAGING, issuer_of, public},
    *,
};

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
        let (verdict, text) = made.evaluate(&Made::config(WORKFLOW), &made.bundle("good"), None);
        assert!(
            verdict == "unknown" && text.contains(says) && text.contains("renew the file"),
            "{list}: {verdict}: {text}"
        );
    }
    // The log of certificates is another one.
    let issuer = issuer_of(&fixture("public/staging.json"));
    let (folder, config, staging) = public(STAGING, &issuer);
    let mut root = fixture("public/root-staging.json");
    root["ctlogs"] = fixture("public/root.json")["ctlogs"].clone();
    folder.put("root.json", &root.to_string());
    let says = "does not have the log that the certificate names";
    check(&folder.policy(&config), STAGING[1], vec![("another log", bundle(&staging), "unknown", says)]);
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
        ("another document", "{}".to_owned(), "it is not a trusted root"),
        ("a bundle", made.bundle("good").to_string(), "it is not a trusted root"),
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
            "it is not a usable trusted root",
        ),
        (
            "an empty chain",
            with(&|root| root["certificateAuthorities"][0]["certChain"]["certificates"] = json!([])),
            "it is not a usable trusted root",
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
        assert!(policy.is_some() && found[0].contains("everybody with an account at"), "{found:?}");
    }
}
