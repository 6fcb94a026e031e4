//! A guard that a restart makes blind: the start and `check` warn of it, and no configuration that users copy has one.

use std::{
    io::Read as _,
    path::Path,
    process::{Output, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{TestApp, binary::command};

/// The cause, as both say it.
const BLIND: &str = "without `cache.path` a restart makes the guard blind";

const SILENT: &str = "guard: { onEmpty: allow, maxShrink: 100% }";
const SHARED: &str = "cache: { shared: { url: \"redis://127.0.0.1:1/0\" } }\n";
const PLUGIN: &str = "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: { name: p }\nspec: { generate: { command: [cat] } }\n";

fn check(folder: &Path, config: &str, options: &[&str]) -> Output {
    std::fs::write(folder.join("gateway.yaml"), config).unwrap();
    command().current_dir(folder).args(["check", "-c", "gateway.yaml"]).args(options).output().unwrap()
}

fn with_route(guard: &str, cache: &str) -> String {
    let auth = TestApp::auth();
    format!(
        "{auth}{cache}routes: [ {{ name: r, {guard}{sep}backend: {{ fixed: {{ parameters: [ {{ name: a }} ] }} }} }} ]\n",
        sep = if guard.is_empty() { "" } else { ", " }
    )
}

#[test]
fn check_warns_of_a_guard_that_a_restart_makes_blind() {
    let kept = "cache: { path: answers.redb }\n";
    for (guard, cache, is_told) in [
        ("", "", true),
        ("", "cache: { memory: 1MiB }\n", true),
        ("guard: { onEmpty: keep, maxShrink: 100% }", "", true),
        ("guard: { onEmpty: allow }", "", true),
        ("guard: { onEmpty: error, maxShrink: 100% }", "", false),
        (SILENT, "", false),
        ("", kept, false),
        ("", SHARED, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = with_route(guard, cache);
        let [usual, strict] = [&[][..], &["--strict"]].map(|options| check(folder.path(), &config, options));
        let said = String::from_utf8(usual.stderr).unwrap();
        assert_eq!(said.replace("\n  | ", " ").contains(BLIND), is_told, "{config}{said}");
        assert_eq!(
            (usual.status.code(), strict.status.code()),
            (Some(0), Some(if is_told { 78 } else { 0 })),
            "{config}"
        );
    }
}

/// The routes of plugins have guards too.
#[test]
fn a_plugins_guard_counts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("plugins/p")).unwrap();
    std::fs::write(folder.path().join("plugins/p/plugin.yaml"), PLUGIN).unwrap();
    let config = format!("{}plugins: {{ path: plugins, sources: {{ p: {{ folder: plugins }} }} }}\n", TestApp::auth());
    let said = check(folder.path(), &config, &["-o", "json"]).stdout;
    assert!(String::from_utf8(said).unwrap().contains(BLIND));
}

/// The line of the log is a warning, with the place in the file.
#[test]
fn the_start_warns_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    for (cache, is_told) in [("", true), ("cache: { path: answers.redb }\n", false)] {
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, format!("{listen}{}", with_route("", cache))).unwrap();
        let mut child = command().args(["serve", "-c"]).arg(&file).stdout(Stdio::piped()).spawn().unwrap();
        let (mut log, mut byte) = (Vec::new(), [0]);
        let mut stdout = child.stdout.take().unwrap();
        while !log.ends_with(b"\"ready\"") && stdout.read(&mut byte).unwrap() > 0 {
            log.push(byte[0]);
        }
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        let log = String::from_utf8(log).unwrap();
        let warns =
            log.lines().any(|line| line.contains("WARN") && line.contains(BLIND) && line.contains("gateway.yaml:"));
        assert_eq!(warns, is_told, "{log}");
    }
}
