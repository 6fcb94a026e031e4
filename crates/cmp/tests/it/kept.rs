//! Work folders of failed runs that are kept.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::support::{Gateway, script};

/// A plugin that runs the script `run` of the repository.
const CONFIG: &str =
    "plugins:\n- {config: demo, keepFailed: 2, maxKept: 1MiB, timeout: 2s, limits: {fileSize: 10MiB}}\n";
const FAILED: &str = "work/_cmp_server/failed/demo-v1.0";

fn gateway(run: &str) -> Gateway {
    let gateway = Gateway::serve(CONFIG, &[("demo", &script("exec sh ./run"))]);
    gateway.file("run", run);
    gateway
}

fn folders(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).map_or_else(|_| BTreeSet::new(), |found| found.flatten().map(|entry| entry.path()).collect())
}

/// Runs the script `run` once, and waits until the log has `count` lines with `text`.
fn run(gateway: &mut Gateway, run: &str, text: &str, count: usize) {
    gateway.file("run", run);
    let _ = gateway.ask("GenerateManifest", ".", &["-env", "ARGOCD_APP_NAME=shop"]);
    let log = gateway.path("log");
    gateway.wait_until(|| fs::read_to_string(&log).is_ok_and(|log| log.matches(text).count() == count));
}

#[test]
fn the_newest_folders_of_failed_runs_are_kept_until_the_next_start() {
    let mut gateway = gateway("echo 'a: b'");
    let failed = gateway.path(FAILED);
    let kept = "the folder of a failed run is kept";
    for (count, text) in [
        "echo one > made; exit 1",
        // Blank output fails, too.
        "echo two > made; mkdir -m 000 closed",
        "echo three > made; sleep 1000",
        "echo four > made; echo x > $TMPDIR/temporary; kill -KILL $$",
    ]
    .into_iter()
    .enumerate()
    {
        run(&mut gateway, text, kept, count + 1);
    }
    assert_eq!(folders(&failed), ["2", "3"].map(|name| failed.join(name)).into());
    for (name, made) in [("2", "three\n"), ("3", "four\n")] {
        assert_eq!(fs::read_to_string(failed.join(name).join("copy/made")).unwrap(), made);
    }
    assert_eq!(fs::read_to_string(failed.join("3/temporary")).unwrap(), "x\n");
    assert!(gateway.log().contains("\"application\":\"shop\""), "{}", gateway.log());
    // Good runs replace none.
    gateway.file("run", "echo 'a: b'");
    assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
    run(&mut gateway, "mkdir -m 000 closed; exit 1", kept, 5);
    assert_eq!(folders(&failed), ["3", "4"].map(|name| failed.join(name)).into());
    gateway.terminate();
    assert!(gateway.wait().success());
    assert_eq!(folders(&failed).len(), 2);
    gateway.restart();
    gateway.wait_until(|| folders(&failed).is_empty());
}

#[test]
fn folders_that_are_too_large_are_not_kept() {
    let mut gateway = gateway("echo 'a: b'");
    let failed = gateway.path(FAILED);
    let half = "head -c 600000 /dev/urandom > half; exit 1";
    run(&mut gateway, half, "the folder of a failed run is kept", 1);
    // There is room for one of them.
    run(&mut gateway, half, "the folder of a failed run is kept", 2);
    assert_eq!(folders(&failed), [failed.join("1")].into());
    run(&mut gateway, "head -c 2000000 /dev/urandom > all; exit 1", "takes more than 1.0 MiB (`maxKept`)", 1);
    assert_eq!(folders(&failed), [failed.join("1")].into());
}

#[test]
fn no_folder_is_kept_unless_configured() {
    let gateway = Gateway::serve("plugins:\n- config: demo\n", &[("demo", &script("exit 1"))]);
    gateway.file("x", "");
    assert!(gateway.ask("GenerateManifest", ".", &[]).error().contains("exit status 1"));
    assert!(!gateway.path("work/_cmp_server/failed").exists());
}
