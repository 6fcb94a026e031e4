//! A candidate changes no answer, no status and no budget of its route, whatever it does. Only a gateway that serves asks it.

use super::*;
use crate::support::{
    ADMIN_TOKEN, TOKEN,
    binary::{Gateway, command},
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

#[tokio::test]
async fn whatever_the_candidate_does_the_answer_is_the_routes_own() {
    let scene = Scene::start(json!({"timeout": "1s"})).await;
    let own = json!([app_set("a", "1"), app_set("b", "1")]);
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[".to_vec();
    let faults = [
        vec![Step::Send(response(500, "", "broken"))],
        vec![Step::Send(json_response("not JSON"))],
        vec![Step::Send(json_response(r#"{"no": "list"}"#))],
        vec![Step::Send(json_response("[null, 1]"))],
        vec![Step::Reset],
        vec![Step::Send(head.clone())],
        vec![Step::Send(head), Step::Flood(vec![b' '; 65536])],
        vec![Step::Hang],
    ];
    scene.primary.answers(&own);
    for (number, fault) in (1..).zip(faults) {
        scene.candidate.plays(fault.clone());
        let reply = scene.ask(number).await;
        assert_eq!((reply.status, &reply.json()["output"]["parameters"]), (200, &own), "{fault:?}");
        assert!(!reply.header("cache-status").unwrap().contains("stale"), "{fault:?}");
        let report = scene.report().await;
        assert_eq!(report["counts"], counts(&json!({"candidateError": number})), "{fault:?}");
        assert!(!report["differences"][0]["error"].as_str().unwrap().is_empty());
    }
    assert_eq!(scene.report().await["noise"], json!([]));
    scene.candidate.answers(&json!([]));
    scene.ask(9).await;
    let listed = scene.app.operate("/admin/held", None).await.json();
    assert_eq!(listed, json!({"held": []}), "an empty list of the candidate is no loss");
    assert_eq!(scene.app.ask("r", json!({})).await.json()["output"]["parameters"], own);
}

#[tokio::test]
async fn callers_have_their_answers_before_the_candidate_ends_and_too_many_comparisons_are_skipped() {
    let scene = Scene::start(json!({"timeout": "10m"})).await;
    scene.primary.answers(&json!([app_set("a", "1")]));
    scene.candidate.plays(vec![Step::Hang]);
    let ask = async |n: u32| scene.app.ask("r", json!({ "n": n })).await.status;
    assert_eq!((ask(1).await, ask(2).await), (200, 200));
    assert_eq!(scene.report().await["counts"], counts(&json!({})), "both candidates are still asked");
    assert_eq!((ask(3).await, ask(4).await), (200, 200));
    let report = scene.ended(2).await;
    assert_eq!(report["counts"], counts(&json!({"skipped": 2})), "at most two are asked at once");
    let until = Instant::now() + Duration::from_mins(5);
    while scene.candidate.count() < 2 {
        assert!(Instant::now() < until, "the candidate was not asked");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((scene.candidate.count(), scene.metric("skipped").await), (2, 2));
}

/// Both backends ask one host. Its breaker opens for the candidate alone.
#[tokio::test]
async fn a_host_that_fails_for_the_candidate_is_still_queried_for_the_route() {
    let play = |request: &crate::support::upstream::Request| {
        let is_good = request.target == "/good";
        let answer = if is_good { json_response(r#"[{"name":"a"}]"#) } else { response(500, "", "broken") };
        vec![Step::Send(answer)]
    };
    let upstream = Upstream::start_apart(play).await;
    let at = |path: &str| json!({"http": {"url": format!("http://{}/{path}", upstream.address), "parameters": "body"}});
    let route = json!({"name": "r", "backend": at("good"), "shadow": {"backend": at("bad")}});
    let app = TestApp::start(&format!("{}routes: {}\n", TestApp::auth(), json!([route]))).await;
    let scene = Scene { app, primary: Source::start().await, candidate: Source::start().await };
    for number in 1..=8 {
        assert_eq!(scene.app.ask("r", json!({ "n": number })).await.status, 200);
        scene.ended(number).await;
    }
    let report = scene.report().await;
    assert_eq!(report["counts"], counts(&json!({"candidateError": 8})));
    let last = report["differences"][0]["error"].as_str().unwrap();
    assert!(last.contains("no request sent"), "the breaker is open: {last}");
}

/// Both backends are scripts of which one may run at a time. The candidate's waits, and the route's own script still runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_script_of_the_candidate_takes_no_permit_from_the_route() {
    let script = |command: &str| json!({"script": {"command": ["sh", "-c", command], "concurrency": 1}});
    let mut route = json!({"name": "r", "backend": script("echo '[{\"name\":\"a\"}]'")});
    route["shadow"] = json!({"backend": script("sleep 60"), "timeout": "10m"});
    let app =
        TestApp::start(&format!("scripts: {{ concurrency: 1 }}\n{}routes: {}\n", TestApp::auth(), json!([route])))
            .await;
    let scene = Scene { app, primary: Source::start().await, candidate: Source::start().await };
    for n in 0..6 {
        assert_eq!(scene.app.ask("r", json!({ "n": n })).await.status, 200, "{n}");
    }
    let report = scene.ended(4).await;
    assert_eq!(report["counts"], counts(&json!({"skipped": 4})), "two candidates are under way");
}

/// The candidate reads a document that is large enough to need a turn. The route's own documents have turns of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_document_of_the_candidate_is_compared_beside_the_routes() {
    let scene = Scene::start(json!({})).await;
    let set = |n: u32| json!({"name": format!("t{n}"), "text": "x".repeat(4000)});
    let large: Value = (0..2000).map(set).collect();
    scene.answer(&json!([app_set("a", "1")]), &large);
    let own = json!([app_set("a", "1")]);
    for n in 0..3 {
        let reply = scene.app.ask("r", json!({ "n": n })).await;
        assert_eq!((reply.status, &reply.json()["output"]["parameters"]), (200, &own));
    }
    let report = scene.ended(3).await;
    let counted = &report["counts"];
    assert_eq!(counted["differs"].as_u64().unwrap() + counted["skipped"].as_u64().unwrap(), 3, "{counted}");
    assert!(counted["differs"].as_u64().unwrap() >= 1);
    assert_eq!(report["differences"][0]["added"]["count"], 2000);
}

fn write(scene: &Scene, folder: &TempDir) -> std::path::PathBuf {
    let file = folder.path().join("gateway.yaml");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    let shadow = shadow(&scene.candidate, json!({"timeout": "10m"}));
    std::fs::write(&file, format!("{server}{}", config(&scene.primary, Some(&shadow)))).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_logs_a_difference_without_values_and_ends_without_the_candidate() {
    let (scene, folder) = (Scene::start(json!({})).await, tempfile::tempdir().unwrap());
    scene.answer(&json!([app_set("secret-name", "1")]), &json!([app_set("secret-name", "2")]));
    let mut gateway = Gateway::serve(&write(&scene, &folder));
    let (address, admin) = (gateway.address, gateway.admin);
    let ask = async |name: &str| {
        let body = json!({"applicationSetName": name, "input": {"parameters": {"n": name}}}).to_string();
        exchange(address, &argo_request("/r/api/v1/getparams.execute", TOKEN, body.as_bytes())).await.status
    };
    assert_eq!(ask("one").await, 200);
    let until = Instant::now() + Duration::from_mins(5);
    loop {
        let request = operator_request("GET", "/admin/shadow", "");
        let report = exchange_admin(admin, request.as_bytes()).await.json();
        if report["shadows"][0]["counts"]["differs"] == 1 {
            break;
        }
        assert!(Instant::now() < until, "{report}");
        sleep(Duration::from_millis(10)).await;
    }
    scene.candidate.plays(vec![Step::Hang]);
    assert_eq!(ask("two").await, 200);
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_mins(1));
    assert!(status.success(), "the candidate has ten minutes, and nobody waits for it");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("candidate")).collect();
    let [line] = &lines[..] else { panic!("one line for one difference: {log}") };
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["level"], &line["route"], &line["changed"]), (&json!("INFO"), &json!("r"), &json!(1)), "{line}");
    assert!(!line.to_string().contains("secret-name"), "{line}");
    assert!(!log.contains(ADMIN_TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_never_ask_the_candidate() {
    let (scene, folder) = (Scene::start(json!({})).await, tempfile::tempdir().unwrap());
    scene.answer(&json!([app_set("a", "1")]), &json!([app_set("a", "2")]));
    let file = write(&scene, &folder);
    let questions = folder.path().join("questions.json");
    std::fs::write(
        &questions,
        r#"{"questions": [{"route": "r", "byMatch": false, "requesters": ["a"], "input": {}}]}"#,
    )
    .unwrap();
    let run = |arguments: &[&str]| {
        let output = command().args(arguments).arg("-c").arg(&file).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let before = scene.primary.count();
    let called = run(&["call", "r"]);
    assert!(called.contains(r#""tag":"1""#) || called.contains(r#""tag": "1""#), "{called}");
    let recorded = run(&["record", "r"]);
    assert!(recorded.contains("/list"), "{recorded}");
    let compared = run(&["diff", "--against", file.to_str().unwrap(), "--questions", questions.to_str().unwrap()]);
    let cases = folder.path().join("cases.yaml");
    std::fs::write(&cases, &recorded).unwrap();
    let tested = run(&["test", cases.to_str().unwrap()]);
    assert!(scene.primary.count() >= before + 3, "{compared}\n{tested}");
    assert_eq!(scene.candidate.count(), 0);
}

#[tokio::test]
async fn connect_tries_the_candidate_too() {
    let (scene, folder) = (Scene::start(json!({})).await, tempfile::tempdir().unwrap());
    let file = write(&scene, &folder);
    let output = tokio::task::spawn_blocking(move || command().args(["check", "--connect", "-c"]).arg(file).output());
    let said = String::from_utf8(output.await.unwrap().unwrap().stderr).unwrap();
    let candidate = scene.candidate.upstream.address.to_string();
    assert!(said.lines().any(|line| line.starts_with("route r, shadow: ") && line.contains(&candidate)), "{said}");
}
