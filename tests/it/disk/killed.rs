//! `kill -9` at the worst moment: given answers survive, and a lost record is known to be lost.

use super::*;

/// A route whose script answers `n` with the content of the file `answer-<n>`, and fails without that file. `cache` adds
/// options to the configuration's `cache`.
fn config_by_number(folder: &Path, cache: &str) -> PathBuf {
    let file = config(folder);
    let script = r#"n=$(sed 's/.*"n":"\([0-9]*\)".*/\1/'); exec cat "answer-$n""#;
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("[cat, answer]", &json!(["sh", "-c", script]).to_string());
    std::fs::write(&file, text.replace("path: answers.redb", &format!("path: answers.redb{cache}"))).unwrap();
    file
}

fn answers(folder: &Path, n: usize, text: Option<&str>) {
    let file = folder.join(format!("answer-{n}"));
    match text {
        Some(text) => std::fs::write(file, text).unwrap(),
        None => std::fs::remove_file(file).unwrap(),
    }
}

async fn invalidate(gateway: &Gateway) {
    let request = operator_request("POST", "/admin/answers/invalidate", r#"{"route":"s"}"#);
    assert_eq!(exchange_admin(gateway.admin, request.as_bytes()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_survives_a_kill_right_after_it() {
    const EACH: usize = 6;
    let folder = tempfile::tempdir().unwrap();
    let config = config_by_number(folder.path(), "");
    for round in 0..40 {
        let gateway = Gateway::serve(&config);
        assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 0, "round {round}");
        // The source does not answer these questions any more.
        for n in round.max(2) * EACH - 2 * EACH..round * EACH {
            assert_eq!(ask(&gateway, n).await.sets(), expected(n), "round {round}");
        }
        for n in round * EACH..(round + 1) * EACH {
            answers(folder.path(), n, Some(r#"[{"a":"b"}]"#));
            assert_eq!(ask(&gateway, n).await.sets(), expected(n));
            answers(folder.path(), n, None);
        }
        drop(gateway);
    }
}

/// Asks until a kill leaves something in the journal. Returns the journal segment.
async fn leave_in_journal(folder: &Path, config: &Path, numbers: std::ops::Range<usize>) -> PathBuf {
    loop {
        let gateway = Gateway::serve(config);
        invalidate(&gateway).await;
        for n in numbers.clone() {
            answers(folder, n, Some(r#"[{"a":"b"}]"#));
            assert_eq!(ask(&gateway, n).await.sets(), expected(n));
            answers(folder, n, None);
        }
        drop(gateway);
        let segments = ["answers.redb.journal", "answers.redb.journal-2"].map(|name| folder.join(name));
        let full = segments.into_iter().find(|segment| segment.metadata().unwrap().len() > 100);
        if let Some(full) = full {
            return full;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_or_damaged_journal_causes_no_wrong_answer() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_by_number(folder.path(), "");
    // A truncated frame belongs to an answer that was never given.
    let segment = leave_in_journal(folder.path(), &config, 0..5).await;
    let whole = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, [&whole[..], &whole[..90]].concat()).unwrap();
    let gateway = Gateway::serve(&config);
    assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 0);
    for n in 0..5 {
        assert_eq!(ask(&gateway, n).await.sets(), expected(n));
    }
    answers(folder.path(), 50, Some("[]"));
    assert_eq!(ask(&gateway, 50).await.sets(), "[]", "nothing was lost");
    drop(gateway);
    // With a flipped bit in a frame's header, the journal's contents are unknown.
    let segment = leave_in_journal(folder.path(), &config, 5..10).await;
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for round in 0..2 {
        let gateway = Gateway::serve(&config);
        for n in (0..10).chain([60]) {
            answers(folder.path(), n, Some("[]"));
            let reply = ask(&gateway, n).await;
            assert_eq!((reply.status, reply.code().as_str()), (503, "held"), "{n} in round {round}");
        }
    }
}

/// The disk is full, the gateway is killed, and then the source says that there is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_to_a_full_disk_never_counts_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let large = json!([{ "a": "x".repeat(200_000) }]).to_string();
    std::fs::write(folder.path().join("answer"), &large).unwrap();
    let gateway = Gateway::serve_limited(&config, 4 * 1024 * 1024);
    for n in 0..30 {
        assert!(ask(&gateway, n).await.sets().len() > 200_000);
    }
    while metric(&gateway, "appset_gateway_disk_lost_total").await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(gateway);

    std::fs::write(folder.path().join("answer"), "[]").unwrap();
    for round in 0..2 {
        let gateway = Gateway::serve(&config);
        for n in (0..30).chain(0..30) {
            let reply = ask(&gateway, n).await;
            let is_right = (reply.status == 503 && reply.code() == "held") || reply.text().len() > 200_000;
            assert!(is_right, "{n} in round {round}: {}", reply.text());
        }
        assert_eq!(ask(&gateway, 1000).await.sets(), "[]", "it never was anything else");
    }
}

/// A stored answer is followed by an answer that the disk does not take.
#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_record_is_neither_served_nor_used_by_the_guard() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_by_number(folder.path(), "");
    let gateway = Gateway::serve_limited(&config, 64 * 1024 * 1024);
    answers(folder.path(), 0, Some(r#"[{"a":"b"}]"#));
    assert_eq!(ask(&gateway, 0).await.sets(), expected(0));
    invalidate(&gateway).await;
    // Enough for the marks of loss, and neither for the journal nor for the database.
    gateway.limit("1100000");
    // Without repetition: equal chunks of a long record are stored once.
    let long: String = (0..300_000).map(|number: u32| number.to_string()).collect();
    answers(folder.path(), 0, Some(&json!([{ "a": long }]).to_string()));
    assert!(ask(&gateway, 0).await.sets().len() > 1_500_000);
    assert!(metric(&gateway, "appset_gateway_disk_lost_total").await > 0, "before it is answered");
    assert!(ask(&gateway, 0).await.header("cache-status").unwrap().contains("hit"), "memory has it");
    drop(gateway);

    answers(folder.path(), 0, None);
    let gateway = Gateway::serve(&config);
    let reply = ask(&gateway, 0).await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "backend_failed"), "{}", reply.text());
    drop(gateway);
    answers(folder.path(), 0, Some("[]"));
    let gateway = Gateway::serve(&config);
    assert_eq!(ask(&gateway, 0).await.code(), "held");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_evicted_from_the_file_never_counts_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_by_number(folder.path(), ", disk: 60KiB");
    let mut gateway = Gateway::serve(&config);
    for n in 0..20 {
        answers(folder.path(), n, Some(&json!([{ "a": "x".repeat(5000) }]).to_string()));
        assert!(ask(&gateway, n).await.sets().len() > 5000);
        answers(folder.path(), n, None);
    }
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(10));
    for round in 0..2 {
        let gateway = Gateway::serve(&config);
        for n in [0, 7, 12] {
            answers(folder.path(), n, Some("[]"));
            let reply = ask(&gateway, n).await;
            assert_eq!((reply.status, reply.code().as_str()), (503, "held"), "{n} in round {round}");
        }
        assert!(ask(&gateway, 19).await.sets().len() > 5000, "the last one is there");
        answers(folder.path(), 100, Some("[]"));
        assert_eq!(ask(&gateway, 100).await.sets(), "[]", "it never was anything else");
    }
}
