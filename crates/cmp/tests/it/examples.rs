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
fn helmfile_renders_its_releases() {
    let gateway = Gateway::sidecar_called("helmfile-v1.0", &example("helmfile"));
    gateway.file(
        "shop/helmfile.yaml",
        "environments:\n  default: {}\n  prod: {}\nreleases:\n- name: front\n- name: back\n",
    );
    gateway.file("other/x.yaml", "a: b\n");
    let ask = |method: &str, app: &str, environment: &str| {
        let environment = format!("ARGOCD_ENV_ENVIRONMENT={environment}");
        let flags = ["-env", "ARGOCD_APP_NAMESPACE=shops", "-env", &environment];
        crate::support::answers(gateway.begin("helmfile-v1.0", method, app, &flags)).remove(0)
    };
    assert!(ask("MatchRepository", "shop", "").is_supported() && !ask("MatchRepository", "other", "").is_supported());
    for (environment, label) in [("", "default"), ("prod", "prod"), ("prod", "prod")] {
        let of = |name: &str| {
            format!(
                "---\nkind: Deployment\nmetadata: {{name: {name}, namespace: shops, labels: {{environment: {label}}}}}\n"
            )
        };
        assert_eq!(ask("GenerateManifest", "shop", environment).manifests(), [of("front") + &of("back")]);
    }
    let failed = ask("GenerateManifest", "shop", "none");
    assert!(failed.error().contains("failed exit status 3: err: no releases found"), "{failed:?}");
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

#[test]
fn render_names_what_another_server_gives_differently() {
    let gateway = Gateway::sidecar_called("pipe", &example("pipe"));
    gateway.file("a.yaml", "kind: A\nmetadata: {name: x}\n").file("b.yaml", "kind: B\n");
    let plugin = repository().join("docs/cmp/examples/pipe").display().to_string();
    let folder = gateway.path("repository").display().to_string();
    let against = |socket: &std::path::Path, more: &[&str]| {
        let socket = socket.display().to_string();
        let words = ["render", folder.as_str(), "--plugin", plugin.as_str(), "--against", socket.as_str()];
        program(&[&words[..], more].concat())
    };
    let socket = gateway.socket("pipe");
    let equal = against(&socket, &[]);
    assert!(equal.status.success() && equal.stdout.is_empty(), "{equal:?}");
    // The other server has another plugin of the same name.
    let other = example("pipe")
        .replace("command: [", "command: [sh, -c, 'echo \"kind: A\"; echo \"metadata: {name: x, labels: {a: b}}\"', ");
    assert_ne!(other, example("pipe"));
    std::fs::write(gateway.path("config/plugin.yaml"), &other).unwrap();
    let different = against(&socket, &[]);
    let text = String::from_utf8(different.stdout).unwrap();
    assert!(!different.status.success(), "{text}");
    assert_eq!(text, "A: x: .metadata.labels is null here, {\"a\":\"b\"} there\nB: *: only here\n");
    let failed = against(&socket, &["--env", "ARGOCD_ENV_PIPE=false"]);
    let text = String::from_utf8(failed.stdout).unwrap();
    assert!(text.starts_with("an error here, manifests there: ") && !failed.status.success(), "{text}");
    let away = against(&gateway.path("no.sock"), &[]);
    assert!(String::from_utf8(away.stderr).unwrap().contains("no.sock: No such file"));
}
