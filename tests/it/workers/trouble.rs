//! Misbehaving workers.

use super::*;

#[tokio::test]
async fn a_worker_out_of_step_is_replaced() {
    let (app, _) = serve(json!({"timeout": "5s", "maxOutput": "1MiB"})).await;
    for (what, status, code, says) in [
        ("other id", 502, "backend_output_invalid", "lost step: it got "),
        ("no id", 502, "backend_output_invalid", "no `id`"),
        ("twice", 502, "backend_output_invalid", "more than one line"),
        ("garbage", 502, "backend_output_invalid", "lost step"),
        ("flood", 502, "backend_output_invalid", "more than 1048576 bytes without an end of line"),
        ("half", 502, "backend_failed", "in the middle of its answer: signal: 9"),
        ("half, then hang", 504, "backend_timeout", "stopped by its `timeout`"),
        ("exit", 502, "backend_failed", "exit status: 1; stderr: nobody there"),
        ("close", 502, "backend_failed", "closed its stdin or stdout"),
        ("complain", 502, "backend_output_invalid", "found a string"),
    ] {
        let before = pid(&app).await;
        let message = refused(&ask(&app, json!({ "do": what })).await, status, code, says);
        assert!(message.contains("python3"), "{message}");
        let after = pid(&app).await;
        assert_eq!(before == after, what == "complain", "{what}");
    }
}

#[tokio::test]
async fn the_error_for_a_worker_that_never_flushes_says_so() {
    let (app, _) = serve(json!({"timeout": "5s"})).await;
    let reply = ask(&app, json!({"do": "forget to flush"})).await;
    refused(&reply, 504, "backend_timeout", "if it did answer, it must flush its output after each line");
}

#[tokio::test]
async fn output_after_an_answer_never_answers_the_next_request() {
    let (app, _) = serve(json!({})).await;
    let first = returned_field(&ask(&app, json!({"do": "later once more"})).await, "pid");
    sleep(Duration::from_millis(500)).await;
    let reply = ask(&app, json!({})).await;
    assert_eq!(returned_field(&reply, "n"), "1");
    assert_ne!(returned_field(&reply, "pid"), first);
    // With concurrent requests the ids of the answers differ. A request gets both lines before it, or one.
    let (app, _) = serve(json!({})).await;
    let first = returned_field(&ask(&app, json!({"do": "later once more"})).await, "pid");
    let reply = ask(&app, json!({})).await;
    if reply.status == 200 {
        assert_ne!(returned_field(&reply, "pid"), first, "one of the two lines was taken for the other");
    } else {
        refused(&reply, 502, "backend_output_invalid", "lost step");
    }
}

#[tokio::test]
async fn a_hanging_worker_is_ended_with_its_descendants() {
    let (app, marker) = serve(json!({"timeout": "5s"})).await;
    let asked = Instant::now();
    let (hung, fine) = tokio::join!(ask(&app, json!({"do": "hang"})), app.ask("w", json!({})));
    refused(&hung, 504, "backend_timeout", "stopped by its `timeout`");
    assert!(asked.elapsed() < Duration::from_secs(15));
    returned_field(&fine, "pid");
    let (next, another) = (pid(&app).await, returned_field(&fine, "pid"));
    assert_eq!(next, another);
    let left = || processes(&marker).iter().any(|line| line.contains("sleep"));
    while left() {
        assert!(asked.elapsed() < PATIENCE, "{:?}", processes(&marker));
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_dead_worker_is_replaced_without_a_failure() {
    let (app, _) = serve(json!({})).await;
    for _ in 0..3 {
        let before = pid(&app).await;
        let dead = nix::unistd::Pid::from_raw(before.parse().unwrap());
        nix::sys::signal::kill(dead, Signal::SIGKILL).unwrap();
        assert_ne!(pid(&app).await, before);
    }
    // A worker that dies of the request is tried once more.
    assert_eq!(returned_field(&ask(&app, json!({"do": "exit once"})).await, "n"), "1");
    assert!(app.folder.path().join("once").exists());
}

#[tokio::test]
async fn a_worker_that_does_not_start_reports_the_reason() {
    let (app, _) = serve(json!({})).await;
    let broken = app.folder.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    app.app.start_workers();
    refused(&ask(&app, json!({})).await, 502, "backend_failed", "exit status: 1; stderr: cannot import the module");
    std::fs::remove_file(broken).unwrap();
    pid(&app).await;
}

#[tokio::test]
async fn endless_output_delays_nobody() {
    let (app, _) = serve(json!({})).await;
    let first = returned_field(&ask(&app, json!({"do": "words"})).await, "pid");
    for _ in 0..20 {
        assert_eq!(pid(&app).await, first);
        sleep(Duration::from_millis(20)).await;
    }
    let message = refused(&ask(&app, json!({"do": "garbage"})).await, 502, "backend_output_invalid", "lost step");
    assert!(message.contains("words without end") && message.len() < 2000, "{message}");
}

#[tokio::test]
async fn messages_contain_no_secrets_and_no_earlier_output() {
    let (app, _) = serve(json!({})).await;
    let reply = ask(&app, json!({"do": "complain"})).await;
    let message = refused(&reply, 502, "backend_output_invalid", "found a string");
    assert!(!message.contains("hunter2"), "{message}");
    let next = refused(&ask(&app, json!({"do": "twice"})).await, 502, "backend_output_invalid", "more than one line");
    assert!(!next.contains("no access") && !next.contains("hunter2"), "{next}");
}

#[tokio::test]
async fn output_before_the_request_is_no_answer() {
    let (app, _) = serve(json!({"concurrency": 1})).await;
    pid(&app).await;
    assert_eq!(returned_field(&ask(&app, json!({"do": "ahead"})).await, "n"), "2");
    // The line arrives while this request waits, with the number of the next request.
    let reply = ask(&app, json!({"do": "sleep"})).await;
    refused(&reply, 502, "backend_output_invalid", "lost step: it got ");
    assert_eq!(returned_field(&ask(&app, json!({})).await, "n"), "1");
}

#[tokio::test]
async fn a_request_without_a_free_worker_in_time_is_refused() {
    let (app, _) = serve(json!({"concurrency": 1, "timeout": "5s"})).await;
    pid(&app).await;
    let asked = (0..5).map(|n| app.ask("w", json!({"do": "sleep", "seconds": 2, "n": n})));
    let replies = futures_util::future::join_all(asked).await;
    let (good, late): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert!(!good.is_empty() && !late.is_empty());
    for reply in late {
        assert_eq!((reply.status, reply.code().as_str()), (504, "backend_timeout"), "{}", reply.text());
    }
}

#[tokio::test]
async fn only_the_worker_with_too_much_memory_ends() {
    let (app, _) = serve(json!({"limits": {"memory": "128MiB"}})).await;
    pid(&app).await;
    refused(&ask(&app, json!({"do": "swell"})).await, 502, "backend_failed", "MemoryError");
    assert_eq!(returned_field(&ask(&app, json!({})).await, "n"), "1");
}

#[tokio::test]
async fn hundreds_of_ended_workers_leave_nothing() {
    let marker = marker();
    let line = r#"while read -r line; do id=${line#*:}; echo '{"id":'${id%%,*}',"output":[]}'; sleep $1 & done"#;
    let script = json!({"mode": "worker", "command": ["sh", "-c", line, "sh", marker], "worker": {"recycleAfter": 1}});
    let routes = json!([{"name": "w", "backend": {"script": script}, "cache": {"ttl": "0s"}}]);
    let app = TestApp::with_routes(&format!("  {routes}")).await;
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(ask(&app, json!({})).await.sets(), "[]");
    let before = open();
    for round in 0..30 {
        let asked = (0..10).map(|n| app.ask("w", json!({"n": round * 10 + n})));
        for reply in futures_util::future::join_all(asked).await {
            assert_eq!(reply.sets(), "[]", "{}", reply.text());
        }
    }
    let until = Instant::now() + PATIENCE;
    // The worker that is started ahead, which has no request yet.
    while processes(&marker).len() > 1 {
        assert!(Instant::now() < until, "{:?}", processes(&marker));
        sleep(Duration::from_millis(10)).await;
    }
    // The launchers that wait for another program, and other tests, have open files too.
    assert!(open() < before + 200, "{before} then {}", open());
}
