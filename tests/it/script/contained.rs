//! Scripts that try to escape their end, their limits and their own files. Afterwards nothing of them is left, and the next
//! call works.

use std::{path::Path, time::Duration};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{Instant, sleep},
};

use crate::support::{
    Reply, TOKEN, TestApp,
    binary::Gateway,
    processes::{all_gone, held, marker, processes},
    upstream::refused,
    wire::{argo_request, exchange, read_reply},
};

/// A gateway with the route `s`, which runs `line` in a shell, and the ordinary route `next`.
async fn shell(line: &str, more: Value) -> TestApp {
    let mut script = json!({"command": ["sh", "-c", line], "timeout": "5s"});
    script.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let route =
        |name: &str, script: Value| json!({"name": name, "backend": {"script": script}, "cache": {"ttl": "0s"}});
    let routes = json!([route("s", script), route("next", json!({"command": ["echo", "[]"]}))]);
    TestApp::with_routes(&format!("  {routes}")).await
}

#[tokio::test]
async fn detached_processes_end_with_the_run() {
    // `exec -a` or a loop of sleeps would work too. The unique duration of the sleep identifies it.
    for (what, line) in [
        ("a tree", "for i in 1 2 3; do (sleep M & sleep M & sleep M) & done; echo '[]'"),
        ("a new session", "setsid sleep M & echo '[]'"),
        ("a double fork", "(setsid sh -c 'sleep M & exit' &); echo '[]'"),
        ("a tree in a new session", "setsid sh -c 'sleep M & setsid sleep M & wait' & sleep 0.1; echo '[]'"),
        ("ignores TERM", "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep M; sleep M' & sleep M"),
        ("hangs", "echo '[]'; sleep M"),
        ("closes its output, then hangs", "echo '[]'; exec >&- 2>&-; sleep M"),
        ("a grandchild that holds the output", "sleep M & echo '[]'"),
        ("a flood", "setsid sleep M & yes M"),
        ("a flood of words", "setsid sleep M & yes M >&2"),
        ("starts others without end", "while :; do setsid sleep M & sleep 0.01; done"),
        ("killed by a signal", "setsid sleep M & kill -9 $$"),
    ] {
        let marker = marker();
        let app = shell(&line.replace(" M", &format!(" {marker}")), json!({})).await;
        let reply = app.ask_afresh("s", json!({})).await;
        let is_well = line.ends_with("echo '[]'");
        assert_eq!(reply.status == 200, is_well, "{what}: {} {}", reply.status, reply.text());
        all_gone(&marker, what).await;
        assert_eq!(app.ask_afresh("next", json!({})).await.sets(), "[]", "{what}");
    }
}

#[tokio::test]
async fn scripts_end_with_the_gateway() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let (folder, marker) = (tempfile::tempdir().unwrap(), marker());
        // The program ends only by SIGKILL, and only the gateway's own end waits for it.
        let line = format!("trap '' TERM; setsid sleep {marker} & exec sleep {marker}");
        let route = json!({"name": "s", "deadline": "2s", "backend": {"script": {"command": ["sh", "-c", line]}}});
        let file = folder.path().join("gateway.yaml");
        let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }";
        std::fs::write(&file, format!("{server}\n{}routes: {}\n", TestApp::auth(), json!([route]))).unwrap();
        let mut gateway = Gateway::serve(&file);
        let request = argo_request("/s/api/v1/getparams.execute", TOKEN, b"{}");
        let address = gateway.address;
        let call = tokio::spawn(async move { exchange(address, &request).await });
        while processes(&marker).len() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        gateway.signal(signal);
        if signal == Signal::SIGTERM {
            assert_eq!(call.await.unwrap().status, 504);
            let folder = format!("appset-gateway-{}-", gateway.id());
            assert!(gateway.wait(Duration::from_secs(10)).0.success());
            assert_eq!(processes(&marker), [""; 0]);
            let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|entry| entry.file_name());
            assert_eq!(left.filter(|name| name.to_string_lossy().starts_with(&folder)).count(), 0);
        } else {
            call.abort();
        }
        all_gone(&marker, signal.as_str()).await;
    }
}

#[tokio::test]
async fn resource_limits_are_enforced() {
    for (what, line, limits) in [
        (
            "memory",
            "head -c 100000000 /dev/zero | tail -c 90000000 > /dev/null && echo '[]'",
            json!({"memory": "32MiB"}),
        ),
        ("file size", "head -c 3000000 /dev/zero > $TMPDIR/big && echo '[]'", json!({"fileSize": "1MiB"})),
        ("processor time", "while :; do :; done", json!({"cpu": "1s"})),
        (
            "open files",
            "exec bash -c 'for i in $(seq 30); do exec {fd}</dev/null || exit 1; done; echo []'",
            json!({"openFiles": 24}),
        ),
    ] {
        let app = shell(line, json!({"limits": limits, "timeout": "10s"})).await;
        let began = Instant::now();
        let reply = app.ask_afresh("s", json!({})).await;
        assert!(reply.status == 502, "{what}: {} {}", reply.status, reply.text());
        assert!(began.elapsed() < Duration::from_secs(8), "{what}");
        let (timeout, expected) = if what == "processor time" { ("1500ms", 504) } else { ("10s", 200) };
        let free = shell(line, json!({ "timeout": timeout })).await.ask_afresh("s", json!({})).await;
        assert_eq!(free.status, expected, "{what}: {}", free.text());
    }
}

#[tokio::test]
async fn a_script_cannot_access_foreign_files_or_processes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), "secret").unwrap();
    std::fs::write(folder.path().join("token"), "secret").unwrap();
    std::fs::create_dir(folder.path().join("scripts")).unwrap();
    std::fs::write(folder.path().join("scripts/lib.sh"), "echo '[]'\n").unwrap();
    std::fs::write(folder.path().join("scripts/main.sh"), ". ./scripts/lib.sh\n").unwrap();
    let gateway = std::process::id();
    let mut routes = Vec::new();
    let mut add = |name: &str, line: &str| {
        routes.push(
            json!({"name": name, "backend": {"script": {"command": ["sh", "-c", line]}}, "cache": {"ttl": "0s"}}),
        );
    };
    let denied = [
        ("config", "cat gateway.yaml".to_owned()),
        ("token", format!("cat {}/token", folder.path().display())),
        ("environ", format!("cat /proc/{gateway}/environ")),
        ("memory", format!("head -c 1 /proc/{gateway}/mem")),
        ("descriptors", format!("cat /proc/{gateway}/fd/0")),
        ("signal", format!("kill -CONT {gateway}")),
        ("others", "ls $TMPDIR/..".to_owned()),
        ("beside", "echo x > $TMPDIR/../left".to_owned()),
        ("temporary", "ls /tmp".to_owned()),
        ("write", "echo x > scripts/new".to_owned()),
        ("usr", "echo x > /usr/x".to_owned()),
        ("shadow", "cat /etc/shadow".to_owned()),
        ("home", "ls ~root".to_owned()),
    ];
    for (name, line) in &denied {
        add(name, &format!("{line} > /dev/null && echo '[]'"));
    }
    add(
        "own",
        "grep -q 'SigBlk:.0000000000000000' /proc/self/status && test $(stat -c %a $TMPDIR) = 700 && test -z \"$(ls -A $TMPDIR)\" && echo x > $TMPDIR/x && mkdir $HOME/y && echo '[]'",
    );
    let main = json!({"name": "main", "backend": {"script": {"command": ["sh", "scripts/main.sh"]}}});
    routes.push(main);
    let app = TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!(routes))).await;
    for (name, line) in &denied {
        let reply = app.ask_afresh(name, json!({})).await;
        assert_eq!(reply.status, 502, "{line}: {}", reply.text());
        let message = refused(&reply, 502, "backend_failed", "exit status");
        assert!(!message.contains("secret"), "{line}: {message}");
        let hinted = message.contains("not permitted") || message.contains("`allow`");
        assert!(hinted || *name == "signal", "{line}: {message}");
    }
    for _ in 0..3 {
        assert_eq!(app.ask_afresh("own", json!({})).await.sets(), "[]");
    }
    assert_eq!(app.ask_afresh("main", json!({})).await.sets(), "[]");
    // A file that replaces another one is readable like it.
    let file = app.folder.path().join("scripts/main.sh");
    std::fs::write(app.folder.path().join("new"), "echo '[{\"a\":\"1\"}]'\n").unwrap();
    std::fs::rename(app.folder.path().join("new"), &file).unwrap();
    app.clock.advance(Duration::from_hours(1));
    assert_eq!(app.ask_afresh("main", json!({})).await.sets(), r#"[{"a":"1"}]"#);
}

#[tokio::test]
async fn a_script_runs_as_its_configured_user() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let app =
        shell("test $(id -u):$(id -g) = 65534:65534 && echo x > $TMPDIR/x && echo '[]'", json!({"user": "65534"}))
            .await;
    for _ in 0..2 {
        let reply = app.ask_afresh("s", json!({})).await;
        assert_eq!(reply.sets(), "[]", "{}", reply.text());
    }
}

#[tokio::test]
async fn runs_wait_for_a_free_slot() {
    let app = shell("sleep 0.8; echo '[]'", json!({"concurrency": 1, "timeout": "5s"})).await;
    let ask = |n: u32| app.ask_afresh("s", json!({ "n": n }));
    let (first, second) = tokio::join!(ask(1), ask(2));
    assert_eq!((first.sets(), second.sets()), ("[]".to_owned(), "[]".to_owned()));
    let replies = futures_util::future::join_all((10..26).map(ask)).await;
    let late: Vec<_> = replies.iter().filter(|reply| reply.status != 200).collect();
    assert!(!late.is_empty() && late.len() < 16, "{}", late.len());
    for reply in late {
        assert_eq!((reply.status, reply.code().as_str()), (504, "backend_timeout"), "{}", reply.text());
    }
    let is_queue_timeout =
        |reply: &&Reply| reply.status == 504 && reply.message().contains("1 run of it (`concurrency`)");
    assert!(replies.iter().any(|reply| is_queue_timeout(&reply)));
}

#[tokio::test]
async fn truncated_output_is_unknown() {
    // The grandchild keeps the output open, so more output could follow.
    let later = "(sleep 5; echo '{\"a\":2}') &";
    for (protocol, line, status) in [
        ("jsonLines", format!("echo '[]'; {later}"), 502),
        ("jsonLines", format!("echo '{{\"a\":1}}'; {later}"), 502),
        ("yaml", format!("echo '[]'; setsid sh -c \"{}\" &", later.replace('"', "\\\"")), 502),
        ("jsonLines", "echo '[]'; sleep 5 > /dev/null 2>&1 &".to_owned(), 200),
        ("jsonLines", "echo '[]'; (sleep 0.1; echo '{\"a\":2}') &".to_owned(), 200),
        // Later output could only invalidate the document.
        ("json", format!("echo '[]'; {later}"), 200),
    ] {
        let app = shell(&line, json!({"protocol": protocol})).await;
        let reply = app.ask_afresh("s", json!({})).await;
        assert_eq!(reply.status, status, "{protocol}, {line}: {}", reply.text());
        if status == 502 {
            refused(&reply, 502, "backend_output_invalid", "so output may be missing");
        } else if line.contains("0.1") {
            assert_eq!(reply.sets(), r#"[{"a":"2"}]"#);
        }
    }
}

/// Forks as fast as possible until its time is up. Each child has its own session.
pub(super) const RUNNER: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **arguments) {
  time_t until = time(NULL) + 20;
  signal(SIGTERM, SIG_IGN);
  for (int chain = 0; chain < 3; chain++)
    if (fork() == 0)
      while (time(NULL) < until) {
        if (fork()) _exit(0);
        setsid();
      }
  puts("[]");
  fflush(stdout);
  if (!strcmp(arguments[1], "stay")) sleep(20);
  return 0;
}
"#;

#[tokio::test]
async fn fast_forking_does_not_escape_the_end() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.c"), RUNNER).unwrap();
    let compiled = std::process::Command::new("cc").args(["-o", "run", "run.c"]).current_dir(folder.path()).status();
    assert!(compiled.unwrap().success(), "Rust's linker is missing");
    let (marker, ways) = (marker(), [("stay", 504), ("go", 200)]);
    let route = |(how, _)| {
        let script = json!({"command": ["nice", "-n", "19", "./run", how, marker], "timeout": "3s"});
        json!({"name": how, "backend": {"script": script}, "cache": {"ttl": "0s"}})
    };
    let routes: Value = ways.iter().copied().map(route).collect();
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
    for (how, status) in ways {
        let reply = app.ask_afresh(how, json!({})).await;
        assert_eq!(reply.status, status, "{how}: {}", reply.text());
        all_gone(&marker, how).await;
    }
}

#[tokio::test]
async fn a_program_cannot_impersonate_its_launcher() {
    // The socket to the gateway, through a pidfd, and the environment, which shows whether the launcher's memory is readable.
    let take = "import os
parent, denied = os.getppid(), []
for attempt in (lambda: os.pidfd_open(parent), lambda: open('/proc/%d/environ' % parent, 'rb').read(1)):
    try:
        attempt()
    except PermissionError:
        denied.append(True)
print('[{\"denied\": \"%d\"}]' % len(denied))
";
    let app = shell("", json!({"command": ["python3", "-c", take]})).await;
    assert_eq!(app.ask_afresh("s", json!({})).await.sets(), r#"[{"denied":"2"}]"#);
}

#[tokio::test]
async fn read_only_folders_are_removed_after_the_run() {
    let line = "test -z \"$(ls -A $HOME)\" || exit 1; mkdir -p $HOME/go/pkg/mod && touch $HOME/go/pkg/mod/x; \
                chmod 555 $HOME/go/pkg/mod $HOME/go/pkg $HOME; echo '[]'";
    for user in [json!({}), json!({"user": "65534"})] {
        if user != json!({}) && !nix::unistd::Uid::effective().is_root() {
            continue;
        }
        let app = shell(line, user).await;
        for _ in 0..5 {
            let reply = app.ask_afresh("s", json!({})).await;
            assert_eq!(reply.sets(), "[]", "{}", reply.text());
        }
    }
}

#[tokio::test]
async fn a_launcher_without_its_folder_is_replaced() {
    let app = shell("echo \"[{\\\"home\\\": \\\"$HOME\\\"}]\"", json!({})).await;
    let home = async || app.ask_afresh("s", json!({})).await;
    let first = home().await.json()["output"]["parameters"][0]["home"].as_str().unwrap().to_owned();
    std::fs::remove_dir(&first).unwrap();
    refused(&home().await, 502, "backend_failed", "its work folder is gone");
    assert_eq!(home().await.status, 200);
    assert!(!Path::new(&first).exists());
}

#[tokio::test]
async fn scripts_inherit_no_open_files_of_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "hunter22").unwrap();
    let script = json!({"command": ["sh", "-c", "ls -l /proc/self/fd >&2; cat <&9 && echo '[]'"]});
    let routes = json!([{"name": "s", "backend": {"script": script}}]);
    std::fs::write(folder.path().join("gateway.yaml"), format!("{}routes: {routes}\n", TestApp::auth())).unwrap();
    let call = "exec 9< token; exec \"$0\" call s -c gateway.yaml";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", call, env!("CARGO_BIN_EXE_appset-gateway")]).current_dir(folder.path());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("9: Bad file descriptor"), "{stderr}");
    assert!(!stderr.contains("hunter22") && !stderr.contains("9 -> "), "{stderr}");
}

#[tokio::test]
async fn ten_thousand_runs_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({"command": ["sh", "-c", "(true &); echo '[]'"], "concurrency": 4});
    let route = json!({"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}});
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, format!("{server}{}routes: {}\n", TestApp::auth(), json!([route]))).unwrap();
    let gateway = Gateway::serve(&file);
    let (address, process) = (gateway.address, gateway.id());
    // Four callers, each with `count` new requests over one connection.
    let run = async |from: usize, count: usize| {
        let callers = (0..4).map(|caller| async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            for n in from..from + count {
                let body = format!(r#"{{"input":{{"parameters":{{"n":"{caller}-{n}"}}}}}}"#);
                let request = argo_request("/s/api/v1/getparams.execute", TOKEN, body.as_bytes());
                stream.write_all(&request).await.unwrap();
                let reply = read_reply(&mut stream).await;
                assert_eq!(reply.status, 200, "{}", reply.text());
            }
        });
        join_all(callers).await;
    };
    run(0, 50).await;
    let settled = async || {
        // The last connections may still be closing.
        sleep(Duration::from_millis(500)).await;
        held(process)
    };
    let (before, files_before) = settled().await;
    run(50, 2450).await;
    let (after, files_after) = settled().await;
    assert!(
        after.len() <= before.len() && after.len() <= 6,
        "{before:?}, then {after:?}: the gateway, the supervisor and the launchers"
    );
    assert!(after.iter().all(|(_, state)| *state != 'Z'), "{after:?}");
    assert!(files_after <= files_before, "{files_before} files open, then {files_after}");
}

#[tokio::test]
async fn a_program_never_gets_its_launchers_streams() {
    let line = "printf '[{'; for n in 0 1 2; do printf '\"fd%s\": \"%s\", ' $n $(readlink /proc/$$/fd/$n); done; \
                printf '\"x\": \"\"}]'";
    // A launcher with a file limit below its open files could not set up the program's streams.
    let app = shell(line, json!({"init": {"command": ["sh", "-c", "! prlimit --pid $PPID --nofile=6:"]}})).await;
    let answer = app.ask_afresh("s", json!({})).await.json();
    let streams = ["fd0", "fd1", "fd2"].map(|fd| answer["output"]["parameters"][0][fd].as_str().unwrap().to_owned());
    assert!(streams.iter().all(|stream| stream.starts_with("pipe:")), "{streams:?}");
}

#[tokio::test]
async fn the_error_for_too_much_output_includes_stderr() {
    for line in ["head -c 5000 /dev/zero", "sleep 0.1; head -c 5000 /dev/zero; sleep 60"] {
        let app = shell(&format!("echo why >&2; {line}"), json!({"maxOutput": "1KiB"})).await;
        let reply = app.ask_afresh("s", json!({})).await;
        refused(&reply, 502, "backend_output_invalid", "wrote more than 1024 bytes to stdout, stopped; stderr: why");
    }
}
