//! The commands `status`, `explain` and `answers show` against a gateway process.

use super::*;

struct Shown {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the command in the folder of `config`, against `gateway`.
fn run(gateway: &Gateway, config: &Path, arguments: &[&str]) -> Shown {
    let admin = gateway.admin.to_string();
    let output = command().args(arguments).arg("-c").arg(config).args(["--admin", &admin]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Shown { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_what_is_wrong_and_exits_with_1_if_something_is_held_or_fails() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "cache: { ttl: 0s }, guard: { confirmFor: 1h },");
    print(folder.path(), &["a", "b"]);
    let gateway = Gateway::serve(&config);
    let run = |arguments: &[&str]| run(&gateway, &config, arguments);
    let fine = run(&["status"]);
    assert_eq!((fine.code, &*fine.stderr), (Some(0), ""), "{}", fine.stdout);
    assert!(fine.stdout.contains("nothing is wrong") && fine.stdout.contains("never called"), "{}", fine.stdout);
    assert!(!fine.stdout.contains('\u{1b}'), "no colours in a pipe");

    ask(&gateway).await;
    print(folder.path(), &[]);
    ask(&gateway).await;
    let held = run(&["status"]);
    assert_eq!(held.code, Some(1), "{}", held.stdout);
    let line = held.stdout.lines().find(|line| line.starts_with("held")).unwrap_or_else(|| panic!("{}", held.stdout));
    assert!(line.contains("  s  ") && line.contains("held: an empty list after one of 2"), "{line}");
    assert!(held.stdout.contains("`appset-gateway held list` shows what would be deleted"), "{}", held.stdout);
    assert!(held.stdout.contains("\ns      held   2     "), "{}", held.stdout);
    let json = run(&["status", "-o", "json"]);
    let status: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (json.code, &status["isHeldOrFailing"], &status["alerts"][0]["kind"]),
        (Some(1), &json!(true), &json!("held"))
    );

    let away = command().args(["status", "-c"]).arg(&config).args(["--admin", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(away.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&away.stderr).contains("cannot connect"), "{away:?}");

    // The gateway keeps the previous configuration. The commands are needed now.
    std::fs::write(&config, "routes: [\n").unwrap();
    let broken = command().args(["status", "-c"]).arg(&config).output().unwrap();
    assert!(String::from_utf8_lossy(&broken.stderr).contains("give --admin and --token-file"), "{broken:?}");
    let given = run(&["status", "--token-file", folder.path().join("admin-token").to_str().unwrap()]);
    assert!(given.stdout.contains("an empty list after one of 2"), "{}", given.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_and_answers_show_print_the_answer_and_how_it_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    print(folder.path(), &["a"]);
    let gateway = Gateway::serve(&config);
    let run = |arguments: &[&str]| run(&gateway, &config, arguments);
    ask(&gateway).await;
    let good = run(&["explain", "s"]);
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    let expected = json!({"output": {"parameters": [{"name": "a"}]}});
    assert_eq!(serde_json::from_str::<Value>(&good.stdout).unwrap(), expected);
    for line in [
        "route     s (script)",
        "outcome   present, ",
        "ran       s (script), ",
        "Argo CD   gets now the remembered answer, which is fresh for ",
        "cache     ",
    ] {
        assert!(good.stderr.contains(line), "{line}: {}", good.stderr);
    }

    print(folder.path(), &[]);
    let held = run(&["explain", "s", "-o", "json"]);
    let explained: Value = serde_json::from_str(&held.stdout).unwrap();
    assert_eq!((held.code, &explained["because"]["code"]), (Some(1), &json!("held")), "{explained:#}");
    let held = run(&["explain", "s"]);
    assert_eq!((held.code, serde_json::from_str::<Value>(&held.stdout).unwrap()), (Some(1), expected.clone()));
    assert!(held.stderr.contains(" s, afterwards the last good answer\n"), "{}", held.stderr);
    let unknown = run(&["explain", "t", "-p", "x=1"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""));
    assert!(unknown.stderr.starts_with("error: there is no route `t`"), "{}", unknown.stderr);

    let listed: Value = serde_json::from_str(&run(&["answers", "list", "-o", "json"]).stdout).unwrap();
    let key = listed["answers"][0]["key"].as_str().unwrap();
    let shown = run(&["answers", "show", &key[..8]]);
    assert_eq!((shown.code, serde_json::from_str::<Value>(&shown.stdout).unwrap()), (Some(0), expected.clone()));
    assert!(shown.stderr.contains("cache     fresh, stored at 20") && shown.stderr.contains(key), "{}", shown.stderr);
    let json: Value = serde_json::from_str(&run(&["answers", "show", key, "-o", "json"]).stdout).unwrap();
    assert_eq!(json["answer"], expected);
    let missing = run(&["answers", "show", &"0".repeat(32)]);
    assert!(missing.code == Some(1) && missing.stderr.contains("no answer has this key"), "{}", missing.stderr);
}

/// The reason is said once, with what Argo CD gets; a failure is shown with its question, also when its rest is over.
#[tokio::test(flavor = "multi_thread")]
async fn explain_and_answers_show_say_why_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "cache: { ttl: 0s }, guard: { confirmFor: 1h },");
    print(folder.path(), &["a", "b", "c"]);
    let gateway = Gateway::serve(&config);
    let run = |arguments: &[&str]| run(&gateway, &config, arguments);
    ask(&gateway).await;
    print(folder.path(), &["a"]);
    ask(&gateway).await;
    for arguments in
        [&["explain", "s"][..], &["answers", "show", &answers_of(&run(&["answers", "list", "-o", "json"]))[0]]]
    {
        let shown = run(arguments).stderr;
        assert_eq!(shown.matches("2 of 3 parameter sets would be gone").count(), 1, "{shown}");
        assert!(shown.contains("\nfailing   held; ") || shown.contains("\nfailing   held: "), "{shown}");
        assert!(shown.contains("\nheld      since 20") && !shown.contains("would get"), "{shown}");
    }
    let held: Value = serde_json::from_str(&run(&["held", "list", "-o", "json"]).stdout).unwrap();
    let listed = run(&["held", "list"]).stdout;
    let at = held["held"][0]["acceptedAt"].as_str().unwrap();
    assert!(
        listed.contains(&format!("\n    accepted at {at} unless you reject it or the source changes\n")),
        "{listed}"
    );
    let released = run(&["held", "release", held["held"][0]["id"].as_str().unwrap()]).stdout;
    assert_eq!(released, "accepted, because the source still says so; Argo CD will delete 2: b, c\n");

    std::fs::remove_file(folder.path().join("answer")).unwrap();
    let body = json!({"input": {"parameters": {"x": "failing"}}}).to_string();
    let request = argo_request("/s/api/v1/getparams.execute", TOKEN, body.as_bytes());
    assert_eq!(exchange(gateway.address, &request).await.status, 502);
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let failures: Value = serde_json::from_str(&run(&["answers", "list", "-o", "json"]).stdout).unwrap();
    let failures = failures["answers"].as_array().unwrap().iter().find(|each| each["input"]["x"] == "failing").cloned();
    let shown = run(&["answers", "show", failures.expect("a failure")["key"].as_str().unwrap()]);
    assert_eq!((shown.code, &*shown.stdout), (Some(0), ""), "{}", shown.stderr);
    for line in ["input     {\"x\":\"failing\"}\n", "cache     failing\n", "; the next call reads the source again\n"] {
        assert!(shown.stderr.contains(line), "{line}: {}", shown.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_says_that_the_question_lacks_the_application_set() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    print(folder.path(), &["a"]);
    let gateway = Gateway::serve(&config);
    let run = |arguments: &[&str]| run(&gateway, &config, arguments).stderr;
    let note = "note      the answer may depend on the ApplicationSet, and none was named";
    assert!(run(&["explain", "s"]).contains(note), "{}", run(&["explain", "s"]));
    assert!(!run(&["explain", "s", "-a", "argocd/fleet"]).contains(note));
}

/// Steers a terminal in two ways, turns text round, and is hidden.
const HOSTILE: &str = "a\u{1b}[31m\u{9b}31m\u{202e}gnp.exe\u{200b}\u{7f}";

#[tokio::test(flavor = "multi_thread")]
async fn no_command_prints_what_steers_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "cache: { ttl: 0s }, guard: { confirmFor: 1h },");
    print(folder.path(), &["b", HOSTILE]);
    let gateway = Gateway::serve(&config);
    let body = json!({"applicationSetName": "x", "input": {"parameters": {"branch": HOSTILE}}}).to_string();
    let request = argo_request("/s/api/v1/getparams.execute", TOKEN, body.as_bytes());
    assert_eq!(exchange(gateway.address, &request).await.status, 200);
    print(folder.path(), &["b"]);
    exchange(gateway.address, &request).await;
    let run = |arguments: &[&str]| run(&gateway, &config, arguments);
    let held: Value = serde_json::from_str(&run(&["held", "list", "-o", "json"]).stdout).unwrap();
    assert_eq!(held["held"][0]["input"]["branch"], HOSTILE, "programs get the very name");
    let (key, id) = (answers_of(&run(&["answers", "list", "-o", "json"]))[0].clone(), held["held"][0]["id"].clone());
    print(folder.path(), &["b", HOSTILE]);
    let branch = format!("branch={HOSTILE}");
    for arguments in [
        &["status"][..],
        &["held", "list"],
        &["answers", "list"],
        &["answers", "show", &key],
        &["explain", "s", "-a", "x", "-p", &branch],
        &["explain", HOSTILE],
        &["held", "reject", id.as_str().unwrap()],
        &["diff", "--against", &format!("http://{}", gateway.admin)],
    ] {
        for format in [&[][..], &["-o", "json"]] {
            if arguments[1..].first() == Some(&"reject") && !format.is_empty() {
                continue;
            }
            let shown = if arguments[0] == "diff" {
                let output = command().args(arguments).args(format).arg("-c").arg(&config).output().unwrap();
                String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
            } else {
                let Shown { stdout, stderr, .. } = run(&[arguments, format].concat());
                stdout + &stderr
            };
            let hidden = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{200b}".contains(c);
            assert!(!shown.is_empty() && !shown.contains(hidden), "{arguments:?} {format:?}: {shown:?}");
        }
    }
    let output = command().args(["call", "s", "-p", &branch, "-c"]).arg(&config).output().unwrap();
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(shown.contains("gnp.exe") && !shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{shown:?}");
}

/// A variable of a script that was never set names nothing, and no request is sent.
#[test]
fn an_empty_name_is_refused_before_any_request() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    for (arguments, says) in [
        (&["held", "release", ""][..], "6 to 32 hexadecimal digits"),
        (&["held", "reject", "0b6d1"], "6 to 32 hexadecimal digits"),
        (&["held", "release", "0b6d1c", "--fingerprint", ""], "--fingerprint"),
        (&["answers", "show", ""], "6 to 32 hexadecimal digits"),
        (&["answers", "list", "--route", ""], "--route"),
        (&["answers", "invalidate", "--route", "s", "--application-set", ""], "--application-set"),
        (&["answers", "invalidate", "-p", "=x"], "write NAME=VALUE"),
        (&["explain", ""], "<ROUTE>"),
        (&["hook", "explain", "", "--event", "x"], "<NAME>"),
    ] {
        let output =
            command().args(arguments).arg("-c").arg(&config).args(["--admin", "127.0.0.1:1"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says) && !stderr.contains("cannot connect"), "{arguments:?}: {stderr}");
    }
}

/// The keys of a list of answers.
fn answers_of(shown: &Shown) -> Vec<String> {
    let listed: Value = serde_json::from_str(&shown.stdout).unwrap();
    listed["answers"].as_array().unwrap().iter().map(|answer| answer["key"].as_str().unwrap().to_owned()).collect()
}

/// What `line` prints on a terminal that `script` makes.
fn on_terminal(line: &str, environment: &[(&str, &str)]) -> String {
    let mut script = std::process::Command::new("script");
    script.args(["-qec", line, "/dev/null"]).stdin(std::process::Stdio::null());
    let output = script.env_remove("NO_COLOR").env("TERM", "xterm").envs(environment.iter().copied()).output();
    String::from_utf8(output.expect("this test needs the program `script`").stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_takes_long_says_so_on_a_terminal_only() {
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "");
    print(folder.path(), &["a"]);
    let gateway = Gateway::serve(&config);
    ask(&gateway).await;
    let (program, gate) = (env!("CARGO_BIN_EXE_appset-gateway"), folder.path().join("gate"));
    let cases = json!({"cases": [{"name": "one", "route": "s", "expect": {"parameters": [{"name": "a"}]}}]});
    std::fs::create_dir(folder.path().join("tests")).unwrap();
    std::fs::write(folder.path().join("tests/cases.yaml"), cases.to_string()).unwrap();
    for (arguments, does) in [
        (format!("explain s --admin {}", gateway.admin), "asking the sources"),
        ("call s".to_owned(), "asking the sources"),
        (format!("diff --against http://{}", gateway.admin), "asking the sources"),
        ("test".to_owned(), "playing the cases"),
    ] {
        std::fs::write(&gate, "").unwrap();
        let line = format!("{program} {arguments} -c {}", config.display());
        let piped = line.clone();
        let on_terminal = tokio::task::spawn_blocking(move || on_terminal(&line, &[]));
        let (gate, before) = (gate.clone(), runs(folder.path()));
        tokio::time::timeout(Duration::from_secs(20), async {
            while runs(folder.path()) == before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the source is asked");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        std::fs::remove_file(&gate).unwrap();
        let shown = on_terminal.await.unwrap();
        let said = format!("\r\u{1b}[K{does} … 1 s");
        // The line is wiped before the result.
        assert!(shown.contains(&said) && shown.contains("\r\u{1b}[K"), "{arguments}: {shown:?}");
        let rest = shown.rsplit("\r\u{1b}[K").next().unwrap();
        assert!(!rest.is_empty() && !rest.contains(does), "{arguments}: {shown:?}");
        let output = std::process::Command::new("sh").args(["-c", &piped]).output().unwrap();
        assert!(!String::from_utf8_lossy(&output.stderr).contains(does), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_tables_fit_it_and_no_color_is_obeyed() {
    // `stty` gives it 60 columns.
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), "cache: { ttl: 0s }, guard: { confirmFor: 1h },");
    print(folder.path(), &["a", "b"]);
    let gateway = Gateway::serve(&config);
    ask(&gateway).await;
    print(folder.path(), &[]);
    ask(&gateway).await;
    let program = env!("CARGO_BIN_EXE_appset-gateway");
    let line =
        |command: &str| format!("stty cols 60; {program} {command} -c {} --admin {}", config.display(), gateway.admin);
    let shown = |environment: &[(&str, &str)]| on_terminal(&line("status"), environment);
    let plain = shown(&[("NO_COLOR", "1")]);
    assert!(!plain.contains('\u{1b}') && plain.contains("WRONG NOW"), "{plain:?}");
    let table = plain.lines().map(str::trim_end).filter(|line| line.starts_with("held") || line.starts_with('s'));
    let table: Vec<&str> = table.collect();
    assert!(table.len() >= 2 && table.iter().all(|line| line.chars().count() <= 60), "{table:#?}");
    assert!(shown(&[]).contains("\u{1b}[31mheld\u{1b}[0m"), "colours on a terminal");
    assert!(!shown(&[("TERM", "dumb")]).contains('\u{1b}'));

    let list = on_terminal(&line("answers list"), &[("NO_COLOR", "1")]);
    let table: Vec<&str> = list.lines().map(str::trim_end).filter(|line| !line.starts_with(' ')).collect();
    assert!(table[0].starts_with("KEY           ROUTE  STATE  SETS  AGE"), "{list}");
    assert!(table.len() == 2 && table.iter().all(|line| line.chars().count() <= 60), "{table:#?}");
    assert!(list.contains("    held: an empty list after one of 2"), "{list}");
    assert!(on_terminal(&line("answers list"), &[]).contains("\u{1b}[31m"), "colours on a terminal");
}
