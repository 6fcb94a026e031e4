//! `all`: each identity or key counts for one signer only.

use serde_json::json;

use super::{
    keys::{Owner, statement},
    *,
};

fn config(signers: &[Value]) -> Value {
    json!({"signature": {"all": signers, "formats": ["bundle", "legacy"]}})
}

fn key(file: &str) -> Value {
    json!({"key": {"file": file}})
}

/// The same key under two names is a mistake of the configuration, which names both places.
#[test]
fn a_key_that_stands_twice_is_refused() {
    let (a, b) = (Owner::new(), Owner::new());
    // Another form of the same key: a comment, and other ends of lines.
    let again = format!("# the key of the second team\r\n{}", a.pem().replace('\n', "\r\n"));
    let folder = Folder::with(&[("a.pub", &a.pem()), ("b.pub", &b.pem()), ("again.pub", &again)]);
    let (policy, problems) = folder.try_policy(&config(&[key("a.pub"), key("b.pub"), key("again.pub")]));
    assert!(policy.is_none());
    let expected = "signature.all[2]: again.pub holds the same key as a.pub at signature.all[0], so one signature would count twice";
    assert_eq!(problems, [expected]);
    let (policy, problems) = try_policy_at(&config(&[key("a.pub"), key("a.pub")]), &BaseDir::new("/").offline());
    assert!(policy.is_none() && problems[0].contains("a.pub holds the same key as a.pub at"), "{problems:?}");
    // For `any`, one signature is enough anyway.
    let any = json!({"signature": {"any": [key("a.pub"), key("again.pub")]}});
    assert_eq!(folder.try_policy(&any).1, Vec::<String>::new());
}

#[cfg(feature = "keyless")]
#[test]
fn an_identity_that_stands_twice_is_refused() {
    let root = fixture("keyless.json")["trustedRoot"].to_string();
    let folder = Folder::with(&[("root.json", &root), ("other.json", &root)]);
    let keyless = |identity: &str, root: &str| json!({"keyless": {"issuer": "https://issuer.example", "identity": identity, "trustedRoot": root, "transparencyLog": false}});
    let (policy, problems) = folder.try_policy(&config(&[keyless("a", "root.json"), keyless("a", "other.json")]));
    let expected =
        "signature.all[1]: issuer and identity are the same at signature.all[0], so one signature would count twice";
    assert!(policy.is_none() && problems == [expected], "{problems:?}");
    assert_eq!(
        folder.try_policy(&config(&[keyless("a", "root.json"), keyless("b", "root.json")])).1,
        Vec::<String>::new()
    );
}

/// A file becomes a copy of another one while the gateway runs. One signature must not be enough then, and it is not an absence either.
#[test]
fn a_key_that_stands_twice_later_counts_for_nobody() {
    let (a, b) = (Owner::new(), Owner::new());
    let folder = Folder::with(&[("a.pub", &a.pem()), ("b.pub", &b.pem())]);
    let policy = folder.policy(&config(&[key("a.pub"), key("b.pub")]));
    let own = digest('a');
    let by = |owner: &Owner| bundle(&owner.bundle(&statement(&own)));
    assert_eq!(shown(&evaluate(&policy, &own, vec![by(&a), by(&b)])).0, "present");
    folder.put("b.pub", &a.pem());
    policy.refresh();
    for forms in [vec![by(&a)], vec![by(&a), by(&a)], vec![by(&a), by(&b)], Vec::new()] {
        let (verdict, text) = shown(&evaluate(&policy, &own, forms));
        assert!(
            verdict == "unknown" && text.contains("the key b.pub: it is the same key as the key a.pub"),
            "{verdict}: {text}"
        );
    }
    folder.put("b.pub", &b.pem());
    policy.refresh();
    assert_eq!(shown(&evaluate(&policy, &own, vec![by(&a), by(&b)])).0, "present");
}

/// Two descriptions that fit one workflow need two workflows.
#[cfg(feature = "keyless")]
#[test]
fn one_workflow_is_not_two_signers() {
    use super::keyless::{ISSUER, Made, WORKFLOW};
    let made = Made::read();
    let keyless = |identity: &str| json!({"keyless": {"issuer": ISSUER, "identity": identity, "trustedRoot": "root.json", "transparencyLog": false}});
    let all = |identities: &[&str]| {
        let signers: Vec<Value> = identities.iter().map(|identity| keyless(identity)).collect();
        made.folder.policy(&json!({"signature": {"all": signers}}))
    };
    let documents = |names: &[&str]| names.iter().map(|name| bundle(&made.bundle(name))).collect::<Vec<_>>();
    let verdict_on = |policy: &Policy, names: &[&str]| shown(&evaluate(policy, made.digest(), documents(names)));
    // Both documents are by one workflow.
    let both = all(&["https://github.com/org/*", WORKFLOW]);
    for names in [&["good"][..], &["good", "signature"]] {
        let (verdict, text) = verdict_on(&both, names);
        assert!(
            verdict == "absent" && text.contains("counts for another signer already"),
            "{names:?}: {verdict}: {text}"
        );
    }
    // Another workflow signed too. It fits the wide description only, so that the other one is for the first.
    let other = "reusable workflow";
    for names in [["good", other], [other, "good"]] {
        assert_eq!(verdict_on(&both, &names).0, "present", "{names:?}");
        let reversed = all(&[WORKFLOW, "https://github.com/org/*"]);
        assert_eq!(verdict_on(&reversed, &names).0, "present", "{names:?}");
    }
    assert_eq!(verdict_on(&all(&["https://github.com/org/*", "https://github.com/*"]), &["good", other]).0, "present");
    assert_eq!(verdict_on(&both, &[other]).0, "absent");
}
