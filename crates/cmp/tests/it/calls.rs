//! What a plugin's answers become.

use std::fs;

use crate::support::{DEMO, Gateway, script};

#[test]
fn a_folder_becomes_manifests() {
    let mut gateway = Gateway::sidecar(DEMO);
    gateway.file("apps/one/demo.yaml", "data: {a: b}\n").file("plain/x.yaml", "a: b\n");
    let one = gateway.ask("GenerateManifest", "apps/one", &["-env", "ARGOCD_APP_NAME=shop", "-timeout", "60s"]);
    assert_eq!(one.manifests(), ["kind: ConfigMap\nmetadata: {name: shop}\ndata: {a: b}\n"]);
    for (app, is_supported) in [("apps/one", true), ("plain", false), (".", false)] {
        let answer = gateway.ask("MatchRepository", app, &[]);
        assert_eq!((answer.is_supported(), answer.fields("2").len()), (is_supported, 1), "{app}");
    }
    // Why it was not asked for manifests: Argo CD shows no reason.
    gateway.wait_for_log(r#""path":"plain","is_supported":false,"rule":"fileName: ./demo.yaml""#);
    // One extraction for equal trees.
    let _ = gateway.ask("GenerateManifest", "apps/one", &[]);
    gateway.wait_for_log("\"is_known\":true");
    assert_eq!(gateway.log().matches("\"is_known\":false").count(), 1);
}

#[test]
fn blank_output_is_an_error_and_an_empty_list_is_nothing() {
    let gateway = Gateway::sidecar(&script("cat out"));
    for (out, expected) in [("", None), ("---\n# x\n", None), ("[]\n", Some(0)), ("a: b\n", Some(1))] {
        gateway.file("out", out);
        let answer = gateway.ask("GenerateManifest", ".", &[]);
        match expected {
            None => assert!(answer.error().contains("print `[]`"), "{answer:?}"),
            Some(count) => assert_eq!(answer.manifests().len(), count),
        }
    }
}

#[test]
fn errors_have_the_end_of_stderr_without_secrets() {
    let text = "for i in $(seq 99); do echo usage $i >&2; done; echo \"bad $MY_TOKEN $DB_PASSWORD\" >&2; exit 7";
    let mut gateway = Gateway::sidecar(&script(text));
    gateway.file("x", "");
    let answer = gateway.ask("GenerateManifest", ".", &["-env", "DB_PASSWORD=very-secret-word"]);
    let error = answer.error();
    assert_eq!(answer.code(), "Unknown");
    for expected in
        ["error generating manifests: `sh -c", "failed exit status 7", "usage 99", "bad [redacted] [redacted]"]
    {
        assert!(error.contains(expected), "{error}: {expected}");
    }
    assert!(!error.contains("usage 50") && !error.contains("hunter2"), "{error}");
    gateway.wait_for_log("run failed");
    assert!(!gateway.log().contains("very-secret-word") && !gateway.log().contains("hunter2"));
}

#[test]
fn init_runs_first_and_the_tree_stays_as_it_was() {
    let gateway = Gateway::sidecar(
        "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  version: v1.0\n  init: {command: [sh, -c, 'test ! -e made && \
         echo made > made']}\n  generate: {command: [./run.sh]}\n  preserveFileMode: true\n",
    );
    gateway.file("app/run.sh", "#!/bin/sh\necho \"a: $(cat made)\"\n");
    let run = gateway.path("repository/app/run.sh");
    fs::set_permissions(run, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        assert_eq!(gateway.ask("GenerateManifest", "app", &[]).manifests(), ["a: made\n"]);
    }
    gateway.file("app/made", "");
    assert!(gateway.ask("GenerateManifest", "app", &[]).error().contains("since its `init` `sh` failed exit status 1"));
}

/// Go's programs start others by the name as it is written, so that messages begin with it. Python finds its library by that name and `PATH`,
/// also behind a script in its place.
#[test]
fn a_program_sees_its_name_as_it_is_written() {
    let plugin = |command: &str| {
        format!(
            "kind: ConfigManagementPlugin\nmetadata: {{name: demo}}\nspec:\n  version: v1.0\n  preserveFileMode: true\n{command}\n"
        )
    };
    let python = "import json, os, sys; print(json.dumps({'a': [os.path.basename(sys.orig_argv[0]), os.path.isabs(sys.executable), json.__file__ != '']}))";
    let init = "init: {command: [sh, -c, 'echo \"$0\" > name']}";
    for (command, expected) in [
        ("  generate: {command: [sh, -c, 'echo \"a: $0\"']}".to_owned(), "a: sh\n"),
        (format!("  {init}\n  generate: {{command: [sh, -c, 'echo \"a: $(cat name)\"']}}"), "a: sh\n"),
        ("  generate: {command: [./run.sh, x]}".to_owned(), "a: ./run.sh x\n"),
        ("  generate: {command: [../run.sh, x]}".to_owned(), "a: ../run.sh x\n"),
        (
            format!("  generate: {{command: [python3, -c, {}]}}", serde_json::to_string(python).unwrap()),
            "{\"a\": [\"python3\", true, true]}\n",
        ),
    ] {
        let gateway = Gateway::sidecar(&plugin(&command));
        for script in ["run.sh", "app/run.sh"] {
            gateway.file(script, "#!/bin/sh\necho \"a: $0 $1\"\n");
            let path = gateway.path("repository").join(script);
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        assert_eq!(gateway.ask("GenerateManifest", "app", &[]).manifests(), [expected], "{command}");
    }
}

/// The time of a file's last change says whether it was written again.
#[test]
fn a_copy_that_a_run_left_as_it_was_serves_the_next_run() {
    let kind = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(std::env::temp_dir()).output().unwrap();
    let kind = String::from_utf8(kind.stdout).unwrap();
    let is_noting = ["ext2/ext3", "xfs", "btrfs"].contains(&kind.trim());
    let gateway =
        Gateway::serve("plugins:\n- config: demo\n", &[("demo", &script("echo \"a: '$(stat -c %.9Z f7)'\""))]);
    for number in 0..300 {
        gateway.file(&format!("f{number}"), "");
    }
    let time = || gateway.ask("GenerateManifest", ".", &[]).manifests()[0].to_owned();
    // The next run does not wait for a launcher that a busy machine makes slow.
    let is_kept = (0..20).any(|_| time() == time());
    assert_eq!(is_kept, is_noting, "{kind}");
}

/// A copy of the tree that a run left as it was serves the next run. What a run changes, no other run sees.
#[test]
fn a_run_sees_no_change_of_another_run() {
    let text = "echo \"a: $(cat app/* | wc -l) $(ls .. | wc -l) $(cat f7)\"; echo x >> $TMPDIR/left; test \"$CHANGE\" = '' || eval \"$CHANGE\"";
    let gateway = Gateway::serve("plugins:\n- {config: demo, concurrency: 1}\n", &[("demo", &script(text))]);
    for number in 0..300 {
        gateway.file(&format!("f{number}"), "old\n");
    }
    gateway.file("app/x", "1\n2\n");
    for change in [
        "",
        "",
        "echo new > f7",
        "",
        "rm f7 app/x",
        "echo more > app/y",
        "chmod 700 f7",
        "mv f7 f8",
        "rm -rf ../copy ../left",
        "",
    ] {
        let answer = gateway.ask("GenerateManifest", ".", &["-env", &format!("CHANGE={change}")]);
        assert_eq!(answer.manifests(), ["a: 2 1 old\n"], "before {change:?}");
    }
}

#[test]
fn parameters_are_announced() {
    let gateway = Gateway::sidecar(
        "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  version: v1.0\n  generate: {command: [x]}\n  parameters:\n    \
         static: [{name: a, title: A}]\n    dynamic: {command: [cat, list]}\n",
    );
    gateway.file("list", r#"[{"name": "b", "collectionType": "map"}]"#);
    let answer = gateway.ask("GetParametersAnnouncement", ".", &[]);
    let found: Vec<_> = answer.fields("1").iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    assert_eq!(found, ["\n\u{1}b2\u{3}map", "\n\u{1}a\u{12}\u{1}A"]);
    gateway.file("list", "no JSON");
    assert!(gateway.ask("GetParametersAnnouncement", ".", &[]).error().contains("did not print a JSON list"));
}

/// Static parameters need no archive, so a bad one does not matter, but all of it is taken.
#[test]
fn static_parameters_need_no_archive() {
    let gateway = Gateway::sidecar(
        "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  version: v1.0\n  generate: {command: [x]}\n  parameters: {static: [{name: a}]}\n",
    );
    gateway.file("x", "");
    let answer = gateway.ask("GetParametersAnnouncement", ".", &["-checksum", "wrong", "-pad", "3000000"]);
    assert_eq!(answer.fields("1").len(), 1);
}

#[test]
fn a_changed_plugin_is_used_and_an_invalid_one_is_not() {
    let mut gateway = Gateway::sidecar(&script("echo 'a: one'"));
    gateway.file("x", "");
    let of = |gateway: &Gateway| gateway.ask("GenerateManifest", ".", &[]).manifests()[0].to_owned();
    assert_eq!(of(&gateway), "a: one\n");
    // A call keeps the plugin that it began with.
    fs::write(gateway.path("config/plugin.yaml"), script("touch $SHARED/began; sleep 2; echo 'a: second'")).unwrap();
    let slow = gateway.begin("demo-v1.0", "GenerateManifest", ".", &[]);
    let began = gateway.path("began");
    gateway.wait_until(|| began.exists());
    fs::write(gateway.path("config/plugin.yaml"), script("echo 'a: third one'")).unwrap();
    assert_eq!(of(&gateway), "a: third one\n");
    assert_eq!(crate::support::answers(slow)[0].manifests(), ["a: second\n"]);
    fs::write(gateway.path("config/plugin.yaml"), "kind: Nothing").unwrap();
    assert_eq!(of(&gateway), "a: third one\n");
    gateway.wait_for_log("the old one stays in use");
}

#[test]
fn several_plugins_are_served_each_for_its_projects() {
    let second = script("echo 'a: second'").replace("demo", "second").replace("v1.0", "''");
    let config = "plugins:\n- {config: first, allow: {projects: ['team-*'], repositories: ['https://git.example.com/*']}}\n- config: second\n";
    let gateway = Gateway::serve(config, &[("first", DEMO), ("second", &second)]);
    gateway.file("demo.yaml", "a: b\n");
    let second = crate::support::answers(gateway.begin("second", "GenerateManifest", ".", &[]));
    assert_eq!(second[0].manifests(), ["a: second\n"]);
    let of = |project: &str, repository: &str| {
        let (project, repository) =
            (format!("ARGOCD_APP_PROJECT_NAME={project}"), format!("ARGOCD_APP_SOURCE_REPO_URL={repository}"));
        let flags = ["-env", &project, "-env", &repository];
        let generated = gateway.ask("GenerateManifest", ".", &flags);
        (gateway.ask("MatchRepository", ".", &flags).is_supported(), generated.0["error"].as_str().map(str::to_owned))
    };
    assert_eq!(of("team-a", "https://git.example.com/x"), (true, None));
    let (is_supported, error) = of("other", "https://git.example.com/x");
    assert!(!is_supported && error.unwrap().contains("not allowed for `other` (`allow.projects`)"));
    let (is_supported, error) = of("team-a", "https://elsewhere.example.com/x");
    assert!(!is_supported && error.unwrap().contains("`allow.repositories`"));
}
