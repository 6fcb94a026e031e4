//! Workers that do what they should not.

use super::*;

#[tokio::test]
async fn whoever_loses_step_is_replaced() {
    let (app, _) = serve(json!({"timeout": "2s", "maxOutput": "1MiB"})).await;
    for (what, status, code, says) in [
        ("other id", 502, "backend_output_invalid", "lost step: it was asked "),
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
async fn a_worker_that_never_flushes_is_told_to_flush() {
    let (app, _) = serve(json!({"timeout": "1s"})).await;
    let reply = ask(&app, json!({"do": "forget to flush"})).await;
    refused(&reply, 504, "backend_timeout", "if it did answer, it must flush its output after each line");
}

#[tokio::test]
async fn words_after_an_answer_are_no_answer_to_the_next_question() {
    let (app, _) = serve(json!({})).await;
    let first = told(&ask(&app, json!({"do": "later once more"})).await, "pid");
    sleep(Duration::from_millis(500)).await;
    let reply = ask(&app, json!({})).await;
    assert_eq!(told(&reply, "n"), "1");
    assert_ne!(told(&reply, "pid"), first);
    // At the same time, the answers differ in their ids at least. Who is asked has both lines before it, or one.
    let (app, _) = serve(json!({})).await;
    let first = told(&ask(&app, json!({"do": "later once more"})).await, "pid");
    let reply = ask(&app, json!({})).await;
    if reply.status == 200 {
        assert_ne!(told(&reply, "pid"), first, "one of the two lines was taken for the other");
    } else {
        refused(&reply, 502, "backend_output_invalid", "lost step");
    }
}

#[tokio::test]
async fn whoever_hangs_is_ended_with_all_that_it_started() {
    let (app, marker) = serve(json!({"timeout": "1s"})).await;
    let asked = Instant::now();
    let (hung, fine) = tokio::join!(ask(&app, json!({"do": "hang"})), app.ask("w", json!({})));
    refused(&hung, 504, "backend_timeout", "stopped by its `timeout`");
    assert!(asked.elapsed() < Duration::from_secs(3));
    told(&fine, "pid");
    let (next, another) = (pid(&app).await, told(&fine, "pid"));
    assert_eq!(next, another);
    let left = || processes(&marker).iter().any(|line| line.contains("sleep"));
    while left() {
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", processes(&marker));
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn whoever_died_is_replaced_without_a_failure() {
    let (app, _) = serve(json!({})).await;
    for _ in 0..3 {
        let before = pid(&app).await;
        let dead = nix::unistd::Pid::from_raw(before.parse().unwrap());
        nix::sys::signal::kill(dead, Signal::SIGKILL).unwrap();
        assert_ne!(pid(&app).await, before);
    }
    // One that dies of the question is asked once more.
    assert_eq!(told(&ask(&app, json!({"do": "exit once"})).await, "n"), "1");
    assert!(app.folder.path().join("once").exists());
}

#[tokio::test]
async fn one_that_does_not_start_says_why() {
    let (app, _) = serve(json!({})).await;
    let broken = app.folder.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    app.app.start_ahead();
    refused(&ask(&app, json!({})).await, 502, "backend_failed", "exit status: 1; stderr: cannot import the module");
    std::fs::remove_file(broken).unwrap();
    pid(&app).await;
}

#[tokio::test]
async fn words_without_end_hold_up_nobody() {
    let (app, _) = serve(json!({})).await;
    let first = told(&ask(&app, json!({"do": "words"})).await, "pid");
    for _ in 0..20 {
        assert_eq!(pid(&app).await, first);
        sleep(Duration::from_millis(20)).await;
    }
    let message = refused(&ask(&app, json!({"do": "garbage"})).await, 502, "backend_output_invalid", "lost step");
    assert!(message.contains("words without end") && message.len() < 2000, "{message}");
}

#[tokio::test]
async fn messages_hold_neither_secrets_nor_what_was_said_before() {
    let (app, _) = serve(json!({})).await;
    let reply = ask(&app, json!({"do": "complain"})).await;
    let message = refused(&reply, 502, "backend_output_invalid", "found a string");
    assert!(!message.contains("hunter2"), "{message}");
    let next = refused(&ask(&app, json!({"do": "twice"})).await, 502, "backend_output_invalid", "more than one line");
    assert!(!next.contains("no access") && !next.contains("hunter2"), "{next}");
}

#[tokio::test]
async fn what_was_written_before_the_question_is_no_answer() {
    let (app, _) = serve(json!({"concurrency": 1})).await;
    pid(&app).await;
    assert_eq!(told(&ask(&app, json!({"do": "ahead"})).await, "n"), "2");
    // It comes while this question waits, with the number that would be the next one.
    let reply = ask(&app, json!({"do": "sleep"})).await;
    refused(&reply, 502, "backend_output_invalid", "lost step: it was asked ");
    assert_eq!(told(&ask(&app, json!({})).await, "n"), "1");
}

#[tokio::test]
async fn who_finds_no_turn_in_time_is_told_so() {
    let (app, _) = serve(json!({"concurrency": 1, "timeout": "1s"})).await;
    pid(&app).await;
    let asked = (0..5).map(|n| app.ask("w", json!({"do": "sleep", "n": n})));
    let replies = futures_util::future::join_all(asked).await;
    let (good, late): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert!(!good.is_empty() && !late.is_empty());
    for reply in late {
        assert_eq!((reply.status, reply.code().as_str()), (504, "backend_timeout"), "{}", reply.text());
    }
}

#[tokio::test]
async fn whoever_swells_ends_alone() {
    let (app, _) = serve(json!({"limits": {"memory": "128MiB"}})).await;
    pid(&app).await;
    refused(&ask(&app, json!({"do": "swell"})).await, 502, "backend_failed", "MemoryError");
    assert_eq!(told(&ask(&app, json!({})).await, "n"), "1");
}

#[tokio::test]
async fn hundreds_of_ends_leave_nothing() {
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
    let until = Instant::now() + Duration::from_secs(3);
    // The one that is kept ahead, which nobody has asked yet.
    while processes(&marker).len() > 1 {
        assert!(Instant::now() < until, "{:?}", processes(&marker));
        sleep(Duration::from_millis(10)).await;
    }
    // What the launchers that wait for another program have open, and other tests.
    assert!(open() < before + 200, "{before} then {}", open());
}
