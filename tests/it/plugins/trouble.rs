//! Unreadable plugins. None may be dropped silently, since another route would answer instead.

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
fn an_unreadable_plugin_is_an_error() {
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
        format!("plugins/fifo/plugin.yaml:{cannot} it is not a regular file"),
        format!("plugins/huge/plugin.yaml:{cannot} it is larger than 1 MiB"),
        format!("plugins/link/plugin.yaml:{cannot} it is a link to ..data/plugin.yaml, which is not there"),
    ];
    assert_eq!(problems(&folder, ALL), expected);
}

/// The gateway's own file may be a pipe, as `<(…)` in a shell makes it. A secret may not, since it is read repeatedly.
#[test]
fn reading_a_pipe_never_blocks() {
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
    let stderr = String::from_utf8(check.wait_with_output().unwrap().stderr).unwrap();
    assert!(stderr.contains("it is not a regular file"), "{stderr}");
}

#[test]
fn the_advice_in_an_error_fits_the_kind() {
    let generator = "\
apiVersion: argoproj.io/v1alpha1
kind: GeneratorPlugin
metadata: { name: a, titel: x, label: {} }
spec: { generate: { command: [cat] }, versoin: v1, maxsize: 1MiB, nothing: x, mod: worker, folder: x }
spce: {}
";
    let management = "\
apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: { name: b }
spec: { generate: { command: [cat] }, discovr: { fileName: x }, mod: x }
";
    let files = [("plugins/a/plugin.yaml", generator), ("plugins/b/plugin.yaml", management), ("work/x", "")];
    let folder = folder(&files);
    let config = "plugins: { path: plugins, sources: { b: { folder: work, mod: worker, maxsiz: 1MiB } } }\n";
    let found = problems(&folder, config);
    let words = "protocol, env, inheritEnv, timeout, maxOutput, concurrency, allow, limits, user, network, output, echo, \
                 stringify, nulls, cache, formerly, lineage, guard, deadline";
    let ignored = "Argo CD ignores it, and so does the gateway";
    let known = format!("known here: version, init, generate, discover, parameters, mode, worker, {words}");
    let expected = [
        format!(
            "test.yaml:2:57: plugins.sources.b.mod: unknown key `mod` (known here: folder, maxSize, match, parameters, {words})"
        ),
        "test.yaml:2:70: plugins.sources.b.maxsiz: unknown key `maxsiz` (did you mean `maxSize`?)".to_owned(),
        "plugins/a/plugin.yaml:3:22: metadata.titel: unknown key `titel` (known here: name, labels, annotations)"
            .to_owned(),
        "plugins/a/plugin.yaml:3:32: metadata.label: unknown key `label` (did you mean `labels`?)".to_owned(),
        "plugins/a/plugin.yaml:4:39: spec.versoin: unknown key `versoin` (did you mean `version`?)".to_owned(),
        format!("plugins/a/plugin.yaml:4:52: spec.maxsize: unknown key `maxsize` ({known})"),
        format!("plugins/a/plugin.yaml:4:67: spec.nothing: unknown key `nothing` ({known})"),
        "plugins/a/plugin.yaml:4:79: spec.mod: unknown key `mod` (did you mean `mode`?)".to_owned(),
        "plugins/a/plugin.yaml:4:92: spec.folder: unknown key `folder` (it is for a ConfigManagementPlugin)".to_owned(),
        "plugins/a/plugin.yaml:5:1: spce: unknown key `spce` (did you mean `spec`?)".to_owned(),
        format!(
            "plugins/b/plugin.yaml:4:39: spec.discovr: unknown key `discovr` ({ignored}; did you mean `discover`?)"
        ),
        format!("plugins/b/plugin.yaml:4:65: spec.mod: unknown key `mod` ({ignored})"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_file_holds_one_document() {
    let two = format!("{}---\n{}", saying("a", "", "x", ""), saying("b", "", "x", ""));
    let folder = folder(&[("plugins/a/plugin.yaml", &two)]);
    let expected = "plugins/a/plugin.yaml:6:1: one YAML document is expected, and here is a second one";
    assert_eq!(problems(&folder, ALL), [expected]);
}
