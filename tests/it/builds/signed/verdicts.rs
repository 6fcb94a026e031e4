//! The five verdicts, and the cost of each in requests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    super::{
        fake::{Endpoint, Fake, Image, sha},
        served_commit,
    },
    ask, ask_later, build, evidence, folder, proven, signed, start,
};
use crate::support::{
    signing::{BUNDLE, Key},
    upstream::refused,
};

/// How many images the route refused.
async fn refusals(app: &crate::support::TestApp) -> u64 {
    app.metric("appset_gateway_refused_images_total{route=\"a\"}").await
}

#[tokio::test]
async fn an_image_is_served_once_its_provenance_is_signed() {
    let (fake, key) = (Fake::start().await, Key::new());
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    fake.push("feat-1", &Image::of('a'));
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
    let said = evidence(&app).await;
    assert!(said.contains("its signed provenance") && said.contains("no fallback tag"), "{said}");
    build(&fake, &key, 'a');
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    let said = evidence(&app).await;
    assert!(said.contains("by its signed provenance; its label agrees") && said.contains("cosign.pub"), "{said}");
}

/// What is proven costs no request, also for the second route, and after a restart.
#[tokio::test]
async fn a_proof_is_kept() {
    let (fake, key) = (Fake::start().await, Key::new());
    let folder = folder(&key);
    build(&fake, &key, 'a');
    let text = format!("cache: {{ path: answers.redb }}\n{}", super::config(&fake, &proven(&fake), json!({})));
    let app = crate::support::TestApp::start_in(folder, &text).await;
    app.app.open_disk();
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    fake.take();
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    app.settle().await;
    let asked = fake.take();
    assert!(asked.iter().all(|each| each.starts_with("HEAD ")), "{asked:?}");
}

/// The list of requests for a new digest with one document, by API and by fallback tag.
#[tokio::test]
async fn a_new_digest_costs_as_many_requests_as_documented() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    let beside = || fake.take().into_iter().filter(|each| !each.contains("feat-1")).count() - 2;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    // The API's 404, the tag, a manifest and a layer. The image itself is a manifest and a configuration.
    assert_eq!(beside(), 4);
    build(&fake, &key, 'b');
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "b");
    assert_eq!(beside(), 3, "it is remembered that there is no API");
    let with_api = Fake::start().await;
    with_api.has_referrers_api(10);
    build(&with_api, &key, 'a');
    let app = start(folder(&key), &with_api, &proven(&with_api)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    assert_eq!(with_api.take().into_iter().filter(|each| !each.contains("feat-1")).count() - 2, 3);
}

#[tokio::test]
async fn provenance_of_another_commit_is_not_built_yet() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    // The label names the head, and CI built the merge.
    let image = Image::of('b');
    fake.push("feat-1", &image);
    fake.attach(&image.digest(), BUNDLE, &key.provenance(image.digest().as_str(), &sha('e')));
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    let said = evidence(&app).await;
    assert!(said.contains(&sha('e')), "{said}");
    // The tag is still that of the commit before: label and proof agree, and nothing more is asked.
    fake.push("feat-1", &Image::of('a'));
    fake.take();
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    let asked = fake.take();
    assert!(!asked.iter().any(|each| each.contains("referrers") || each.contains("sha256-")), "{asked:?}");
}

/// A label of another commit than the proven one: one of them is wrong.
#[tokio::test]
async fn a_label_that_contradicts_the_proof_is_bad() {
    let (fake, key) = (Fake::start().await, Key::new());
    let image = Image::of('b');
    fake.push("feat-1", &image);
    fake.attach(&image.digest(), BUNDLE, &key.provenance(image.digest().as_str(), &sha('a')));
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
    let said = evidence(&app).await;
    assert!(said.contains("one of them is wrong") && said.contains("\"refused\""), "{said}");
    assert_eq!(refusals(&app).await, 1);
}

/// A registry that does not know makes the whole answer unknown, never an absence.
#[tokio::test]
async fn a_registry_that_does_not_say_is_an_error() {
    let (fake, key) = (Fake::start().await, Key::new());
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    fake.push("feat-1", &Image::of('a'));
    for (status, body, says) in [
        (401, "{}", "401"),
        (403, "{}", "403"),
        (429, "{}", "429"),
        (500, "", "500"),
        (404, "<html>nginx</html>", "not in the words of a registry"),
        (200, "<html>welcome</html>", "content type"),
        (200, "{\"schemaVersion\": 2, \"manifests\": null}", "no list of documents"),
    ] {
        fake.fail(Endpoint::Referrers, move |request| {
            let kind = if body.starts_with("{\"s") { "application/vnd.oci.image.index.v1+json" } else { "text/html" };
            request.answer(status, &format!("Content-Type: {kind}"), body)
        });
        let reply = ask_later(&app, 'a').await;
        assert!(reply.status >= 500 || reply.status == 429, "{status}: {}", reply.text());
        assert!(reply.text().contains(says), "{status}: {}", reply.text());
    }
    fake.fail(Endpoint::Referrers, |_| vec![crate::support::upstream::Step::Reset]);
    assert!(ask_later(&app, 'a').await.status != 200);
    // What is proven needs nobody.
    fake.heal();
    build(&fake, &key, 'a');
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    fake.fail(Endpoint::Referrers, |request| request.answer(500, "", ""));
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
}

/// A document that claims the key and fails is bad: the digest is not served, and the commit before is.
#[tokio::test]
async fn a_forged_document_is_bad_and_a_good_one_beside_it_counts() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    let image = Image::of('b');
    fake.push("feat-1", &image);
    let good: Value = serde_json::from_str(&key.provenance(image.digest().as_str(), &sha('b'))).unwrap();
    let mut forged = good.clone();
    forged["dsseEnvelope"]["signatures"][0]["sig"] = STANDARD.encode(b"no signature").into();
    fake.attach(&image.digest(), BUNDLE, &forged.to_string());
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    let said = evidence(&app).await;
    assert!(said.contains("claims to be by") && said.contains("\"refused\""), "{said}");
    assert_eq!(refusals(&app).await, 1, "one run");
    fake.attach(&image.digest(), BUNDLE, &good.to_string());
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "b");
}

/// A signature without provenance: the label names the commit as before.
#[tokio::test]
async fn a_signature_alone_leaves_the_label_its_place() {
    let (fake, key) = (Fake::start().await, Key::new());
    let image = Image::of('a');
    fake.push("feat-1", &image);
    fake.attach(&image.digest(), BUNDLE, &key.signature(image.digest().as_str()));
    let app = start(folder(&key), &fake, &signed(&fake, None)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    fake.take();
    assert_eq!(served_commit(&ask(&app, 'b').await), "a, stale");
    assert!(!fake.take().iter().any(|each| each.contains("sha256-")), "the label decides without the signature");
    // The same, where only provenance would do.
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
}

/// Two parameters for one commit is a mistake of the caller.
#[tokio::test]
async fn revision_and_provenance_name_one_commit() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let backend = signed(&fake, Some(json!({"commit": "{{ params.commit }}"})));
    let app = start(folder(&key), &fake, &backend).await;
    let asked = |commit: char| json!({"branch": "feat/1", "head_sha": sha('a'), "commit": sha(commit)});
    assert_eq!(served_commit(&app.ask("a", asked('a')).await), "a");
    refused(&app.ask("a", asked('b')).await, 422, "invalid_input", "let both name one parameter");
}
