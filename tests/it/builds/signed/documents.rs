//! Documents beside an image of forms that are not supported, and lists of them that are hostile: each is an error with its own reason, and
//! spoils no good signature.

use super::{
    super::{
        fake::{Endpoint, Fake, Image, sha},
        served_commit,
    },
    ask, build, folder, proven, start,
};
use crate::support::{
    signing::{BUNDLE, Key},
    upstream::{Request, Step},
};

/// The number of the page that follows another one.
type Next = fn(u32) -> u32;

/// Notation, and attestations without a bundle.
#[tokio::test]
async fn forms_that_are_not_supported() {
    for (kind, says) in [
        ("application/vnd.cncf.notary.signature", "a signature of Notation"),
        ("application/vnd.dsse.envelope.v1+json", "an attestation without a bundle"),
    ] {
        let (fake, key) = (Fake::start().await, Key::new());
        let digest = Image::of('a').digest();
        fake.push("feat-1", &Image::of('a'));
        fake.attach(&digest, kind, "{}");
        let app = start(folder(&key), &fake, &proven(&fake)).await;
        let reply = ask(&app, 'a').await;
        let message = format!("signatures of this form are not supported: {says}");
        assert!(reply.status == 502 && reply.text().contains(&message), "{kind}: {}", reply.text());
        build(&fake, &key, 'a');
        let app = start(folder(&key), &fake, &proven(&fake)).await;
        assert_eq!(served_commit(&ask(&app, 'a').await), "a", "{kind}");
    }
}

/// The answer of the referrers API to `request`: a page with `manifests`, and a link to the page `next` if there is one.
fn page(request: &Request, manifests: &str, next: &str) -> Vec<Step> {
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{manifests}]}}"#);
    let more = if next.is_empty() { String::new() } else { format!("\r\nLink: <?page={next}>; rel=\"next\"") };
    request.answer(200, &format!("Content-Type: application/vnd.oci.image.index.v1+json{more}"), index)
}

/// The number of the page that is asked for; 0 for the first one.
fn asked_page(request: &Request) -> u32 {
    request.target.split_once("?page=").map_or(0, |(_, page)| page.parse().unwrap())
}

/// Lists without an end, lists that contradict themselves, and digests that are none. The good signature is in none of them.
#[tokio::test]
async fn lists_that_are_hostile() {
    let (fake, key) = (Fake::start().await, Key::new());
    fake.has_referrers_api(10);
    build(&fake, &key, 'a');
    let entry = r#"{"mediaType":"x","digest":"sha256:x","size":1}"#;
    let repeated = r#"{"digest":"DIGEST","digest":"DIGEST"}"#.replace("DIGEST", Image::of('a').digest().as_str());
    // A circle, and no end; and how many pages are read.
    let pages: [(Next, usize); 2] = [(|page| if page == 1 { 2 } else { 1 }, 3), (|page| page + 1, 101)];
    for (next, expected) in pages {
        fake.fail(Endpoint::Referrers, move |request| page(request, "", &next(asked_page(request)).to_string()));
        let app = start(folder(&key), &fake, &proven(&fake)).await;
        fake.take();
        let reply = ask(&app, 'a').await;
        assert!(reply.status == 502 && reply.text().contains("its pages lead in a circle"), "{}", reply.text());
        let asked = fake.take().iter().filter(|each| each.contains("/referrers/")).count();
        assert_eq!(asked, expected);
    }
    for (manifests, says) in [(entry, "a referrer of the image"), (&*repeated, "the key `digest` stands twice")] {
        let manifests = manifests.to_owned();
        fake.fail(Endpoint::Referrers, move |request| page(request, &manifests, ""));
        let app = start(folder(&key), &fake, &proven(&fake)).await;
        let reply = ask(&app, 'a').await;
        assert!(reply.status == 502 && reply.text().contains(says), "{says}: {}", reply.text());
    }
    fake.heal();
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
}

/// A document, and a bundle in it, with a key that stands twice: two readers could see two different ones.
#[tokio::test]
async fn a_key_that_stands_twice() {
    let (fake, key) = (Fake::start().await, Key::new());
    fake.has_referrers_api(10);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    let good = key.provenance(digest.as_str(), &sha('a'));
    let twice = good.replacen('{', &format!(r#"{{"mediaType":"{BUNDLE}","#), 1);
    fake.attach(&digest, BUNDLE, &twice);
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(ask(&app, 'a').await.sets(), "[]");
    let said = super::evidence(&app).await;
    assert!(said.contains("the key `mediaType` stands twice"), "{said}");
    // The same in the manifest of a document.
    let document = fake.attach_manifest(&digest, r#"{"schemaVersion":2,"layers":[],"layers":[]}"#);
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    let reply = ask(&app, 'a').await;
    let names = reply.text().contains("the key `layers` stands twice") && reply.text().contains(document.as_str());
    assert!(reply.status == 502 && names, "{}", reply.text());
}
