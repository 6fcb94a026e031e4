//! Folders with a `plugin.yaml`: the gateway's own format, and unchanged Config Management Plugins. Real programs.

mod announced;
mod management;
mod trouble;
mod warm;

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use domain::clock::SystemClock;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Reply, TestApp, app::build, upstream::refused};

/// A folder with these files. Files below a `bin` are executable.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(&folder.path().join(path), text);
    }
    folder
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    if path.parent().unwrap().ends_with("bin") {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A gateway with the plugins in `folder` and `more` configuration.
async fn serve(folder: TempDir, more: &str) -> TestApp {
    let config = format!("{}plugins: {{ path: plugins }}\n{more}", TestApp::auth());
    TestApp::start_in(folder, &config).await
}

/// The problems of the configuration `config` in `folder`, without the folder's path.
fn problems(folder: &TempDir, config: &str) -> Vec<String> {
    let config = format!("{}{config}cache: {{ path: answers.redb }}\n", TestApp::auth());
    let report = build(folder.path(), &config, Arc::new(SystemClock)).map(|_| ()).unwrap_err();
    let place = format!("{}/", folder.path().display());
    report.lines().into_iter().map(|line| line.replace(&place, "")).collect()
}

fn sets(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"].to_string()
}

/// Calls without a route name, as the ApplicationSet `set`.
async fn call(app: &TestApp, set: &str, parameters: Value) -> Reply {
    app.call("/api/v1/getparams.execute", &json!({"applicationSetName": set, "input": {"parameters": parameters}}))
        .await
}

const HEAD: &str = "apiVersion: argoproj.io/v1alpha1\nkind: GeneratorPlugin\n";

fn generator(name: &str, version: &str, spec: &str) -> String {
    let version = if version.is_empty() { String::new() } else { format!("version: {version}, ") };
    format!("{HEAD}metadata: {{ name: {name} }}\nspec: {{ {version}{spec} }}\n")
}

/// A plugin whose answer names it.
fn saying(name: &str, version: &str, word: &str, more: &str) -> String {
    generator(name, version, &format!("generate: {{ command: [echo], args: ['[{{\"is\":\"{word}\"}}]'] }}{more}"))
}

#[tokio::test]
async fn a_plugin_runs_in_its_folder_with_its_programs() {
    let plugin = "\
version: v1.2
init: { command: [sh], args: [-c, 'echo prepared; echo $PARAM_REGION > $TMPDIR/region'] }
generate:
  command: [list-zones]
  args: [--suffix]
  parameters: \"items.map(i, {'zone': i.zone, 'n': params.count})\"
parameters:
  static:
    - { name: region, title: the region, required: true }
    - { name: count, itemType: number, string: '2' }
    - { name: zones, collectionType: array, array: [a, b] }
    - { name: labels, collectionType: map, map: { tier: gold } }
protocol: jsonLines
env: { TOKEN: { file: token } }
cache: { ttl: 0s }
";
    let program = "\
#!/bin/sh
set -eu
[ \"$1\" = --suffix ] && [ -d \"$TMPDIR\" ] && [ \"$TOKEN\" = hunter22 ]
suffix=$(cat data/suffix)
for zone in \"$PARAM_ZONES_0\" \"$PARAM_ZONES_1\"; do
  echo \"{\\\"zone\\\": \\\"$(cat \"$TMPDIR/region\")-$zone$suffix$PARAM_LABELS_TIER\\\"}\"
done
";
    let folder = folder(&[
        ("plugins/zones/plugin.yaml", &format!("{HEAD}metadata: {{ name: zones }}\nspec:\n{}", indented(plugin))),
        ("plugins/zones/bin/list-zones", program),
        ("plugins/zones/data/suffix", "!"),
        ("plugins/zones/token", "hunter22"),
    ]);
    let app = serve(folder, "").await;
    for route in ["zones", "zones-v1.2"] {
        let reply = app.ask(route, json!({"region": "eu"})).await;
        assert_eq!(sets(&reply), r#"[{"n":"2","zone":"eu-a!gold"},{"n":"2","zone":"eu-b!gold"}]"#);
    }
    refused(&app.ask_afresh("zones", json!({})).await, 422, "invalid_input", "`region` (the region) is missing");
    let unknown = app.ask_afresh("zones", json!({"region": "eu", "zone": "x"})).await;
    refused(&unknown, 422, "invalid_input", "unknown parameter `zone`");
    // Without `discover`, only its name selects a plugin.
    assert_eq!(call(&app, "test", json!({"region": "eu"})).await.status, 404);
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n") + "\n"
}

#[tokio::test]
async fn init_runs_before_the_script_and_its_failure_fails_the_run() {
    let of = |init: &str| {
        let init = json!({"command": ["sh", "-c", init]});
        let script = json!({"command": ["sh", "-c", "cat \"$TMPDIR/made\""], "init": init});
        format!("  {}", json!([{"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}}]))
    };
    for (init, code, says) in [
        ("echo '[]'; echo no network >&2; exit 1", "backend_failed", "sh: init: exit status: 1; stderr: [] no network"),
        ("echo which region >&2; exit 65", "invalid_input", "sh: init: which region"),
        ("kill -9 $$", "backend_failed", "sh: init: signal: 9"),
    ] {
        let app = TestApp::with_routes(&of(init)).await;
        refused(&app.ask("s", json!({})).await, if code == "invalid_input" { 422 } else { 502 }, code, says);
    }
    let app =
        TestApp::with_routes(&of("echo ignored; echo \"[{\\\"a\\\":\\\"$PARAM_A\\\"}]\" > \"$TMPDIR/made\"")).await;
    for value in ["x", "y"] {
        assert_eq!(sets(&app.ask("s", json!({"a": value})).await), format!(r#"[{{"a":"{value}"}}]"#));
    }
}

#[tokio::test]
async fn versions_coexist_and_the_highest_has_the_plain_name() {
    let folder = folder(&[
        ("plugins/a/plugin.yaml", &saying("x", "v1.10", "new", ", discover: { applicationSet: 'new-*' }")),
        ("plugins/b/plugin.yaml", &saying("x", "v1.9", "old", ", discover: { applicationSet: '*-old' }")),
        ("plugins/c/plugin.yaml", &saying("y", "v1", "versioned", "")),
        ("plugins/d/plugin.yaml", &saying("y", "", "plain", ", discover: { parameters: { kind: 'y*' } }")),
        ("plugins/.hidden/plugin.yaml", "nothing"),
        ("plugins/README.md", "no plugin"),
    ]);
    let routes = "routes: [ { name: mine, match: { applicationSet: new-mine }, \
                  backend: { fixed: { parameters: [ { is: route } ] } } } ]\n";
    let app = serve(folder, routes).await;
    let names: Vec<_> = app.app.setup().routes.iter().map(|route| route.name.to_string()).collect();
    assert_eq!(names, ["mine", "x", "x-v1.10", "x-v1.9", "y-v1", "y"]);
    for (route, is) in [("x", "new"), ("x-v1.10", "new"), ("x-v1.9", "old"), ("y", "plain"), ("y-v1", "versioned")] {
        assert_eq!(sets(&app.ask(route, json!({})).await), format!(r#"[{{"is":"{is}"}}]"#), "{route}");
    }
    // Routes of the file come first, then plugins by folder name.
    for (set, kind, is) in
        [("new-mine", "", "route"), ("new-old", "", "new"), ("an-old", "", "old"), ("other", "yes", "plain")]
    {
        assert_eq!(sets(&call(&app, set, json!({"kind": kind})).await), format!(r#"[{{"is":"{is}"}}]"#), "{set}");
    }
    assert_eq!(call(&app, "other", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_match_command_selects_calls() {
    let probing = |line: &str| format!(", discover: {{ applicationSet: 'c*', command: [sh], args: [-c, '{line}'] }}");
    let asks =
        "[ \"$PARAM_KIND\" = broken ] && { echo no idea >&2; exit 3; }; [ \"$PARAM_KIND\" = a ] && echo yes; true";
    let also = "case $PARAM_KIND in a|b|broken) cat ;; *) echo; esac";
    let folder = folder(&[
        ("plugins/a/plugin.yaml", &saying("a", "", "a", &probing(&asks.replace('\'', "''")))),
        ("plugins/b/plugin.yaml", &saying("b", "v1", "b", &probing(also))),
        ("plugins/c/plugin.yaml", &saying("c", "", "c", ", discover: { parameters: { kind: sure } }")),
    ]);
    let more = "routes: [ { name: last, match: { applicationSet: d, command: [echo, x] }, \
                backend: { fixed: { parameters: [ { is: inline } ] } } } ]\n";
    let app = serve(folder, more).await;
    for (set, kind, is) in
        [("c1", "a", "a"), ("c1", "b", "b"), ("c1", "sure", "c"), ("d", "sure", "c"), ("d", "b", "inline")]
    {
        let reply = call(&app, set, json!({"kind": kind})).await;
        assert_eq!(sets(&reply), format!(r#"[{{"is":"{is}"}}]"#), "{set} {kind}");
    }
    assert_eq!(call(&app, "c1", json!({"kind": "none"})).await.status, 404);
    // An unknown result is no "no": no other route may answer instead.
    let reply = call(&app, "c1", json!({"kind": "broken"})).await;
    refused(&reply, 502, "backend_failed", "route a: whether it wants this call is not known: sh: exit status: 3");
}

#[test]
fn plugin_mistakes_are_reported_together_with_file_and_path() {
    let folder = folder(&[
        (
            "plugins/a/plugin.yaml",
            "apiVersion: v1\nkind: GeneratorPlugin\nmetadata: { name: A }\nspec:\n  generate: { command: [no-such-program] }\n  \
             timeot: 3s\n  init: { command: [] }\n  cache: { ttl: soon }\n  parameters:\n    static:\n      \
             - { name: n, itemType: number, string: many }\n      - { name: l, collectionType: array, string: x }\n  \
             discover: { applicationSet: 'a{', command: [neither] }\n  folder: x\n",
        ),
        ("plugins/b/plugin.yaml", &generator("b", "1.0", "generate: { command: [echo], parameters: 'items.map(' }")),
        ("plugins/c/plugin.yaml", "kind: Plugin\n"),
        ("plugins/d/plugin.yaml", "kind: [\n"),
        ("plugins/e/plugin.yaml", &saying("e", "v1", "x", "")),
        ("plugins/f/plugin.yaml", &saying("e", "v1", "x", "")),
        ("plugins/g/plugin.yaml", &saying("taken", "", "x", "")),
    ]);
    let config = "log: { levle: info }\nplugins: { path: plugins, sources: { none: { folder: . } } }\n\
                  routes: [ { name: taken, backend: { fixed: { parameters: [] } } } ]\n";
    let found = problems(&folder, config);
    let mut shown: Vec<&str> = found.iter().map(String::as_str).collect();
    shown.sort_unstable();
    let expected = [
        "plugins/a/plugin.yaml:1:1: apiVersion: this is not a version of GeneratorPlugin",
        "plugins/a/plugin.yaml:3:13: metadata.name: `A` cannot be a route's name",
        "plugins/a/plugin.yaml:5:15: spec.generate.command: there is no program `no-such-program` in PATH",
        "plugins/a/plugin.yaml:6:3: spec.timeot: unknown key `timeot` (did you mean `timeout`?)",
        "plugins/a/plugin.yaml:7:11: spec.init.command: the command is empty",
        "plugins/a/plugin.yaml:8:12: spec.cache.ttl: `soon` is not a duration",
        "plugins/a/plugin.yaml:11:38: spec.parameters.static[0].string: must be a number, is a string",
        "plugins/a/plugin.yaml:12:43: spec.parameters.static[1].string: the parameter is of another type",
        "plugins/a/plugin.yaml:13:15: spec.discover.applicationSet: ",
        "plugins/a/plugin.yaml:13:37: spec.discover.command: there is no program `neither` in PATH",
        "plugins/a/plugin.yaml:14:3: spec.folder: unknown key `folder`",
        "plugins/b/plugin.yaml:4:9: spec.version: wrong type: floating point `1.0`, expected a string",
        "plugins/b/plugin.yaml:4:75: spec.generate.parameters: ",
        "plugins/c/plugin.yaml:1:1: kind: this is not a kind of plugin",
        "plugins/d/plugin.yaml:",
        "plugins/f/plugin.yaml:3:13: metadata.name: two plugins are `e-v1`: plugins/e/plugin.yaml and plugins/f/plugin.yaml",
        "plugins/g/plugin.yaml:3:13: metadata.name: two routes are called `taken`",
        "test.yaml:2:8: log.levle: unknown key `levle`",
        "test.yaml:3:38: plugins.sources.none: there is no plugin `none`",
    ];
    let key = |line: &str| {
        let mut parts = line.split(':');
        let file = parts.next().unwrap().to_owned();
        let number = parts.next().and_then(|line| line.parse::<u32>().ok());
        (file, number, parts.next().and_then(|column| column.parse::<u32>().ok()))
    };
    shown.sort_by_key(|line| key(line));
    assert_eq!(shown.len(), expected.len(), "{}", found.join("\n"));
    for (shown, expected) in shown.iter().zip(expected) {
        assert!(shown.starts_with(expected), "{shown}\n is not\n{expected}");
    }
}

#[test]
fn a_missing_plugin_folder_is_an_error() {
    let folder = folder(&[("plugins/empty/README.md", "")]);
    let found = problems(&folder, "plugins: { path: nowhere }\n");
    let has = |start: &str| found.iter().any(|line| line.starts_with(start));
    assert!(has("test.yaml:2:12: plugins.path: nowhere: No such file"), "{found:?}");
    let found = problems(&folder, "plugins: { path: plugins }\n");
    let has = |start: &str| found.iter().any(|line| line.starts_with(start));
    assert!(has("test.yaml:2:12: plugins.path: plugins/empty holds no plugin.yaml"), "{found:?}");
    assert!(has("test.yaml:1:1: routes: there are no routes"), "{found:?}");
}
