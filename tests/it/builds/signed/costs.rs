//! What a hostile pusher can cost: many documents, many or repeated layers, and large ones. Requests are bounded and the deadline is kept. A good
//! signature among them is found, or the answer is an error: never *not signed*.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use oci::Digest;
use serde_json::json;

use super::{
    super::{
        fake::{Fake, Image, sha},
        served_commit,
    },
    ask, ask_later, config, folder, proven, start,
};
use crate::support::{
    Reply, TestApp,
    signing::{BUNDLE, Key},
};

/// A bundle of somebody else about `digest`.
fn foreign(key: &Key, digest: &Digest, number: usize) -> String {
    key.provenance(digest.as_str(), &format!("{number:040x}"))
}

/// How often each blob, and how often each manifest by digest, was read.
fn counted(asked: &[String]) -> (HashMap<&str, usize>, HashMap<&str, usize>) {
    let (mut blobs, mut manifests) = (HashMap::new(), HashMap::new());
    for target in asked.iter().filter(|each| each.starts_with("GET ")) {
        let (path, digest) = target.rsplit_once('/').unwrap();
        match path {
            path if path.ends_with("/blobs") => *blobs.entry(digest).or_default() += 1,
            path if path.ends_with("/manifests") && digest.starts_with("sha256:") => {
                *manifests.entry(digest).or_default() += 1;
            }
            _ => {}
        }
    }
    (blobs, manifests)
}

#[track_caller]
fn is_error(reply: &Reply, says: &str) {
    assert!(reply.status >= 500 && reply.text().contains(says), "{}: {}", reply.status, reply.text());
}

/// 40 documents name the same 60 layers. Each blob is read once, and the good signature at the end is found.
#[tokio::test]
async fn repeated_layers_are_read_once() {
    let (fake, key, stranger) = (Fake::start().await, Key::new(), Key::new());
    fake.has_referrers_api(100);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    let layers: Vec<String> = (0..60).map(|number| foreign(&stranger, &digest, number)).collect();
    for _ in 0..40 {
        fake.attach_layers(&digest, BUNDLE, &layers, layers[0].len());
    }
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "nothing");
    let asked = fake.take();
    let (blobs, manifests) = counted(&asked);
    // The image's own configuration and manifest too.
    assert_eq!((blobs.len(), manifests.len()), (61, 41));
    assert!(blobs.values().chain(manifests.values()).all(|times| *times == 1), "{asked:?}");
    fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha('a')));
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
}

/// The index and the picked image have 100 documents of 100 small layers each. They share one budget. A good signature that is listed first
/// counts; one at the end is not reached, which is an error.
#[tokio::test]
async fn an_index_and_its_image_share_one_budget() {
    let (fake, key, stranger) = (Fake::start().await, Key::new(), Key::new());
    fake.has_referrers_api(1000);
    let pushed = fake.push_index("feat-1", &[("linux/amd64", 'a')]);
    let mut backend = proven(&fake);
    backend["images"]["app"]["platform"] = "linux/amd64".into();
    let attach = |at: usize| {
        for document in 0..100 {
            let of = |layer: usize| foreign(&stranger, &pushed[at], 1000 * (at + 1) + 100 * document + layer);
            let layers: Vec<String> = (0..if document == 0 { 100 } else { 5 }).map(of).collect();
            fake.attach_layers(&pushed[at], BUNDLE, &layers, layers[0].len());
        }
    };
    attach(0);
    attach(1);
    let good = key.provenance(pushed[1].as_str(), &sha('a'));
    fake.attach(&pushed[1], BUNDLE, &good);
    let app = start(folder(&key), &fake, &backend).await;
    is_error(&ask(&app, 'a').await, "than the 128 that are");
    let asked = fake.take();
    let (blobs, manifests) = counted(&asked);
    assert!(blobs.len() <= 128 + 1 && manifests.len() <= 128 + 2, "{} {}", blobs.len(), manifests.len());
    let image = Digest::of(Image::of('a').config().as_bytes());
    let own = |digest: &str| pushed.iter().chain([&image]).any(|own| own.as_str() == digest);
    let repeated: Vec<_> = blobs.iter().chain(&manifests).filter(|(name, times)| **times > 1 && !own(name)).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    fake.detach(&pushed[0]);
    fake.attach(&pushed[0], BUNDLE, &key.provenance(pushed[0].as_str(), &sha('a')));
    attach(0);
    let app = start(folder(&key), &fake, &backend).await;
    let sets = ask(&app, 'a').await.sets();
    assert!(sets.contains(pushed[1].as_str()), "{sets}");
}

/// Large documents take long to judge. Whatever the deadline, the answer is in time, and never *not signed*.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_are_slow_to_judge() {
    let (fake, key) = (Fake::start().await, Key::new());
    fake.has_referrers_api(100);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    for number in 0..12 {
        let values = format!("[{number}{}]", ",0".repeat(400_000));
        fake.attach(&digest, BUNDLE, &format!("{{\"mediaType\": \"{BUNDLE}\", \"verificationMaterial\": {values}}}"));
    }
    fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha('a')));
    for (deadline, may_be) in [("300ms", false), ("600ms", false), ("25s", true)] {
        let text = config(&fake, &proven(&fake), json!({"deadline": deadline}));
        let app = TestApp::start_in(folder(&key), &text).await;
        let began = Instant::now();
        let reply = ask(&app, 'a').await;
        if reply.status == 200 {
            assert_eq!(served_commit(&reply), "a", "{deadline}");
        } else {
            assert!(!may_be && reply.status >= 500, "{deadline}: {}: {}", reply.status, reply.text());
            assert!(began.elapsed() < Duration::from_secs(20), "{deadline}: {:?}", began.elapsed());
        }
    }
}

/// A valid bundle of 10 MB is not read, whatever its manifest says of its size. That is an error, and hides no other one.
#[tokio::test]
async fn a_bundle_of_ten_megabytes() {
    for honest in [true, false] {
        let (fake, key) = (Fake::start().await, Key::new());
        let digest = Image::of('a').digest();
        fake.push("feat-1", &Image::of('a'));
        let good = key.provenance(digest.as_str(), &sha('a'));
        let large = format!("{good}{}", " ".repeat(10_000_000));
        let size = if honest { large.len() } else { 1000 };
        fake.attach_layers(&digest, BUNDLE, std::slice::from_ref(&large), size);
        let app = start(folder(&key), &fake, &proven(&fake)).await;
        is_error(&ask(&app, 'a').await, if honest { "bytes that are read" } else { "is larger than" });
        let layer = Digest::of(large.as_bytes());
        let asked = fake.take().iter().filter(|each| each.ends_with(layer.as_str())).count();
        assert_eq!(asked, usize::from(!honest));
        fake.attach(&digest, BUNDLE, &good);
        assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    }
}

/// A document or a layer that the registry fails to give hides no good signature behind it.
#[tokio::test]
async fn a_damaged_document_hides_no_good_one() {
    for status in [401, 403, 404, 500] {
        for breaks_layer in [true, false] {
            let (fake, key, stranger) = (Fake::start().await, Key::new(), Key::new());
            fake.has_referrers_api(100);
            let digest = Image::of('a').digest();
            fake.push("feat-1", &Image::of('a'));
            for number in 0..2 {
                let bundle = foreign(&stranger, &digest, number);
                let document = fake.attach(&digest, BUNDLE, &bundle);
                let damaged = if breaks_layer { Digest::of(bundle.as_bytes()) } else { document };
                fake.damage(&damaged, status);
            }
            let app = start(folder(&key), &fake, &proven(&fake)).await;
            is_error(&ask(&app, 'a').await, &status.to_string());
            fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha('a')));
            let app = start(folder(&key), &fake, &proven(&fake)).await;
            assert_eq!(served_commit(&ask(&app, 'a').await), "a", "{status} {breaks_layer}");
        }
    }
}

/// The registry fails for all documents. It is asked for a few of them only.
#[tokio::test]
async fn a_registry_that_fails_is_left_alone() {
    let (fake, key, stranger) = (Fake::start().await, Key::new(), Key::new());
    fake.has_referrers_api(100);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    for number in 0..100 {
        fake.damage(&fake.attach(&digest, BUNDLE, &foreign(&stranger, &digest, number)), 403);
    }
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    is_error(&ask(&app, 'a').await, "403");
    let asked = fake.take();
    let (_, manifests) = counted(&asked);
    // Three failures, and what was under way besides: eight are read at once.
    assert!(manifests.len() <= 3 + 8 + 1, "{asked:?}");
}

/// "No API" is remembered. Before an image is taken for not signed, the API is asked all the same: a proxy may have answered once, or the
/// registry has the API since.
#[tokio::test]
async fn a_remembered_lack_of_the_api_is_no_absence() {
    let (fake, key, stranger) = (Fake::start().await, Key::new(), Key::new());
    super::build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    // The next image has a foreign document under its fallback tag, and a good one by the API.
    let digest = Image::of('b').digest();
    fake.push("feat-1", &Image::of('b'));
    let old = fake.attach(&digest, BUNDLE, &foreign(&stranger, &digest, 1));
    fake.gets_referrers_api(10);
    fake.attach(&digest, BUNDLE, &key.provenance(digest.as_str(), &sha('b')));
    fake.take();
    app.clock.advance(Duration::from_mins(2));
    assert_eq!(served_commit(&ask(&app, 'b').await), "b");
    let asked = fake.take();
    let times = |part: &str| asked.iter().filter(|each| each.contains(part)).count();
    assert_eq!((times("sha256-"), times("/referrers/"), times(old.as_str())), (1, 1, 1), "{asked:?}");
}

/// A registry without the API, whose fallback tag lists foreign documents only: one more request than for a signed image.
#[tokio::test]
async fn not_signed_costs_one_more_request() {
    let (fake, key, stranger) = (Fake::start().await, Key::new(), Key::new());
    super::build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    let digest = Image::of('b').digest();
    fake.push("feat-1", &Image::of('b'));
    fake.attach(&digest, BUNDLE, &foreign(&stranger, &digest, 1));
    fake.take();
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    let asked = fake.take();
    let beside = asked.iter().filter(|each| !each.contains("feat-1")).count() - 2;
    // The tag, a manifest and a layer, and the API.
    assert_eq!(beside, 4, "{asked:?}");
}

/// One digest in two repositories, of which one has the signature. A signature names a digest, so the proof holds for both; that there is none
/// is known of one repository only.
#[tokio::test]
async fn one_digest_in_two_repositories() {
    for asks_signed_first in [true, false] {
        let (fake, key) = (Fake::start().await, Key::new());
        super::build(&fake, &key, 'a');
        fake.document_only("org/app");
        let mut backend = proven(&fake);
        let image = format!("{}/org/{{{{ params.name }}}}:{{{{ params.branch | tag }}}}", fake.host());
        backend["images"]["app"]["image"] = image.into();
        let app = start(folder(&key), &fake, &backend).await;
        let ask = async |name: &str, branch: &str| {
            app.clock.advance(Duration::from_mins(7));
            let reply = app.ask("a", json!({"branch": branch, "head_sha": sha('a'), "name": name})).await;
            served_commit(&reply)
        };
        if asks_signed_first {
            assert_eq!(ask("app", "feat/1").await, "a");
            fake.take();
            assert_eq!(ask("copy", "feat-1").await, "a");
            let asked = fake.take();
            assert!(!asked.iter().any(|each| each.contains("sha256-") || each.contains("/referrers/")), "{asked:?}");
        } else {
            assert_eq!(ask("copy", "feat-1").await, "nothing");
            assert_eq!(ask("copy", "feat-1").await, "nothing");
            assert_eq!(ask("app", "feat/1").await, "a");
            assert_eq!(ask("copy", "feat-1").await, "a");
        }
    }
}

/// A hostile document lists the good bundle as a signature of the older form, before the good document does. It is read once, and judged as both.
#[tokio::test]
async fn a_good_bundle_may_also_be_listed_as_something_else() {
    let (fake, key) = (Fake::start().await, Key::new());
    fake.has_referrers_api(100);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    let good = key.provenance(digest.as_str(), &sha('a'));
    fake.attach(&digest, "application/vnd.dev.cosign.simplesigning.v1+json", &good);
    fake.attach(&digest, BUNDLE, &good);
    let mut backend = proven(&fake);
    backend["signature"]["formats"] = json!(["bundle", "legacy"]);
    let app = start(folder(&key), &fake, &backend).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    let asked = fake.take();
    let (blobs, _) = counted(&asked);
    assert_eq!(blobs[Digest::of(good.as_bytes()).as_str()], 1, "{asked:?}");
}
