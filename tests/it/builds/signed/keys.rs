//! Keys that are removed or added: no answer, stale answer or last build lives on that the present keys do not vouch for.

use std::time::Duration;

use serde_json::json;

use super::{
    super::{
        fake::{Endpoint, Fake, Image, sha},
        served_commit,
    },
    ask, ask_later, build, folder, proven, replace, start,
};
use crate::support::{
    signing::{BUNDLE, Key},
    upstream::{Step, refused},
};

/// A fresh answer of a removed key is not served, although it would be for a minute.
#[tokio::test]
async fn a_removed_key_does_not_live_on_in_the_cache() {
    let (fake, key, other) = (Fake::start().await, Key::new(), Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    replace(app.folder.path(), &other).await;
    // There is nothing by the other key. The last build is not good any more, and an empty answer would delete what it made.
    let reply = ask(&app, 'a').await;
    refused(&reply, 502, "backend_failed", "no longer signed as the configuration demands");
    // The registry is down: no stale answer stands in either.
    fake.fail(Endpoint::Tag, |request| request.answer(500, "", ""));
    let reply = ask_later(&app, 'a').await;
    assert!(reply.status >= 500, "{}", reply.text());
    fake.heal();
    // The other key signs.
    let digest = Image::of('a').digest();
    fake.attach(&digest, BUNDLE, &other.provenance(digest.as_str(), &sha('a')));
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    // The former key comes back: its proof is still known.
    fake.take();
    replace(app.folder.path(), &key).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    assert!(!fake.take().iter().any(|each| each.contains("sha256-")), "a proof is kept by key");
}

/// A key file that cannot be read verifies nothing, and is no absence.
#[tokio::test]
async fn a_key_that_cannot_be_read_is_unknown() {
    let (fake, key) = (Fake::start().await, Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    std::fs::remove_file(app.folder.path().join("cosign.pub")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    for _ in 0..2 {
        let reply = ask_later(&app, 'a').await;
        assert_eq!(reply.status, 502, "{}", reply.text());
    }
    key.write(&app.folder.path().join("cosign.pub"));
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
}

/// The same with an image that `platform` picked: the signature of its index counts, even if the index itself is not in the answer, and
/// another image is under the tag since.
#[tokio::test]
async fn a_last_build_of_before_signatures_is_verified_with_its_index() {
    let (fake, key) = (Fake::start().await, Key::new());
    let mut signed = super::signed(&fake, None);
    signed["images"]["app"]["platform"] = "linux/arm64".into();
    let mut unsigned = signed.clone();
    unsigned.as_object_mut().unwrap().remove("signature");
    let text = |backend| format!("cache: {{ path: answers.redb }}\n{}", super::config(&fake, backend, json!({})));
    let [index, _, picked] = &fake.push_index("feat-1", &[("linux/amd64", 'a'), ("linux/arm64", 'a')])[..] else {
        panic!()
    };
    let app = crate::support::TestApp::start_in(folder(&key), &text(&unsigned)).await;
    app.app.open_disk();
    assert!(ask(&app, 'a').await.sets().contains(picked.as_str()));
    // Not built yet: the note of this answer has the last build too.
    fake.push_index("feat-1", &[("linux/amd64", 'b'), ("linux/arm64", 'b')]);
    assert!(ask_later(&app, 'c').await.sets().contains(picked.as_str()));
    let app = app.restart_as(&text(&signed)).await;
    app.app.open_disk();
    refused(&ask_later(&app, 'c').await, 502, "backend_failed", "no longer signed as the configuration demands");
    fake.attach(index, BUNDLE, &key.signature(index.as_str()));
    assert!(ask_later(&app, 'c').await.sets().contains(picked.as_str()));
}

/// The key changes while an answer is made: it is not known by which keys that was verified, so nothing is served or kept.
#[tokio::test]
async fn a_key_that_changes_while_an_answer_is_made() {
    let (fake, key, other) = (Fake::start().await, Key::new(), Key::new());
    fake.has_referrers_api(10);
    let digest = Image::of('a').digest();
    fake.push("feat-1", &Image::of('a'));
    let document = fake.attach(&digest, BUNDLE, &other.provenance(digest.as_str(), &sha('a')));
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    let entry = json!({"mediaType": "x", "digest": document.as_str(), "size": 1});
    let listed = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let file = app.folder.path().join("cosign.pub");
    let other_pem = {
        let elsewhere = tempfile::tempdir().unwrap();
        other.write(&elsewhere.path().join("pem"));
        std::fs::read_to_string(elsewhere.path().join("pem")).unwrap()
    };
    fake.fail(Endpoint::Referrers, move |request| {
        std::fs::write(&file, &other_pem).unwrap();
        let mut steps = request.answer(200, "Content-Type: application/vnd.oci.image.index.v1+json", &listed);
        // Later than the file is looked at again.
        let Step::Send(mut answer) = steps.remove(0) else { panic!() };
        steps.insert(0, Step::Send(answer.split_off(1)));
        steps.insert(0, Step::Drip(answer, Duration::from_millis(1200)));
        steps
    });
    refused(&ask(&app, 'a').await, 502, "backend_failed", "changed while");
    fake.heal();
    replace(app.folder.path(), &key).await;
    let reply = ask_later(&app, 'a').await;
    assert_eq!(served_commit(&reply), "nothing", "the earlier key signed nothing");
    replace(app.folder.path(), &other).await;
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
}

/// The last build stands in under new keys only if they vouch for it. It is verified again, with its index and commit.
#[tokio::test]
async fn the_last_build_is_verified_under_the_present_keys() {
    let (fake, key, other) = (Fake::start().await, Key::new(), Key::new());
    build(&fake, &key, 'a');
    let app = start(folder(&key), &fake, &proven(&fake)).await;
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    // The next commit is not signed. The last build stands in.
    fake.push("feat-1", &Image::of('b'));
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    replace(app.folder.path(), &other).await;
    refused(&ask(&app, 'b').await, 502, "backend_failed", "the last build cannot be served meanwhile");
    // The registry does not say whether the other key signed it: unknown.
    fake.fail(Endpoint::Referrers, |request| request.answer(500, "", ""));
    assert_eq!(ask_later(&app, 'b').await.status, 502);
    fake.heal();
    let digest = Image::of('a').digest();
    fake.attach(&digest, BUNDLE, &other.provenance(digest.as_str(), &sha('a')));
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
}

/// A signature is demanded of a route that served without one. Its last build was never verified, and is verified now.
#[tokio::test]
async fn a_last_build_of_before_signatures_is_verified() {
    let (fake, key) = (Fake::start().await, Key::new());
    let image = Image::of('a');
    fake.push("feat-1", &image);
    let unsigned = {
        let mut backend = super::signed(&fake, None);
        backend.as_object_mut().unwrap().remove("signature");
        backend
    };
    let folder = folder(&key);
    let text = |backend| format!("cache: {{ path: answers.redb }}\n{}", super::config(&fake, backend, json!({})));
    let app = crate::support::TestApp::start_in(folder, &text(&unsigned)).await;
    app.app.open_disk();
    assert_eq!(served_commit(&ask(&app, 'a').await), "a");
    let app = app.restart_as(&text(&super::signed(&fake, None))).await;
    app.app.open_disk();
    fake.push("feat-1", &Image::of('b'));
    refused(&ask(&app, 'b').await, 502, "backend_failed", "no longer signed as the configuration demands");
    fake.attach(&image.digest(), BUNDLE, &key.signature(image.digest().as_str()));
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    // After a restart, the proof is in the note: only the new image is asked about.
    let app = app.restart(async |_| {}).await;
    app.app.open_disk();
    fake.take();
    assert_eq!(served_commit(&ask_later(&app, 'b').await), "a, stale");
    let old = format!("sha256-{}", &image.digest().as_str()["sha256:".len()..]);
    let asked = fake.take();
    assert!(!asked.iter().any(|each| each.contains(&old)), "{asked:?}");
}
