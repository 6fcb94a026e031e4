//! Signatures are demanded by a candidate first: the comparison names what is not signed, and callers never notice.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    super::{
        fake::{Fake, Image, sha},
        previews, served_commit,
    },
    ask_later, config, folder, signed,
};
use crate::support::{
    TestApp,
    signing::{BUNDLE, Key},
};

/// The counts of the comparison, once `total` have ended.
async fn counts(app: &TestApp, total: u64) -> Value {
    loop {
        let counts = app.operate("/admin/shadow", None).await.json()["shadows"][0]["counts"].clone();
        if counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>() >= total {
            return counts;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_candidate_shows_what_is_not_signed() {
    let (fake, key) = (Fake::start().await, Key::new());
    let image = Image::of('a');
    fake.push("feat-1", &image);
    let mut unsigned = previews(&fake);
    unsigned.as_object_mut().unwrap().remove("gate");
    let shadow = json!({"backend": {"digests": signed(&fake, Some(json!({})))}});
    let app = TestApp::start_in(folder(&key), &config(&fake, &unsigned, json!({ "shadow": shadow }))).await;

    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    let found = counts(&app, 1).await;
    assert_eq!((&found["differs"], &found["same"]), (&json!(1), &json!(0)));
    let report = app.operate("/admin/shadow", None).await.json();
    assert_eq!(report["shadows"][0]["differences"][0]["removed"]["count"], 1, "{report}");

    fake.attach(&image.digest(), BUNDLE, &key.provenance(image.digest().as_str(), &sha('a')));
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    assert_eq!(counts(&app, 2).await["same"], 1);

    // Its key is gone. That concerns the candidate alone: the route's answers stay fresh.
    std::fs::remove_file(app.folder.path().join("cosign.pub")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let reply = super::ask(&app, 'a').await;
    assert!(reply.header("cache-status").unwrap().contains("hit"), "{}", reply.text());
    assert_eq!(served_commit(&ask_later(&app, 'a').await), "a");
    assert_eq!(counts(&app, 3).await["candidateError"], 1);
}
