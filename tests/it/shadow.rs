//! Shadows: a candidate is asked after the route's own backend, compared, and never heard by a caller.

mod isolation;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use appset_gateway::config::Loaded;
use domain::file::base_dir::BaseDir;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::support::{
    Reply, TestApp,
    upstream::{Step, Upstream, json_response, response},
};

/// A gateway with the route `r`, whose own backend and candidate answer what a test sets.
struct Scene {
    app: TestApp,
    primary: Source,
    candidate: Source,
}

/// A source, and what it does.
struct Source {
    upstream: Upstream,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Source {
    async fn start() -> Self {
        let steps = Arc::new(Mutex::new(vec![Step::Send(json_response("[]"))]));
        let own = Arc::clone(&steps);
        Self { upstream: Upstream::start_apart(move |_| own.lock().unwrap().clone()).await, steps }
    }

    fn answers(&self, sets: &Value) {
        self.plays(vec![Step::Send(json_response(sets.to_string()))]);
    }

    fn plays(&self, steps: Vec<Step>) {
        *self.steps.lock().unwrap() = steps;
    }

    fn backend(&self) -> Value {
        json!({"http": {"url": format!("http://{}/list", self.upstream.address), "parameters": "body"}})
    }

    fn count(&self) -> usize {
        self.upstream.requests().len()
    }
}

/// The shadow of a scene with more keys.
fn shadow(candidate: &Source, more: Value) -> Value {
    let mut shadow = more;
    shadow["backend"] = candidate.backend();
    shadow
}

fn config(primary: &Source, shadow: Option<&Value>) -> String {
    let mut route = json!({"name": "r", "backend": primary.backend(), "guard": {"maxShrink": "100%"}});
    if let Some(shadow) = shadow {
        route["shadow"] = shadow.clone();
    }
    format!("{}routes: {}\n", TestApp::auth(), json!([route]))
}

impl Scene {
    async fn start(more: Value) -> Self {
        let (primary, candidate) = (Source::start().await, Source::start().await);
        let app = TestApp::start(&config(&primary, Some(&shadow(&candidate, more)))).await;
        Self { app, primary, candidate }
    }

    /// Sets what both sources answer.
    fn answer(&self, primary: &Value, candidate: &Value) {
        self.primary.answers(primary);
        self.candidate.answers(candidate);
    }

    /// Asks when everything in the cache has expired, and waits until the comparison has ended.
    async fn ask(&self, total: u64) -> Reply {
        let reply = self.app.ask_afresh("r", json!({})).await;
        self.ended(total).await;
        reply
    }

    /// What `/admin/shadow` says of the route.
    async fn report(&self) -> Value {
        self.app.operate("/admin/shadow", None).await.json()["shadows"][0].clone()
    }

    /// The report, once so many comparisons have ended.
    async fn ended(&self, total: u64) -> Value {
        let until = Instant::now() + Duration::from_mins(5);
        loop {
            let report = self.report().await;
            let counts = report["counts"].as_object().unwrap();
            if counts.values().map(|count| count.as_u64().unwrap()).sum::<u64>() >= total {
                return report;
            }
            assert!(Instant::now() < until, "a comparison does not end: {report}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn metric(&self, result: &str) -> u64 {
        let name = format!("appset_gateway_shadow_comparisons_total{{result=\"{result}\",route=\"r\"}}");
        self.app.metric(&name).await
    }
}

/// Counts with these values, and zeros.
fn counts(some: &Value) -> Value {
    let mut counts = json!({"same": 0, "differs": 0, "candidateError": 0, "primaryError": 0, "skipped": 0});
    for (name, count) in some.as_object().unwrap() {
        counts[name] = count.clone();
    }
    counts
}

fn app_set(name: &str, tag: &str) -> Value {
    json!({"name": name, "tag": tag})
}

#[tokio::test]
async fn the_same_answer_is_counted_and_a_hit_asks_nobody() {
    let scene = Scene::start(json!({})).await;
    scene.answer(
        &json!([app_set("a", "1"), {"name": "b", "tag": 2}]),
        &json!([{"tag": "2", "name": "b"}, app_set("a", "1")]),
    );
    assert_eq!(scene.metric("same").await, 0);
    assert_eq!(scene.ask(1).await.sets(), r#"[{"name":"a","tag":"1"},{"name":"b","tag":"2"}]"#);
    let report = scene.report().await;
    assert_eq!(report["counts"], counts(&json!({"same": 1})));
    assert_eq!((&report["route"], &report["candidate"]), (&json!("r"), &json!("http")));
    assert_eq!((&report["differences"], &report["noise"]), (&json!([]), &json!([])));
    assert_eq!(scene.metric("same").await, 1);
    scene.app.ask("r", json!({})).await;
    assert_eq!((scene.primary.count(), scene.candidate.count()), (1, 1), "a hit");
}

#[tokio::test]
async fn a_difference_is_shown() {
    let scene = Scene::start(json!({"ignore": ["etag"]})).await;
    let own = json!([app_set("a", "1"), app_set("b", "1"), {"name": "c", "tag": "1", "etag": "x"}]);
    scene.answer(&own, &json!([app_set("a", "2"), {"name": "c", "tag": "1", "etag": "y"}, app_set("d", "1")]));
    let body = json!({"applicationSetName": "fleet", "input": {"parameters": {"env": "eu"}}});
    let reply = scene.app.call("/r/api/v1/getparams.execute", &body).await;
    assert_eq!(reply.json()["output"]["parameters"], own, "the caller gets the route's own answer");
    let report = scene.ended(1).await;
    let mut found = report["differences"][0].clone();
    assert!(found["at"].take().as_str().unwrap().ends_with('Z'));
    assert_eq!(
        found,
        json!({
            "at": null, "applicationSet": "fleet", "input": {"env": "eu"},
            "added": {"count": 1, "sets": [app_set("d", "1")]},
            "removed": {"count": 1, "sets": [app_set("b", "1")]},
            "changed": {"count": 1, "sets": [{"primary": app_set("a", "1"), "candidate": app_set("a", "2")}]},
        })
    );
    assert_eq!(report["counts"], counts(&json!({"differs": 1})));
    assert_eq!(scene.metric("differs").await, 1);
}

#[tokio::test]
async fn sets_belong_together_by_the_keys_of_identity() {
    let scene = Scene::start(json!({"identity": ["host"]})).await;
    scene.answer(&json!([{"name": "a", "host": "h"}]), &json!([{"name": "b", "host": "h"}]));
    scene.ask(1).await;
    let found = scene.report().await["differences"][0].clone();
    assert_eq!((&found["changed"]["count"], &found["added"]["count"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn the_candidate_has_the_routes_output_or_its_own() {
    for (own, compared) in [(json!({}), "same"), (json!({"output": {"name": "x-{{ id }}"}}), "differs")] {
        let (primary, candidate) = (Source::start().await, Source::start().await);
        let mut route = json!({"name": "r", "backend": primary.backend(), "output": {"name": "{{ id }}"}});
        route["shadow"] = shadow(&candidate, own);
        let app = TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
        let scene = Scene { app, primary, candidate };
        scene.answer(&json!([{"id": "a"}]), &json!([{"id": "a", "more": "m"}]));
        scene.ask(1).await;
        assert_eq!(scene.report().await["counts"][compared], 1, "{compared}");
    }
}

#[tokio::test]
async fn what_varies_in_the_routes_own_answers_is_not_compared() {
    let scene = Scene::start(json!({})).await;
    let at =
        |time: &str, tag: &str| json!([{"name": "a", "tag": tag, "at": time}, {"name": "b", "tag": tag, "at": time}]);
    scene.answer(&at("1", "x"), &at("2", "x"));
    scene.ask(1).await;
    assert_eq!(scene.report().await["counts"], counts(&json!({"differs": 1})), "nothing is known of noise yet");
    scene.answer(&at("3", "x"), &at("4", "x"));
    scene.ask(2).await;
    let report = scene.report().await;
    assert_eq!(report["counts"], counts(&json!({"differs": 1, "same": 1})));
    assert_eq!((&report["noise"], &report["subtracted"]), (&json!(["at"]), &json!(2)));
    scene.candidate.answers(&at("5", "y"));
    scene.ask(3).await;
    let report = scene.report().await;
    assert_eq!(report["counts"]["differs"], 2);
    let changed = &report["differences"][0]["changed"]["sets"][0];
    assert_eq!(*changed, json!({"primary": app_set("a", "x"), "candidate": app_set("a", "y")}));
    assert_eq!(scene.primary.count(), 3, "it is never asked more often");
}

/// A thousand sets, of which one has a value that varies.
#[tokio::test]
async fn what_varies_in_one_set_is_compared_in_all_others() {
    let scene = Scene::start(json!({})).await;
    let all = |time: &str, other: &str| {
        let set = |n: u32| json!({"name": format!("t{n}"), "at": if n == 7 { time } else { other }});
        (0..1000).map(set).collect::<Value>()
    };
    scene.answer(&all("1", "x"), &all("1", "x"));
    scene.ask(1).await;
    scene.answer(&all("2", "x"), &all("3", "x"));
    scene.ask(2).await;
    let report = scene.report().await;
    assert_eq!((&report["counts"], &report["subtracted"]), (&counts(&json!({"same": 2})), &json!(1)));
    scene.answer(&all("4", "x"), &all("5", "y"));
    scene.ask(3).await;
    let report = scene.report().await;
    assert_eq!(report["counts"], counts(&json!({"same": 2, "differs": 1})));
    assert_eq!(report["differences"][0]["changed"]["count"], 999);
}

#[tokio::test]
async fn a_held_answer_is_not_compared() {
    let (primary, candidate) = (Source::start().await, Source::start().await);
    let mut route = json!({"name": "r", "backend": primary.backend(), "guard": {"onShrink": "keep"}});
    route["shadow"] = shadow(&candidate, json!({}));
    let app = TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    let scene = Scene { app, primary, candidate };
    let (all, one) = (json!([app_set("a", "1"), app_set("b", "1")]), json!([app_set("a", "1")]));
    scene.answer(&all, &all);
    scene.ask(1).await;
    scene.answer(&one, &one);
    scene.app.clock.advance(Duration::from_mins(10));
    let reply = scene.app.ask("r", json!({})).await;
    assert_eq!(reply.json()["output"]["parameters"], all, "the last good answer");
    scene.ended(2).await;
    assert_eq!(scene.report().await["counts"], counts(&json!({"same": 1, "skipped": 1})));
    assert_eq!(scene.candidate.count(), 1, "callers do not get the held answer");
}

#[tokio::test]
async fn a_share_of_the_runs_is_followed() {
    let scene = Scene::start(json!({"sample": "50%"})).await;
    scene.answer(&json!([app_set("a", "1")]), &json!([app_set("a", "1")]));
    for run in 0..6 {
        scene.ask(run / 2 + 1).await;
    }
    assert_eq!(scene.report().await["counts"], counts(&json!({"same": 3})));
    assert_eq!((scene.primary.count(), scene.candidate.count()), (6, 3));
}

/// Each question has its share, in whatever order the questions come.
#[tokio::test]
async fn every_question_is_compared() {
    let scene = Scene::start(json!({"sample": "50%"})).await;
    scene.answer(&json!([app_set("a", "1")]), &json!([app_set("b", "1")]));
    let questions = 40;
    for n in 0..questions {
        scene.app.ask("r", json!({ "n": n })).await;
        scene.ended(n + 1).await;
    }
    assert_eq!(scene.report().await["counts"], counts(&json!({"differs": questions})), "the first run of each");
}

#[tokio::test]
async fn a_failure_of_the_routes_own_backend_is_counted() {
    let scene = Scene::start(json!({})).await;
    scene.primary.plays(vec![Step::Send(response(404, "", "no"))]);
    let reply = scene.ask(1).await;
    assert!(reply.status >= 500, "{}", reply.status);
    assert_eq!(scene.report().await["counts"], counts(&json!({"primaryError": 1})));
    assert_eq!((scene.metric("primary_error").await, scene.candidate.count()), (1, 0));
}

/// Reloads with this configuration.
fn reload(app: &TestApp, config: &str) {
    let loaded = Loaded::parse("new.yaml", config.to_owned(), BaseDir::new(app.folder.path()));
    app.app.reload(loaded).map_err(|report| report.lines()).unwrap();
}

#[tokio::test]
async fn a_reload_adds_and_removes_a_shadow_and_keeps_the_answers() {
    let (primary, candidate) = (Source::start().await, Source::start().await);
    let scene = Scene { app: TestApp::start(&config(&primary, None)).await, primary, candidate };
    scene.answer(&json!([app_set("a", "1")]), &json!([app_set("a", "2")]));
    scene.app.ask("r", json!({})).await;
    let listed = async || scene.app.operate("/admin/shadow", None).await.json();
    assert_eq!(listed().await, json!({"shadows": []}));

    reload(&scene.app, &config(&scene.primary, Some(&shadow(&scene.candidate, json!({})))));
    let hit = scene.app.ask("r", json!({})).await;
    assert!(hit.header("cache-status").unwrap().contains("hit"), "a shadow changes no answer");
    scene.ask(1).await;
    assert_eq!(scene.report().await["counts"], counts(&json!({"differs": 1})));

    reload(&scene.app, &config(&scene.primary, None));
    assert_eq!(listed().await, json!({"shadows": []}));
    assert!(scene.app.ask("r", json!({})).await.header("cache-status").unwrap().contains("hit"));
    scene.app.ask_afresh("r", json!({})).await;
    scene.app.settle().await;
    assert_eq!((scene.primary.count(), scene.candidate.count()), (3, 1));
    assert_eq!(scene.metric("differs").await, 1, "the counter stays");
}

#[tokio::test]
async fn no_secret_of_a_backend_is_shown() {
    let (primary, candidate) = (Source::start().await, Source::start().await);
    let folder: TempDir = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own"), "hunter2-of-the-route").unwrap();
    std::fs::write(folder.path().join("other"), "hunter2-of-the-candidate").unwrap();
    let with = |source: &Source, file: &str| {
        let mut backend = source.backend();
        backend["http"]["headers"] = json!({"X-Api-Key": {"file": file}});
        backend
    };
    let route =
        json!({"name": "r", "backend": with(&primary, "own"), "shadow": {"backend": with(&candidate, "other")}});
    let app = TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    let scene = Scene { app, primary, candidate };
    let set = |text: &str| json!([{"name": "a", "url": text}]);
    scene.answer(&set("https://x:hunter2-of-the-route@h"), &set("https://x:hunter2-of-the-candidate@h"));
    scene.app.ask("r", json!({"key": "hunter2-of-the-candidate"})).await;
    let report = scene.ended(1).await;
    assert!(!report.to_string().contains("hunter2"), "{report}");
    assert_eq!(report["differences"][0]["input"], json!({"key": "[redacted]"}));
    scene.candidate.plays(vec![Step::Send(response(400, "", "the key hunter2-of-the-candidate is wrong"))]);
    scene.ask(2).await;
    let report = scene.report().await;
    assert_eq!(report["counts"]["candidateError"], 1);
    assert!(report["differences"][0]["error"].as_str().unwrap().contains("400"), "{report}");
    assert!(!report.to_string().contains("hunter2"), "{report}");
}
