//! Plugins whose manifests are kept.

use std::process::Command;

use crate::{
    remotes::metric,
    support::{Gateway, script},
};

const CONFIG: &str =
    "admin: 127.0.0.1:0\nplugins:\n- {config: demo, network: none, hermetic: {env: [ARGOCD_ENV_SIZE]}}\n";

#[test]
fn only_other_applications_get_what_is_kept() {
    // Not hermetic, to see which run has answered.
    let plugin = script(
        "echo \"a: $ARGOCD_ENV_SIZE\"; echo \"name: $ARGOCD_APP_NAME\"; echo \"run: $(cat /proc/sys/kernel/random/uuid)\"",
    );
    let mut gateway = Gateway::serve(CONFIG, &[("demo", &plugin)]);
    gateway.file("x", "");
    let ask = |gateway: &Gateway, application: &str, size: &str| {
        let flags = ["-env", &format!("ARGOCD_APP_NAME={application}"), "-env", &format!("ARGOCD_ENV_SIZE={size}")];
        gateway.ask("GenerateManifest", ".", &flags).manifests()[0].to_owned()
    };
    let first = ask(&gateway, "one", "1");
    assert!(first.starts_with("a: 1\nname: \n"), "only declared variables: {first}");
    assert_eq!(ask(&gateway, "two", "1"), first);
    assert_ne!(ask(&gateway, "three", "2"), first, "another variable");
    let again = ask(&gateway, "two", "1");
    assert_ne!(again, first, "the same Application asks again");
    gateway.wait_for_log("gave other manifests for equal files");
    assert_eq!(ask(&gateway, "one", "1"), again);
    gateway.file("x", "changed");
    assert_ne!(ask(&gateway, "four", "1"), again, "other files");
    assert_eq!(metric(&mut gateway, "cmp_gateway_outputs_total", "result=\"hit\""), 2);
    assert_eq!(metric(&mut gateway, "cmp_gateway_outputs_total", "result=\"miss\""), 4);
}

#[test]
fn a_plugin_that_reaches_others_is_not_hermetic() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plugin.yaml"), script("echo 'a: b'")).unwrap();
    for (settings, key) in [("", "network: none"), ("network: none, files: {write: [/tmp]}, ", "files.write")] {
        let config = format!("work: work\nplugins:\n- {{config: plugin.yaml, {settings}hermetic: {{}}}}\n");
        let file = folder.path().join("cmp.yaml");
        std::fs::write(&file, config).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_cmp-gateway")).args(["serve", "-c"]).arg(&file).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(key), "{error}");
    }
}
