//! Several candidates and several signers.

use serde_json::json;

use super::{
    keys::{Owner, statement},
    *,
};

fn config(how: &str) -> Value {
    json!({"signature": {how: [{"key": {"file": "a.pub"}}, {"key": {"file": "b.pub"}}], "formats": ["bundle", "legacy"]}})
}

fn folder(a: &Owner, b: &Owner) -> Folder {
    Folder::with(&[("a.pub", &a.pem()), ("b.pub", &b.pem())])
}

#[test]
fn without_candidates_there_is_no_signature() {
    let (a, b) = (Owner::new(), Owner::new());
    let folder = folder(&a, &b);
    let of = |config: &Value| shown(&evaluate(&folder.policy(config), &digest('a'), Vec::new()));
    assert_eq!(of(&config("any")), ("absent", "there is no signature by one of the signers".to_owned()));
    let all = "there is no signature by the key a.pub; there is no signature by the key b.pub";
    assert_eq!(of(&config("all")), ("absent", all.to_owned()));
    let mut with_provenance = config("any");
    with_provenance["provenance"] = json!({});
    let text = "there is no signature by one of the signers; there is no provenance signed by one of the signers";
    assert_eq!(of(&with_provenance), ("absent", text.to_owned()));
}

#[test]
fn a_good_signature_is_not_spoiled() {
    let (a, b, other_owner) = (Owner::new(), Owner::new(), Owner::new());
    let policy = folder(&a, &b).policy(&config("any"));
    let own = digest('a');
    let broken = a.bundle(&statement(&digest('b')));
    let mut forms: Vec<_> = (0..1000).map(|_| bundle(&other_owner.bundle(&statement(&own)))).collect();
    let (verdict, text) = shown(&evaluate(&policy, &own, forms.clone()));
    assert!(verdict == "absent" && text.len() < 2000, "{verdict}: {} bytes", text.len());
    forms.extend([
        bundle(&broken),
        Form::Unsupported("x".into()),
        Form::Bundle("junk".into()),
        bundle(&b.bundle(&statement(&own))),
    ]);
    assert_eq!(shown(&evaluate(&policy, &own, forms)), ("present", "the key b.pub".to_owned()));
}

#[test]
fn all_signers_must_have_signed() {
    let (a, b) = (Owner::new(), Owner::new());
    let policy = folder(&a, &b).policy(&config("all"));
    let own = digest('a');
    let by = |owner: &Owner| bundle(&owner.bundle(&statement(&own)));
    let (verdict, text) = shown(&evaluate(&policy, &own, vec![by(&a), by(&a)]));
    assert!(verdict == "absent" && text.starts_with("there is no signature by the key b.pub"), "{verdict}: {text}");
    let PolicyVerdict::Present(proof) = evaluate(&policy, &own, vec![by(&b), by(&a)]) else { panic!() };
    assert_eq!(
        (&*proof.signer, proof.places),
        ("the key a.pub, the key b.pub", vec!["place 1".to_owned(), "place 0".to_owned()])
    );
}

#[test]
fn unknown_comes_before_bad_before_absent() {
    let (a, b, other_owner) = (Owner::new(), Owner::new(), Owner::new());
    let own = digest('a');
    let good = bundle(&a.bundle(&statement(&own)));
    let unknown = Form::Unsupported("x".into());
    let bad = bundle(&a.bundle(&statement(&digest('b'))));
    let foreign = bundle(&other_owner.bundle(&statement(&own)));
    let order = [("present", good), ("unknown", unknown), ("bad", bad), ("absent", foreign)];
    for how in ["any", "all"] {
        let policy = folder(&a, &b).policy(&config(how));
        for (first, (verdict, form)) in order.iter().enumerate() {
            for (_, other) in &order[first..] {
                for forms in [vec![form.clone(), other.clone()], vec![other.clone(), form.clone()]] {
                    let found = shown(&evaluate(&policy, &own, forms)).0;
                    // The other signer has not signed.
                    let expected = if how == "all" && *verdict == "present" { None } else { Some(*verdict) };
                    assert!(expected.is_none_or(|expected| expected == found), "{how} {verdict}: {found}");
                    assert!(how == "any" || found != "present");
                }
            }
        }
    }
}

#[test]
fn another_commit_comes_after_bad_and_before_absent() {
    let (a, b, other_owner) = (Owner::new(), Owner::new(), Owner::new());
    let mut config = config("any");
    config["provenance"] = json!({});
    let policy = folder(&a, &b).policy(&config);
    let own = digest('a');
    let built = |owner: &Owner, commit: &str| {
        let mut statement = statement(&own);
        statement["predicateType"] = json!("https://slsa.dev/provenance/v1");
        let source = json!({"uri": "git+https://git.example/a", "digest": {"gitCommit": commit}});
        statement["predicate"] = json!({"buildDefinition": {"resolvedDependencies": [source]}});
        bundle(&owner.bundle(&statement))
    };
    let [one, two] = ["1", "2"].map(|digit| digit.repeat(40));
    let verdict_on = |forms| shown(&evaluate_for_commit(&policy, &own, Some(&one), forms));
    assert_eq!(verdict_on(vec![built(&a, &two), built(&b, &one)]).0, "present");
    let (verdict, text) = verdict_on(vec![built(&a, &two)]);
    assert!(
        verdict == "other commit" && text.contains(&format!("names the commit {two}, not {one}")),
        "{verdict}: {text}"
    );
    assert_eq!(verdict_on(vec![built(&other_owner, &one), built(&a, &two)]).0, "other commit");
    assert_eq!(verdict_on(vec![bundle(&a.bundle(&statement(&digest('b')))), built(&a, &two)]).0, "bad");
    assert_eq!(verdict_on(vec![Form::Unsupported("x".into()), built(&a, &two)]).0, "unknown");
    let (verdict, text) = verdict_on(vec![bundle(&a.bundle(&statement(&own)))]);
    assert!(verdict == "absent" && text.contains("there is no provenance"), "{verdict}: {text}");
    assert_eq!(verdict_on(vec![built(&a, "main")]).0, "bad");
    let PolicyVerdict::Present(proof) = evaluate_for_commit(&policy, &own, None, vec![built(&a, &two)]) else {
        panic!()
    };
    assert_eq!(proof.commit, Some(two));
}

/// A document that was added is verified. Another commit needs only another verdict, and a further document only itself.
#[test]
fn documents_may_come_one_after_the_other() {
    let (a, b) = (Owner::new(), Owner::new());
    let mut config = config("all");
    config["provenance"] = json!({});
    let policy = folder(&a, &b).policy(&config);
    let own = digest('a');
    let [one, two] = ["1", "2"].map(|digit| digit.repeat(40));
    let built = |owner: &Owner, commit: &str| {
        let mut statement = statement(&own);
        statement["predicateType"] = json!("https://slsa.dev/provenance/v1");
        let source = json!({"uri": "git+https://git.example/a", "digest": {"gitCommit": commit}});
        statement["predicate"] = json!({"buildDefinition": {"resolvedDependencies": [source]}});
        bundle(&owner.bundle(&statement))
    };
    let mut check = policy.begin(vec![own.clone()]);
    assert_eq!(check.fingerprint(), policy.fingerprint());
    let mut documents: Vec<Form> = Vec::new();
    for (form, expected) in [
        (Form::Bundle("junk".into()), ["absent", "absent"]),
        (built(&a, &one), ["absent", "other commit"]),
        (built(&a, &two), ["absent", "absent"]),
        (built(&b, &two), ["present", "present"]),
    ] {
        check.add(&policy, &Candidate { place: format!("place {}", documents.len()), form: form.clone() });
        documents.push(form);
        for (commit, expected) in [&one, &two].into_iter().zip(expected) {
            let verdict = check.verdict(&policy, Some(commit));
            assert_eq!(verdict, evaluate_for_commit(&policy, &own, Some(commit), documents.clone()));
            assert_eq!(shown(&verdict).0, expected, "{} documents, {commit}: {verdict:?}", documents.len());
        }
    }
}

#[test]
fn a_commit_of_another_source_is_not_that_of_the_build() {
    let (a, b) = (Owner::new(), Owner::new());
    let mut config = config("any");
    config["provenance"] = json!({"repository": "https://git.example/a"});
    let policy = folder(&a, &b).policy(&config);
    let own = digest('a');
    let [one, two] = ["1", "2"].map(|digit| digit.repeat(40));
    let built = |sources: Value| {
        let mut statement = statement(&own);
        statement["predicateType"] = json!("https://slsa.dev/provenance/v1");
        let workflow = json!({"repository": "https://git.example/a"});
        statement["predicate"] = json!({"buildDefinition": {
            "externalParameters": {"workflow": workflow},
            "resolvedDependencies": sources,
        }});
        shown(&evaluate_for_commit(&policy, &own, Some(&one), vec![bundle(&a.bundle(&statement))]))
    };
    let source = |uri: &str, commit: &str| json!({"uri": uri, "digest": {"gitCommit": commit}});
    let (ours, theirs) =
        (source("git+https://git.example/a@refs/heads/main", &one), source("https://git.example/b", &two));
    assert_eq!(built(json!([ours, theirs])).0, "present");
    assert_eq!(built(json!([source("https://git.example/a.git", &one)])).0, "present");
    let (verdict, text) = built(json!([source("https://git.example/b", &one)]));
    assert!(verdict == "bad" && text.contains("its provenance names no commit"), "{verdict}: {text}");
    for uri in [
        "https://git.example/a/b",
        "https://git.example/ab",
        "https://git.example/b@https://git.example/a",
        "https://evil@git.example/a",
        "",
    ] {
        assert_eq!(built(json!([source(uri, &one)])).0, "bad", "{uri}");
    }
    let sha1 = json!({"uri": "git+https://git.example/a", "digest": {"sha1": one}});
    assert_eq!(built(json!([sha1])).0, "present");
}

#[test]
fn a_key_that_was_replaced_or_removed_counts_at_once() {
    let (a, b, next) = (Owner::new(), Owner::new(), Owner::new());
    let folder = folder(&a, &b);
    let policy = folder.policy(&config("any"));
    let own = digest('a');
    let by = |owner: &Owner| vec![bundle(&owner.bundle(&statement(&own)))];
    let first = policy.fingerprint();
    assert_eq!(first, folder.policy(&config("any")).fingerprint(), "nothing differs");
    assert_ne!(first, folder.policy(&config("all")).fingerprint());
    folder.put("a.pub", &next.pem());
    policy.refresh();
    let second = policy.fingerprint();
    assert_ne!(first, second);
    assert_eq!(shown(&evaluate(&policy, &own, by(&a))).0, "absent");
    assert_eq!(shown(&evaluate(&policy, &own, by(&next))).0, "present");
    std::fs::remove_file(folder.0.path().join("a.pub")).unwrap();
    policy.refresh();
    assert!(![first, second].contains(&policy.fingerprint()));
    assert!(policy.current().changes == 2 && !policy.current().is_complete);
    let since = policy.current().since;
    policy.refresh();
    assert_eq!(policy.current().since, since, "nothing has changed");
    let (verdict, text) = shown(&evaluate(&policy, &own, by(&next)));
    assert!(verdict == "unknown" && text.contains("a.pub: No such file"), "{verdict}: {text}");
    assert_eq!(shown(&evaluate(&policy, &own, by(&b))).0, "present", "the other key still counts");
    assert_eq!(shown(&evaluate(&policy, &own, Vec::new())).0, "absent", "it has no signature, with any key");
    folder.put("a.pub", "half a key");
    policy.refresh();
    let (verdict, text) = shown(&evaluate(&policy, &own, by(&next)));
    assert!(verdict == "unknown" && text.contains("it holds no public key"), "{verdict}: {text}");
    folder.put("a.pub", &next.pem());
    policy.refresh();
    assert_eq!(policy.fingerprint(), second);
    assert_eq!(
        policy.current(),
        KeysInUse { changes: 4, is_complete: true, ..policy.current() },
        "it was another in between"
    );
    assert_eq!(shown(&evaluate(&policy, &own, by(&next))).0, "present");
}
