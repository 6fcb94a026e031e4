//! `appset-gateway diff`: what the next configuration would change, told without changing anything.

mod applications;
mod recordings;
mod without_gateway;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN, TestApp,
    binary::{Gateway, command},
    upstream::{Upstream, json_response, response},
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// A running gateway, and a source that has two sets of parameter sets: `/old` and `/new`.
struct Scene {
    gateway: Gateway,
    folder: TempDir,
    source: Upstream,
    is_failing: Arc<AtomicBool>,
}

/// The configuration with these routes.
fn config(routes: &Value, more: &str) -> String {
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    format!("{server}{more}{}routes: {routes}\n", TestApp::auth())
}

/// What the source answers at `path`.
fn source(path: &str) -> Value {
    match path.trim_start_matches('/').split('?').next().unwrap_or_default() {
        "old" => {
            json!([{"name": "a", "tag": "1"}, {"name": "b", "tag": "1"}, {"name": "c", "tag": "1"}, {"name": "d", "tag": "1"}])
        }
        "new" => {
            json!([{"name": "a", "tag": "2"}, {"name": "b", "tag": "1"}, {"name": "c", "tag": "1"}, {"name": "e", "tag": "1"}])
        }
        "few" => json!([{"name": "a", "tag": "1"}]),
        path => json!([{"name": path}]),
    }
}

impl Scene {
    /// A gateway with the routes that `routes` makes of the source's URL.
    async fn start(routes: impl Fn(&str) -> Value) -> Self {
        Self::with(routes, "", &[]).await
    }

    /// The same with more lines in the configuration, and files beside it.
    async fn with(routes: impl Fn(&str) -> Value, more: &str, files: &[(&str, &str)]) -> Self {
        let is_failing = Arc::new(AtomicBool::new(false));
        let fails = Arc::clone(&is_failing);
        let source = Upstream::start(move |request| {
            let reply = json_response(source(&request.target).to_string());
            request_steps(if fails.load(Ordering::SeqCst) { response(500, "", "no") } else { reply })
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("token", ADMIN_TOKEN)].iter().chain(files) {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let url = format!("http://{}", source.address);
        let file = folder.path().join("current.yaml");
        std::fs::write(&file, config(&routes(&url), more)).unwrap();
        Self { gateway: Gateway::serve(&file), folder, source, is_failing }
    }

    /// Writes the next configuration.
    fn next(&self, routes: impl Fn(&str) -> Value) {
        self.write("next.yaml", &config(&routes(&self.url()), ""));
    }

    /// The URL of the source.
    fn url(&self) -> String {
        format!("http://{}", self.source.address)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Asks for the ApplicationSet `set`, at `path` below the gateway.
    async fn ask(&self, path: &str, set: &str, parameters: Value) -> Reply {
        let body = json!({"applicationSetName": set, "input": {"parameters": parameters}}).to_string();
        exchange(
            self.gateway.address,
            &argo_request(&format!("{path}/api/v1/getparams.execute"), TOKEN, body.as_bytes()),
        )
        .await
    }

    async fn admin(&self, path: &str) -> Reply {
        exchange_admin(self.gateway.admin, operator_request("GET", path, "").as_bytes()).await
    }

    /// `diff` of `next.yaml` against the running gateway.
    fn diff(&self, more: &[&str]) -> Done {
        let url = format!("http://{}", self.gateway.admin);
        self.diff_against(&url, more)
    }

    fn diff_against(&self, against: &str, more: &[&str]) -> Done {
        run(
            self.folder.path(),
            &[&["diff", "-c", "next.yaml", "--token-file", "token", "--against", against], more].concat(),
        )
    }

    fn diff_json(&self, more: &[&str]) -> (Option<i32>, Value) {
        let done = self.diff(&[&["-o", "json"], more].concat());
        (done.code, serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{}", done.err)))
    }

    /// The files in the folder.
    fn files(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn request_steps(reply: Vec<u8>) -> Vec<crate::support::upstream::Step> {
    vec![crate::support::upstream::Step::Send(reply)]
}

/// What a command said.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    /// Checks the exit code, and that the output has each of these lines.
    fn says(&self, code: i32, lines: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        for line in lines {
            let found = self.out.lines().chain(self.err.lines()).any(|said| said.contains(line));
            assert!(found, "no `{line}` in\n{}{}", self.out, self.err);
        }
    }
}

fn run(folder: &Path, arguments: &[&str]) -> Done {
    let done = command().args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: done.status.code(), out: text(done.stdout), err: text(done.stderr) }
}

/// A route called `name` that asks the source at `path`.
fn http(name: &str, url: &str, path: &str) -> Value {
    json!({"name": name, "backend": {"http": {"url": format!("{url}/{path}")}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn added_removed_and_changed_sets_are_reported_for_each_application_set() {
    let scene = Scene::start(|url| json!([http("r", url, "old"), http("same", url, "x")])).await;
    for set in ["one", "two"] {
        assert_eq!(scene.ask("/r", set, json!({"p": "q"})).await.status, 200);
    }
    scene.ask("/same", "three", json!({})).await;
    let (runs, before) = (scene.source.requests().len(), scene.admin("/metrics").await.text());
    let next = json!([http("r", &scene.url(), "new"), http("same", &scene.url(), "x")]);
    scene.write("next.yaml", &config(&next, "cache: { path: answers.redb }\n"));
    let files = scene.files();
    let done = scene.diff(&[]);
    done.says(
        1,
        &[
            "ApplicationSet one",
            "ApplicationSet two",
            r#"route r {"p":"q"}"#,
            "- removed  d",
            "+ added    e",
            r#"~ changed  a: tag "1" → "2""#,
            "1 the same, 2 different, 0 without an answer: 2 parameter sets added, 2 removed, 2 changed; 0 held by the guard",
        ],
    );
    assert!(!done.out.contains("three"), "{}", done.out);
    // Two questions were asked, each once, and the running gateway ran nothing.
    assert!(scene.source.requests().len() - runs <= 3, "{}", scene.source.requests().len() - runs);
    let runs_of = |metrics: &str| -> Vec<String> {
        let is_run = |line: &&str| line.starts_with("appset_gateway_backend_duration_seconds_count");
        metrics.lines().filter(is_run).map(str::to_owned).collect()
    };
    let after = scene.admin("/metrics").await.text();
    assert!(!runs_of(&before).is_empty(), "{before}");
    assert_eq!(runs_of(&before), runs_of(&after));
    assert_eq!(scene.files(), files, "no file was made");
    // For programs.
    let (code, report) = scene.diff_json(&[]);
    assert_eq!((code, &report["removes"]), (Some(1), &json!(true)));
    let one = &report["applicationSets"][0];
    assert_eq!((&one["name"], &one["questions"][0]["result"]), (&json!("one"), &json!("different")));
    assert_eq!(one["questions"][0]["removed"], json!([{"name": "d", "tag": "1"}]));
    assert_eq!(one["questions"][0]["changed"][0]["after"], json!({"name": "a", "tag": "2"}));
    assert_eq!(report["counts"]["removed"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_by_the_same_configuration() {
    let scene = Scene::start(|url| json!([http("r", url, "old")])).await;
    scene.ask("/r", "one", json!({})).await;
    scene.next(|url| json!([http("r", url, "old")]));
    scene.diff(&[]).says(0, &["1 the same, 0 different"]);
    // A set that is only added or changed removes nothing.
    scene.write(
        "next.yaml",
        &config(
            &json!([{"name": "r", "backend": {"fixed": {"parameters": source("old").as_array().unwrap()
        .iter().cloned().chain([json!({"name": "z"})]).collect::<Vec<_>>()}}}]),
            "",
        ),
    );
    scene.diff(&[]).says(0, &["+ added    z"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_guard_holds_is_named() {
    let scene = Scene::start(|url| json!([http("r", url, "old"), http("m", url, "old")])).await;
    scene.ask("/r", "one", json!({})).await;
    scene.next(|url| json!([http("r", url, "few")]));
    scene.diff(&[]).says(
        1,
        &[
            "held by the guard: 3 of 4 parameter sets would be gone, more than `guard.maxShrink: 30%`; accepted once 3 further runs, 5m apart",
            "3 removed, 0 changed; 1 held by the guard",
        ],
    );
    scene.next(|url| {
        let mut route = http("r", url, "few");
        route["guard"] = json!({"onShrink": "keep"});
        json!([route])
    });
    scene.diff(&[]).says(1, &["until an operator releases it"]);
    scene.next(|url| {
        let mut route = http("r", url, "few");
        route["guard"] = json!({"maxShrink": "100%"});
        json!([route])
    });
    let done = scene.diff(&[]);
    done.says(1, &["3 removed"]);
    assert!(!done.out.contains("held by the guard:"), "{}", done.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_is_gone_is_an_error_and_no_removal() {
    let scene = Scene::start(|url| json!([http("r", url, "old")])).await;
    scene.ask("/r", "one", json!({})).await;
    scene.next(|url| json!([http("other", url, "old")]));
    scene.diff(&[]).says(
        3,
        &["no answer  there is no route `r`, so the answer is 404 unknown_route; Argo CD keeps the Applications"],
    );
    // So is an error of the source, and input that the route does not accept.
    scene.next(|url| json!([http("r", url, "new")]));
    scene.is_failing.store(true, Ordering::SeqCst);
    scene.diff(&[]).says(3, &["no answer  route r (http): ", "1 without an answer"]);
    scene.is_failing.store(false, Ordering::SeqCst);
    scene.next(|url| {
        let mut route = http("r", url, "old");
        route["input"] = json!([{"name": "branch", "required": true}]);
        json!([route])
    });
    scene.diff(&[]).says(3, &["no answer  route r: parameter `branch` is missing"]);
}

/// A call without a route in its path goes where the next configuration's `match` sends it.
#[tokio::test(flavor = "multi_thread")]
async fn the_route_is_picked_as_the_server_picks_it() {
    let matched = |mut route: Value, application_set: &str| {
        route["match"] = json!({"applicationSet": application_set});
        route
    };
    let scene = Scene::start(|url| json!([matched(http("one", url, "old"), "fb-*"), http("path", url, "x")])).await;
    assert_eq!(scene.ask("", "fb-x", json!({})).await.status, 200);
    assert_eq!(scene.ask("/path", "fb-y", json!({})).await.status, 200);
    let listed = scene.admin("/admin/questions").await.json();
    let mut seen: Vec<_> = listed["questions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["route"].to_string(), one["byMatch"].clone()))
        .collect();
    seen.sort_by_key(|(route, _)| route.clone());
    assert_eq!(seen, [("\"one\"".to_owned(), json!(true)), ("\"path\"".to_owned(), json!(false))]);
    scene.next(|url| {
        json!([
            matched(http("first", url, "few"), "*-x"),
            matched(http("one", url, "old"), "fb-*"),
            http("path", url, "x")
        ])
    });
    let done = scene.diff(&[]);
    done.says(
        1,
        &[
            "route one → first {}",
            "only if the path of the call names no route",
            "the guard would compare it with nothing",
            "1 the same, 1 different",
        ],
    );
    scene.next(|url| json!([http("one", url, "old"), http("path", url, "x")]));
    let unless = "so the answer is 404 unknown_route, unless the call's path names the route `one`";
    scene.diff(&[]).says(3, &[&format!("no route's `match` takes the call, {unless}")]);
}

/// Argo CD does not send the defaults of `input`, so another default is another question.
#[tokio::test(flavor = "multi_thread")]
async fn another_default_is_noticed() {
    let route = |url: &str, default: &str| json!([{"name": "r", "input": [{"name": "at", "default": default}], "backend": {"http": {"url": format!("{url}/{{{{ params.at }}}}")}}}]);
    let scene = Scene::start(|url| route(url, "old")).await;
    scene.ask("/r", "one", json!({})).await;
    scene.ask("/r", "two", json!({"at": "few"})).await;
    scene.next(|url| route(url, "new"));
    scene.diff(&[]).says(1, &["ApplicationSet one", "route r {}", "1 the same, 1 different"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_gets_a_clear_error() {
    let scene = Scene::start(|url| json!([http("r", url, "old")])).await;
    scene.next(|url| json!([http("r", url, "old")]));
    scene.diff(&[]).says(2, &["no question is known, so nothing was compared"]);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    scene.diff_against(&format!("http://{closed}"), &[]).says(2, &[&format!("http://{closed}/admin/questions")]);
    // The main listener, which has no such path, is like an older gateway.
    let main = format!("http://{}", scene.gateway.address);
    scene
        .diff_against(&main, &[])
        .says(2, &["has no /admin/questions: it is not an admin listener, or its gateway is of another version"]);
    let other = |body: Value| async move { Upstream::always(json_response(body.to_string())).await };
    let later = other(json!({"format": 2, "version": "9.0.0", "questions": {}})).await;
    let later = scene.diff_against(&format!("http://{}", later.address), &[]);
    later.says(2, &["it has the form 2, of the version 9.0.0; this is ", "use the same version"]);
    let strange = other(json!({"hello": "world"})).await;
    scene.diff_against(&format!("http://{}", strange.address), &[]).says(2, &["another version"]);
    let page = Upstream::always(response(200, "", "<html>")).await;
    scene.diff_against(&format!("http://{}", page.address), &[]).says(2, &["without JSON"]);
    scene.write("token", "wrong");
    scene.diff(&[]).says(2, &["role: admin"]);
    scene.write("token", ADMIN_TOKEN);
    // Files.
    scene
        .diff_against("missing.json", &[])
        .says(2, &["cannot read missing.json", "a gateway's address begins with http://"]);
    let folder = scene.folder.path();
    for file in ["/dev/zero", folder.to_str().unwrap()] {
        scene.diff_against(file, &[]).says(2, &["it is not a regular file"]);
    }
    scene.diff_against("current.yaml", &[]).says(2, &["say with --questions what to ask"]);
    scene.write("mine.yaml", "questions: [ { route: r, requesters: [one] } ]");
    scene.diff_against("mine.yaml", &[]).says(2, &["questions without answers"]);
    scene.diff_against("mine.yaml", &["--questions", "mine.yaml"]).says(2, &["has questions itself"]);
    scene.write("mine.yaml", "questions: [ { rute: r } ]");
    scene.diff_against("current.yaml", &["--questions", "mine.yaml"]).says(2, &["rute"]);
    scene.write("next.yaml", "routes: [ { name: r } ]");
    scene.diff(&[]).says(78, &["routes[0]"]);
    assert_eq!(run(scene.folder.path(), &["diff", "-c", "next.yaml"]).code, Some(2));
}
