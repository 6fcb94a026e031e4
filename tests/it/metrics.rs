//! Metrics of routes and of the process.

use std::{path::Path, time::Duration};

use appset_gateway::config::Loaded;
use domain::{clock::Clock as _, file::base_dir::BaseDir};
use serde_json::{Value, json};

use crate::support::{TestApp, promtool::check_by_promtool};

/// Routes that print the file with their name. The lineage is the branch.
fn config(names: &[&str]) -> String {
    let script = |name: &&str| {
        let script = json!({"command": ["cat", name], "allow": {"read": ["."]}});
        json!({"name": name, "lineage": ["branch"], "backend": {"script": script}})
    };
    format!("{}routes: {}\n", TestApp::auth(), Value::from(names.iter().map(script).collect::<Vec<_>>()))
}

fn print(folder: &Path, file: &str, count: usize) {
    let sets: Vec<Value> = (0..count).map(|number| json!({"name": format!("n{number}")})).collect();
    std::fs::write(folder.join(file), json!(sets).to_string()).unwrap();
}

/// The held answers, the parameter sets, and the time of the last success of `route`.
async fn now(app: &TestApp, route: &str) -> [u64; 3] {
    let of = async |name: &str| app.metric(&format!("appset_gateway_{name}{{route=\"{route}\"}}")).await;
    [of("held_answers").await, of("route_parameter_sets").await, of("route_last_success_timestamp_seconds").await]
}

#[tokio::test]
async fn route_metrics_count_held_answers_and_sets_and_the_last_success() {
    let app = TestApp::start(&config(&["a", "b"])).await;
    let seconds = || app.clock.now().0 / 1000;
    assert_eq!((now(&app, "a").await, now(&app, "b").await), ([0, 0, 0], [0, 0, 0]), "all are there from the start");
    print(app.folder.path(), "a", 5);
    print(app.folder.path(), "b", 2);
    app.ask("a", json!({})).await;
    let first = seconds();
    app.clock.advance(Duration::from_secs(10));
    // Two commits of one branch count as one answer, two branches as two.
    for (branch, sha) in [("main", "1"), ("main", "2"), ("next", "3")] {
        app.ask("b", json!({"branch": branch, "sha": sha})).await;
    }
    assert_eq!((now(&app, "a").await, now(&app, "b").await), ([0, 5, first], [0, 4, seconds()]));

    // A loss is held. Neither a loss nor a failure is a success.
    print(app.folder.path(), "a", 1);
    app.clock.advance(Duration::from_mins(10));
    app.ask("a", json!({})).await;
    assert_eq!(now(&app, "a").await, [1, 5, first]);
    assert_eq!(now(&app, "b").await[0], 0);
    let text = app.admin("/metrics").await.text();
    check_by_promtool(&text);
    assert!(!text.contains("main"), "no label comes from a request: {text}");

    // Answers that are too old to serve do not count.
    app.clock.advance(Duration::from_hours(48));
    assert_eq!((now(&app, "a").await, now(&app, "b").await[1]), ([0, 0, first], 0));
}

#[tokio::test]
async fn a_removed_route_has_no_metrics() {
    let app = TestApp::start(&config(&["a", "b"])).await;
    print(app.folder.path(), "a", 5);
    app.ask("a", json!({})).await;
    let reload = |names: &[&str]| {
        let loaded = Loaded::parse("test.yaml", config(names), BaseDir::new(app.folder.path()));
        app.app.reload(loaded).map(drop).map_err(|report| report.to_string()).unwrap();
    };
    let has = async |route: &str| {
        let text = app.admin("/metrics").await.text();
        text.contains(&format!("appset_gateway_route_parameter_sets{{route=\"{route}\"}}"))
    };
    reload(&["b"]);
    assert!(!has("a").await && has("b").await);
    reload(&["a", "b"]);
    assert_eq!(now(&app, "a").await[0], 0);
    assert!(has("a").await && has("b").await);
}

#[tokio::test]
async fn process_metrics_report_resource_use() {
    let app = TestApp::start(&config(&["a"])).await;
    let text = app.admin("/metrics").await.text();
    let of = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    };
    assert!(of("process_cpu_seconds_total") > 0.0);
    assert!(of("process_resident_memory_bytes") > 1e6 && of("process_virtual_memory_bytes") > 1e6);
    assert!(of("process_open_fds") > 2.0 && of("process_max_fds") > of("process_open_fds"));
    assert!(of("process_threads") >= 1.0);
    assert_eq!(app.metric("process_start_time_seconds").await, app.clock.now().0 / 1000);
}
