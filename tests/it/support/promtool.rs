//! Prometheus' own check of metrics.

use std::{io::Write, process::Stdio};

/// Checks that `text` is in the exposition format, with proper names and help texts.
#[track_caller]
pub(crate) fn check_by_promtool(text: &str) {
    let mut promtool = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, of the Debian package prometheus");
    promtool.stdin.take().expect("it is piped").write_all(text.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
