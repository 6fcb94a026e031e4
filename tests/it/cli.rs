//! The commands, and the configuration files of the repository.

use std::{
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::support::binary::{Gateway, command};

fn run(arguments: &[&str]) -> Output {
    command().args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env("NO_COLOR", "1").output().unwrap()
}

fn run_with_input(arguments: &[&str], input: &str) -> Output {
    let mut child =
        command().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_repositorys_configurations_pass_check() {
    for file in ["config/gateway.yaml", "config/reference.yaml"] {
        let output = run(&["check", "-c", file]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).starts_with(&format!("{file}: good, ")), "{}", stdout(&output));
        assert_eq!(stderr(&output), "", "no warning either");
    }
}

/// Every example passes, with dummy values for its secrets from the environment.
#[test]
fn the_examples_pass_check() {
    let yaml = |folder: &str| {
        let files = std::fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
        files.sort();
        let names: Vec<String> =
            files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        (files, names)
    };
    let (files, names) = yaml("config/examples");
    // deploy/check checks the ApplicationSet of each of these examples.
    let asked = [
        "clusters",
        "github-releases",
        "namespaces",
        "newest-version",
        "one-per-repository",
        "preview-github",
        "preview-gitlab",
        "previews-github",
        "previews-gitlab",
        "previews-repositories",
        "tag-existence",
        "tenants",
    ];
    let mut expected = [&asked[..], &["existing-plugin", "kpt", "pipeline", "workers"]].concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let mut expected = [&asked[..], &["fake-appset", "fb-matrix"]].concat();
    expected.sort_unstable();
    assert_eq!(yaml("deploy/applicationsets").1, expected);
    let schema: Value = serde_json::from_slice(&run(&["schema"]).stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let variables = text.split("env: ").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (end > 0).then_some(&rest[..end])
        });
        let variables = variables.enumerate().map(|(index, name)| (name, format!("an-example-{index}")));
        let output = command().args(["check", "-c"]).arg(&file).envs(variables).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "{}: no warning either", file.display());
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    }
}

/// The reference describes all keys of the schema, and the repository's configurations fit the schema.
#[test]
fn reference_and_schema_agree() {
    let output = run(&["schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stored = std::fs::read_to_string(repository().join("config/schema.json")).unwrap();
    assert!(stored == stdout(&output), "config/schema.json is old: run `make schema`");

    let mut keys = Vec::new();
    collect_keys(&schema, &mut keys);
    assert!(keys.len() > 40, "{keys:?}");
    let reference = std::fs::read_to_string(repository().join("config/reference.yaml")).unwrap();
    let missing: Vec<&String> = keys.iter().filter(|key| !reference.contains(&format!("{key}:"))).collect();
    assert!(missing.is_empty(), "config/reference.yaml does not show {missing:?}");

    let validator = jsonschema::validator_for(&schema).unwrap();
    for file in ["config/gateway.yaml", "config/reference.yaml"] {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{file}: {errors:?}");
    }
}

fn collect_keys(schema: &Value, keys: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            map.values().for_each(|value| collect_keys(value, keys));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_keys(value, keys)),
        _ => {}
    }
}

#[test]
fn check_reports_all_problems_with_their_positions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yaml");
    let source = r#"server:
  deadlin: 25s
auth: { tokens: [ { name: argocd, env: APPSET_GATEWAY_TEST_NOT_SET } ] }
routes:
  - name: Bad Name
    backend: { digests: { images: { front: { image: "{{ params.registry }}/x:1" } } } }
  - name: http
    backend:
      http: { url: "https://{{ params.host }}/", parameters: "body.map(" }
  - name: http
    match: {}
    backend: { script: { command: [no-such-program-anywhere] } }
    output: { generator: "x", name: "{{ a" }
  - name: after
    match: { applicationSet: x }
    backend: { fixed: { parameters: [] } }
cache: { path: answers.redb }
"#;
    std::fs::write(&file, source).unwrap();
    let file = file.to_str().unwrap();
    let output = run(&["check", "-c", file, "-o", "json"]);
    assert_eq!(output.status.code(), Some(78));
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let shown: Vec<String> = findings
        .iter()
        .map(|finding| {
            let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
            format!("{}:{} {} {}", finding["line"], finding["column"], text("severity"), text("path"))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "2:3 error server.deadlin",
            "3:35 error auth.tokens[0].env",
            "5:5 error routes[0].name",
            "6:46 error routes[0].backend.digests.images.front.image",
            "9:15 error routes[1].backend.http.url",
            "9:72 error routes[1].backend.http.parameters",
            "10:5 error routes[2].name",
            "12:26 error routes[2].backend.script.command",
            "13:15 error routes[2].output.generator",
            "13:31 error routes[2].output.name",
            "15:5 warning routes[3].match",
        ],
        "{}",
        stdout(&output)
    );
    let output = run(&["check", "-c", file]);
    let text = stderr(&output);
    for part in [
        "server.deadlin: unknown key `deadlin`",
        "did you mean `deadline`?",
        "bad.yaml:2:3",
        "never used: the route `http` before it takes every call",
        "10 errors, 1 warning",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = run(&["check", "-c", "/nowhere/gateway.yaml"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("cannot read the configuration"), "{}", stderr(&output));
}

#[test]
fn call_prints_the_answer_and_why() {
    let call = |arguments: &[&str]| run(&[&["call", "-c", "config/gateway.yaml"], arguments].concat());
    let output = call(&["pr-digests", "-p", "branch=feature-branch-1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["output"]["parameters"][0]["digestFront"].as_str().unwrap().starts_with("sha256:"));
    for part in [
        "route     pr-digests (digests)",
        "outcome   present, 1 parameter set",
        "evidence  front: present, ",
        "key       ",
    ] {
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }

    let absent = call(&["--application-set", "fb-x", "--json", r#"{"branch": "x"}"#, "-o", "json"]);
    assert!(absent.status.success(), "{}", stderr(&absent));
    let report: Value = serde_json::from_slice(&absent.stdout).unwrap();
    assert_eq!((&report["route"], &report["outcome"]), (&"pr-digests".into(), &"absent".into()));
    assert!(report["evidence"][0]["answer"].as_str().unwrap().contains("the index names none"), "{report}");
    assert_eq!(report["answer"]["output"]["parameters"], Value::Array(vec![]));

    for (arguments, says) in [
        (&["pr-digests"][..], "parameter `branch` (the pull request's branch) is missing"),
        (&["nowhere"], "there is no route `nowhere`; known here: previews, pr-digests, fake-appset, branches"),
        (&[], "no route's `match` takes this call"),
        (&["branches", "--json", "[]"], "--json must be an object, not a list"),
    ] {
        let output = call(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(says), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    assert_eq!(call(&["branches", "-p", "novalue"]).status.code(), Some(2));
}

/// Each step of a merge. The steps of a pipeline are in docs/pipelines.md, which `docs::commands` checks.
#[test]
fn call_reports_each_step_as_json() {
    let output = command()
        .args(["call", "-c", "config/examples/pipeline.yaml", "clusters", "-o", "json"])
        .current_dir(repository())
        .env("APPSET_GATEWAY_TOKEN", "a-token")
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps: Vec<Value> = report["steps"].as_array().unwrap().clone();
    let printed: Vec<_> =
        steps.iter().map(|step| (&step["name"], &step["kind"], step["output"][0]["labels"].to_string())).collect();
    assert_eq!(
        printed,
        [
            (&"backend inventory".into(), &"fixed".into(), r#"{"tier":"gold"}"#.to_owned()),
            (&"backend owners".into(), &"script".into(), r#"{"owner":"team-alpha"}"#.to_owned()),
        ]
    );
    assert!(steps.iter().all(|step| step["milliseconds"].as_f64().unwrap() >= 0.0 && step.get("input").is_none()));
    assert_eq!(
        report["answer"]["output"]["parameters"][0]["labels"].to_string(),
        r#"{"tier":"gold","owner":"team-alpha"}"#
    );
}

#[test]
fn call_explains_why_a_question_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let config = "auth: { tokens: [ { name: a, sha256: \"81459cf84e4aee47955da5b9d9921c77417b329407290778a5ae4b746b551970\" } ] }\n\
                  routes: [ { name: broken, backend: { script: { command: [sh, -c, \"echo no disk >&2; exit 3\"] } } } ]\n";
    std::fs::write(&file, config).unwrap();
    let output = run(&["call", "broken", "-c", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("route broken (script): sh: exit status: 3; stderr: no disk"), "{text}");
    assert!(text.contains("unknown: Argo CD gets 502 backend_failed"), "{text}");
    assert!(text.contains("ran       broken (script), "), "{text}");
    assert!(text.contains("\n  stderr  no disk\n"), "{text}");
    assert_eq!(text.matches("exit status: 3").count(), 1, "one error is read twice: {text}");
    assert!(text.contains("there is no last good answer (key "), "{text}");
}

#[test]
fn hash_token_reads_a_token_from_standard_input() {
    let expected = "81459cf84e4aee47955da5b9d9921c77417b329407290778a5ae4b746b551970\n";
    for input in ["strong-password", "strong-password\n"] {
        assert_eq!(stdout(&run_with_input(&["hash-token"], input)), expected);
    }
    for input in ["", "\n", " padded"] {
        assert_eq!(run_with_input(&["hash-token"], input).status.code(), Some(1));
    }
}

#[test]
fn help_and_completions_are_printed() {
    let help = stdout(&run(&["--help"]));
    for command in
        ["serve", "check", "call", "status", "explain", "answers", "held", "schema", "hash-token", "completions"]
    {
        assert!(help.contains(command), "{command}: {help}");
    }
    assert!(stdout(&run(&["call", "--help"])).contains("appset-gateway call pr-digests -p branch=main"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&run(&["completions", shell])).contains("appset-gateway"), "{shell}");
    }
    assert_eq!(run(&["serv"]).status.code(), Some(2));
}

/// The configuration of the Kubernetes manifests in `folder`, with files in place of the pod's mounts.
fn manifests_configuration(folder: &Path) -> std::path::PathBuf {
    let mut config = std::fs::read_to_string(repository().join("deploy/kustomize/base/gateway.yaml")).unwrap();
    for (mounted, file) in [
        ("/var/run/argo/token", "token"),
        ("/var/run/appset-gateway/token", "admin-token"),
        ("/var/lib/appset-gateway/answers.redb", "answers.redb"),
        ("0.0.0.0:4355", "127.0.0.1:0"),
        ("0.0.0.0:4356", "127.0.0.1:0"),
    ] {
        assert!(config.contains(mounted), "{mounted}");
        config = config.replace(mounted, file);
    }
    std::fs::write(folder.join("token"), "strong-password\n").unwrap();
    std::fs::write(folder.join("admin-token"), "strong-admin-password\n").unwrap();
    let file = folder.join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    file
}

#[test]
fn the_manifests_configuration_passes_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = manifests_configuration(folder.path());
    let output = run(&["check", "-c", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

/// `kubectl exec deploy/appset-gateway -- appset-gateway held list` finds the admin token in the configuration.
#[test]
fn an_operator_can_use_held_list_in_the_manifests_pod() {
    let folder = tempfile::tempdir().unwrap();
    let file = manifests_configuration(folder.path());
    let gateway = Gateway::serve(&file);
    let output = run(&["held", "list", "-c", file.to_str().unwrap(), "--admin", &gateway.admin.to_string()]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("nothing is held\n", ""));
}
