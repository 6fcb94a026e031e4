//! The example of all previews on GitHub (`config/examples/previews-github.yaml`), against a list in pages, a registry and CI.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};

use super::fake::{Fake, Image, sha};
use crate::support::{Reply, TOKEN, TestApp, upstream::Upstream};

/// The list's first page.
const PULLS: &str = "/repos/org/repo/pulls?state=open&per_page=100";

/// The pages of the list, with one pull request each. GitHub fails at a page that is null.
type Pages = Arc<Mutex<Vec<Value>>>;

/// A pull request, as far as GitHub's list of them is read.
fn pull(number: u64, commit: char, label: &str) -> Value {
    let labels = json!([{"id": 208_045_946, "name": "bug"}, {"id": 208_045_947, "name": label}]);
    json!({
        "id": number, "number": number, "state": "open", "labels": labels,
        "head": {"ref": format!("feature/{number}"), "sha": sha(commit)}, "base": {"ref": "main"},
    })
}

/// GitHub's list of pull requests.
async fn list(pages: &Pages) -> Upstream {
    let pages = Arc::clone(pages);
    Upstream::start(move |request| {
        let pages = pages.lock().unwrap();
        assert!(request.target.starts_with(PULLS), "{}", request.target);
        let number: usize = request.target.split_once("&page=").map_or(1, |(_, number)| number.parse().unwrap());
        let page = &pages[number - 1];
        if page.is_null() {
            return request.answer(502, "Content-Type: text/html", "<h1>Unicorn</h1>");
        }
        let host = request.header("host").unwrap();
        let next = format!("\r\nLink: <http://{host}{PULLS}&page={}>; rel=\"next\"", number + 1);
        let next = if number < pages.len() { &*next } else { "" };
        request.answer(200, &format!("Content-Type: application/json; charset=utf-8{next}"), json!([page]).to_string())
    })
    .await
}

/// A gateway with the example.
async fn start(list: &Upstream, fake: &Fake) -> TestApp {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples/previews-github.yaml");
    let mut config = std::fs::read_to_string(file).unwrap();
    let changes = [
        ("https://api.github.com", format!("http://{}", list.address)),
        ("{ dockerConfig: secrets/docker-config.json }", "{ plainHttp: true }".to_owned()),
        ("ghcr.io", fake.host()),
        ("repository: org/repo", format!("api: {}\n                  repository: org/repo", fake.url())),
    ];
    for (from, to) in changes {
        assert!(config.contains(from), "the example has no `{from}`");
        config = config.replace(from, &to);
    }
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    std::fs::write(secrets.join("argocd-token"), TOKEN).unwrap();
    std::fs::write(secrets.join("github-token"), "hunter2").unwrap();
    TestApp::start_in(folder, &config).await
}

/// The answer ten minutes later.
async fn ask_later(app: &TestApp) -> Reply {
    app.clock.advance(Duration::from_mins(10));
    let body = json!({"applicationSetName": "previews-github", "input": {"parameters": {}}});
    app.call("/api/v1/getparams.execute", &body).await
}

/// The number of each preview, and the commit that its images are of.
#[track_caller]
fn previews(reply: &Reply) -> Vec<(String, char)> {
    let sets: Vec<Value> = serde_json::from_str(&reply.sets()).unwrap();
    let preview = |set: &Value| {
        let commit = set["revision"].as_str().unwrap().chars().next().unwrap();
        let digest = Image::of(commit).digest();
        assert_eq!([&set["digestFront"], &set["digestBack"]], [digest.as_str(); 2], "{set}");
        (set["number"].as_str().unwrap().to_owned(), commit)
    };
    sets.iter().map(preview).collect()
}

#[tokio::test]
async fn a_registry_that_fails_for_one_preview_stops_no_other_one() {
    let fake = Fake::start().await;
    let pages = Pages::default();
    let github = list(&pages).await;
    let app = start(&github, &fake).await;
    let build = |number: u64, commit: char| {
        fake.push(&format!("pr-{number}"), &Image::of(commit));
        fake.run(commit, "completed", Some("success"));
    };
    build(7, 'a');
    build(8, 'b');
    *pages.lock().unwrap() = vec![pull(7, 'a', "preview"), pull(9, 'd', "docs"), pull(8, 'b', "preview")];
    assert_eq!(previews(&ask_later(&app).await), [("7".to_owned(), 'a'), ("8".to_owned(), 'b')]);
    let tokens = github.requests().into_iter().map(|request| request.header("authorization").map(str::to_owned));
    assert_eq!(tokens.collect::<Vec<_>>(), vec![Some("Bearer hunter2".to_owned()); 3]);

    // The image of 7 cannot be read any more. 8 follows its new commit.
    fake.damage(&Image::of('a').digest(), 503);
    build(8, 'c');
    *pages.lock().unwrap() = vec![pull(7, 'a', "preview"), pull(8, 'c', "preview")];
    let expected = [("7".to_owned(), 'a'), ("8".to_owned(), 'c')];
    assert_eq!(previews(&ask_later(&app).await), expected);

    // 10 is new, and CI works on it.
    fake.run('e', "in_progress", None);
    pages.lock().unwrap().push(pull(10, 'e', "preview"));
    assert_eq!(previews(&ask_later(&app).await), expected);

    // Half a list is no list, although all that it has is known.
    pages.lock().unwrap()[1] = Value::Null;
    let reply = ask_later(&app).await;
    assert_eq!(previews(&reply), expected);
    assert!(
        reply.header("cache-status").unwrap().ends_with("detail=backend_failed"),
        "{:?}",
        reply.header("cache-status")
    );
}
