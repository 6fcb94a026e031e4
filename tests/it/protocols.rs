//! The input and output of scripts: protocols, environment, exit codes, and the mapping of items. Real programs, and Argo CD's
//! verdict on each reply.

use std::{path::Path, sync::Arc};

use domain::clock::SystemClock;
use serde_json::{Value, json};

use crate::support::{TestApp, app::build, upstream::refused};

/// A gateway whose uncached route `s` has the given `script`.
async fn serve(mut script: Value) -> TestApp {
    script["allow"] = json!({"read": ["."], "write": ["."]});
    let route = json!({"name": "s", "backend": {"script": script}, "cache": {"ttl": "0s"}});
    TestApp::with_routes(&format!("  {}", json!([route]))).await
}

async fn shell(line: &str) -> TestApp {
    serve(json!({"command": ["sh", "-c", line]})).await
}

/// A gateway whose script prints the file `answer`, and a function to set that file.
async fn printer(more: Value) -> (TestApp, impl Fn(&str)) {
    let mut script = json!({"command": ["cat", "answer"]});
    script.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let app = serve(script).await;
    let file = app.folder.path().join("answer");
    (app, move |text: &str| std::fs::write(&file, text).unwrap())
}

/// The NUL-separated content of `seen`, without the program's own folder.
fn seen(folder: &Path) -> Vec<String> {
    let seen = std::fs::read_to_string(folder.join("seen")).unwrap();
    let mut lines: Vec<String> = seen.split_terminator('\0').map(str::to_owned).collect();
    lines.retain(|line| !line.starts_with("HOME=") && !line.starts_with("TMPDIR="));
    lines.sort();
    lines
}

#[tokio::test]
async fn each_protocol_has_present_absent_and_unknown_answers() {
    const LIST: &str = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n";
    let krm = |rest: &str| format!("{LIST}{rest}");
    for (protocol, something, nothing, unknown) in [
        (
            "json",
            r#"[{"a":"1"},{"a":"2"}]"#.to_owned(),
            "[]".to_owned(),
            vec![(String::new(), "blank"), ("{}".into(), "without `output.parameters`")],
        ),
        (
            "jsonLines",
            "{\"a\":\"1\"}\n[{\"a\":2}]\n".to_owned(),
            "[]\n".to_owned(),
            vec![
                (" \n\n".into(), "its output: it is blank"),
                ("{\"a\":1}\n{\"a\":\n".into(), "its output: line 2: not one JSON document"),
            ],
        ),
        (
            "yaml",
            "a: '1'\n---\n- {a: 2}\n".to_owned(),
            "--- []\n".to_owned(),
            vec![
                ("---\n# none\n".into(), "its output: it is blank"),
                ("a: 1\n---\na: 2\na: 3\n".into(), "the key `a` stands twice at line 4, column 1"),
                ("a: 1.10\n".into(), "`1.10` would be read as the number 1.1"),
                ("no branches found\n".into(), "it begins with `no branches found`"),
            ],
        ),
        (
            "krm",
            krm("items: [{a: '1'}, {a: 2}]\nresults: [{message: fine, severity: info}]\n"),
            json!({"apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "items": []}).to_string(),
            vec![
                (String::new(), "blank"),
                (LIST.into(), "it has no `items`"),
                (krm("items: null"), "items: expected a list of objects, found null"),
                ("apiVersion: v1\nkind: List\nitems: []\n".into(), "its apiVersion is \"v1\""),
            ],
        ),
    ] {
        let (app, print) = printer(json!({"protocol": protocol})).await;
        print(&something);
        assert_eq!(app.ask_afresh("s", json!({})).await.sets(), r#"[{"a":"1"},{"a":"2"}]"#, "{protocol}");
        for (output, says) in unknown {
            print(&output);
            refused(&app.ask_afresh("s", json!({})).await, 502, "backend_output_invalid", says);
        }
        let (app, print) = printer(json!({"protocol": protocol})).await;
        print(&nothing);
        assert_eq!(app.ask_afresh("s", json!({})).await.sets(), "[]", "{protocol}");
    }
}

#[tokio::test]
async fn a_krm_function_gets_a_resource_list() {
    let line = "cat > seen; printf 'apiVersion: config.kubernetes.io/v1\\nkind: ResourceList\\nitems: []\\n'";
    let app = serve(json!({"command": ["sh", "-c", line], "protocol": "krm"})).await;
    let parameters = json!({"branch": "main", "n": 3, "list": ["a"], "none": null});
    assert_eq!(app.ask_afresh("s", parameters).await.sets(), "[]");
    let seen: Value = std::fs::read_to_string(app.folder.path().join("seen")).unwrap().parse().unwrap();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "input"},
        "data": {"branch": "main", "n": "3", "list": "[\"a\"]"}});
    let list = json!({"apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "functionConfig": config,
        "items": []});
    assert_eq!(seen, list);
    let (app, print) = printer(json!({"protocol": "krm"})).await;
    print(
        "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n\
         results: [{message: no cluster, severity: error}]\n",
    );
    let says = "its output: the function says: no cluster";
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_failed", says);
}

#[tokio::test]
async fn items_are_mapped() {
    let parameters = "items.filter(i, i.kind == params.kind).map(i, {'name': i.metadata.name})";
    let (app, print) = printer(json!({"protocol": "yaml", "parameters": parameters})).await;
    print("kind: A\nmetadata: {name: x}\n---\nkind: B\nmetadata: {name: y}\n");
    assert_eq!(app.ask_afresh("s", json!({"kind": "B"})).await.sets(), r#"[{"name":"y"}]"#);
    // More documents than are mapped in place.
    let many: Vec<String> = (0..2000).map(|n| format!("---\nkind: A\nmetadata: {{name: x{n}}}\n")).collect();
    print(&many.concat());
    let reply = app.ask_afresh("s", json!({"kind": "A"})).await;
    assert_eq!(reply.json()["output"]["parameters"][1999]["name"], "x1999", "{}", reply.text());
    print("kind: A\n");
    let says = "its output: parameters: `items.filter";
    refused(&app.ask_afresh("s", json!({"kind": "A"})).await, 502, "backend_output_invalid", says);
    let (app, print) = printer(json!({"parameters": "items.map(i, i.a)"})).await;
    print(r#"[{"a":1}]"#);
    let says = "parameters: item 0 is a number";
    refused(&app.ask_afresh("s", json!({})).await, 502, "backend_output_invalid", says);
    // The reported lifetime applies to the mapped items.
    print(r#"{"output":{"parameters":[]},"cache":{"ttl":"30s"}}"#);
    assert_eq!(app.ask_afresh("s", json!({"x": 1})).await.sets(), "[]");
    assert!(app.ask("s", json!({"x": 1})).await.header("cache-status").unwrap().contains("hit"));
}

#[tokio::test]
async fn a_script_works_without_json() {
    let line = r#"printf '{"branch":"%s","first":"%s","tag":"%s","region":"%s"}\n' \
        "$PARAM_BRANCH" "$PARAM_FILES_0" "$PARAM_IMAGES_FRONT" "$ARGOCD_ENV_REGION""#;
    let script = json!({"command": ["sh", "-c", line], "protocol": "jsonLines", "env": {"REGION": "eu"}});
    let parameters = json!({"branch": "main", "files": ["a", "b"], "images": {"front": "v1"}});
    let sets = r#"[{"branch":"main","first":"a","tag":"v1","region":"eu"}]"#;
    assert_eq!(serve(script).await.ask_afresh("s", parameters).await.sets(), sets);

    let line = "cat /proc/$$/environ > seen; cat > input; echo '[]'";
    let script = json!({"command": ["sh", "-c", line], "env": {"REGION": "eu"}, "inheritEnv": ["PATH"]});
    let app = serve(script).await;
    let large = "x".repeat(200_000);
    let parameters = json!({"PATH": "/evil", "LD_PRELOAD": "/evil.so", "n": 7, "none": null, "large": large});
    assert_eq!(app.ask_afresh("s", parameters).await.sets(), "[]");
    let lines = seen(app.folder.path());
    assert_eq!(lines[..2], ["ARGOCD_ENV_REGION=eu", "PARAM_LD_PRELOAD=/evil.so"]);
    assert_eq!(lines[2..4], ["PARAM_N=7", "PARAM_PATH=/evil"]);
    assert_eq!(lines[4], format!("PATH={}", std::env::var("PATH").unwrap()));
    assert_eq!(lines[5..], ["REGION=eu"]);
    let input = std::fs::read_to_string(app.folder.path().join("input")).unwrap();
    assert!(input.contains(&large));
    assert_eq!(app.ask_afresh("s", json!({"a": ["x"], "b": 1})).await.sets(), "[]");
    let all = r#"ARGOCD_APP_PARAMETERS=[{"name":"a","array":["x"]},{"name":"b","string":"1"}]"#;
    assert_eq!(seen(app.folder.path())[0], all);
}

#[tokio::test]
async fn any_request_fits_into_the_environment() {
    let app = shell("echo '[]'").await;
    for parameters in [
        json!({"many": vec![""; 250_000]}),
        json!({"large": "x".repeat(1_000_000)}),
        Value::Object((0..60_000).map(|n| (format!("p{n}"), json!("x"))).collect()),
        Value::Object((0..9).map(|n| (format!("p{n}"), json!("x".repeat(102_000)))).collect()),
        json!({"x".repeat(900_000): "x"}),
        json!({}),
    ] {
        let reply = app.ask_afresh("s", parameters).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn values_that_no_environment_variable_can_hold_are_refused() {
    let app = serve(json!({"command": ["sh", "-c", "touch ran; echo '[]'"], "env": {"PARAM_SET": "x"}})).await;
    for (parameters, says) in [
        (json!({"a-b": "x", "a.b": "y"}), "the parameters `a-b` and `a.b` would both be the variable PARAM_A_B"),
        (json!({"set": "x"}), "the parameter `set` would be the variable PARAM_SET, which the configuration sets"),
        (json!({"a": "x\u{0}"}), "the parameter `a` holds a NUL character"),
    ] {
        refused(&app.ask_afresh("s", parameters).await, 422, "invalid_input", says);
    }
    assert!(!app.folder.path().join("ran").exists());
}

#[tokio::test]
async fn exit_codes_have_meanings() {
    for (line, status, code, says) in [
        (
            "echo '[{}]'; echo 'a note' >&2; echo 'no such cluster' >&2; echo >&2; exit 65",
            422,
            "invalid_input",
            "route s (script): sh: no such cluster",
        ),
        ("echo 'usage: x' >&2; exit 64", 422, "invalid_input", "sh: usage: x"),
        ("exit 64", 422, "invalid_input", "it refuses its input (exit status: 64)"),
        (
            "echo '[]'; echo 'API down' >&2; exit 75",
            502,
            "backend_failed",
            "asks for the last good answer (exit status: 75); stderr: API down",
        ),
        ("echo '[]'; exit 66", 502, "backend_failed", "exit status: 66"),
        ("echo '[]'; exit 1", 502, "backend_failed", "exit status: 1"),
        ("exit 0", 502, "backend_output_invalid", "blank"),
    ] {
        refused(&shell(line).await.ask_afresh("s", json!({})).await, status, code, says);
    }
    let script = json!({"command": ["sh", "-c", "echo \"denied: $TOKEN\" >&2; exit 65"],
        "env": {"TOKEN": {"env": "CARGO_PKG_NAME"}}});
    refused(&serve(script).await.ask_afresh("s", json!({})).await, 422, "invalid_input", "sh: denied: [redacted]");
}

#[tokio::test]
async fn a_script_may_ask_for_its_last_good_answer() {
    let app = shell("cat answer 2>/dev/null && exit; echo later >&2; exit 75").await;
    let answer = app.folder.path().join("answer");
    std::fs::write(&answer, r#"[{"a":"1"}]"#).unwrap();
    assert_eq!(app.ask("s", json!({})).await.sets(), r#"[{"a":"1"}]"#);
    std::fs::remove_file(answer).unwrap();
    let reply = app.ask("s", json!({})).await;
    assert_eq!(reply.sets(), r#"[{"a":"1"}]"#);
    assert!(reply.header("cache-status").unwrap().contains("detail=backend_failed"));
}

#[tokio::test]
async fn a_contradictory_configuration_is_reported_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    for (script, input, says) in [
        (json!({"protocol": "xml"}), json!([]), "protocol"),
        (json!({"parameters": "items."}), json!([]), "parameters: column"),
        (json!({"env": {"A": "x", "ARGOCD_ENV_A": "y"}}), json!([]), "env.A: `A` is also passed on as ARGOCD_ENV_A"),
        (json!({"env": {"A": "x"}, "inheritEnv": ["ARGOCD_ENV_A"]}), json!([]), "env.A: `A` is also passed on"),
        (json!({"env": {"ARGOCD_APP_PARAMETERS": "x"}}), json!([]), "this variable holds the call's parameters"),
        (json!({"inheritEnv": ["ARGOCD_APP_PARAMETERS"]}), json!([]), "inheritEnv[0]: this variable"),
        (
            json!({}),
            json!([{"name": "a-b"}, {"name": "a_b"}]),
            "input[1].name: the parameters `a-b` and `a_b` would both be the variable PARAM_A_B",
        ),
        (
            json!({"env": {"PARAM_A": "x"}}),
            json!([{"name": "a"}]),
            "input[0].name: the parameter `a` would be the variable PARAM_A",
        ),
    ] {
        let mut script = script;
        script["command"] = json!(["cat"]);
        let route = json!({"name": "s", "input": input, "backend": {"script": script}});
        let config = format!("{}routes: {}\n", TestApp::auth(), json!([route]));
        let report = build(folder.path(), &config, Arc::new(SystemClock)).err().expect("a report");
        let lines = report.lines();
        assert!(lines.iter().any(|line| line.contains(says)), "{says}: {lines:?}");
    }
}

/// Each program in `docs/scripts.md`, run in its protocol.
#[tokio::test]
async fn the_examples_in_the_documentation_work() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/scripts.md")).unwrap();
    let mut examples = 0;
    for section in page.split("\n### `").skip(1) {
        let protocol = section.split('`').next().unwrap();
        for (fence, program) in [("\n```sh\n", ["sh", "-c"]), ("\n```python\n", ["python3", "-c"])] {
            let code = section.split_once(fence).and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
            let app = serve(json!({"command": [program[0], program[1], code], "protocol": protocol})).await;
            let reply = app.ask_afresh("s", json!({"regions": ["eu", "a\"b: 'c'\\n"]})).await;
            assert_eq!(reply.status, 200, "{protocol}, {}: {}", program[0], reply.text());
            assert_eq!(reply.sets(), r#"[{"region":"eu"},{"region":"a\"b: 'c'\\n"}]"#, "{protocol}, {}", program[0]);
            examples += 1;
        }
    }
    assert_eq!(examples, 8);
}
