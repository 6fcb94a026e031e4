//! Interpreters that are not there, and those that do not find their modules.

use appset_gateway::{app::App, base_dir::BaseDir, config::Loaded};

use super::*;

fn program(folder: &std::path::Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn what_cannot_start_says_what_its_first_line_names() {
    let missing = "its first line names the interpreter `/no/such/interpreter`, which is not there";
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
