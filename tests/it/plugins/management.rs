//! Unchanged plugins of the kind `ConfigManagementPlugin`.

use super::*;

/// An example with every field of Argo CD's documentation.
const PLUGIN: &str = r#"apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata:
  # The name must be unique within a given Argo CD instance.
  name: my-plugin
spec:
  version: v1.0
  # The init command runs in the Application source directory at the beginning of each manifest generation.
  init:
    command: [sh]
    args: [-c, 'echo "Initializing..."; mkdir out; sed "s/NAME/$ARGOCD_APP_NAME/" template.yaml > out/one.yaml']
  generate:
    command: [sh, -c]
    args:
      - |
        set -eu
        cat out/one.yaml
        echo ---
        echo "{kind: ConfigMap, metadata: {name: $ARGOCD_ENV_PREFIX-$PARAM_STRING_PARAM-$PARAM_MAP_PARAM_B}, path: $ARGOCD_APP_SOURCE_PATH$ARGOCD_APP_REVISION}"
  discover:
    fileName: "./template.yaml"
  parameters:
    static:
      - name: string-param
        title: Description of the string param
        tooltip: Tooltip shown when the user hovers the
        required: true
        itemType: ""
        collectionType: ""
        string: default-string-value
      - name: array-param
        required: false
        collectionType: array
        array: [default, items]
      - name: map-param
        collectionType: map
        map: { a: x, b: y }
  preserveFileMode: false
  provideGitCreds: false
"#;

const TEMPLATE: &str = "kind: Secret\nmetadata: { name: NAME }\n";

/// The source folder, and the mapping of documents to items.
fn source(more: &str) -> String {
    format!(
        "plugins: {{ path: plugins, sources: {{ my-plugin: {{ folder: work, env: {{ PREFIX: pre }}, cache: {{ ttl: 0s }}, \
         parameters: \"items.map(i, {{'name': i.metadata.name, 'kind': i.kind, 'path': has(i.path) ? i.path : '-'}})\"{more} }} }} }}\n"
    )
}

async fn start(folder: TempDir, config: &str) -> TestApp {
    TestApp::start_in(folder, &format!("{}{config}", TestApp::auth())).await
}

#[tokio::test]
async fn a_config_management_plugin_runs_unchanged_in_a_fresh_copy() {
    let folder = folder(&[("plugins/p/plugin.yaml", PLUGIN), ("work/template.yaml", TEMPLATE)]);
    let app = start(folder, &source("")).await;
    // The second run would find `out` if both runs shared a copy.
    for route in ["my-plugin", "my-plugin-v1.0", "my-plugin"] {
        let reply = app.ask(route, json!({"map-param": {"b": "z"}})).await;
        assert_eq!(
            sets(&reply),
            r#"[{"kind":"Secret","name":"test","path":"-"},{"kind":"ConfigMap","name":"pre-default-string-value-z","path":"work"}]"#
        );
    }
    assert!(!app.folder.path().join("work/out").exists());
    // Without a route name, its file selects the plugin.
    let by_file = call(&app, "fb", json!({})).await;
    assert!(sets(&by_file).contains(r#""name":"fb""#), "{}", by_file.text());
    std::fs::remove_file(app.folder.path().join("work/template.yaml")).unwrap();
    assert_eq!(call(&app, "fb", json!({})).await.status, 404);
    refused(&app.ask_afresh("my-plugin", json!({})).await, 502, "backend_failed", "init: exit status: ");
}

#[tokio::test]
async fn discovery_follows_argo_cd_and_the_configuration() {
    let discover = |how: &str| {
        let plugin = PLUGIN.replace("    fileName: \"./template.yaml\"\n", &format!("    {how}\n"));
        folder(&[("plugins/p/plugin.yaml", &plugin), ("work/template.yaml", TEMPLATE), ("work/a/b/main.ts", "")])
    };
    for (how, status) in [
        ("fileName: 'templ*.yaml'", 200),
        ("fileName: main.ts", 404),
        ("find: { glob: '**/main.ts' }", 200),
        ("find: { glob: '*/main.ts' }", 404),
        ("find: { glob: '**/*.jsonnet', command: [echo, x] }", 404),
        ("find: { command: [sh, -c, 'touch here && find . -name main.ts'] }", 200),
        ("find: { command: [find, .], args: [-name, main.go] }", 404),
        ("find: { command: [find, nowhere] }", 502),
    ] {
        let app = start(discover(how), &source("")).await;
        let reply = call(&app, "fb", json!({})).await;
        assert_eq!(reply.status, status, "{how}: {}", reply.text());
    }
    let app = start(discover("fileName: template.yaml"), &source(", match: { applicationSet: 'fb-*' }")).await;
    assert_eq!(call(&app, "fb", json!({})).await.status, 404);
    assert_eq!(call(&app, "fb-1", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_program_in_the_copy_has_no_extra_read_access() {
    // The program's relative name works only in the copy: neither in the gateway's folder, nor in the launcher's folder, the
    // root.
    let program = format!(
        "#!/bin/sh\nname=own; cat {}/Cargo.toml > $TMPDIR/all && name=all\n\
         echo \"{{kind: Secret, metadata: {{name: $name}}}}\"\n",
        env!("CARGO_MANIFEST_DIR")
    );
    for command in ["./bin/render", "bin/render"] {
        let plugin = format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: {{ name: my-plugin }}\n\
             spec: {{ generate: {{ command: [{command}] }} }}\n"
        );
        let folder = folder(&[("plugins/p/plugin.yaml", &plugin), ("work/bin/render", &program)]);
        let app = start(folder, &source("")).await;
        let reply = app.ask("my-plugin", json!({})).await;
        assert_eq!(sets(&reply), r#"[{"kind":"Secret","name":"own","path":"-"}]"#);
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_copied_whole_is_unknown() {
    let folder = folder(&[("plugins/p/plugin.yaml", PLUGIN), ("work/template.yaml", TEMPLATE), ("secret", "hunter22")]);
    let app = start(folder, &source(", maxSize: 1KiB")).await;
    let work = app.folder.path().join("work");
    assert_eq!(app.ask_afresh("my-plugin", json!({})).await.status, 200);
    let link = work.join("link");
    std::os::unix::fs::symlink("template.yaml", &link).unwrap();
    assert_eq!(app.ask_afresh("my-plugin", json!({})).await.status, 200);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("../secret", &link).unwrap();
    let reply = app.ask_afresh("my-plugin", json!({})).await;
    refused(&reply, 502, "backend_failed", "work/link: it leads out of the folder");
    assert!(!reply.text().contains("hunter22"));
    std::fs::remove_file(&link).unwrap();
    write(&work.join("large"), &"x".repeat(2000));
    refused(&app.ask_afresh("my-plugin", json!({})).await, 502, "backend_failed", "more than 1024 bytes (`maxSize`)");
    std::fs::remove_file(work.join("large")).unwrap();
    assert_eq!(app.ask_afresh("my-plugin", json!({})).await.status, 200);
}

#[test]
fn problems_are_reported_in_the_file_that_caused_them() {
    let plugin =
        PLUGIN.replace("name: my-plugin", "name: p").replace("discover:", "discovr:").replace("[sh, -c]", "[nosh]");
    let folder = folder(&[("plugins/p/plugin.yaml", &plugin)]);
    let found = problems(&folder, "plugins: { path: plugins }\n");
    assert!(
        found.iter().any(|line| line.starts_with("plugins/p/plugin.yaml:2:1: kind: it runs in a copy")),
        "{found:?}"
    );
    let config = "plugins: { path: plugins, sources: { p: { folder: plugins, timeout: 0s, parameters: 'items.map(', \
                  output: { a: '{{ x' } } } }\n";
    let found = problems(&folder, config).join("\n");
    for expected in [
        "test.yaml:2:60: plugins.sources.p.timeout: with a time of 0",
        "test.yaml:2:96: plugins.sources.p.parameters: ",
        "test.yaml:2:109: plugins.sources.p.output.a: ",
        "plugins/p/plugin.yaml:13:5: spec.generate.command: there is no program `nosh` in PATH",
        "spec.discovr: unknown key `discovr` (Argo CD ignores it, and so does the gateway; did you mean `discover`?)",
    ] {
        assert!(found.contains(expected), "{found}\n does not hold\n{expected}");
    }
    let found = problems(&folder, "plugins: { path: plugins, sources: { p: { folder: nowhere } } }\n").join("\n");
    assert!(found.contains("plugins.sources.p.folder: there is no folder nowhere"), "{found}");
}

/// The repository's example with a fake kpt, and with the real kpt where it is installed.
#[tokio::test]
async fn the_example_of_kpt_renders() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let config = std::fs::read_to_string(example.join("kpt.yaml")).unwrap();
    let config = &config[config.find("\nplugins:").unwrap() + 1..];
    let is_there = |folder: std::path::PathBuf| folder.join("kpt").is_file();
    let has_kpt = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(is_there);
    for stands_in in [true, false].into_iter().filter(|stands_in| *stands_in || has_kpt) {
        let folder = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-r").arg(example.join("kpt")).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        if stands_in {
            write(&folder.path().join("kpt/plugins/kpt/bin/kpt"), include_str!("kpt"));
        }
        let app = start(folder, config).await;
        let expected = r#"[{"app":"echo-fb","env":"test","name":"echoserver","port":"80"}]"#;
        assert_eq!(sets(&call(&app, "echo-fb", json!({})).await), expected);
        let by_name = app.ask("kpt-v1.0", json!({})).await;
        assert_eq!(sets(&by_name), expected.replace("echo-fb", "test"));
        assert_eq!(call(&app, "other", json!({})).await.status, 404);
        // Only the copies were rendered.
        let kptfile = std::fs::read_to_string(app.folder.path().join("kpt/package/Kptfile")).unwrap();
        assert!(kptfile.contains("image: gcr.io/kpt-fn/set-labels:v0.1.5"), "{kptfile}");
        // A failing function is an error.
        write(
            &app.folder.path().join("kpt/plugins/kpt/bin/set-labels-v0.1.5"),
            "#!/bin/sh\necho no labels >&2; exit 1\n",
        );
        refused(&app.ask_afresh("kpt-v1.0", json!({"x": "1"})).await, 502, "backend_failed", "exit status: 1");
    }
}
