//! Parameters that a command announces.

use std::time::Duration;

use super::*;

/// A command that announces the content of the file `list`, and logs each run.
const ANNOUNCE: &str = "echo asked >> asked; [ -z \"$PARAM_SIZE\" ] && cat list";

fn run_count(app: &TestApp) -> usize {
    std::fs::read_to_string(app.folder.path().join("asked")).map_or(0, |asked| asked.lines().count())
}

async fn route(list: &str) -> TestApp {
    let routes = json!([{
        "name": "r",
        "input": [{"name": "region", "default": "eu"}],
        "dynamicInput": {"command": ["sh", "-c"], "args": [ANNOUNCE]},
        "backend": {"script": {
            "command": ["sh", "-c", "echo \"[{\\\"size\\\": \\\"$PARAM_SIZE in $PARAM_REGION\\\"}]\""],
            "allow": {"read": ["."], "write": ["."]},
        }},
        "cache": {"ttl": "0s"},
    }]);
    let folder = folder(&[("list", list)]);
    TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await
}

#[tokio::test]
async fn announced_parameters_are_the_parameters_of_the_route() {
    let app = route(r#"[{"name": "size", "string": "small"}, {"name": "region", "string": "us"}]"#).await;
    let asked = futures_util::future::join_all((0..20).map(|_| app.ask("r", json!({})))).await;
    for reply in asked {
        assert_eq!(sets(&reply), r#"[{"size":"small in eu"}]"#);
    }
    assert_eq!(sets(&app.ask("r", json!({"size": "large"})).await), r#"[{"size":"large in eu"}]"#);
    refused(&app.ask("r", json!({"sise": "x"})).await, 422, "invalid_input", "this route has: region, size");
    assert_eq!(run_count(&app), 1);
    // After a minute the command runs again.
    std::fs::write(app.folder.path().join("list"), r#"[{"name": "size", "required": true}]"#).unwrap();
    assert_eq!(app.ask("r", json!({})).await.status, 200);
    app.clock.advance(Duration::from_secs(61));
    refused(&app.ask("r", json!({})).await, 422, "invalid_input", "`size` is missing");
    assert_eq!(run_count(&app), 2);
    // While the command fails, its last announcement stands, and not every call runs it.
    std::fs::remove_file(app.folder.path().join("list")).unwrap();
    app.clock.advance(Duration::from_secs(61));
    for _ in 0..3 {
        assert_eq!(app.ask("r", json!({"size": "s"})).await.status, 200);
    }
    assert_eq!(run_count(&app), 3);
}

#[tokio::test]
async fn a_failing_announcement_permits_nothing() {
    let app = route("").await;
    let says = "route r: which parameters it has is not known: its output is not a list of announcements: it is blank";
    refused(&app.ask("r", json!({"size": "s"})).await, 502, "backend_output_invalid", says);
    std::fs::remove_file(app.folder.path().join("list")).unwrap();
    let says = "route r: which parameters it has is not known: sh: exit status: 1; stderr: cat: list: No such file";
    refused(&app.ask("r", json!({})).await, 502, "backend_failed", says);
    std::fs::write(app.folder.path().join("list"), "[]").unwrap();
    assert_eq!(app.ask("r", json!({})).await.status, 200);
}

#[tokio::test]
async fn plugins_of_both_kinds_announce() {
    let spec = "generate: { command: [sh, -c, 'echo \"[{\\\"name\\\": \\\"$PARAM_SIZE\\\"}]\"'] }, \
                parameters: { dynamic: { command: [sizes], args: ['small'] } }";
    let management = "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: { name: there }\nspec:\n  \
                      generate: { command: [sh, -c, 'echo \"name: $PARAM_SIZE\"'] }\n  \
                      parameters: { dynamic: { command: [cat], args: [announced.json] } }\n";
    let folder = folder(&[
        ("plugins/a/plugin.yaml", &generator("own", "", spec)),
        ("plugins/a/bin/sizes", "#!/bin/sh\necho '[{\"name\": \"size\", \"string\": \"'$1'\"}]'\n"),
        ("plugins/b/plugin.yaml", management),
        ("work/announced.json", r#"[{"name": "size", "title": "its size", "required": true}]"#),
    ]);
    let config = format!("{}plugins: {{ path: plugins, sources: {{ there: {{ folder: work }} }} }}\n", TestApp::auth());
    let app = TestApp::start_in(folder, &config).await;
    assert_eq!(sets(&app.ask("own", json!({})).await), r#"[{"name":"small"}]"#);
    assert_eq!(sets(&app.ask("own", json!({"size": "large"})).await), r#"[{"name":"large"}]"#);
    assert_eq!(sets(&app.ask("there", json!({"size": "large"})).await), r#"[{"name":"large"}]"#);
    refused(&app.ask("there", json!({})).await, 422, "invalid_input", "`size` (its size) is missing");
}

#[test]
fn announcement_mistakes_are_reported_with_their_path() {
    let spec = "generate: { command: [cat] }, parameters: { dynamic: { command: [no-such-program] } }";
    let folder = folder(&[("plugins/a/plugin.yaml", &generator("a", "", spec))]);
    let found = problems(&folder, "plugins: { path: plugins }\n").join("\n");
    assert!(found.contains("plugin.yaml:4:64: spec.parameters.dynamic.command: there is no program"), "{found}");
    let routes = "routes: [ { name: r, dynamicInput: { command: [] }, backend: { fixed: { parameters: [] } } } ]\n";
    let found = problems(&folder, routes).join("\n");
    assert!(found.contains("dynamicInput.command: the command is empty"), "{found}");
}
