use super::*;

fn parse(text: &str) -> Plugin {
    Plugin::parse(text).unwrap()
}

fn error(text: &str) -> String {
    Plugin::parse(text).unwrap_err().to_string()
}

const LEAST: &str = "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  generate: {command: [cat, a]}\n";

#[test]
fn all_fields_are_read() {
    let plugin = parse(
        r#"
apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: {name: demo}
spec:
  version: v1.0
  init: {command: [sh], args: [-c, "true"]}
  generate: {command: [sh, -c], args: ["cat $0", 7, true]}
  discover: {find: {glob: "**/x.yaml"}}
  parameters:
    static:
    - {name: a, title: A, required: true, itemType: number, collectionType: map, map: {k: v}}
    - {Name: b, COLLECTIONTYPE: array, array: [x], string: null}
    dynamic: {command: [list]}
  preserveFileMode: true
  provideGitCreds: true
"#,
    );
    let command = |program: &str, arguments: &[&str]| {
        Some(Command { program: program.into(), arguments: arguments.iter().map(|&text| text.into()).collect() })
    };
    assert_eq!(plugin.full_name(), "demo-v1.0");
    assert_eq!(plugin.init, command("sh", &["-c", "true"]));
    assert_eq!(Some(plugin.generate), command("sh", &["-c", "cat $0", "7", "true"]));
    assert_eq!(plugin.discover, Discover::Glob("**/x.yaml".into()));
    assert_eq!(plugin.dynamic_parameters, command("list", &[]));
    assert!(plugin.preserve_file_mode && plugin.provide_git_creds);
    let [a, b] = plugin.static_parameters.try_into().unwrap();
    assert_eq!((a.name.as_str(), a.required, a.map["k"].as_str(), a.item_type.as_str()), ("a", true, "v", "number"));
    assert_eq!((b.name.as_str(), b.collection_type.as_str(), b.array), ("b", "array", vec!["x".to_owned()]));
    assert_eq!(plugin.warnings, Vec::<String>::new());
}

#[test]
fn keys_match_without_case_and_unknown_ones_are_warned_of() {
    let plugin = parse(
        "Kind: ConfigManagementPlugin\nMETADATA: {name: kpt, labels: {}}\nspec:\n  Generate: {Command: [x], shell: y}\n  lockRepo: true\n  \
         discover: {fileName: Kptfile, FIND: {command: [z]}}\n",
    );
    assert_eq!(plugin.discover, Discover::FileName("Kptfile".into()));
    let warnings = plugin.warnings.join("\n");
    for expected in ["spec.lockRepo is unknown", "spec.generate.shell is unknown", "several rules"] {
        assert!(warnings.contains(expected), "{warnings}");
    }
    assert!(!warnings.contains("labels"), "{warnings}");
}

#[test]
fn a_numeric_version_is_what_argo_cd_makes_of_it() {
    for (written, name) in
        [("1.0", "demo-1"), ("1.10", "demo-1.1"), ("2", "demo-2"), ("'1.0'", "demo-1.0"), ("", "demo")]
    {
        let plugin = parse(&format!("{LEAST}  version: {written}\n"));
        assert_eq!(plugin.full_name(), name);
        assert_eq!(plugin.warnings.len(), usize::from(!matches!(written, "" | "'1.0'")), "{:?}", plugin.warnings);
    }
}

#[test]
fn what_argocd_cmp_server_refuses_is_refused() {
    for (text, expected) in [
        ("kind: Plugin\n", "kind must be ConfigManagementPlugin, and is `Plugin`"),
        ("kind: ConfigManagementPlugin\nspec: {generate: {command: [x]}}\n", "metadata.name must not be empty"),
        ("kind: ConfigManagementPlugin\nmetadata: {name: a/b}\n", "must not contain a slash"),
        ("kind: ConfigManagementPlugin\nmetadata: {name: a}\nspec: {}\n", "spec.generate.command must not be empty"),
        (
            "kind: ConfigManagementPlugin\nmetadata: {name: a}\nspec: {generate: {command: x}}\n",
            "must be a list of texts",
        ),
        ("kind: ConfigManagementPlugin\nmetadata: {name: a}\nspec: {generate: x}\n", "spec.generate must be a mapping"),
        ("- x\n", "the document must be a mapping"),
        ("a: [", "line"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{error}");
    }
}
