//! Images that CI built for a commit: registry, image label and CI verdict in one answer, from the call to Argo CD's
//! decoder. Registry and forge are fakes that count requests, except in the example of the plugin generator's proposal.

mod counts;
pub(crate) mod fake;
mod faults;
mod platforms;
mod previews;
mod problems;
mod refused;
mod signed;
mod walk_back;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use self::fake::{Endpoint, Fake, Image, sha};
use crate::support::{Reply, TestApp, Verdict, registry::Registry, upstream::refused};

/// A configuration with the routes `a` and `b`, which both have `backend`.
fn config(fake: &Fake, backend: &Value, more: Value) -> String {
    let output = json!({
        "digest": "{{ app.digest }}", "revision": "{{ revision }}", "stale": "{{ stale }}", "builtAt": "{{ builtAt }}",
        "runUrl": "{{ runUrl }}",
    });
    let mut route = json!({"backend": {"digests": backend}, "output": output, "lineage": ["branch"], "deadline": "5s"});
    let Value::Object(more) = more else { panic!("{more}") };
    route.as_object_mut().unwrap().extend(more);
    let named = |name: &str| {
        let mut route = route.clone();
        route["name"] = name.into();
        route
    };
    let registries = json!({fake.host(): {"plainHttp": true}});
    format!("{}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!([named("a"), named("b")]))
}

/// A backend for previews: one tag per branch, its revision, and a GitHub workflow.
fn previews(fake: &Fake) -> Value {
    json!({
        "images": {"app": {"image": format!("{}/org/app:{{{{ params.branch | tag }}}}", fake.host())}},
        "revision": {"expect": "{{ params.head_sha }}"},
        "gate": {"github": {"api": fake.url(), "repository": "org/app", "workflows": ["build.yml"]}},
    })
}

async fn start(fake: &Fake, backend: &Value, more: Value) -> TestApp {
    TestApp::start(&config(fake, backend, more)).await
}

async fn ask(app: &TestApp, branch: &str, commit: char) -> Reply {
    app.ask("a", json!({"branch": branch, "head_sha": sha(commit)})).await
}

/// The commit whose image `reply` contains, with `, stale` for an earlier commit; `nothing` for an empty answer.
#[track_caller]
fn served_commit(reply: &Reply) -> String {
    let sets: Value = serde_json::from_str(&reply.sets()).unwrap();
    match &sets.as_array().unwrap()[..] {
        [] => "nothing".to_owned(),
        [set] => {
            let revision = set["revision"].as_str().unwrap();
            let image = Image::of(revision.chars().next().unwrap_or('-'));
            assert_eq!(set["digest"], image.digest().as_str(), "{set}");
            let stale = if set["stale"] == "true" { ", stale" } else { "" };
            format!("{}{stale}", revision.chars().next().unwrap())
        }
        more => panic!("{more:?}"),
    }
}

#[tokio::test]
async fn a_preview_stays_on_the_last_passed_commit_while_the_next_is_built() {
    let fake = Fake::start().await;
    let app = start(&fake, &previews(&fake), json!({"cache": {"ttl": "60s"}})).await;
    // There is no image yet, and there never was one.
    assert_eq!(served_commit(&ask(&app, "feat/1", 'a').await), "nothing");
    fake.push("feat-1", &Image::of('a'));
    fake.run('a', "in_progress", None);
    app.clock.advance(Duration::from_secs(20));
    app.settle().await;
    let until_built = async |commit: char, expected: &str| {
        for _ in 0..20 {
            app.clock.advance(Duration::from_secs(70));
            if served_commit(&ask(&app, "feat/1", commit).await) == expected {
                return;
            }
            app.settle().await;
        }
        panic!("never {expected}: {}", ask(&app, "feat/1", commit).await.text());
    };
    assert_eq!(served_commit(&ask(&app, "feat/1", 'a').await), "nothing");
    fake.run('a', "completed", Some("success"));
    until_built('a', "a").await;
    let set: Value = serde_json::from_str(&ask(&app, "feat/1", 'a').await.sets()).unwrap();
    assert_eq!(set[0]["runUrl"], "https://github.com/org/app/actions/runs/1");
    assert_eq!(set[0]["builtAt"], "2026-07-20T01:01:13Z");

    // The next commit: no run yet, then a run, a push of its image, and a failed run.
    assert_eq!(served_commit(&ask(&app, "feat/1", 'b').await), "a, stale");
    fake.run('b', "in_progress", None);
    until_built('b', "a, stale").await;
    fake.push("feat-1", &Image::of('b'));
    until_built('b', "a, stale").await;
    fake.run('b', "completed", Some("failure"));
    until_built('b', "a, stale").await;
    // The answer stays the same for days.
    for _ in 0..5 {
        app.clock.advance(Duration::from_hours(20));
        assert_eq!(served_commit(&ask(&app, "feat/1", 'b').await), "a, stale");
        app.settle().await;
    }
    // The commit after that passes.
    assert_eq!(served_commit(&ask(&app, "feat/1", 'c').await), "a, stale");
    fake.push("feat-1", &Image::of('c'));
    fake.run('c', "completed", Some("success"));
    until_built('c', "c").await;
    // Another branch does not get these images.
    assert_eq!(served_commit(&ask(&app, "feat/2", 'b').await), "nothing");
}

/// `diff` gets the notes of earlier answers, as a running gateway has them. Else it would tell of a loss that does not happen.
#[tokio::test(flavor = "multi_thread")]
async fn diff_knows_the_images_that_stand_in() {
    let fake = Fake::start().await;
    let text = config(&fake, &previews(&fake), json!({"cache": {"ttl": "60s"}}));
    let app = TestApp::start(&text).await;
    fake.push("feat-1", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    assert_eq!(served_commit(&ask(&app, "feat/1", 'a').await), "a");
    fake.run('b', "in_progress", None);
    assert_eq!(served_commit(&ask(&app, "feat/1", 'b').await), "a, stale");
    std::fs::write(app.folder.path().join("next.yaml"), text).unwrap();
    std::fs::write(app.folder.path().join("token"), crate::support::ADMIN_TOKEN).unwrap();
    let url = format!("http://{}", app.admin);
    let arguments = ["diff", "-c", "next.yaml", "--token-file", "token", "--against", &url];
    let done = crate::support::binary::command().args(arguments).current_dir(app.folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("2 the same, 0 different") && done.status.success(), "{said}");
}

/// The `digests` step keeps its state between runs when it is inside a pipeline or a merge.
#[tokio::test]
async fn a_preview_in_a_pipeline_and_a_merge_stays_too() {
    let fake = Fake::start().await;
    let labels = json!({"fixed": {"parameters": [{"stale": true, "tier": "b"}, {"stale": false, "tier": "a"}]}});
    let merge = json!({"merge": {"mergeKeys": ["stale"], "backends": [{"digests": previews(&fake)}, labels]}});
    let output = json!({"revision": "{{ revision }}", "tier": "{{ tier }}"});
    let route = json!({"name": "a", "lineage": ["branch"], "output": output, "cache": {"ttl": "60s"},
        "backend": {"pipeline": [merge, {"select": "items"}]}});
    let registries = json!({fake.host(): {"plainHttp": true}});
    let app =
        TestApp::start(&format!("{}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!([route]))).await;
    fake.push("feat-1", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    let expected = |tier: &str| format!("[{{\"revision\":\"{}\",\"tier\":\"{tier}\"}}]", sha('a'));
    assert_eq!(ask(&app, "feat/1", 'a').await.sets(), expected("a"));
    fake.run('b', "in_progress", None);
    for _ in 0..3 {
        assert_eq!(ask(&app, "feat/1", 'b').await.sets(), expected("b"));
        app.settle().await;
        app.clock.advance(Duration::from_hours(20));
    }
}

#[tokio::test]
async fn invalid_commit_ids_are_refused() {
    let fake = Fake::start().await;
    let app = start(&fake, &previews(&fake), json!({})).await;
    for (commit, says) in
        [("", "empty"), ("aaaaaaa", "shortened"), ("main", "not a commit"), (&sha('a')[..39], "shortened")]
    {
        let reply = app.ask("a", json!({"branch": "main", "head_sha": commit})).await;
        refused(&reply, 422, "invalid_input", says);
    }
    assert!(fake.asked().is_empty(), "{:?}", fake.asked());
}

#[tokio::test]
async fn the_error_for_a_merge_commit_explains_it() {
    let fake = Fake::start().await;
    fake.push("pr-12", &Image::of('b'));
    fake.run('a', "completed", Some("success"));
    let mut backend = previews(&fake);
    backend["onMissing"] = "error".into();
    let app = start(&fake, &backend, json!({})).await;
    let message = refused(&ask(&app, "pr-12", 'a').await, 422, "invalid_input", "not built");
    assert!(message.contains("DOCKER_METADATA_PR_HEAD_SHA") && message.contains(&sha('b')), "{message}");
}

/// A restart keeps all immutable contents, and a new commit finds the commit before.
#[tokio::test]
async fn a_restart_does_not_read_contents_again() {
    let fake = Fake::start().await;
    fake.push("main", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    let config = config(&fake, &previews(&fake), json!({}));
    let app = TestApp::start(&format!("cache: {{ path: data }}\n{config}")).await;
    app.app.open_disk();
    assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a");
    assert!(fake.take().iter().any(|asked| asked.starts_with("GET /v2/")));
    let app = app.restart(async |_| tokio::time::sleep(Duration::from_millis(300)).await).await;
    app.app.open_disk();
    app.clock.advance(Duration::from_mins(10));
    assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a");
    app.settle().await;
    let asked = fake.take();
    assert!(!asked.is_empty() && !asked.iter().any(|asked| asked.starts_with("GET /v2/")), "{asked:?}");
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "a, stale");
}

/// A gate's token and the interim answer do not change which images were built.
#[tokio::test]
async fn a_preview_survives_the_renaming_of_its_token_file() {
    let fake = Fake::start().await;
    fake.push("main", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    let folder = tempfile::tempdir().unwrap();
    for name in ["token", "token-2026"] {
        std::fs::write(folder.path().join(name), "secret").unwrap();
    }
    let backend = |token: &str, workflow: &str, on_missing: &str| {
        let mut backend = previews(&fake);
        backend["onMissing"] = on_missing.into();
        backend["gate"]["github"]["token"] = json!({"file": token});
        backend["gate"]["github"]["workflows"] = json!([workflow]);
        format!("cache: {{ path: data }}\n{}", config(&fake, &backend, json!({"cache": {"ttl": "60s"}})))
    };
    let app = TestApp::start_in(folder, &backend("token", "build.yml", "omit")).await;
    app.app.open_disk();
    assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a");
    let app = app.restart_as(&backend("token-2026", "build.yml", "error")).await;
    app.app.open_disk();
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "a, stale");
    // A commit that another gate passed is no answer here.
    let app = app.restart_as(&backend("token-2026", "Build", "error")).await;
    app.app.open_disk();
    refused(&ask(&app, "main", 'c').await, 502, "backend_failed", "of another configuration");
}

/// An answer that was empty before the branch had a build is asked for again: another ApplicationSet may have been first.
#[tokio::test]
async fn an_earlier_empty_answer_does_not_remove_a_later_build() {
    let fake = Fake::start().await;
    let app = start(&fake, &previews(&fake), json!({})).await;
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "nothing");
    fake.push("main", &Image::of('a'));
    fake.run('a', "completed", Some("success"));
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a");
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "a, stale");
    fake.fail(Endpoint::Gate, |request| request.answer(503, "", ""));
    app.clock.advance(Duration::from_mins(20));
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "a, stale");
}

/// The digest first read from a tag is judged by its own contents, even if the tag moves meanwhile.
#[tokio::test]
async fn a_tag_that_moves_during_a_run_keeps_its_first_digest() {
    let fake = Fake::start().await;
    fake.push("main", &Image::of('a'));
    fake.push("main", &Image::of('b'));
    let backend = json!({
        "images": {"app": {"image": format!("{}/org/app:main", fake.host())}}, "revision": {"expect": "{{ params.head_sha }}"},
    });
    let app = start(&fake, &backend, json!({"lineage": null})).await;
    let was = format!("Content-Type: application/json\r\nDocker-Content-Digest: {}", Image::of('a').digest());
    fake.fail(Endpoint::Tag, move |request| request.answer(200, &was, ""));
    assert_eq!(served_commit(&ask(&app, "main", 'a').await), "a");
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "nothing");
    fake.heal();
    app.clock.advance(Duration::from_mins(2));
    assert_eq!(served_commit(&ask(&app, "main", 'b').await), "b");
}

#[tokio::test]
async fn an_unbuilt_image_is_an_error_or_the_configured_placeholder() {
    let fake = Fake::start().await;
    let mut backend = previews(&fake);
    backend["onMissing"] = "placeholder".into();
    let building = format!("registry.example.com/org/building:1@{}", Image::of('f').digest());
    backend["images"]["app"]["placeholder"] = building.into();
    let app = start(&fake, &backend, json!({})).await;
    let reply = ask(&app, "main", 'a').await;
    let expected = json!([{"digest": Image::of('f').digest().as_str(), "revision": "", "stale": "true", "builtAt": "", "runUrl": ""}]);
    assert_eq!(serde_json::from_str::<Value>(&reply.sets()).unwrap(), expected);
    // The evidence for the answer is readable.
    let served_commit = app.operate("/admin/answers", None).await.text();
    assert!(
        served_commit.contains("the placeholder")
            && served_commit.contains("404, the registry has no such tag")
            && served_commit.contains("no run"),
        "{served_commit}"
    );
    backend["revision"]["expect"] = "{{ params.other }}".into();
    backend["onMissing"] = "error".into();
    let app = start(&fake, &backend, json!({})).await;
    let parameters = json!({"branch": "main", "head_sha": sha('a'), "other": sha('b')});
    refused(&app.ask("a", parameters).await, 422, "invalid_input", "let both name one parameter");
    let parameters = json!({"branch": "main", "head_sha": sha('a'), "other": sha('a')});
    refused(&app.ask("a", parameters).await, 422, "invalid_input", "not built: app: absent");
}

/// Answers looked up before an invalidation do not outlive it, not even for callers that ask meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_looked_up_before_an_invalidation_outlives_it() {
    let fake = Fake::start().await;
    let backend = json!({"images": {"app": {"image": format!("{}/org/app:main", fake.host())}}});
    let more = json!({"output": {"digest": "{{ app.digest }}"}, "lineage": null, "cache": {"ttl": "10m"}});
    let app = TestApp::start(&format!("cache: {{ path: data }}\n{}", config(&fake, &backend, more))).await;
    app.app.open_disk();
    for round in 0..20 {
        let image = Image::numbered(round);
        fake.push("main", &image);
        let answers = AtomicBool::new(false);
        let asking = async {
            while !answers.load(Ordering::SeqCst) {
                app.ask("a", json!({})).await;
            }
        };
        let invalidating = async {
            app.operate("/admin/answers/invalidate", Some(json!({"route": "a"}))).await;
            answers.store(true, Ordering::SeqCst);
        };
        tokio::join!(asking, invalidating);
        app.settle().await;
        assert!(app.ask("a", json!({})).await.sets().contains(image.digest().as_str()), "round {round}");
    }
}

/// The use case of the proposal behind the plugin generator: two branches with two images each.
#[tokio::test]
async fn the_matrix_of_the_plugin_generator_proposal_works() {
    let registry = Registry::start().await;
    for branch in ["feature-branch-1", "feature-branch-2"] {
        for image in ["front", "back"] {
            registry.push(&format!("{image}:{branch}"), &format!("argo-test/{image}:{branch}")).await;
        }
    }
    let image = |name: &str| json!({"image": format!("{}/{{{{ params.repo }}}}/{name}:{{{{ params.branch | tag }}}}", registry.host)});
    let route = json!({
        "name": "matrix", "match": {"applicationSet": "fb-matrix"},
        "backend": {"digests": {"images": {"front": image("front"), "back": image("back")}}},
        "output": {"digestFront": "{{ front.digest }}", "digestBack": "{{ back.digest }}"},
    });
    let registries = json!({&registry.host: {"plainHttp": true}});
    let app =
        TestApp::start(&format!("{}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!([route]))).await;
    let mut digests = BTreeSet::new();
    for branch in ["feature-branch-1", "feature-branch-2"] {
        let body = json!({"applicationSetName": "fb-matrix", "input": {"parameters": {"repo": "argo-test", "branch": branch}}});
        let reply = app.call("/api/v1/getparams.execute", &body).await;
        let digest = async |image: &str| registry.inspect(&format!("argo-test/{image}:{branch}")).await;
        let (front, back) = (digest("front").await, digest("back").await);
        let expected = format!(r#"{{"output":{{"parameters":[{{"digestFront":"{front}","digestBack":"{back}"}}]}}}}"#);
        assert_eq!(reply.text(), expected);
        assert!(matches!(reply.verdict(), Verdict::Parameters(sets) if sets.len() == 1));
        digests.extend([front, back]);
    }
    assert_eq!(digests.len(), 4, "each image of each branch is another");
}
