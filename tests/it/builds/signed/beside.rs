//! What is beside an image: a thousand foreign signatures, pages that are missing, damaged documents, mirrors, indexes, older forms, and
//! lists of tags.

use serde_json::{Value, json};

use super::{
    super::{
        fake::{Endpoint, Fake, Image, sha},
        served_commit,
    },
    ask, ask_later, build, evidence, folder, proven, signed, start,
};
use crate::support::{
    TestApp,
    signing::{BUNDLE, Key},
    upstream::refused,
};

/// Foreign signatures spoil nothing. If there are more than are opened, an absence cannot be known.
#[tokio::test]
async fn a_thousand_foreign_signatures() {
    let (fake, key, foreign) = (Fake::start().await, Key::new(), Key::new());
    fake.has_referrers_api(100);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    let attach = |from: usize, to: usize| {
        for number in from..to {
            let commit = format!("{number:040x}");
            fake.attach(&digest, BUNDLE, &foreign.provenance(digest.as_str(), &commit));
        }
    };
    attach(0, 40);
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
    build(&fake, &key, 'a');
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    // The good one is among the first that are opened.
    attach(40, 1000);
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    // All are foreign: one of those that were not opened may be good.
    fake.detach(&digest);
    attach(0, 1000);
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    refused(&ask(&app, 'a').await, 502, "backend_output_invalid", "than the 128 that are opened");
}

/// A page of the list is missing. What was read counts; nothing is taken for absent.
#[tokio::test]
async fn a_page_of_the_list_is_missing() {
    let (fake, key, foreign) = (Fake::start().await, Key::new(), Key::new());
    fake.has_referrers_api(1);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    fake.attach(&digest, BUNDLE, &foreign.provenance(digest.as_str(), &sha('a')));
    fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha('a')));
    let index = |entries: &[&str], more: &str| {
        let entry = |digest: &&str| json!({"mediaType": "x", "digest": digest, "size": 1});
        let entries: Vec<Value> = entries.iter().map(entry).collect();
        let head = format!("Content-Type: application/vnd.oci.image.index.v1+json\r\nLink: <{more}>; rel=\"next\"");
        (head, json!({"schemaVersion": 2, "manifests": entries}).to_string())
    };
    for (link, says) in [
        ("?page=2", "500"),
        ("https://elsewhere.example/v2/org/app/referrers/x?page=2", "not of this list"),
        ("?page=1", "500"),
    ] {
        let first = index(&[], link);
        fake.fail(Endpoint::Referrers, move |request| {
            if request.target.contains('?') {
                request.answer(500, "", "")
            } else {
                request.answer(200, &first.0, &first.1)
            }
        });
        let app = start(folder(&key), &fake, &proven(&fake)).await;
        let reply = ask(&app, 'a').await;
        assert!(reply.status >= 502 && reply.text().contains(says), "{}", reply.text());
    }
    fake.heal();
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
}

/// A document that is listed and missing, or damaged, is a gap.
#[tokio::test]
async fn a_document_that_cannot_be_read_is_a_gap() {
    let (fake, key, foreign) = (Fake::start().await, Key::new(), Key::new());
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    let document = fake.attach(&digest, BUNDLE, &foreign.provenance(digest.as_str(), &sha('a')));
    fake.lose(&document);
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    let reply = ask(&app, 'a').await;
    assert!(reply.status >= 502 && reply.text().contains(document.as_str()), "{}", reply.text());
    // A layer of other bytes than its digest.
    fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha('a')));
    fake.fail(Endpoint::Config, |request| request.answer(200, "Content-Type: application/octet-stream", "other bytes"));
    let mut backend = proven(&fake);
    backend["revision"] = Value::Null;
    backend["provenance"]["commit"] = "{{ params.head_sha }}".into();
    let app = start(folder(&key), &fake, &backend).await;
    assert!(ask(&app, 'a').await.status >= 502);
    // The good one counts, whatever else cannot be read.
    fake.heal();
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    // A document of two megabytes is not read.
    let digest = Image::of('b').digest();
    fake.push("feat-1", &Image::of('b'));
    fake.attach(&digest, BUNDLE, &format!("{{\"x\": \"{}\"}}", "x".repeat(2 << 20)));
    assert_eq!(ask(&app, 'b').await.status, 200, "the last good answer of the lineage");
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    let reply = ask(&app, 'b').await;
    assert!(reply.text().contains("bytes that are read"), "{}", reply.text());
}

/// A mirror may lack what was signed later. It is never asked about signatures.
#[tokio::test]
async fn a_mirror_is_not_queried_for_signatures() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let mirrored = Fake::start().await;
    mirrored.push("feat-1", &Image::of('a'));
    mirrored.has_referrers_api(10);
    let registries =
        json!({fake.host(): {"plainHttp": true}, mirrored.host(): {"plainHttp": true, "mirrorOf": fake.host()}});
    let text = super::config(&fake, &proven(&fake), json!({}));
    let plain = json!({fake.host(): {"plainHttp": true}}).to_string();
    let app = TestApp::start_in(folder(&key), &text.replace(&plain, &registries.to_string())).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    let asked = mirrored.take();
    assert!(
        !asked.is_empty() && !asked.iter().any(|each| each.contains("referrers") || each.contains("sha256-")),
        "{asked:?}"
    );
    // The mirror has a list, and an empty one, which proves nothing.
    assert!(fake.take().iter().any(|each| each.contains("/referrers/")));
}

/// A signature of the index covers the image that is picked from it. One of that image counts too; one of another image does not.
#[tokio::test]
async fn an_index_and_its_images() {
    let (fake, key) = (Fake::start().await, Key::new());
    let pushed = fake.push_index("feat-1", &[("linux/amd64", 'a'), ("linux/arm64", 'a')]);
    let mut backend = proven(&fake);
    backend["images"]["app"]["platform"] = "linux/arm64".into();
    let mut whole = proven(&fake);
    whole["images"]["app"]["requirePlatforms"] = json!(["linux/arm64"]);
    let count =
        |reply: &crate::support::Reply| serde_json::from_str::<Value>(&reply.sets()).unwrap().as_array().unwrap().len();
    for (subject, picks, all) in [(1, 0, 0), (2, 1, 0), (0, 1, 1)] {
        let digest = &pushed[subject];
        fake.attach(digest, BUNDLE, &key.provenance(digest.as_str(), &sha('a')));
        let app = start(folder(&key), &fake, &backend).await;
        assert_eq!(count(&ask(&app, 'a').await), picks, "a signature of {subject}");
        let app = start(folder(&key), &fake, &whole).await;
        assert_eq!(count(&ask(&app, 'a').await), all, "a signature of {subject}");
        fake.detach(digest);
    }
}

/// A good signature of an image that is not in the index, put beside the index and beside the picked image: the signer never vouched for these.
#[tokio::test]
async fn a_signature_of_an_image_that_is_not_in_the_index() {
    let (fake, key) = (Fake::start().await, Key::new());
    let pushed = fake.push_index("feat-1", &[("linux/amd64", 'a'), ("linux/arm64", 'a')]);
    let mut backend = proven(&fake);
    backend["images"]["app"]["platform"] = "linux/arm64".into();
    let other = Image::of('b').digest();
    for subject in [&pushed[0], &pushed[2]] {
        fake.attach(subject, BUNDLE, &key.provenance(other.as_str(), &sha('a')));
        // An attestation of BuildKit: nobody signed it.
        let kind = "application/vnd.in-toto+json";
        let statement = json!({"_type": "https://in-toto.io/Statement/v1", "subject": [{"digest": {"sha256": subject.hex()}}],
            "predicateType": "https://slsa.dev/provenance/v1", "predicate": {}});
        fake.attach(subject, kind, &statement.to_string());
        let app = start(folder(&key), &fake, &backend).await;
        assert_eq!(ask(&app, 'a').await.sets(), "[]");
        let said = evidence(&app).await;
        let names_both = said.contains("\"refused\"") && said.contains(&format!("is about another digest, {other}"));
        assert!(names_both, "{said}");
        fake.detach(subject);
    }
    // The attestation alone is no signature.
    fake.attach(&pushed[2], "application/vnd.in-toto+json", "{}");
    let app = start(folder(&key), &fake, &backend).await;
    assert_eq!(ask(&app, 'a').await.sets(), "[]");
    let said = evidence(&app).await;
    assert!(!said.contains("\"refused\"") && said.contains("there is no signature"), "{said}");
}

/// An index that nobody signed must not lend its label to an older image that somebody signed.
#[tokio::test]
async fn the_label_of_an_unsigned_index_counts_for_nothing() {
    let (fake, key) = (Fake::start().await, Key::new());
    let mut backend = signed(&fake, None);
    backend["images"]["app"]["platform"] = "linux/amd64".into();
    let label = json!({"org.opencontainers.image.revision": sha('b')});
    let [index, old] = &fake.push_annotated_index("feat-1", &[("linux/amd64", 'a')], &label)[..] else { panic!() };
    fake.attach(old, BUNDLE, &key.signature(old.as_str()));
    let app = start(folder(&key), &fake, &backend).await;
    assert_eq!(ask(&app, 'b').await.sets(), "[]");
    fake.attach(index, BUNDLE, &key.signature(index.as_str()));
    let app = start(folder(&key), &fake, &backend).await;
    assert!(ask(&app, 'b').await.sets().contains(old.as_str()));
}

/// cosign's older signatures are looked for if they are wanted, at the cost of one request.
#[tokio::test]
async fn older_signatures() {
    let (fake, key, foreign) = (Fake::start().await, Key::new(), Key::new());
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    fake.attach_legacy(&digest, &[foreign.legacy(digest.as_str()), key.legacy(digest.as_str())]);
    let app = start(folder(&key), &fake, &signed(&fake, None)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
    let mut backend = signed(&fake, None);
    backend["signature"]["formats"] = json!(["bundle", "legacy"]);
    let app = start(folder(&key), &fake, &backend).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    backend["signature"]["formats"] = json!(["legacy"]);
    let app = start(folder(&key), &fake, &backend).await;
    fake.take();
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    assert!(!fake.take().iter().any(|each| each.contains("/referrers/")));
    // A payload of another image.
    fake.attach_legacy(&digest, &[key.legacy(Image::of('b').digest().as_str())]);
    let app = start(folder(&key), &fake, &backend).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
    let said = evidence(&app).await;
    assert!(said.contains("claims to be by"), "{said}");
}

/// A list selects signed tags only.
#[tokio::test]
async fn a_list_of_signed_tags() {
    let (fake, key) = (Fake::start().await, Key::new());
    let tags = json!({"name": "org/app", "tags": ["1.0.0", "1.1.0", "1.2.0"]}).to_string();
    for (tag, commit) in [("1.0.0", 'a'), ("1.1.0", 'b'), ("1.2.0", 'c')] {
        fake.push(tag, &Image::of(commit));
    }
    let sign = |commit: char| {
        let digest = Image::of(commit).digest();
        fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha(commit)));
    };
    fake.fail(Endpoint::List, move |request| request.answer(200, "Content-Type: application/json", &tags));
    sign('a');
    sign('b');
    let list = json!({"repositories": [format!("{}/org/app", fake.host())], "tags": {"semver": "*"}});
    let backend = |limit: Option<usize>| {
        let mut backend = proven(&fake);
        backend.as_object_mut().unwrap().retain(|key, _| key == "signature" || key == "provenance");
        backend["list"] = list.clone();
        backend["list"]["limit"] = json!(limit);
        backend
    };
    let text = |backend: &Value| {
        let output = json!({"output": {"tag": "{{ tag }}", "revision": "{{ revision }}"}, "lineage": null});
        super::config(&fake, backend, output)
    };
    let ask = async |app: &TestApp| {
        app.clock.advance(std::time::Duration::from_mins(7));
        let sets: Value = serde_json::from_str(&app.ask("a", json!({})).await.sets()).unwrap();
        let sets = sets.as_array().unwrap().clone();
        sets.iter()
            .map(|set| format!("{} {}", set["tag"].as_str().unwrap(), &set["revision"].as_str().unwrap()[..1]))
            .collect::<Vec<_>>()
    };
    let all = TestApp::start_in(folder(&key), &text(&backend(None))).await;
    assert_eq!(ask(&all).await, ["1.1.0 b", "1.0.0 a"]);
    let newest = TestApp::start_in(folder(&key), &text(&backend(Some(1)))).await;
    assert_eq!(ask(&newest).await, ["1.1.0 b"], "the limit counts signed tags");
    let said = evidence(&newest).await;
    assert!(said.contains("the signed provenance of") && said.contains("1.2.0"), "{said}");
    sign('c');
    assert_eq!(ask(&newest).await, ["1.2.0 c"]);
    // What is proven costs no request, but for the list and the heads.
    all.settle().await;
    assert_eq!(ask(&all).await.len(), 3);
    all.settle().await;
    fake.take();
    assert_eq!(ask(&all).await.len(), 3);
    all.settle().await;
    let asked = fake.take();
    assert!(!asked.iter().any(|each| each.contains("sha256-") || each.contains("/blobs/")), "{asked:?}");
}

/// Many callers at once: one search.
#[tokio::test]
async fn equal_searches_are_made_once() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    let asked = |route: &'static str| app.ask(route, json!({"branch": "feat/1", "head_sha": sha('a')}));
    let (one, other) = tokio::join!(asked("a"), asked("b"));
    assert_eq!((served_commit(&one), served_commit(&other)), ("a".to_owned(), "a".to_owned()));
    let searches = fake.take().into_iter().filter(|each| each.contains("/referrers/")).count();
    assert_eq!(searches, 1);
}
