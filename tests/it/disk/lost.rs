//! The file of last good answers, or one beside it, is damaged or gone: an empty answer is not accepted, also after
//! another restart.

use super::*;

/// What happens to the files between two starts, and its name.
type Loss = (&'static str, fn(&Path));

const LOSSES: [Loss; 5] = [
    ("the file is empty", |path| std::fs::write(path, b"").unwrap()),
    ("the file is empty and alone", |path| {
        for suffix in [".journal", ".journal-2", ".lost"] {
            std::fs::remove_file(path.with_file_name(format!("answers.redb{suffix}"))).unwrap();
        }
        std::fs::write(path, b"").unwrap();
    }),
    ("the file is damaged", |path| std::fs::write(path, b"<html>".repeat(1000)).unwrap()),
    ("the file is gone", |path| std::fs::remove_file(path).unwrap()),
    ("the marks of loss are gone", |path| std::fs::remove_file(path.with_file_name("answers.redb.lost")).unwrap()),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_lost_file_never_counts_as_empty() {
    for (name, lose) in LOSSES {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        works(folder.path(), true);
        let mut gateway = Gateway::serve(&config);
        for n in 0..3 {
            assert_eq!(ask(&gateway, n).await.sets(), expected(n));
        }
        gateway.signal(Signal::SIGTERM);
        gateway.wait(Duration::from_secs(10));
        lose(&folder.path().join("answers.redb"));
        std::fs::write(folder.path().join("answer"), "[]").unwrap();
        for start in 0..3 {
            let gateway = Gateway::serve(&config);
            // This holds for all questions, since the earlier questions are unknown, too.
            for n in [start, start + 10] {
                let reply = ask(&gateway, n).await;
                assert_eq!((reply.status, reply.code().as_str()), (503, "held"), "{name}: {n} at start {start}");
            }
            let errors = metric(&gateway, "appset_gateway_disk_errors_total").await;
            assert_eq!(errors, usize::from(start == 0), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_all_files_resets_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    works(folder.path(), true);
    let gateway = Gateway::serve(&config);
    assert_eq!(ask(&gateway, 1).await.sets(), expected(1));
    drop(gateway);
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("answers.redb") {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    std::fs::write(folder.path().join("answer"), "[]").unwrap();
    let gateway = Gateway::serve(&config);
    assert_eq!(ask(&gateway, 1).await.sets(), "[]");
    assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 0);
}

/// A gateway that waits for the file believes the answers that its guard allows, and stores them once it has the file.
#[tokio::test(flavor = "multi_thread")]
async fn answers_served_before_the_file_was_free_are_stored_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("name: s,", "name: s, guard: { maxShrink: 100% },")).unwrap();
    works(folder.path(), true);
    let first = Gateway::serve(&config);
    assert_eq!(ask(&first, 1).await.sets(), expected(1));
    let second = Gateway::serve(&config);
    assert_eq!(ask(&second, 2).await.sets(), expected(2));
    works(folder.path(), false);
    drop(first);
    while metric(&second, "appset_gateway_disk_writes_total").await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(second);
    let gateway = Gateway::serve(&config);
    for n in 1..3 {
        assert_eq!(ask(&gateway, n).await.sets(), expected(n));
    }
}
