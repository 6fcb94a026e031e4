//! The number of requests to others: one for equal questions, none for contents that cannot have changed.

use std::time::Duration;

use serde_json::json;

use super::{
    config,
    fake::{Endpoint, Fake, Image, sha},
    previews, served_commit, start,
};
use crate::support::{
    TestApp,
    issuer::unix_now,
    upstream::{Step, refused, response},
};

/// 200 pull requests with two images each, asked about repeatedly: one HEAD per image and ttl, and nothing else.
#[tokio::test]
async fn contents_are_read_once_and_tags_once_per_ttl() {
    let fake = Fake::start().await;
    let image = |name: &str| json!({"image": format!("{}/org/{name}:{{{{ params.branch }}}}", fake.host())});
    let backend = json!({
        "images": {"app": image("app"), "back": image("back")}, "revision": {"expect": "{{ params.head_sha }}"},
    });
    let app = TestApp::start(&format!("cache: {{ path: data }}\n{}", config(&fake, &backend, json!({})))).await;
    app.app.open_disk();
    for pull in 0..200 {
        fake.push(&format!("pr-{pull}"), &Image::numbered(pull));
    }
    let round = async |app: &TestApp| {
        for pull in 0..200 {
            let commit = Image::numbered(pull).revision;
            let reply = app.ask("a", json!({"branch": format!("pr-{pull}"), "head_sha": commit})).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert_ne!(reply.sets(), "[]");
        }
        app.settle().await;
    };
    round(&app).await;
    let first = fake.take();
    assert_eq!(first.iter().filter(|asked| asked.starts_with("HEAD")).count(), 400);
    for _ in 0..3 {
        round(&app).await;
        assert_eq!(fake.take(), [""; 0], "all of it is fresh");
        app.clock.advance(Duration::from_secs(70));
        round(&app).await;
        let asked = fake.take();
        assert!(asked.iter().all(|asked| asked.starts_with("HEAD /v2/org/")), "{asked:?}");
        assert_eq!(asked.len(), 400);
    }
    // A restart forgets the tags, but not the contents behind them.
    let app = app.restart(async |_| tokio::time::sleep(Duration::from_millis(300)).await).await;
    app.app.open_disk();
    round(&app).await;
    let asked = fake.take();
    assert!(asked.iter().all(|asked| asked.starts_with("HEAD /v2/org/")), "{asked:?}");
    assert_eq!(asked.len(), 400);
    round(&app).await;
    assert_eq!(fake.take(), [""; 0], "all of it is fresh");
}

/// A tag that names a full commit id does not move, so it is asked for every ten minutes. Other tags: with each run.
#[tokio::test]
async fn a_tag_of_a_full_commit_id_is_cached_for_ten_minutes() {
    let fake = Fake::start().await;
    let tag = sha('a');
    for tag in [&*tag, "main", &tag[..8]] {
        fake.push(tag, &Image::of('a'));
        let backend = json!({"images": {"app": {"image": format!("{}/org/app:{{{{ params.branch }}}}", fake.host())}}});
        let more = json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null, "cache": {"ttl": "60s"}});
        let app = start(&fake, &backend, more).await;
        let is_whole = tag.len() == 40;
        // In minutes since the previous run.
        for (wait, is_asked) in [(0, true), (9, !is_whole), (2, true), (9, !is_whole), (2, true)] {
            app.clock.advance(Duration::from_mins(wait));
            assert_ne!(app.ask("a", json!({"branch": tag})).await.sets(), "[]");
            app.settle().await;
            let expected = vec![format!("HEAD /v2/org/app/manifests/{tag}"); usize::from(is_asked)];
            assert_eq!(fake.take(), expected, "{tag}, {wait} minutes later");
        }
    }
}

/// Routes with the same account share its rate limit: once it is used up, none of them asks.
#[tokio::test]
async fn an_exhausted_rate_limit_stops_all_routes_of_the_account() {
    let reset = unix_now() + 600;
    let spent = format!("X-RateLimit-Limit: 5000\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {reset}");
    for (status, headers) in [(429, "Retry-After: 600".to_owned()), (403, spent)] {
        let fake = Fake::start().await;
        fake.push("main", &Image::of('a'));
        fake.run('a', "completed", Some("success"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "secret").unwrap();
        let mut backend = previews(&fake);
        backend["gate"]["github"]["token"] = json!({"file": "token"});
        let app = TestApp::start_in(folder, &config(&fake, &backend, json!({"cache": {"ttl": "0s"}}))).await;
        let gate = || fake.take().into_iter().filter(|asked| asked.contains("/repos/")).count();
        fake.fail(Endpoint::Gate, move |_| vec![Step::Send(response(status, &headers, "{}"))]);
        let parameters = |commit| json!({"branch": "main", "head_sha": sha(commit)});
        refused(&app.ask("a", parameters('a')).await, 429, "throttled", "gate: ");
        assert_eq!(gate(), 1, "{status}");
        fake.heal();
        for commit in ['a', 'b'] {
            refused(&app.ask("b", parameters(commit)).await, 429, "throttled", "this account pauses");
        }
        assert_eq!(gate(), 0, "{status}");
        app.clock.advance(Duration::from_secs(602));
        assert_eq!(served_commit(&app.ask("b", parameters('a')).await), "a");
        assert_eq!(gate(), 1, "{status}");
    }
}

#[tokio::test]
async fn routes_share_their_lookups() {
    let fake = Fake::start().await;
    fake.push("main", &Image::of('a'));
    let backend = json!({"images": {"app": {"image": format!("{}/org/app:{{{{ params.branch }}}}", fake.host())}}});
    let output = json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null});
    let app = start(&fake, &backend, output).await;
    let parameters = || json!({"branch": "main"});
    let (one, other) = tokio::join!(app.ask("a", parameters()), app.ask("b", parameters()));
    assert_eq!(one.sets(), other.sets());
    assert_eq!(fake.take(), ["HEAD /v2/org/app/manifests/main"]);
    // An invalidation by an operator leads to new requests.
    app.operate("/admin/answers/invalidate", Some(json!({"route": "a"}))).await;
    assert_eq!(app.ask("a", parameters()).await.sets(), one.sets());
    assert_eq!(fake.take(), ["HEAD /v2/org/app/manifests/main"]);
}
