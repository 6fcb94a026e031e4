//! The plugins of docs/cmp/examples, with programs that stand in for kpt and its functions, and what their authors see of them.

use std::{
    path::Path,
    process::{Command, Output},
};

use crate::support::{Gateway, path_of_examples, repository};

fn example(name: &str) -> String {
    std::fs::read_to_string(repository().join("docs/cmp/examples").join(name).join("plugin.yaml")).unwrap()
}

#[test]
fn kpt_renders_a_package() {
    let gateway = Gateway::sidecar_called("kpt-v1.0", &example("kpt"));
    gateway.file("shop/Kptfile", "pipeline:\n  mutators:\n  - image: example.com/kpt-fn/set-labels:v0.1.5\n");
    gateway.file("shop/service.yaml", "kind: Service\nlocal: true\n").file("other/x.yaml", "a: b\n");
    let ask = |method: &str, app: &str| {
        let flags = ["-env", "ARGOCD_APP_NAME=shop", "-env", "ARGOCD_APP_REVISION=f62b5a4"];
        crate::support::answers(gateway.begin("kpt-v1.0", method, app, &flags)).remove(0)
    };
    assert!(ask("MatchRepository", "shop").is_supported() && !ask("MatchRepository", "other").is_supported());
    let expected =
        "kind: Service\nlabels: {env: test}\n# argocd.example.com/app=shop\n# argocd.example.com/rev=f62b5a4\n";
    for _ in 0..2 {
        assert_eq!(ask("GenerateManifest", "shop").manifests(), [expected]);
    }
}

#[test]
fn a_pipe_joins_programs() {
    let gateway = Gateway::sidecar_called("pipe", &example("pipe"));
    gateway.file("a.yaml", "kind: A\nlocal: x\n").file("b.yaml", "kind: B\n");
    let of = |pipe: &str| {
        let pipe = format!("ARGOCD_ENV_PIPE={pipe}");
        crate::support::answers(gateway.begin("pipe", "GenerateManifest", ".", &["-env", &pipe])).remove(0)
    };
    assert_eq!(of("").manifests(), ["---\nkind: A\nlocal: x\n---\nkind: B\n"]);
    let both = of("remove-local-config-resources-v0.1.0,set-annotations-v0.1.4 x y");
    assert_eq!(both.manifests(), ["---\nkind: A\n---\nkind: B\n# x\n# y\n"]);
    let failed = of("set-labels-v0.1.5,false");
    assert!(failed.error().contains("step `false` failed"), "{failed:?}");
}

fn program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmp-gateway"));
    command.args(arguments).env("PATH", path_of_examples()).output().unwrap()
}

#[test]
fn authors_see_what_argo_cd_would_see() {
    let examples = repository().join("docs/cmp/examples");
    let of = |name: &str| examples.join(name).to_str().unwrap().to_owned();
    let checked = program(&["check", &of("kpt")]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && text.contains("kpt-v1.0.sock") && !text.contains("warning"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.yaml", "kind: A\n");
    let repository = folder.path().to_str().unwrap();
    let rendered =
        program(&["render", repository, "--plugin", &of("pipe"), "--env", "ARGOCD_ENV_PIPE=set-labels-v0.1.5"]);
    assert_eq!(
        String::from_utf8(rendered.stdout).unwrap(),
        "---\nkind: A\nlabels: {env: test}\n",
        "{:?}",
        rendered.stderr
    );
    let failed = program(&["render", repository, "--plugin", &of("pipe"), "--env", "ARGOCD_ENV_PIPE=false"]);
    let error = String::from_utf8(failed.stderr).unwrap();
    assert!(!failed.status.success() && error.contains("step `false` failed"), "{error}");
    write(
        "plugin.yaml",
        "kind: ConfigManagementPlugin\nmetadata: {name: x}\nspec: {lockRepo: true, generate: {command: [no-such-program]}}\n",
    );
    let text = String::from_utf8(program(&["check", repository]).stdout).unwrap();
    assert!(text.contains("spec.lockRepo is unknown") && text.contains("not found in $PATH"), "{text}");
    assert!(!program(&["check", Path::new("/nothing").to_str().unwrap()]).status.success());
}
