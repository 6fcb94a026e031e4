//! Last good answers on disk: a restart, a crash, and a disk in every kind of trouble.

mod killed;
mod lost;

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{
    Reply, TOKEN, TestApp,
    binary::Gateway,
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

/// A gateway's configuration in `folder`, with a route `s` whose script prints the file `answer`.
fn config(folder: &Path) -> PathBuf {
    let file = folder.join("gateway.yaml");
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }}\n{}cache: {{ path: answers.redb }}\n\
         routes: [ {{ name: s, echo: [n], cache: {{ prefetch: false }}, backend: {{ script: {{ command: [cat, answer], allow: {{ read: [.] }} }} }} }} ]\n",
        TestApp::auth()
    );
    std::fs::write(&file, config).unwrap();
    file
}

fn works(folder: &Path, does_work: bool) {
    let file = folder.join("answer");
    if does_work { std::fs::write(file, r#"[{"a":"b"}]"#).unwrap() } else { std::fs::remove_file(file).unwrap() }
}

async fn ask(gateway: &Gateway, n: usize) -> Reply {
    let body = json!({"input": {"parameters": {"n": n.to_string()}}}).to_string();
    exchange(gateway.address, &argo_request("/s/api/v1/getparams.execute", TOKEN, body.as_bytes())).await
}

async fn metric(gateway: &Gateway, name: &str) -> usize {
    let text = exchange(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()).unwrap()
}

fn expected(n: usize) -> String {
    json!([{"a": "b", "n": n.to_string()}]).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    works(folder.path(), true);
    let mut gateway = Gateway::serve(&config);
    assert_eq!(ask(&gateway, 1).await.sets(), expected(1));
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(10));

    works(folder.path(), false);
    let gateway = Gateway::serve(&config);
    let reply = ask(&gateway, 1).await;
    assert_eq!(reply.sets(), expected(1));
    // No answer is fresh after a restart: the source may have changed meanwhile.
    assert!(reply.header("cache-status").unwrap().starts_with("appset-gateway; hit; ttl=-"));
    assert_eq!(ask(&gateway, 2).await.status, 502);
}

/// An answer of another configuration is not served, but Argo CD has made Applications from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_change_does_not_disable_the_guard() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path());
    let text = std::fs::read_to_string(&file).unwrap();
    let restart = |from: &str, to: &str| {
        std::fs::write(&file, text.replace(from, to)).unwrap();
        Gateway::serve(&file)
    };
    let end = |mut gateway: Gateway| {
        gateway.signal(Signal::SIGTERM);
        gateway.wait(Duration::from_secs(10));
    };
    works(folder.path(), true);
    let gateway = restart("", "");
    assert_eq!(ask(&gateway, 1).await.sets(), expected(1));
    end(gateway);

    // Changed lifetimes and guard rules do not change the contents of answers.
    works(folder.path(), false);
    let gateway =
        restart("cache: { prefetch: false },", "cache: { ttl: 1s, prefetch: false }, lineage: [n], match: {},");
    assert_eq!(ask(&gateway, 1).await.sets(), expected(1));
    end(gateway);

    let gateway = restart("[cat, answer]", "[cat, -u, answer]");
    let reply = ask(&gateway, 1).await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "backend_failed"), "made in another way");
    end(gateway);
    std::fs::write(folder.path().join("answer"), "[]").unwrap();
    let gateway = restart("[cat, answer]", "[cat, -u, answer]");
    let reply = ask(&gateway, 1).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "held"));
    assert_eq!(ask(&gateway, 2).await.sets(), "[]", "it never was anything else");
}

/// Every answer that the gateway reports as stored survives `kill -9` whole, 200 times in a row.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_kills_lose_nothing() {
    const EACH: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    // Only this round's questions can be answered, so nothing else is written.
    let config = config(folder.path());
    let script = r#"n=$(sed 's/.*"n":"\([0-9]*\)".*/\1/'); test -e "now-$n" && echo '[{"a":"b"}]'"#;
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("[cat, answer]", &json!(["sh", "-c", script]).to_string())).unwrap();
    let can_answer = |n: usize, can: bool| {
        let file = folder.path().join(format!("now-{n}"));
        if can { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
    };
    let (mut safe, mut total) = (Vec::new(), 0);
    for round in 0..200 {
        let gateway = Gateway::serve(&config);
        assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 0, "round {round}");
        for n in &safe {
            assert_eq!(ask(&gateway, *n).await.sets(), expected(*n), "round {round}");
        }
        let asked: Vec<usize> = (round * EACH..(round + 1) * EACH).collect();
        for n in &asked {
            can_answer(*n, true);
            assert_eq!(ask(&gateway, *n).await.sets(), expected(*n));
            can_answer(*n, false);
        }
        let writes = metric(&gateway, "appset_gateway_disk_writes_total").await;
        safe = asked.into_iter().take(writes).collect();
        total += safe.len();
        assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 0);
        // The kill comes while more writes are under way.
        let more = [100_000 + round, 200_000 + round];
        for n in more {
            can_answer(n, true);
        }
        tokio::join!(ask(&gateway, more[0]), ask(&gateway, more[1]));
        drop(gateway);
        for n in more {
            can_answer(n, false);
        }
    }
    assert!(total > 200, "only {total} answers were safe when the gateway was killed");
    assert!(
        !std::fs::read_dir(folder.path()).unwrap().any(|file| file
            .unwrap()
            .path()
            .to_string_lossy()
            .contains("damaged"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_never_causes_a_wrong_answer() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    works(folder.path(), true);
    let mut gateway = Gateway::serve(&config);
    for n in 0..20 {
        ask(&gateway, n).await;
    }
    gateway.signal(Signal::SIGTERM);
    gateway.wait(Duration::from_secs(10));
    works(folder.path(), false);
    let file = folder.path().join("answers.redb");
    let whole = std::fs::read(&file).unwrap();
    let companions = [".lost", ".journal", ".journal-2"].map(|suffix| format!("answers.redb{suffix}"));
    let companions = companions.map(|name| folder.path().join(name)).map(|path| (std::fs::read(&path).unwrap(), path));
    let flipped = |every: usize| {
        let mut bytes = whole.clone();
        bytes.iter_mut().skip(every / 2).step_by(every).for_each(|byte| *byte ^= 0x10);
        bytes
    };
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("a head only", whole[..600].to_vec()),
        ("zeros", vec![0; whole.len()]),
        ("no database", b"<html>".repeat(10_000)),
        ("flipped here and there", flipped(50_000)),
        ("flipped often", flipped(700)),
        ("flipped everywhere", flipped(1)),
    ] {
        for (bytes, path) in &companions {
            std::fs::write(path, bytes).unwrap();
        }
        std::fs::write(&file, bytes).unwrap();
        let gateway = Gateway::serve(&config);
        let mut kept = 0;
        for n in 0..20 {
            let reply = ask(&gateway, n).await;
            assert!(reply.status == 502 || reply.sets() == expected(n), "{name}: {}", reply.text());
            kept += usize::from(reply.status == 200);
        }
        works(folder.path(), true);
        let reply = ask(&gateway, 1000).await;
        assert!(reply.status == 503 || reply.sets() == expected(1000), "{name}: {}", reply.text());
        // The previous answer is lost, so an empty answer is not accepted at once.
        std::fs::write(folder.path().join("answer"), "[]").unwrap();
        let reply = ask(&gateway, 2000).await;
        // Unless the lost part held no answer: the cut-off bytes may have been unused.
        let is_damaged = !name.starts_with("flipped") && kept < 20;
        assert!(reply.status == 503 || !is_damaged, "{name}: {}", reply.text());
        works(folder.path(), false);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_works_without_a_usable_disk() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    works(folder.path(), true);
    // Another process holds the file.
    let first = Gateway::serve(&config);
    assert_eq!(ask(&first, 1).await.sets(), expected(1));
    let second = Gateway::serve(&config);
    // The file's contents are still unknown, so an empty answer is not accepted.
    std::fs::write(folder.path().join("answer"), "[]").unwrap();
    assert_eq!(ask(&second, 1).await.code(), "held");
    works(folder.path(), true);
    assert_eq!(metric(&second, "appset_gateway_disk_errors_total").await, 1);
    // The gateway gets the file once that process is gone.
    drop(first);
    for n in 2.. {
        ask(&second, n).await;
        if metric(&second, "appset_gateway_disk_writes_total").await > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(second);
    // A read-only folder has the name of the file.
    std::fs::remove_file(folder.path().join("answers.redb")).unwrap();
    std::fs::create_dir(folder.path().join("answers.redb")).unwrap();
    std::fs::set_permissions(folder.path().join("answers.redb"), PermissionsExt::from_mode(0o500)).unwrap();
    let gateway = Gateway::serve(&config);
    // The previous answers are unknown, so the guard has nothing to compare with.
    assert_eq!(ask(&gateway, 1).await.code(), "held");
    assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 1);
    assert!(folder.path().join("answers.redb").is_dir());
}

/// The disk is full: stored answers stay, new answers stay in memory, and every caller gets an answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_works_with_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let large = json!([{ "a": "x".repeat(100_000) }]).to_string();
    std::fs::write(folder.path().join("answer"), &large).unwrap();
    let mut gateway = Gateway::serve_limited(&config, 4 * 1024 * 1024);
    for n in 0..60 {
        assert_eq!(ask(&gateway, n).await.sets().len(), large.len() + r#""n":"","#.len() + n.to_string().len());
    }
    while metric(&gateway, "appset_gateway_disk_errors_total").await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let safe = metric(&gateway, "appset_gateway_disk_writes_total").await;
    assert!((2..60).contains(&safe), "{safe}");
    assert!(ask(&gateway, 59).await.header("cache-status").unwrap().starts_with("appset-gateway; hit"));
    // An invalidation that cannot be written also covers the answers on disk.
    let later = json!([{ "a": "x".repeat(100_000), "b": "later" }]).to_string();
    std::fs::write(folder.path().join("answer"), &later).unwrap();
    let request = operator_request("POST", "/admin/answers/invalidate", r#"{"route":"s"}"#);
    assert_eq!(exchange_admin(gateway.admin, request.as_bytes()).await.status, 200);
    let reply = ask(&gateway, 0).await;
    assert!(!reply.header("cache-status").unwrap().contains("hit") && reply.sets().contains("later"));
    // Once there is room again, new answers are stored.
    gateway.unlimit();
    for n in 60.. {
        ask(&gateway, n).await;
        if metric(&gateway, "appset_gateway_disk_writes_total").await > safe {
            break;
        }
    }
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(10));
    assert!(status.success() && log.contains("cannot be kept on disk; they stay in memory"), "{status}");

    // Earlier records are whole. The first question has a later answer, which may have been stored once there was room.
    works(folder.path(), false);
    let gateway = Gateway::serve(&config);
    assert_eq!(ask(&gateway, 1).await.sets().len(), large.len() + r#""n":"1","#.len());
    let reply = ask(&gateway, 0).await;
    assert!(reply.status == 502 || reply.sets().contains("later"), "{}", reply.status);
    assert_eq!(metric(&gateway, "appset_gateway_disk_errors_total").await, 0);
}
