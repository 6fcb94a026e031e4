//! Held and stored answers after a start.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_held_answer_survives_a_restart_and_the_command_releases_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "cache: { ttl: 0s }, guard: { confirmFor: 1h },");
    print(folder.path(), &["a", "b"]);
    let mut gateway = Gateway::serve(&config);
    let good = ask(&gateway).await.sets();
    print(folder.path(), &[]);
    assert_eq!(ask(&gateway).await.sets(), good);
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(10));

    std::fs::write(folder.path().join("gate"), "").unwrap();
    let mut gateway = Gateway::serve(&config);
    let admin = gateway.admin.to_string();
    let run = |arguments: &[&str]| {
        let output = command().arg("held").args(arguments).arg("-c").arg(&config).args(["--admin", &admin]).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    // The run after the start still hangs, so this answer was stored before the restart.
    let (code, listed) = run(&["list"]);
    assert_eq!(code, Some(0), "{listed}");
    assert!(listed.contains("held: an empty list after one of 2; Argo CD would delete"), "{listed}");
    let (_, json) = run(&["list", "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let id = json["held"][0]["id"].as_str().unwrap();
    assert!(listed.starts_with(id), "{listed}");
    std::fs::remove_file(folder.path().join("gate")).unwrap();

    let (code, printed) = run(&["reject", id]);
    assert_eq!((code, printed.contains("the last good answer stays")), (Some(0), true), "{printed}");
    let (code, printed) = run(&["release", "000000"]);
    assert_eq!((code, printed.contains("nothing is held under this id")), (Some(1), true), "{printed}");
    let (code, printed) = run(&["release", &id[..8], "--reason", "the team has closed these"]);
    assert_eq!((code, printed.contains("accepted, because the source still says so")), (Some(0), true), "{printed}");
    assert_eq!(run(&["list"]).1, "nothing is held\n");
    assert_eq!(ask(&gateway).await.sets(), "[]");
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    let decided = log.lines().find(|line| line.contains("\"decision\":\"Released\"")).unwrap();
    assert!(
        decided.contains(r#""caller":"o""#) && decided.contains(r#""reason":"the team has closed these""#),
        "{decided}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_answers_are_renewed_after_a_start_without_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    print(folder.path(), &["a", "b"]);
    let mut gateway = Gateway::serve(&config);
    ask(&gateway).await;
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(10));
    print(folder.path(), &["a", "b", "c"]);

    let mut gateway = Gateway::serve(&config);
    let listed = async || {
        let reply = exchange_admin(gateway.admin, operator_request("GET", "/admin/answers", "").as_bytes()).await;
        reply.json()["answers"][0]["state"].clone()
    };
    while listed().await != "fresh" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reply = ask(&gateway).await;
    assert_eq!((reply.sets().as_str(), runs(folder.path())), (r#"[{"name":"a"},{"name":"b"},{"name":"c"}]"#, 2));
    let status = reply.header("cache-status").unwrap();
    assert!(status.starts_with("appset-gateway; hit; ttl=") && !status.contains("ttl=-"), "{status}");
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    assert!(log.contains("the answers from before the start are renewed"), "{log}");
}
