//! Plugins that cannot be read: none of them may vanish, since another route would answer in its place.

use std::{
    os::unix::fs::symlink,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use super::*;

const ALL: &str =
    "plugins: { path: plugins }\nroutes: [ { name: all, match: {}, backend: { fixed: { parameters: [] } } } ]\n";

#[test]
fn what_cannot_be_reached_is_no_plugin_less() {
    let folder = folder(&[
        ("plugins/huge/plugin.yaml", &format!("{}#{}", saying("h", "", "x", ""), "x".repeat(1024 * 1024))),
        ("plugins/fifo/README.md", ""),
        ("plugins/link/README.md", ""),
        ("plugins/none/README.md", ""),
        ("plugins/README.md", ""),
        ("elsewhere/plugin.yaml", &saying("e", "", "x", "")),
    ]);
    let plugins = folder.path().join("plugins");
    symlink("nowhere", plugins.join("gone")).unwrap();
    symlink("nowhere", plugins.join(".hidden")).unwrap();
    symlink("../elsewhere", plugins.join("here")).unwrap();
    symlink("..data/plugin.yaml", plugins.join("link/plugin.yaml")).unwrap();
    mkfifo(&plugins.join("fifo/plugin.yaml"), Mode::S_IRWXU).unwrap();
    let cannot = "1:1: cannot read the configuration:";
    let expected = [
        "test.yaml:2:12: plugins.path: plugins/gone: it is a link to nowhere, which is not there".to_owned(),
        "test.yaml:2:12: plugins.path: plugins/none holds no plugin.yaml (each folder here is a plugin; move others \
         elsewhere)"
            .to_owned(),
        format!("plugins/fifo/plugin.yaml:{cannot} it is no regular file"),
        format!("plugins/huge/plugin.yaml:{cannot} it is larger than 1 MiB"),
        format!("plugins/link/plugin.yaml:{cannot} it is a link to ..data/plugin.yaml, which is not there"),
    ];
    assert_eq!(problems(&folder, ALL), expected);
}

/// The gateway's own file may come from a pipe, as of `<(…)` in a shell; a secret, which is read again and again, may not.
#[test]
fn no_file_is_waited_for() {
    let folder = folder(&[]);
    let (file, secret) = (folder.path().join("gateway.yaml"), folder.path().join("token"));
    mkfifo(&secret, Mode::S_IRWXU).unwrap();
    std::fs::write(&file, format!("auth: {{ tokens: [ {{ name: a, file: token }} ] }}\n{ALL}")).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_appset-gateway"));
    let mut check = check.args(["check", "--config"]).arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while check.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            check.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = String::from_utf8(check.wait_with_output().unwrap().stderr).unwrap();
    assert!(told.contains("it is no regular file"), "{told}");
}
