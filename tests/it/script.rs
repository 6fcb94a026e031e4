//! The `script` backend with real programs that answer, fail, flood, hang, or leave children behind. Everything but a whole
//! list is an error.

mod attempts;
mod contained;
mod endings;
mod everyday;
mod interpreters;
mod lacks;
mod leftovers;
mod network;
mod syscalls;

use std::{process, sync::Arc, time::Duration};

use domain::clock::SystemClock;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{
    TestApp,
    app::build,
    processes::{PATIENCE, all_gone, marker, processes},
    upstream::refused,
};

/// An uncached route `s` with this `script`.
fn route(mut script: Value) -> Value {
    script["allow"] = json!({"read": ["."], "write": ["."]});
    json!({"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}})
}

/// A gateway with that one route.
async fn serve(route: Value) -> TestApp {
    TestApp::with_routes(&format!("  {}", json!([route]))).await
}

/// A gateway whose script is a line of shell.
async fn shell(line: &str) -> TestApp {
    serve(route(json!({"command": ["sh", "-c", line]}))).await
}

/// A gateway whose script prints the file `answer`, and a function to set that file.
async fn printer(more: Value) -> (TestApp, impl Fn(&[u8])) {
    let mut route = route(json!({"command": ["cat", "answer"]}));
    route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let app = serve(route).await;
    let file = app.folder.path().join("answer");
    (app, move |text: &[u8]| std::fs::write(&file, text).unwrap())
}

#[tokio::test]
async fn whole_lists_are_answered() {
    let (app, print) = printer(json!({})).await;
    for (output, sets) in [
        (r#"[{"a":"1"},{"b":"x"}]"#, r#"[{"a":"1"},{"b":"x"}]"#),
        (" [ {\"a\":\"1\"} ] \r\n\n", r#"[{"a":"1"}]"#),
        (r#"{"output":{"parameters":[{"a":"1"}]}}"#, r#"[{"a":"1"}]"#),
        (r#"{"extra":1,"output":{"parameters":[{"a":"1"}],"more":{}}}"#, r#"[{"a":"1"}]"#),
        (
            r#"[{"n":1000000,"f":1.5,"deep":{"list":[1,true,"x",{}]}}]"#,
            r#"[{"deep":{"list":["1",true,"x",{}]},"f":"1.5","n":"1000000"}]"#,
        ),
        (r#"[{"text":"ä\u0000\"\\\n🚀"}]"#, r#"[{"text":"ä\u0000\"\\\n🚀"}]"#),
        ("[{}]", "[{}]"),
        // An explicitly empty list.
        ("[]", "[]"),
        (" [ ]\n", "[]"),
        (r#"{"output":{"parameters":[]}}"#, "[]"),
    ] {
        print(output.as_bytes());
        let reply = app.ask("s", json!({ "output": output })).await;
        assert_eq!(reply.status, 200, "{output}: {}", reply.text());
        assert_eq!(reply.json()["output"]["parameters"], sets.parse::<Value>().unwrap(), "{output}");
    }
}

#[tokio::test]
async fn anything_else_is_unknown() {
    let (app, print) = printer(json!({})).await;
    let cases: &[(&[u8], &str)] = &[
        (b"", "blank"),
        (b" \r\n\t\n", "blank"),
        (b"no branches found", "it begins with `no branches found`"),
        (b"<html><body>[]</body></html>", "not one JSON document"),
        (b"NaN", "not one JSON document"),
        (br#"[{"a":NaN}]"#, "not one JSON document"),
        (br#"[{"a":1e999}]"#, "out of range"),
        (br#"[{"a":1,"a":2}]"#, "`a` stands twice"),
        (br#"{"output":{"parameters":[{}]},"output":{"parameters":[]}}"#, "`output` stands twice"),
        (br#"{"output":{"parameters":[{}],"parameters":[]}}"#, "`parameters` stands twice"),
        (b"[] []", "trailing"),
        (b"[]\n[{\"a\":1}]", "trailing"),
        (b"[{\"a\":1}],", "trailing"),
        (b"[{\"a\":1}", "EOF"),
        (b"[{\"a\":\"\xff\"}]", "not one JSON document"),
        (b"\xef\xbb\xbf[]", "not one JSON document"),
        (b"[1]", "item 0 is a number"),
        (br#"[{},"x"]"#, "item 1 is a string"),
        (b"[{},null]", "item 1 is null"),
        (b"[[]]", "item 0 is a list"),
        (b"null", "found null"),
        (b"true", "found a boolean"),
        (b"\"[]\"", "found a string"),
        (b"{}", "without `output.parameters`"),
        (br#"{"parameters":[]}"#, "without `output.parameters`"),
        (br#"{"Output":{"parameters":[]},"output":{"parameters":[{"a":"b"}]}}"#, "are one key to Argo CD"),
        (br#"{"output":{"parameters":[]},"error":"upstream down"}"#, "it holds `error`"),
        (br#"{"output":null}"#, "without `output.parameters`"),
        (br#"{"output":[]}"#, "without `output.parameters`"),
        (br#"{"output":{}}"#, "without `output.parameters`"),
        (br#"{"output":{"parameters":null}}"#, "output.parameters: expected a list of objects, found null"),
        (br#"{"output":{"parameters":{}}}"#, "found an object"),
        (br#"{"output":{"parameters":[1]}}"#, "item 0 is a number"),
        (br#"[{"a":null}]"#, "`a` is null"),
        (br#"[{},{"values":{}}]"#, "parameter set 1: the key `values` is reserved"),
    ];
    for (output, says) in cases {
        print(output);
        refused(&app.ask_afresh("s", json!({})).await, 502, "backend_output_invalid", says);
    }
    print("[".repeat(100_000).as_bytes());
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_output_invalid", "recursion limit");
}

#[tokio::test]
async fn numbers_and_nulls_follow_the_route() {
    let output = br#"[{"n":3,"f":0.5,"deep":[1]}]"#;
    for (more, output, sets) in [
        (json!({}), &output[..], r#"[{"deep":["1"],"f":"0.5","n":"3"}]"#),
        (json!({"stringify": false}), output, r#"[{"deep":[1],"f":0.5,"n":3}]"#),
        (json!({"nulls": "drop"}), br#"[{"a":null,"b":{"c":null,"d":"x"}}]"#, r#"[{"b":{"d":"x"}}]"#),
        (json!({}), br#"[{"n":9007199254740993}]"#, r#"[{"n":"9007199254740993"}]"#),
    ] {
        let (app, print) = printer(more).await;
        print(output);
        let answer: Value = app.ask_afresh("s", json!({})).await.json();
        assert_eq!(answer["output"]["parameters"], sets.parse::<Value>().unwrap());
    }
    let (app, print) = printer(json!({"stringify": false})).await;
    print(br#"[{"n":9007199254740993}]"#);
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_output_invalid", "cannot be carried exactly");
}

#[tokio::test]
async fn the_request_arrives_on_stdin_as_it_was_sent() {
    let app = shell("cat > seen; echo '[]'").await;
    let body = json!({
        "applicationSetName": "it's \"mine\"",
        "input": {"parameters": {"z": "first", "a": [1, 2.5, null, true, {"x": {}, "nul": "\u{0}"}], "n": 9_007_199_254_740_993_u64,
            "branch": "feat/ä 🚀\r\n$(id)", "empty": "", "none": null, "o": {"k": []}}},
    });
    assert_eq!(app.call("/s/api/v1/getparams.execute", &body).await.sets(), "[]");
    let seen = std::fs::read_to_string(app.folder.path().join("seen")).unwrap();
    assert_eq!(seen, format!("{body}\n"));
}

#[tokio::test]
async fn arguments_are_data() {
    let arguments = ["$(id)", "; rm -rf seen", "a  b", "*", "`id`", "'\"\\", "{{ params.branch }}", "", "-n", "ä\n🚀"];
    let mut command = vec!["sh", "-c", "printf '%s\\0' \"$@\" > seen; echo '[]'", "program"];
    command.extend(arguments);
    let app = serve(route(json!({"command": command}))).await;
    assert_eq!(app.ask_afresh("s", json!({"branch": "x"})).await.sets(), "[]");
    let seen = std::fs::read_to_string(app.folder.path().join("seen")).unwrap();
    assert_eq!(seen.split_terminator('\0').collect::<Vec<_>>(), arguments);
}

#[tokio::test]
async fn the_environment_holds_only_configured_variables() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "hunter2\n").unwrap();
    let command = json!(["sh", "-c", "cat /proc/$$/environ > seen; echo '[]'"]);
    let env = json!({"REGION": "eu {{ x }}", "TOKEN": {"file": "token"}, "FOLDER": {"env": "CARGO_MANIFEST_DIR"}});
    let some = json!({"command": command, "env": env, "inheritEnv": ["CARGO_PKG_NAME", "NOT_SET_ANYWHERE"]});
    let mut usual = route(json!({"command": command}));
    usual["name"] = json!("usual");
    let routes = json!([route(some), usual]);
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
    let seen = async |name: &str| {
        assert_eq!(app.ask_afresh(name, json!({})).await.sets(), "[]");
        let seen = std::fs::read_to_string(app.folder.path().join("seen")).unwrap();
        let mut seen: Vec<String> = seen.split_terminator('\0').map(str::to_owned).collect();
        seen.sort();
        // Its own folder, which is private and already empty.
        for name in ["HOME=", "TMPDIR="] {
            let at = seen.iter().position(|line| line.starts_with(name)).unwrap();
            let work = seen.remove(at);
            let left = std::fs::read_dir(&work[name.len()..]);
            assert!(left.is_ok_and(|mut left| left.next().is_none()), "{work}");
        }
        seen
    };
    let [folder, alias] = ["", "ARGOCD_ENV_"].map(|prefix| format!("{prefix}FOLDER={}", env!("CARGO_MANIFEST_DIR")));
    assert_eq!(
        seen("s").await,
        [
            "ARGOCD_APP_PARAMETERS=[]",
            &*alias,
            "ARGOCD_ENV_REGION=eu {{ x }}",
            "ARGOCD_ENV_TOKEN=hunter2",
            "CARGO_PKG_NAME=appset-gateway",
            &*folder,
            "REGION=eu {{ x }}",
            "TOKEN=hunter2",
        ]
    );
    let usual = seen("usual").await;
    let known = ["ARGOCD_APP_PARAMETERS=[]", "LANG=", "PATH=", "TZ="];
    assert!(usual.iter().all(|line| known.iter().any(|name| line.starts_with(name))), "{usual:?}");
    // A rotated secret is picked up. A deleted secret is an error.
    std::fs::write(app.folder.path().join("token"), "hunter3").unwrap();
    assert!(seen("s").await.contains(&"TOKEN=hunter3".to_owned()));
    std::fs::remove_file(app.folder.path().join("token")).unwrap();
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_failed", "cannot read the secret file");
}

/// However the script prints the secret, and wherever a message is truncated.
#[tokio::test]
async fn a_secret_is_never_shown() {
    let key = "-----BEGIN KEY-----\nMIIfirstline\nMIIsecondline\n-----END KEY-----\n";
    for (secret, line) in [
        ("MIItoken", r#"echo "denied: $SECRET" >&2; exit 1"#),
        ("MIItoken", r#"echo "token=$SECRET""#),
        ("MIItoken", r#"echo "[\"$SECRET\", $SECRET]""#),
        ("MIItoken", r#"echo "{\"$SECRET\":1,\"$SECRET\":2}""#),
        ("MIItoken", r#"echo "denied: $SECRET" >&2; sleep 9"#),
        ("MIItoken", r#"echo "denied: TUlJdG9rZW4=" >&2; exit 1"#),
        // Several lines, which a message joins into one.
        (key, r#"echo "$SECRET" >&2; exit 1"#),
        (key, r#"echo "$SECRET""#),
        // Across the start of the kept part of stderr, and across the end of the shown part of stdout.
        ("MIIMIIMIIMIIMII", r#"printf "%s%0590d" "$SECRET" 0 >&2; exit 1"#),
        ("MIIMIIMIIMIIMII", r#"printf "%0110d%s" 0 "$SECRET""#),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), secret).unwrap();
        let script = json!({"command": ["sh", "-c", line], "env": {"SECRET": {"file": "secret"}}, "timeout": "500ms"});
        let app = TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!([route(script)]))).await;
        let reply = app.ask_afresh("s", json!({})).await;
        assert!(reply.status >= 500, "{line}: {}", reply.text());
        assert!(!reply.text().contains("MII") && !reply.text().contains("TUlJ"), "{line}: {}", reply.message());
    }
    let app = serve(route(json!({"command": ["sh", "-c", "echo \"denied: $SECRET.\" >&2; exit 1"],
        "env": {"SECRET": {"env": "CARGO_PKG_NAME"}}})))
    .await;
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_failed", "stderr: denied: [redacted].");
}

#[tokio::test]
async fn a_failed_run_is_unknown_whatever_its_output() {
    for (line, says) in [
        ("echo '[{\"a\":\"1\"}]'; exit 3", "exit status: 3"),
        ("echo '[]'; echo 'no\x1b[31m network' >&2; exit 1", "exit status: 1; stderr: no [31m network"),
        ("echo '[]'; kill -9 $$", "signal: 9"),
        ("echo '[]'; kill -SEGV $$", "signal: 11"),
        ("exec no-such-program-at-all", "exit status: 127"),
    ] {
        let app = shell(line).await;
        let message = refused(&app.ask_afresh("s", json!({})).await, 502, "backend_failed", says);
        assert!(message.starts_with("route s (script): sh: "), "{message}");
    }
    // An executable file that the system cannot execute.
    let (app, print) = printer(json!({})).await;
    print(b"no program");
    let program = app.folder.path().join("program");
    std::fs::write(&program, "no program").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let app = serve(route(json!({"command": [program]}))).await;
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_failed", "cannot start");
}

#[tokio::test]
async fn output_has_an_upper_limit() {
    let limited = |line: &str| serve(route(json!({"command": ["sh", "-c", line], "maxOutput": "1KiB"})));
    let app = limited("printf '%1024s' '[]'").await;
    assert_eq!(app.ask_afresh("s", json!({})).await.sets(), "[]");
    let marker = marker();
    let endless = format!("sleep {marker} & yes");
    for line in ["printf '%1025s' '[]'", "head -c 3000000 /dev/zero; echo '[]'", &*endless] {
        let app = limited(line).await;
        refused(&app.ask_afresh("s", json!({})).await, 502, "backend_output_invalid", "more than 1024 bytes");
    }
    all_gone(&marker, "a flood").await;
}

#[tokio::test]
async fn no_pipe_blocks_another() {
    let large = json!({"text": "x".repeat(1_000_000)});
    for line in [
        // stderr floods, stdin is left unread, stdout comes before stdin is read.
        "head -c 3000000 /dev/zero >&2; echo '[{\"a\":\"1\"}]'",
        "echo '[{\"a\":\"1\"}]'",
        "exec 0<&-; echo '[{\"a\":\"1\"}]'",
        "head -c 3000000 /dev/zero | tr '\\0' ' '; echo '[{\"a\":\"1\"}]'; cat > /dev/null",
        "test $(wc -c) -gt 1000000 && echo '[{\"a\":\"1\"}]'",
    ] {
        let reply = shell(line).await.ask_afresh("s", large.clone()).await;
        assert_eq!(reply.status, 200, "{line}: {}", reply.text());
        assert_eq!(reply.sets(), r#"[{"a":"1"}]"#, "{line}");
    }
    let app = shell("head -c 3000000 /dev/zero >&2; echo why >&2; exit 1").await;
    refused(&app.ask_afresh("s", large).await, 502, "backend_failed", "why");
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group() {
    for (trap, limit, whose) in [
        ("", json!({"timeout": "700ms"}), "stopped by its `timeout`"),
        ("trap '' TERM;", json!({"timeout": "700ms"}), "stopped by its `timeout`"),
        // The route's deadline ends the script too, not only its own timeout.
        ("trap '' TERM;", json!({"timeout": "20s"}), "stopped by the deadline of the whole call"),
    ] {
        let marker = marker();
        let line = format!("{trap} (sleep {marker}; sleep {marker}) & sleep {marker}; echo '[]'");
        let mut script = json!({"command": ["sh", "-c", line]});
        script.as_object_mut().unwrap().extend(limit.as_object().unwrap().clone());
        let mut route = route(script);
        route["deadline"] = json!("1500ms");
        let app = serve(route).await;
        let started = Instant::now();
        // Two shells, whose command lines contain the marker too, and two sleeps.
        let (reply, ()) = tokio::join!(app.ask_afresh("s", json!({})), await_processes(&marker, 4));
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        refused(&reply, 504, "backend_timeout", whose);
        all_gone(&marker, line.as_str()).await;
    }
}

#[tokio::test]
async fn a_grandchild_with_open_pipes_delays_nobody() {
    let marker = marker();
    for line in [format!("sleep {marker} & echo '[{{\"a\":\"1\"}}]'"), format!("sleep {marker} >&2 & exit 4")] {
        let app = shell(&line).await;
        let started = Instant::now();
        let reply = app.ask_afresh("s", json!({})).await;
        assert!(started.elapsed() < Duration::from_secs(15), "{line}: {:?}", started.elapsed());
        match reply.status {
            200 => assert_eq!(reply.sets(), r#"[{"a":"1"}]"#),
            _ => _ = refused(&reply, 502, "backend_failed", "exit status: 4"),
        }
        all_gone(&marker, &line).await;
    }
}

#[tokio::test]
async fn a_command_that_cannot_run_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plain.py"), "print('[]')").unwrap();
    for (script, says) in [
        (
            json!({"command": ["no-such-program-at-all"]}),
            "command: there is no program `no-such-program-at-all` in PATH",
        ),
        (json!({"command": ["./missing.py"]}), "missing.py does not exist; a relative path starts from"),
        (json!({"command": ["./plain.py"]}), "plain.py is not an executable file"),
        (json!({"command": ["./"]}), "is not an executable file"),
        (json!({"command": []}), "the command is empty"),
        (json!({"command": "cat answer"}), "command"),
        (json!({"command": ["cat"], "env": {"A=B": "x"}}), "must not contain `=`"),
        (json!({"command": ["cat"], "env": {"A": {"file": "nothing"}}}), "cannot read the secret file"),
        (json!({"command": ["cat"], "env": {"A": {"env": "NOT_SET_ANYWHERE"}}}), "NOT_SET_ANYWHERE is not set"),
        (json!({"command": ["cat"], "shell": true}), "shell"),
    ] {
        let config = format!("{}routes: {}\n", TestApp::auth(), json!([route(script)]));
        let report = build(folder.path(), &config, Arc::new(SystemClock)).err().expect("a report");
        let lines = report.lines();
        assert!(lines.iter().any(|line| line.contains("backend.script") && line.contains(says)), "{says}: {lines:?}");
    }
}

/// Waits until `count` processes have `marker` in their command line.
async fn await_processes(marker: &str, count: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = processes(marker);
        if found.len() == count {
            return;
        }
        assert!(Instant::now() < until, "expected {count} processes, found {found:?}");
        sleep(Duration::from_millis(10)).await;
    }
}
