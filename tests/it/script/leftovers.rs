//! Scripts and workers that misbehave leave no process, no zombie and no open file, and the next call works. Each gateway is a
//! separate process, so that only its own files are counted.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::support::{
    Reply, TOKEN, TestApp,
    binary::Gateway,
    processes::{PATIENCE, held, marker, processes, zombies},
    wire::{argo_request, exchange},
};

/// The processes of a gateway with two launchers: itself, the supervisor and the launchers.
const GATEWAY_AND_TWO_LAUNCHERS: usize = 4;

/// Runs calls one after the other, since the first launcher serves them all.
struct Served {
    gateway: Gateway,
    marker: String,
    asked: u32,
    _folder: TempDir,
}

impl Served {
    /// A gateway with a route that runs `script`. The marker is the last argument.
    fn new(mut script: Value, marker: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/workers/worker.py");
        std::fs::copy(worker, folder.path().join("worker.py")).unwrap();
        script["command"].as_array_mut().unwrap().push(json!(marker));
        script["concurrency"] = json!(1);
        let routes = json!([{"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}}]);
        let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, format!("{server}{}routes: {routes}\n", TestApp::auth())).unwrap();
        Self { gateway: Gateway::serve(&file), marker, asked: 0, _folder: folder }
    }

    async fn ask(&mut self, what: &str) -> Reply {
        self.asked += 1;
        let body = json!({"input": {"parameters": {"do": what, "n": self.asked}}}).to_string();
        exchange(self.gateway.address, &argo_request("/s/api/v1/getparams.execute", TOKEN, body.as_bytes())).await
    }

    /// The numbers of processes and of open files.
    fn counted(&self) -> (usize, usize) {
        let (found, files) = held(self.gateway.id());
        (found.len(), files)
    }

    /// Fails unless the counts return to `before` without a zombie.
    async fn settle(&self, before: (usize, usize), what: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let (found, files) = held(self.gateway.id());
            let programs = processes(&self.marker);
            let is_alive = found.iter().all(|(_, state)| *state != 'Z');
            if programs.is_empty() && is_alive && found.len() <= before.0 && files <= before.1 {
                return;
            }
            assert!(Instant::now() < until, "{what}: {programs:?}, {found:?}, {files} files; before: {before:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Runs each of `cases`. Only the cases in `well` get an answer.
    async fn go_through(&mut self, cases: impl Iterator<Item = &str>, well: &[&str]) {
        while !processes(&self.marker).is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(500)).await;
        let before = self.counted();
        for what in cases {
            let reply = self.ask(what).await;
            assert_eq!(reply.status == 200, well.contains(&what), "{what}: {} {}", reply.status, reply.text());
            self.settle(before, what).await;
            let reply = self.ask("well").await;
            assert_eq!(reply.status, 200, "after {what}: {}", reply.text());
        }
    }
}

#[tokio::test]
async fn nothing_is_left_of_scripts() {
    let cases = [
        ("a tree", "for i in 1 2 3; do (sleep M & sleep M & sleep M) & done; echo '[]'"),
        ("a new session", "setsid sleep M & echo '[]'"),
        ("a double fork", "(setsid sh -c 'sleep M & exit' &); echo '[]'"),
        ("ignores TERM", "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep M; sleep M' & sleep M"),
        ("closes its output, then hangs", "echo '[]'; exec >&- 2>&-; sleep M"),
        ("a grandchild that holds the output", "sleep M & echo '[]'"),
        ("a flood", "setsid sleep M & yes M"),
        ("a flood of words", "setsid sleep M & yes M >&2"),
        ("memory without end", "tail /dev/zero"),
        ("a file without end", "cat /dev/zero > $TMPDIR/big"),
        ("files without end", "i=0; while :; do i=$((i + 1)); : > $TMPDIR/$i; done"),
        ("processor time without end", "while :; do :; done"),
        ("ends by a signal", "setsid sleep M & kill -SEGV $$"),
        ("output, then hangs", "echo '[]'; sleep M"),
        ("much", "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); : > $TMPDIR/$i; done; echo '[]'"),
        ("children of the dead", "(sleep 0 & exec sleep M) & sleep 0.1; echo '[]'"),
    ];
    let marker = marker();
    let all = cases.map(|(what, line)| format!("'{what}') {line} ;;\n")).concat();
    let line = format!("case $PARAM_DO in\n{}well) echo '[]' ;;\nesac", all.replace(" M", &format!(" {marker}")));
    let limits = json!({"memory": "64MiB", "fileSize": "1MiB", "cpu": "1s"});
    let script = json!({"command": ["sh", "-c", line, "sh"], "limits": limits, "timeout": "5s"});
    let mut served = Served::new(script, marker);
    // Removal takes a while, so a caller without a pause gets another launcher. There is one supervisor, and the number of launchers has
    // this upper limit.
    while served.counted().0 < GATEWAY_AND_TWO_LAUNCHERS {
        for what in ["much", "well"] {
            assert_eq!(served.ask(what).await.sets(), "[]");
        }
    }
    let well = [
        "much",
        "a tree",
        "a new session",
        "a double fork",
        "a grandchild that holds the output",
        "children of the dead",
    ];
    served.go_through(cases.iter().map(|(what, _)| *what), &well).await;
}

#[tokio::test]
async fn nothing_is_left_of_workers() {
    let script = json!({
        "mode": "worker", "worker": {"ahead": 0}, "command": ["python3", "worker.py"], "timeout": "5s",
        "maxOutput": "1MiB", "limits": {"memory": "128MiB"}, "allow": {"read": ["."], "write": ["."]},
    });
    let mut served = Served::new(script, marker());
    // The worker closes its output and stays. The next one starts before the first has ended. The number of launchers has this
    // upper limit.
    while served.ask("close").await.status != 502 {}
    let cases =
        ["other id", "no id", "twice", "garbage", "flood", "half", "half, then hang", "exit", "close", "swell", "hang"];
    served.go_through(cases.into_iter(), &[]).await;
}

/// A process that ends with the test, whatever becomes of it: its zombie would fail other tests.
struct Killed(Child);

impl Killed {
    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.end();
    }
}

/// The zombie check of the other tests works.
#[tokio::test]
async fn a_zombie_is_seen() {
    // The replacement of the shell does not know its child, and has the argument of a launcher.
    let line = "sleep 0 & exec tail -qf /dev/null launch";
    let mut parent = Killed(Command::new("sh").args(["-c", line]).stderr(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + PATIENCE;
    let dead = loop {
        // The child may end before the shell is replaced.
        let (found, _) = held(parent.0.id());
        let dead = found.into_iter().find(|(_, state)| *state == 'Z');
        if let Some((process, _)) = dead.filter(|(process, _)| zombies().contains(process)) {
            break process;
        }
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(5)).await;
    };
    parent.end();
    assert!(!zombies().contains(&dead));
}
