//! Missing interpreters, and interpreters that do not find their modules.

use appset_gateway::{app::App, config::Loaded};
use domain::file::base_dir::BaseDir;

use super::*;

fn program(folder: &std::path::Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_missing_interpreter_is_named_from_the_first_line() {
    let missing = "its first line names the interpreter `/no/such/interpreter`, which does not exist";
    for (text, script, warned, says) in [
        ("#!/bin/sh\r\necho []\r\n", json!({}), true, "its first line ends with a carriage return"),
        ("#!/no/such/interpreter -x\n", json!({}), true, missing),
        ("#!/no/such/interpreter -x\n", json!({"mode": "worker", "worker": {"ahead": 0}}), true, missing),
        ("echo '[]'\n", json!({}), false, "its first line names no interpreter, such as `#!/bin/sh`"),
        (
            "#!/no/such/interpreter\n",
            json!({"init": {"command": ["./program"]}, "command": ["echo", "[]"]}),
            true,
            missing,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), "program", text);
        let mut of = json!({"command": ["./program"], "timeout": "5s"});
        of.as_object_mut().unwrap().extend(script.as_object().unwrap().clone());
        let config = format!("{}routes: {}\n", TestApp::auth(), json!([route(of)]));
        let loaded = Loaded::parse("test.yaml", config.clone(), BaseDir::new(folder.path())).unwrap();
        let gateway = std::path::Path::new(env!("CARGO_BIN_EXE_appset-gateway"));
        let (_, report) = App::build(loaded, Arc::new(SystemClock), gateway).unwrap();
        let lines = report.lines();
        let is_warned = lines.iter().any(|line| line.contains("command: ") && line.contains(says));
        assert_eq!((is_warned, report.has_errors()), (warned, false), "{text}: {lines:?}");
        let app = TestApp::start_in(folder, &config).await;
        let message = refused(&app.ask_afresh("s", json!({})).await, 502, "backend_failed", says);
        assert!(message.contains("cannot start: "), "{message}");
    }
}

/// The routes of docs/scripts.md, with and without their `allow`.
#[tokio::test]
async fn modules_beside_the_script_are_found_if_allowed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["branches", "lib", "node_modules/zones"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let found = r#"[{"zone":"found"}]"#;
    let python = format!("import names\nprint('{found}'.replace('found', names.found))\n");
    let node = "import { found } from 'zones'\nconsole.log(JSON.stringify([{ zone: found }]))\n";
    let manifest = r#"{"type": "module", "main": "lib.js"}"#;
    for (name, text) in [
        ("branches/branches.py", &*python),
        ("branches/names.py", "found = 'found'\n"),
        ("branches.py", &python),
        ("lib/names.py", "found = 'found'\n"),
        ("zones.js", node),
        ("package.json", r#"{"type": "module"}"#),
        ("node_modules/zones/package.json", manifest),
        ("node_modules/zones/lib.js", "export const found = 'found'\n"),
        ("zones.pl", "use Names;\nprint qq([{\"zone\": \"$Names::found\"}]);\n"),
        ("lib/Names.pm", "package Names;\nour $found = 'found';\n1;\n"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let run = |program: &str, arguments: &[&str]| {
        let done = process::Command::new(program).args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    run("python3", &["-m", "venv", "--without-pip", "venv"]);
    let packages = run("venv/bin/python", &["-c", "import site; print(site.getsitepackages()[0], end='')"]);
    std::fs::copy(folder.path().join("lib/names.py"), format!("{packages}/names.py")).unwrap();

    let text = include_str!("../../../docs/scripts.md");
    let section = text.split("\n## Use modules beside the script\n").nth(1).unwrap();
    let block = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let routes: Vec<Value> = serde_saphyr::from_str(block).unwrap();
    let has = |program: &str| process::Command::new(program).arg("--version").output().is_ok();
    let mut both = Vec::new();
    for route in routes {
        if !has(route["backend"]["script"]["command"][0].as_str().unwrap().trim_start_matches("venv/bin/")) {
            continue;
        }
        let (mut allowed, mut bare) = (route.clone(), route);
        allowed["cache"] = json!({"ttl": "0s"});
        bare["name"] = format!("bare-{}", bare["name"].as_str().unwrap()).into();
        let needs = bare["backend"]["script"].as_object_mut().unwrap().remove("allow").is_some();
        both.push((allowed, bare, needs));
    }
    assert!(both.len() >= 3, "python3 is there: {both:?}");
    let all: Vec<&Value> = both.iter().flat_map(|(allowed, bare, _)| [allowed, bare]).collect();
    let app = TestApp::start_in(folder, &format!("{}routes: {}\n", TestApp::auth(), json!(all))).await;
    for (allowed, bare, needs) in &both {
        let reply = app.ask_afresh(allowed["name"].as_str().unwrap(), json!({})).await;
        assert_eq!(reply.status, 200, "{allowed}: {}", reply.text());
        assert_eq!(reply.sets(), found, "{allowed}");
        let reply = app.ask_afresh(bare["name"].as_str().unwrap(), json!({})).await;
        if *needs {
            refused(&reply, 502, "backend_failed", "`allow`");
        } else {
            assert_eq!(reply.sets(), found);
        }
    }
}

#[tokio::test]
async fn the_error_for_a_missing_module_mentions_allow() {
    for words in [
        "ModuleNotFoundError: No module named 'helper'",
        "Fatal Python error: init_fs_encoding: failed to get the Python codec",
        "No such file or directory: '/srv/venv/pyvenv.cfg'",
        "Error: Cannot find module './helper'",
        "code: 'ERR_MODULE_NOT_FOUND'",
        "Can't locate Helper.pm in @INC",
        "cannot load such file -- helper (LoadError)",
    ] {
        let app =
            serve(route(json!({"command": ["sh", "-c", "echo \"$WORDS\" >&2; exit 1"], "env": {"WORDS": words}})))
                .await;
        let reply = app.ask_afresh("s", json!({})).await;
        refused(
            &reply,
            502,
            "backend_failed",
            "if it is there, the script may not read it: name its folder in `allow`",
        );
    }
}
