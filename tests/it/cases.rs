//! `appset-gateway test` and `record`: cases are played without sources and secrets, and recorded without secrets.

mod escaped;
mod forms;
mod recorded;

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::binary;

/// Runs `appset-gateway` with the configuration `gateway.yaml` of `folder`, without any environment. Returns the exit code, standard output and
/// standard error.
fn cli(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command().current_dir(folder).args(arguments).args(["-c", "gateway.yaml"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn command() -> Command {
    let mut command = binary::command();
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command
}

/// A folder with a configuration whose route `apps` asks `url`, and the file `tests/cases.yaml` with `cases`.
fn folder(url: &str, cases: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let route = json!({
        "name": "apps",
        "input": [{"name": "env", "required": true}],
        "backend": {"http": {
            "url": format!("{url}/apps?env={{{{ params.env }}}}"),
            "credential": {"bearer": {"file": "secrets/token"}},
            "parameters": "body.map(a, {'name': a.name, 'size': a.size})",
        }},
        "cache": {"ttl": "1m", "staleWhileRevalidate": "0s"},
        "guard": {"identity": ["name"], "maxShrink": "10%", "confirmAfter": 3, "confirmFor": "5m"},
    });
    let script = json!({"name": "script", "backend": {"script": {"command": ["./list.sh"]}}});
    let auth = "auth: { tokens: [ { name: argocd, file: secrets/argocd }, { name: other, env: NOT_SET } ] }";
    let cache = "cache: { path: answers.redb, shared: { url: \"redis://127.0.0.1:1\" } }";
    let config = format!("{auth}\n{cache}\nroutes: {}\n", json!([route, script]));
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    std::fs::write(folder.path().join("list.sh"), "#!/bin/sh\necho '[{\"name\": \"real\"}]'\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path().join("list.sh"), mode).unwrap();
    std::fs::create_dir(folder.path().join("tests")).unwrap();
    std::fs::write(folder.path().join("tests/cases.yaml"), cases).unwrap();
    folder
}

const URL: &str = "https://inventory.example.com";

/// A list that shrinks, and a source that fails: what the cache and the guard do about it.
const SEQUENCE: &str = r#"
cases:
  - name: a list that shrinks # is held until three runs agree
    route: apps
    parameters: { env: prod }
    replies:
      - request: GET https://inventory.example.com/apps?env=prod
        body: [ { name: a, size: 1 }, { name: b, size: 2 } ]
    expect:
      cache: miss
      parameters: [ { name: a, size: 1 }, { name: b, size: "2" } ]
    then:
      - expect: { cache: hit }
      - after: 2m
        replies: [ { request: "GET https://inventory.example.com/*", status: 503 } ]
        expect: { cache: stale_if_error, because: backend_failed, parameters: [ { name: a, size: 1 }, { name: b, size: 2 } ] }
      - after: 2m
        replies: [ { request: "* https://inventory.example.com/*", body: [ { name: a, size: 1 } ] } ]
        expect: { because: held, parameters: [ { name: a, size: 1 }, { name: b, size: 2 } ] }
      - after: 30m
        expect: { parameters: [ { name: a, size: 1 } ] }

  - name: the environment is missing
    route: apps
    expect: { error: invalid_input, message: env }

  - name: the script itself runs
    route: script
    expect: { parameters: [ { name: real } ] }

  - name: a script has a reply
    route: script
    replies: [ { script: ./list.sh, fails: it is tired } ]
    expect: { error: backend_failed, message: it is tired }
"#;

#[test]
fn sequences_show_what_cache_and_guard_do() {
    let folder = folder(URL, SEQUENCE);
    let before: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!((code, &*error), (Some(0), ""), "{printed}");
    assert!(printed.starts_with("pass    tests/cases.yaml:3: a list that shrinks\n"), "{printed}");
    assert!(printed.ends_with("4 passed, 0 failed\n"), "{printed}");
    let after: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after, "nothing is left behind");
}

#[test]
fn differences_are_reported_in_each_format() {
    let cases = SEQUENCE
        .replace("size: \"2\" } ]", "size: 3 } ]")
        .replace("error: invalid_input", "error: held")
        .replace("name: real", "name: \"<real>\"")
        .replace("because: backend_failed", "because: held");
    let folder = folder(URL, &cases);
    let (code, printed, _) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(1));
    for expected in [
        "fail    tests/cases.yaml:3: a list that shrinks",
        "        - {\"name\":\"b\",\"size\":\"3\"}",
        "        + {\"name\":\"b\",\"size\":\"2\"}",
        "        then, step 2: expected because: held, got backend_failed",
        "        expected the error held, got the error invalid_input:",
        "1 passed, 3 failed",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
    let (code, printed, _) = cli(folder.path(), &["test", "-o", "json", "tests/cases.yaml"]);
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &report["passed"], &report["failed"]), (Some(1), &json!(1), &json!(3)));
    assert_eq!(report["cases"][0]["answers"][1], "2 parameter sets (cache: hit)");
    let (_, printed, _) = cli(folder.path(), &["test", "-o", "junit"]);
    assert!(
        printed.contains("<testsuite name=\"appset-gateway test\" tests=\"4\" failures=\"3\" skipped=\"0\">"),
        "{printed}"
    );
    assert!(
        printed.contains("name=\"the script itself runs\"><failure message=\"- {&quot;name&quot;:&quot;&lt;real&gt;"),
        "{printed}"
    );
    let (_, printed, _) = cli(folder.path(), &["test", "-o", "markdown"]);
    assert!(printed.contains("| a script has a reply | pass |  |"), "{printed}");
}

#[test]
fn update_writes_answers_and_nothing_else() {
    let cases = SEQUENCE
        .replace("      parameters: [ { name: a, size: 1 }, { name: b, size: \"2\" } ]\n", "")
        .replace(
            "expect: { because: held, parameters: [ { name: a, size: 1 }, { name: b, size: 2 } ] }",
            "expect: { parameters: [] }",
        )
        .replace("        expect: { parameters: [ { name: a, size: 1 } ] }\n", "")
        .replace("    expect: { error: invalid_input, message: env }\n", "");
    let folder = folder(URL, &cases);
    assert_eq!(cli(folder.path(), &["test"]).0, Some(1));
    let (code, printed, _) = cli(folder.path(), &["test", "--update"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("updated tests/cases.yaml:3: a list that shrinks"), "{printed}");
    assert!(printed.contains("then, step 4: nothing is expected, got 1 parameter set"), "{printed}");
    let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
    assert!(written.contains("a list that shrinks # is held until three runs agree"), "{written}");
    for line in [
        "        expect:\n          parameters:\n            - { name: a, size: \"1\" }\n",
        "      error: invalid_input\n",
    ] {
        assert!(written.contains(line), "{line}\n{written}");
    }
    assert_eq!(cli(folder.path(), &["test"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap(), written);
}

#[test]
fn cases_that_match_nothing_name_the_nearest() {
    let cases = SEQUENCE
        .replace("GET https://inventory.example.com/apps?env=prod", "GET https://inventory.example.com/apps?env=prd")
        .replace("route: script\n    expect", "route: skript\n    expect");
    let folder = folder(URL, &cases);
    let (code, printed, _) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(1));
    for expected in [
        "the case has no reply to `GET https://inventory.example.com/apps?env=prod`; the nearest is \
         `GET https://inventory.example.com/apps?env=prd`",
        "no request used the reply to `GET https://inventory.example.com/apps?env=prd`; the nearest is \
         `GET https://inventory.example.com/apps?env=prod`",
        "there is no route `skript`; did you mean `script`?",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
    // It is told although an error is expected.
    assert_eq!(cli(folder.path(), &["test", "--update"]).0, Some(1));
}

#[test]
fn mistakes_and_secrets_are_reported_with_their_place() {
    let cases = r#"
cases:
  - name: a
    replies:
      - request: https://example.com
      - request: GET https://example.com?api_key=0123456789abcdef
        headers: { Set-Cookie: session=1 }
        body: { data: { access_token: abcdefghij }, next_page_token: "7", text: "use ghp_0123456789abcdef0123 now" }
      - script: a
        items: [ { password: hunter22 } ]
        fails: "no"
      - { request: "GET https://example.com", fails: slowly, status: 700, items: [] }
    expect: { parameters: [], error: held }
    then: [ { after: 1 } ]
"#;
    let folder = folder(URL, cases);
    let (code, _, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(78), "{error}");
    assert!(error.contains("cases[0].then[0].after"), "{error}");
    std::fs::write(folder.path().join("tests/cases.yaml"), cases.replace("    then: [ { after: 1 } ]\n", "")).unwrap();
    let (code, _, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(78), "{error}");
    for expected in [
        "cases[0].replies[0].request: a request has a method and a URL",
        "cases[0].replies[1].request: it seems to hold a secret",
        "cases[0].replies[1].headers.Set-Cookie: it seems to hold a secret",
        "cases[0].replies[1].body.data.access_token: it seems to hold a secret",
        "cases[0].replies[1].body.text: it seems to hold a secret",
        "cases[0].replies[2].items[0].password: it seems to hold a secret",
        "cases[0].replies[2]: a script has either `items` or `fails`",
        "cases[0].replies[3].fails: a request fails with",
        "cases[0].replies[3].status: a status is",
        "cases[0].replies[3].items: only a `script` gives items",
        "cases[0].expect: an answer has either `parameters` or an `error`",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    assert!(!error.contains("body.next_page_token"), "{error}");
    for (path, expected) in [("nowhere", "cannot read nowhere"), ("secrets", "there are no files of cases")] {
        std::fs::create_dir_all(folder.path().join("secrets")).unwrap();
        let (code, _, error) = cli(folder.path(), &["test", path]);
        assert!(code == Some(78) && error.contains(expected), "{error}");
    }
    std::fs::write(folder.path().join("gateway.yaml"), "routes: [ { nme: x } ]").unwrap();
    std::fs::write(folder.path().join("tests/cases.yaml"), SEQUENCE).unwrap();
    let (code, _, error) = cli(folder.path(), &["test"]);
    assert!(code == Some(78) && error.contains("nme"), "{error}");
}

/// The cases of each example in `config/examples` pass, on a machine without secrets and sources.
#[test]
fn the_cases_of_all_examples_pass() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(&examples).unwrap().map(Result::unwrap) {
        if !entry.file_type().unwrap().is_file() || entry.path().extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let cases = examples.join("tests").join(entry.file_name());
        let output = command().arg("test").arg("-c").arg(entry.path()).arg(cases).output().unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{:?}: {printed}", entry.file_name());
        count += 1;
    }
    assert_eq!(count, std::fs::read_dir(examples.join("tests")).unwrap().count(), "each example has cases");
}

/// What `--update` makes of files in several forms: it writes the answer, or says why it cannot, and leaves the file as it is.
#[test]
fn update_leaves_files_alone_that_it_cannot_change_safely() {
    let head = "cases:\n  - name: a\n    route: script\n";
    let new = "    expect:\n      parameters:\n        - { name: real }\n";
    for (before, after) in [
        (format!("{head}    expect:\n"), Some(format!("{head}{new}"))),
        (
            format!("{head}    expect: {{ parameters: [\n      {{ name: old }},\n    ] }}\n    # end\n"),
            Some(format!("{head}{new}    # end\n")),
        ),
        (
            format!("{head}    expect:\n      parameters:\n# aside\n        - {{ name: old }}\n"),
            Some(format!("{head}{new}")),
        ),
        (
            format!("{head}    expect: {{}}\n    then:\n      - expect: {{ cache: hit }}\n")
                .replace("{}", "{ parameters: [] }"),
            None,
        ),
        ("cases: [ { name: a, route: script, expect: { parameters: [] } } ]\n".to_owned(), None),
        ("cases:\n  - { name: a, route: script }\n".to_owned(), None),
        (
            format!("{head}    expect: {{ parameters: [] }}\n").replace('\n', "\r\n"),
            Some(format!("{head}{new}").replace('\n', "\r\n")),
        ),
    ] {
        let folder = folder(URL, &before);
        let (code, printed, error) = cli(folder.path(), &["test", "--update"]);
        let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
        match after {
            Some(after) => {
                assert_eq!(written, after, "{printed}{error}");
                assert_eq!(code, Some(0), "{printed}");
            }
            None if before.contains("then:") => assert!(written.contains("- { name: real }"), "{written}"),
            None => {
                assert_eq!((written, code), (before, Some(1)), "{printed}");
                assert!(error.contains("in lines of their own, not in brackets"), "{error}");
            }
        }
    }
}
