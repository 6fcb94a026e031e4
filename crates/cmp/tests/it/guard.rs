//! Equal inputs that give fewer resources.

use std::fs;

use crate::support::{Answer, Gateway, script};

/// Prints a list that is not in the repository, as one from Vault or an inventory.
const FROM_OUTSIDE: &str = "cat $SHARED/outside";
const TWO: &str = "kind: A\nmetadata: {name: x}\n---\nkind: B\nmetadata: {name: hunter2-hunter2-hunter2}\n";
const ONE: &str = "kind: A\nmetadata: {name: x}\n";

#[test]
fn fewer_resources_from_equal_inputs_are_held() {
    let mut gateway = Gateway::sidecar(&script(FROM_OUTSIDE));
    // As a sidecar sees it: each checkout has another `.git`.
    gateway.file("x", "").file(".git/index", "1");
    let outside = |text: &str| fs::write(gateway.path("outside"), text).unwrap();
    let ask = |flags: &[&str]| {
        let flags = [&["-env", "ARGOCD_APP_NAME=shop"][..], flags].concat();
        gateway.ask("GenerateManifest", ".", &flags)
    };
    outside(TWO);
    assert_eq!(ask(&["-env", "ARGOCD_APP_REVISION=1"]).manifests(), [TWO]);
    let is_held = |answer: &Answer| {
        assert_eq!(answer.code(), "Unknown");
        let expected = "2 resources the last time and 1 now; missing: B: [redacted].";
        assert!(answer.error().contains(expected), "{answer:?}");
    };
    outside(ONE);
    gateway.file(".git/index", "2");
    is_held(&ask(&["-env", "ARGOCD_APP_REVISION=2"]));
    // `[]` is nothing on purpose, but not from the same files and variables.
    outside("[]");
    assert!(ask(&[]).error().contains("and 0 now"));
    // Another Application is another memory.
    assert_eq!(gateway.ask("GenerateManifest", ".", &["-env", "ARGOCD_APP_NAME=other"]).manifests().len(), 0);
    outside(TWO);
    assert_eq!(ask(&[]).manifests(), [TWO]);
    outside(ONE);
    is_held(&ask(&[]));
    // An operator accepts by a variable of the Application, which may go again.
    assert_eq!(ask(&["-env", "ARGOCD_ENV_ACCEPT=1"]).manifests(), [ONE]);
    assert_eq!(ask(&[]).manifests(), [ONE]);
    outside(TWO);
    assert_eq!(ask(&[]).manifests(), [TWO]);
    // A change of the files may delete.
    outside(ONE);
    gateway.file("y", "");
    assert_eq!(ask(&[]).manifests(), [ONE]);
    gateway.wait_for_log("manifests are held");
    assert!(!gateway.log().contains("hunter2"));
}

#[test]
fn a_guard_may_wait_for_agreement_or_be_off() {
    let config = "plugins:\n- {config: first, files: {read: [.]}, guard: {onShrink: confirm, confirmAfter: 2, confirmFor: 0s}}\n\
                  - {config: second, files: {read: [.]}, guard: {onShrink: allow}}\n";
    let second = script(FROM_OUTSIDE).replace("demo", "second");
    let gateway = Gateway::serve(config, &[("first", &script(FROM_OUTSIDE)), ("second", &second)]);
    gateway.file("x", "");
    let outside = |text: &str| fs::write(gateway.path("outside"), text).unwrap();
    let ask = |plugin: &str| crate::support::answers(gateway.begin(plugin, "GenerateManifest", ".", &[])).remove(0);
    outside(TWO);
    assert_eq!([ask("demo-v1.0").manifests(), ask("second-v1.0").manifests()], [[TWO], [TWO]]);
    outside(ONE);
    assert_eq!(ask("second-v1.0").manifests(), [ONE]);
    for _ in 0..2 {
        assert!(ask("demo-v1.0").error().contains("or wait until 2 further runs agree, 0s apart"));
    }
    assert_eq!(ask("demo-v1.0").manifests(), [ONE]);
}
