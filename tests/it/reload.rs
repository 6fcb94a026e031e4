//! A new configuration replaces the old one completely or not at all, and unchanged parts continue.

mod process;

use std::{fmt::Write as _, time::Duration};

use appset_gateway::{
    app::{App, Changes},
    config::Loaded,
};
use domain::{clock::SystemClock, file::base_dir::BaseDir};
use serde_json::{Value, json};

use crate::support::{ADMIN_TOKEN, Reply, TOKEN, TestApp};

/// A gateway with these routes, each a line of JSON.
async fn start(routes: &[&str]) -> TestApp {
    TestApp::start(&config("", routes)).await
}

fn config(more: &str, routes: &[&str]) -> String {
    let mut text = format!("{}{more}routes:\n", TestApp::auth());
    for route in routes {
        writeln!(text, "  - {route}").unwrap();
    }
    text
}

/// Reloads with this configuration.
fn reload(app: &TestApp, config: &str) -> Result<std::sync::Arc<Changes>, Vec<String>> {
    let loaded = Loaded::parse("new.yaml", config.to_owned(), BaseDir::new(app.folder.path()));
    app.app.reload(loaded).map_err(|report| report.lines())
}

fn state(reply: &Reply) -> &str {
    reply.header("cache-status").unwrap()
}

const A: &str = r#"{"name":"a","backend":{"fixed":{"parameters":[{"a":"1"}]}}}"#;
const B: &str = r#"{"name":"b","backend":{"fixed":{"parameters":[{"b":"1"}]}}}"#;

#[tokio::test]
async fn routes_come_go_and_change() {
    let app = start(&[A, B]).await;
    assert_eq!(app.ask("a", json!({})).await.sets(), r#"[{"a":"1"}]"#);
    assert_eq!(app.ask("b", json!({})).await.sets(), r#"[{"b":"1"}]"#);
    let c = r#"{"name":"c","match":{},"backend":{"fixed":{"parameters":[{"c":"1"}]}}}"#;
    let changes = reload(&app, &config("", &[c, &A.replace(r#""1""#, r#""2""#)])).unwrap();
    assert_eq!((&changes.new, &changes.gone), (&vec!["c".to_owned()], &vec!["b".to_owned()]));
    assert_eq!(app.ask("a", json!({})).await.sets(), r#"[{"a":"2"}]"#);
    assert_eq!(app.ask("b", json!({})).await.status, 404);
    assert_eq!(app.call("/api/v1/getparams.execute", &json!({})).await.sets(), r#"[{"c":"1"}]"#);
    assert_eq!(app.metric("appset_gateway_config_generation").await, 2);
    // A route that comes back still has its cache.
    reload(&app, &config("", &[A, B])).unwrap();
    let again = app.ask("b", json!({})).await;
    assert!(state(&again).contains("hit"), "{}", state(&again));
    assert_eq!(app.ask("a", json!({})).await.sets(), r#"[{"a":"1"}]"#);
}

#[tokio::test]
async fn a_bad_configuration_changes_nothing_and_is_shown() {
    let app = start(&[A]).await;
    for (bad, says) in [
        ("routes: [".to_owned(), "new.yaml:1:"),
        (config("", &[A, r#"{"name":"x","backend":{"http":{"url":"ftp://x"}}}"#]), "routes[1]"),
        (config("server: { deadline: 0s }\n", &[A]), "server.deadline"),
        ("routes: []\n".to_owned(), "auth.tokens"),
        (
            config("server: { tls: { cert: nope.crt, key: nope.key } }\n", &[A]),
            "server.tls: cannot read the certificate file",
        ),
    ] {
        let report = reload(&app, &bad).unwrap_err();
        assert!(report.iter().any(|line| line.contains(says)), "{report:?}");
        assert_eq!(app.ask("a", json!({})).await.sets(), r#"[{"a":"1"}]"#);
        let shown: Value = serde_json::from_slice(&app.operate("/admin/config", None).await.body).unwrap();
        assert_eq!((&shown["generation"], &shown["lastReload"]["isGood"]), (&json!(1), &json!(false)));
        assert_eq!(shown["lastReload"]["problems"], json!(report));
        assert_eq!(app.metric("appset_gateway_config_last_reload_successful").await, 0);
    }
    reload(&app, &config("", &[A, B])).unwrap();
    let shown: Value = serde_json::from_slice(&app.operate("/admin/config", None).await.body).unwrap();
    assert_eq!(shown["routes"], json!(["a", "b"]));
    assert_eq!((&shown["generation"], &shown["lastReload"]["changes"]["new"]), (&json!(2), &json!(["b"])));
    for (metric, value) in [
        ("appset_gateway_config_last_reload_successful", 1),
        ("appset_gateway_config_reloads_total{outcome=\"ok\"}", 1),
        ("appset_gateway_config_reloads_total{outcome=\"failed\"}", 5),
    ] {
        assert_eq!(app.metric(metric).await, value, "{metric}");
    }
}

#[test]
fn a_mistyped_secret_is_not_repeated() {
    for source in [
        "auth: { jwt: [ { secret: hunter2 } ] }",
        "auth: { jwt: [ { secret: 42424242 } ] }",
        "auth: { jwt: [ { jwks: { url: https://h/, token: hunter2 } } ] }",
        "auth: { tokens: [ { name: a, sha256: hunter2 } ] }",
        "outbound: { proxy: { url: \"http://me:hunter2@h\", password: hunter2 } }",
        "traces: { endpoint: \"http://me:hunter2@h:4318\" }",
        "routes: [ { name: a, backend: { http: { url: \"http://me:hunter2@h/\", credential: hunter2 } } } ]",
        "routes: [ { name: a, backend: { http: { url: \"http://h/\", credential: { bearer: hunter2 } } } } ]",
    ] {
        let loaded = Loaded::parse("g.yaml", source.to_owned(), BaseDir::default());
        let built = loaded
            .and_then(|loaded| App::build(loaded, std::sync::Arc::new(SystemClock), std::path::Path::new("true")));
        let Err(report) = built else { panic!("{source}") };
        let report = format!("{report}{:?}{}", report.lines(), report.to_json());
        assert!(!report.contains("hunter2") && !report.contains("42424242"), "{report}");
    }
}

/// A route whose worker answers with its process id, after a second if `wait` is set.
const WORKER: &str = r#"{"name":"w","input":[{"name":"n"},{"name":"wait","default":"0"}],
    "backend":{"script":{"mode":"worker","command":["python3","-u","-c","import json,os,sys,time\nfor line in sys.stdin:\n  q=json.loads(line)\n  time.sleep(float(q['request']['input']['parameters'].get('wait','0')))\n  print(json.dumps({'id':q['id'],'output':[{'pid':str(os.getpid())}]}))"]}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_route_keeps_its_workers_answers_and_runs() {
    let worker = WORKER.replace('\n', "");
    let app = start(&[&worker, A]).await;
    let pid = app.ask("w", json!({"n": "1"})).await.sets();
    let (route, address) = ("/w/api/v1/getparams.execute", app.address);
    let body = json!({"applicationSetName": "x", "input": {"parameters": {"n": "2", "wait": "1"}}}).to_string();
    let request = crate::support::wire::argo_request(route, TOKEN, body.as_bytes());
    let slow = {
        let request = request.clone();
        tokio::spawn(async move { crate::support::wire::exchange(address, &request).await })
    };
    while app.metric("appset_gateway_backend_runs_in_flight").await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let changes = reload(&app, &config("", &[&A.replace(r#""1""#, r#""2""#), &worker])).unwrap();
    assert_eq!((changes.same, changes.is_reordered), (1, true));
    // A caller with the same request joins the run from before the reload.
    let joined = app.send(&request).await;
    assert!(state(&joined).contains("collapsed"), "{}", state(&joined));
    assert_eq!((joined.sets(), slow.await.unwrap().sets()), (pid.clone(), pid.clone()));
    let hit = app.ask("w", json!({"n": "1"})).await;
    assert!(state(&hit).contains("; hit"), "{}", state(&hit));
    assert_eq!(app.ask("w", json!({"n": "3"})).await.sets(), pid, "the worker is the same");
    // With other settings the route gets a new worker, and the old one ends.
    reload(&app, &config("", &[A, &worker.replace(r#""mode""#, r#""timeout":"9s","mode""#)])).unwrap();
    assert_ne!(app.ask("w", json!({"n": "4"})).await.sets(), pid);
    let number: i32 = pid.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
    let gone = async {
        while nix::sys::signal::kill(nix::unistd::Pid::from_raw(number), None).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the worker before is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_caller_waits_for_a_replaced_route() {
    let route = |sleep: &str, says: &str| {
        format!(
            r#"{{"name":"r","backend":{{"script":{{"command":["sh","-c","sleep {sleep}; echo '[{{\"is\":\"{says}\"}}]'"]}}}}}}"#
        )
    };
    let app = start(&[&route("2", "old")]).await;
    let address = app.address;
    let request = crate::support::wire::argo_request("/r/api/v1/getparams.execute", TOKEN, b"{}");
    let before = {
        let request = request.clone();
        tokio::spawn(async move { crate::support::wire::exchange(address, &request).await })
    };
    while app.metric("appset_gateway_backend_runs_in_flight").await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    reload(&app, &config("", &[&route("0", "new")])).unwrap();
    assert_eq!(app.send(&request).await.sets(), r#"[{"is":"new"}]"#);
    assert_eq!(before.await.unwrap().sets(), r#"[{"is":"old"}]"#, "who began with it ends with it");
    // A late answer of the old route does not count.
    assert_eq!(app.send(&request).await.sets(), r#"[{"is":"new"}]"#);
}

#[tokio::test]
async fn a_repaired_route_runs_at_once() {
    let route = |command: &str| format!(r#"{{"name":"r","backend":{{"script":{{"command":{command}}}}}}}"#);
    let app = start(&[&route(r#"["false"]"#)]).await;
    assert_eq!(app.ask("r", json!({})).await.status, 502);
    reload(&app, &config("", &[&route(r#"["echo","[{\"a\":\"1\"}]"]"#)])).unwrap();
    assert_eq!(app.ask("r", json!({})).await.sets(), r#"[{"a":"1"}]"#);
}

#[tokio::test]
async fn callers_are_added_and_removed() {
    let app = start(&[A]).await;
    let tokens = |caller: &str| {
        let [caller, admin] = [caller, ADMIN_TOKEN].map(auth::hash_token);
        format!(
            "auth: {{ tokens: [ {{ name: t, sha256: \"{caller}\" }}, {{ name: o, role: admin, sha256: \"{admin}\" }} ] }}\n\
             server: {{ maxInFlight: 7, listen: \"127.0.0.1:1\" }}\nroutes:\n  - {A}\n"
        )
    };
    let changes = reload(&app, &tokens("another")).unwrap();
    assert_eq!(app.ask("a", json!({})).await.status, 403);
    // A setting that is read only at startup is reported until the restart.
    for _ in 0..2 {
        let shown: Value = serde_json::from_slice(&app.operate("/admin/config", None).await.body).unwrap();
        assert_eq!(shown["atTheNextStart"], json!(["server.listen"]));
        reload(&app, &tokens(TOKEN)).unwrap();
    }
    assert_eq!(changes.at_the_next_start(), ["server.listen"]);
    assert_eq!(app.ask("a", json!({})).await.status, 200);
    assert_eq!(app.app.setup().server.max_in_flight, 7);
}

#[tokio::test]
async fn a_changed_shared_setting_rebuilds_all_routes() {
    let app = start(&[A, B]).await;
    assert_eq!(reload(&app, &config("# nothing\n", &[A, B])).map(|_| app.app.setup().kept), Ok(2));
    let outbound = "outbound: { allowAddresses: [10.0.0.0/8] }\n";
    assert_eq!(reload(&app, &config(outbound, &[A, B])).map(|_| app.app.setup().kept), Ok(0));
    assert_eq!(reload(&app, &config("server: { deadline: 9s }\n", &[A, B])).map(|_| app.app.setup().kept), Ok(0));
    let deadlines: Vec<u64> = app.app.setup().routes.iter().map(|route| route.deadline.as_secs()).collect();
    assert_eq!(deadlines, [9, 9]);
}
