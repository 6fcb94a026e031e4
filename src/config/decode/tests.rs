//! All problems of a text at once, each with its place.

use crate::config::Loaded;
use domain::file::base_dir::BaseDir;

fn problems(source: &str) -> Vec<String> {
    let report = match Loaded::parse("t.yaml", source.to_owned(), BaseDir::default()) {
        Ok(loaded) => loaded.report(Vec::new()),
        Err(report) => report,
    };
    report.lines()
}

#[test]
fn all_errors_are_reported_at_once_each_with_its_place() {
    let source = "\
server: { listen: nowhere, deadlin: 3s }
auth:
  tokens:
    - { name: 5, env: X }
    - { env: X }
routes:
  - name: a
    backend: { script: { timeout: soon } }
  - name: b
    backend: { fixd: {} }
    echo: yes
  - name: c
    match: { parameters: [] }
    backend: { fixed: { parameters: [ 1 ] } }
";
    assert_eq!(
        problems(source),
        [
            "t.yaml:1:11: server.listen: this is not an address with a port, such as `0.0.0.0:4355`",
            "t.yaml:1:28: server.deadlin: unknown key `deadlin` (did you mean `deadline`?)",
            "t.yaml:4:9: auth.tokens[0].name: wrong type: integer `5`, expected a string (write it in quotes)",
            "t.yaml:5:7: auth.tokens[1]: the key `name` is missing (`name`: The caller's name in logs)",
            "t.yaml:8:16: routes[0].backend.script: the key `command` is missing (`command`: The program and its arguments)",
            "t.yaml:8:26: routes[0].backend.script.timeout: `soon` is not a duration with a unit, `ms`, `s`, `m`, `h` or `d`: \
             expected number at 0",
            "t.yaml:10:16: routes[1].backend.fixd: unknown kind `fixd` (did you mean `fixed`?)",
            "t.yaml:11:5: routes[1].echo: wrong type: string \"yes\", expected a list (write a list: each item begins with `- `)",
            "t.yaml:13:14: routes[2].match.parameters: wrong type: list, expected a mapping (write its keys \
             without a `-` before them, and without `[ ]` around them)",
            "t.yaml:14:39: routes[2].backend.fixed.parameters[0]: wrong type: integer `1`, expected a mapping",
        ]
    );
}

#[test]
fn duplicate_keys_and_broken_yaml_are_reported() {
    assert_eq!(
        problems("log: {}\nserver: { admin: \"0.0.0.0:1\", admin: \"0.0.0.0:2\" }\nlog: {}\n"),
        [
            "t.yaml:2:31: the key `admin` stands twice in this mapping",
            "t.yaml:3:1: the key `log` stands twice in this mapping",
        ]
    );
    let broken = problems("routes:\n  - name: [\n");
    assert_eq!(broken.len(), 1);
    assert!(broken[0].starts_with("t.yaml:"), "{broken:?}");
    let two = "t.yaml:3:1: one YAML document is expected, and here is a second one";
    assert_eq!(problems("log: {}\n---\nroutes: []\n"), [two]);
    let bomb = "a: &a [x, x, x, x, x, x, x, x]\n".to_owned()
        + &[("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f"), ("h", "g")]
            .map(|(one, of)| format!("{one}: &{one} [{}]\n", vec![format!("*{of}"); 8].join(", ")))
            .concat();
    let messages = problems(&bomb);
    assert!(messages[0].ends_with(": the file is too large or too deep, perhaps by its aliases"), "{messages:?}");
    assert_eq!(problems("- a\n"), ["t.yaml:1:1: wrong type: the file must hold one mapping"]);
}
