//! Gates that walk back to an earlier commit: an answer contains only images that are proven to be of that commit.

use std::time::Duration;

use serde_json::json;

use super::{
    ask,
    fake::{Fake, Image, sha},
    previews, served_commit, start,
};
use crate::support::upstream::refused;

#[tokio::test]
async fn the_gate_walks_back_to_a_commit_with_images_of_that_commit() {
    let fake = Fake::start().await;
    let mut backend = previews(&fake);
    backend["images"]["app"]["image"] = format!("{}/org/app:sha-{{{{ commit }}}}", fake.host()).into();
    backend["gate"]["github"]["walkBack"] = 3.into();
    let app = start(&fake, &backend, json!({"cache": {"ttl": "0s"}, "lineage": null})).await;
    fake.history("dcba");
    // No commit passed so far, and the history is complete.
    assert_eq!(served_commit(&ask(&app, "main", 'c').await), "nothing");
    fake.run('a', "completed", Some("success"));
    fake.push(&format!("sha-{}", sha('a')), &Image::of('a'));
    fake.run('b', "completed", Some("failure"));
    let reply = ask(&app, "main", 'c').await;
    assert_eq!(served_commit(&reply), "a, stale");
    // The earlier history is unknown.
    let mut backend = backend.clone();
    backend["gate"]["github"]["walkBack"] = 1.into();
    let near = start(&fake, &backend, json!({"cache": {"ttl": "0s"}, "lineage": null})).await;
    refused(&ask(&near, "main", 'c').await, 502, "backend_output_invalid", "walkBack");
    fake.run('c', "completed", Some("success"));
    fake.push(&format!("sha-{}", sha('c')), &Image::of('c'));
    app.clock.advance(Duration::from_mins(2));
    assert_eq!(served_commit(&ask(&app, "main", 'c').await), "c");
}

/// A gate that walks back rules on an earlier commit. The image of the failed commit is not an image of that commit.
#[tokio::test]
async fn a_verdict_on_an_earlier_commit_does_not_pass_a_later_image() {
    let fake = Fake::start().await;
    fake.history("ba");
    fake.run('a', "completed", Some("success"));
    fake.run('b', "completed", Some("failure"));
    fake.push(&sha('a'), &Image::of('a'));
    fake.push("main", &Image::of('b'));
    let mut backend = previews(&fake);
    backend["gate"]["github"]["walkBack"] = 1.into();
    let app = start(&fake, &backend, json!({"lineage": null})).await;
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "nothing");
    assert_eq!(served_commit(&ask(&app, &sha('a'), 'b').await), "a, stale");
}

#[tokio::test]
async fn a_gate_without_a_commit_passes_no_earlier_commit() {
    let fake = Fake::start().await;
    fake.history("ba");
    fake.run('a', "completed", Some("success"));
    fake.push(&format!("sha-{}", sha('a')), &Image::of('a'));
    let mut backend = previews(&fake);
    backend["images"]["app"]["image"] = format!("{}/org/app:sha-{{{{ commit }}}}", fake.host()).into();
    let mut github = backend["gate"].clone();
    github["github"]["walkBack"] = 1.into();
    let http = json!({"http": {"url": format!("{}/ci", fake.url()), "verdict": "status == 404 ? 'passed' : 'failed'"}});
    backend["gate"] = json!({"all": [github, http]});
    let app = start(&fake, &backend, json!({"lineage": null})).await;
    refused(&ask(&app, "main", 'b').await, 502, "backend_output_invalid", "does not say which commit");
}
