//! The warnings of `check` and of the log for a kernel that cannot contain scripts completely.

use nix::libc::{self, ENOSYS};
use serde_json::{Value, json};

use super::attempts::{Served, next};
use crate::support::{TestApp, authority::Ca, binary, kernel::failing};

const LANDLOCK: i64 = libc::SYS_landlock_create_ruleset;
const FILTERS: i64 = libc::SYS_seccomp;
const NAMESPACES: i64 = libc::SYS_unshare;

/// Each warning, with a part of its text.
const WARNINGS: [(&str, &str); 4] = [
    ("files", "programs may read and write all files that the gateway may: the kernel has no landlock"),
    ("signals", "programs may send signals to the gateway, so end it, unless `user` names another user"),
    (
        "processes",
        "programs may change other processes of their user, such as the gateway's limits: the kernel does not take",
    ),
    ("network", "`network: none` has no effect"),
];

/// The warnings in `text`.
fn warnings_in(text: &str) -> Vec<&'static str> {
    WARNINGS.iter().filter(|(_, words)| text.contains(words)).map(|(part, _)| *part).collect()
}

#[test]
fn check_reports_missing_kernel_features() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let check = |network: &str| {
        let script = json!({"command": ["echo", "[]"], "network": network});
        let routes = json!([{"name": "s", "backend": {"script": script}}]);
        std::fs::write(&file, format!("{}routes: {routes}\n", TestApp::auth())).unwrap();
        let output = binary::command().args(["check", "-c"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (missing, network, log) in [
        (&[LANDLOCK] as &[i64], "host", vec!["files", "signals"]),
        (&[FILTERS], "host", vec!["processes"]),
        // The filter stops sockets without a namespace.
        (&[LANDLOCK, NAMESPACES], "none", vec!["files", "signals"]),
        (&[LANDLOCK, FILTERS, NAMESPACES], "none", vec!["files", "signals", "processes", "network"]),
    ] {
        let text = failing(missing, ENOSYS, || check(network));
        assert_eq!(warnings_in(&text), log, "{missing:?}: {text}");
    }
}

/// A script that could read the store's password, or the service account's token, could act in the gateway's place.
#[test]
fn a_script_may_not_read_the_gateways_own_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    std::fs::write(folder.path().join("secrets/password"), "password-of-the-store").unwrap();
    std::fs::write(folder.path().join("secrets/token"), "token-of-the-service-account").unwrap();
    std::fs::write(folder.path().join("cluster.crt"), Ca::new("cluster").pem).unwrap();
    let check = |allow: Value| {
        let script = json!({"command": ["echo", "[]"], "allow": allow});
        let routes = json!([{"name": "s", "backend": {"script": script}}]);
        let shared = json!({"url": "redis://localhost", "password": {"file": "secrets/password"}});
        let refresh = json!({"namespaces": ["argocd"], "configMaps": ["gateway"], "api": "https://localhost:6443",
            "token": {"file": "secrets/token"}, "ca": "cluster.crt"});
        let own = format!("cache: {{ shared: {shared} }}\nargocd: {{ refresh: {refresh} }}\n");
        std::fs::write(&file, format!("{}{own}routes: {routes}\n", TestApp::auth())).unwrap();
        let output = binary::command().args(["check", "-c"]).arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = check(json!({}));
    assert_eq!(code, Some(0), "{text}");
    for (allow, missing, why) in [
        (json!({"read": ["."]}), &[] as &[i64], "a script's `allow` has "),
        (json!({"write": ["secrets"]}), &[], "a script's `allow` has "),
        (json!({}), &[LANDLOCK], "the kernel has no landlock"),
    ] {
        let (code, text) = failing(missing, ENOSYS, || check(allow.clone()));
        assert_eq!(code, Some(78), "{text}");
        for key in ["cache.shared.password", "argocd.refresh.token"] {
            let expected = format!("error: scripts can read a secret: {key}: {why}");
            assert!(text.contains(&expected), "{text}");
        }
    }
}

#[tokio::test]
async fn the_log_reports_missing_kernel_features() {
    let start = || Served::new(&[next()], None);
    let served = failing(&[LANDLOCK, FILTERS], ENOSYS, start);
    assert_eq!(served.ask("next").await.sets(), "[]");
    // The last of them.
    let log = served.gateway.logged(WARNINGS[2].1);
    let text: String = log.lines().filter(|line| line.contains(r#""level":"WARN""#)).collect();
    assert_eq!(warnings_in(&text), ["files", "signals", "processes"], "{log}");
}
