//! Mistakes in configurations. Each file of `mistakes/` has one, and a snapshot beside it is all that `check` says about it: the place,
//! the cause, and what to do. `INSTA_UPDATE=always cargo test --test it mistakes` rewrites the snapshots; read the difference.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{
    binary::command,
    registry::Registry,
    upstream::{Step, Upstream, response},
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/mistakes")
}

fn mistakes() -> Vec<String> {
    let files = folder().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        files.filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml")).collect();
    names.sort();
    names
}

/// The exit code of `check`, and what it wrote to stdout and stderr.
fn check(file: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let output = command().current_dir(folder()).args(["check", "-c", file]).args(options).output().unwrap();
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        // What this machine's kernel lacks is no matter of the configuration.
        let lines = text.lines().filter(|line| !line.starts_with("note: on this machine"));
        lines.flat_map(|line| [line.trim_end(), "\n"]).collect::<String>()
    };
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn each_mistake_is_explained() {
    let names = mistakes();
    assert!(names.len() >= 60, "{}", names.len());
    for name in names {
        let (code, _, said) = check(&name, &["--strict"]);
        assert_eq!(code, Some(78), "{name}: {said}");
        // Lines are broken by the length of the folder's path, so the snapshots have whole ones.
        let said = said.replace("\n  | ", " ").replace("\n        ", " ");
        let said = said.replace(&*folder().to_string_lossy(), "<folder>");
        assert!(!said.contains("hunter2"), "{name} shows a secret: {said}");
        let settings = || {
            let mut settings = insta::Settings::clone_current();
            settings.set_snapshot_path(folder());
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            settings
        };
        settings().bind(|| insta::assert_snapshot!(name.trim_end_matches(".yaml"), said));
    }
}

/// Programs read the same places as people.
#[test]
fn each_format_has_the_same_places() {
    for name in mistakes() {
        let (_, _, text) = check(&name, &["--strict"]);
        let (_, json, _) = check(&name, &["--strict", "-o", "json"]);
        let (_, sarif, _) = check(&name, &["--strict", "-o", "sarif"]);
        let json: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{name}: {error}: {json}"));
        let sarif: Value = serde_json::from_str(&sarif).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        assert_eq!(json.as_array().unwrap().len(), results.len());
        for (finding, result) in json.as_array().unwrap().iter().zip(results) {
            let place = format!("[{name}:{}:{}]", finding["line"], finding["column"]);
            assert!(text.contains(&place), "{place} is not in {text}");
            let region = &result["locations"][0]["physicalLocation"]["region"];
            assert_eq!((&region["startLine"], &region["startColumn"]), (&finding["line"], &finding["column"]));
            assert_eq!((&finding["severity"], &result["level"]), (&Value::from("error"), &Value::from("error")));
        }
    }
}

/// `--connect` tries the sources, and says which cannot be used.
#[tokio::test(flavor = "multi_thread")]
async fn sources_are_tried() {
    let source = Upstream::start(|_| vec![Step::Send(response(401, "", "who are you"))]).await;
    let registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    let folder = tempfile::tempdir().unwrap();
    let token = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let write = |name: &str, port: u16| {
        let routes = json!([
            {"name": "h", "backend": {"http": {"url": format!("http://127.0.0.1:{port}/x/{{{{ params.n }}}}")}}},
            {"name": "d", "backend": {"digests": {"images": {"app": {"image": format!("{}/org/app:{{{{ params.n }}}}", registry.host)}}}}},
        ]);
        let registries = json!({&registry.host: {"plainHttp": true}});
        let auth = json!({"tokens": [{"name": "argocd", "sha256": token}]});
        let file = folder.path().join(name);
        std::fs::write(&file, json!({"auth": auth, "registries": registries, "routes": routes}).to_string()).unwrap();
        file
    };
    let check = async |file: PathBuf| {
        let check = move || command().args(["check", "--connect", "-c"]).arg(file).output().unwrap();
        let output = tokio::task::spawn_blocking(check).await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = check(write("good.json", source.address.port())).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("route h: http://{} answers 401 Unauthorized", source.address)), "{said}");
    assert!(said.contains(&format!("route d: image app: {}/org/app answers", registry.host)), "{said}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, said) = check(write("bad.json", closed)).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("route h: http://127.0.0.1:{closed} cannot be used: ")), "{said}");
    // A registry without TLS, and without `plainHttp`.
    let image = format!("{}/org/app:1", registry.host);
    let routes = json!([{"name": "d", "backend": {"digests": {"images": {"app": {"image": image}}}}}]);
    let auth = json!({"tokens": [{"name": "argocd", "sha256": token}]});
    let file = folder.path().join("tls.json");
    std::fs::write(&file, json!({"auth": auth, "routes": routes}).to_string()).unwrap();
    let (code, said) = check(file).await;
    assert_eq!((code, said.matches("plainHttp: true").count()), (Some(1), 1), "{said}");
    assert!(source.requests().iter().all(|request| request.method == "HEAD"));
}

/// The mistakes with which no release has started. All others were found later: an upgrade must not keep a gateway from starting that
/// started before, so a name is added here only with a key that is new.
const REFUSED: [&str; 118] = [
    "address-without-port",
    "auth-as-list",
    "body-of-get",
    "colon-without-space-before-mapping",
    "colon-without-space-below",
    "each-first",
    "each-in-merge",
    "each-in-step",
    "each-key-empty",
    "each-key-twice",
    "each-key-unknown",
    "each-max-unknown-as-text",
    "each-max-unknown-fraction",
    "each-max-unknown-fraction-as-text",
    "each-max-unknown-negative",
    "each-max-unknown-over-all",
    "each-not-last",
    "each-without-backend",
    "echo-undeclared",
    "expression-equals",
    "expression-name-after-dot",
    "expression-not-closed",
    "expression-syntax",
    "expression-syntax-in-block",
    "hook-without-listener",
    "hook-without-registry",
    "host-from-parameter",
    "image-without-registry",
    "indent-key-beside-backend",
    "indent-key-in-backend",
    "indent-key-of-backend-in-route",
    "indent-key-of-route",
    "indent-keys-of-backend",
    "indent-keys-of-both",
    "indent-no-kind",
    "indent-section-in-route",
    "input-as-names",
    "kind-with-nothing",
    "kind-without-settings",
    "lineage-undeclared",
    "list-for-http",
    "list-for-mapping",
    "mapping-as-text",
    "name-twice",
    "name-with-capitals",
    "no-backend",
    "no-routes",
    "no-tokens",
    "one-address-twice",
    "pattern-not-closed",
    "placeholder-missing",
    "provenance-commit-shortened",
    "provenance-without-signature",
    "proxy-as-text",
    "required-with-default",
    "reserved-key",
    "routes-as-mapping",
    "script-empty-command",
    "script-not-executable",
    "script-unknown-program",
    "secret-file-missing",
    "secret-instead-of-reference",
    "select-first",
    "semver-range",
    "shadow-ignores-identity",
    "shadow-never-asked",
    "shadow-unknown-key",
    "signature-any-and-all",
    "signature-of-layout",
    "signature-without-form",
    "signature-without-signers",
    "sql-limits",
    "tags-pattern-not-closed",
    "template-argument-of-go",
    "template-commit-without-gate",
    "template-in-body",
    "template-misspelt-params",
    "template-not-closed",
    "template-of-go",
    "template-parameter-without-params",
    "template-unknown-function",
    "template-without-quotes",
    "template-without-quotes-in-block",
    "two-backends",
    "unit-of-duration",
    "unit-of-fraction",
    "unit-of-quoted-duration",
    "unit-of-share",
    "unit-of-size",
    "unknown-key",
    "unknown-kind-of-backend",
    "unknown-value",
    "user-in-url",
    "yaml-anchor-in-routes",
    "yaml-at-sign",
    "yaml-bracket-open",
    "yaml-colon-in-value",
    "yaml-colon-without-space",
    "yaml-comma-missing",
    "yaml-comment-for-value",
    "yaml-dash-missing",
    "yaml-dash-missing-later",
    "yaml-dash-without-space",
    "yaml-indent",
    "yaml-indent-further",
    "yaml-key-twice",
    "yaml-not-closed",
    "yaml-quote-open",
    "yaml-quote-open-in-brackets",
    "yaml-quote-within",
    "yaml-secret-glued",
    "yaml-star",
    "yaml-star-in-name",
    "yaml-tab",
    "yaml-tab-before-dash",
    "yaml-tag-before-text",
    "yaml-tag-in-match",
    "yaml-two-documents",
];

/// A start accepts what an earlier release accepted: what is found since then is a warning there.
#[test]
fn a_start_only_warns_of_parts_that_fail_when_they_are_called() {
    let mut mistaken = 0;
    for file in mistakes() {
        let name = file.trim_end_matches(".yaml");
        let source = std::fs::read_to_string(folder().join(&file)).unwrap();
        let clock = std::sync::Arc::new(domain::clock::SystemClock);
        let report = crate::support::app::build(&folder(), &source, clock).err();
        let said = report.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_eq!(report.is_some(), REFUSED.contains(&name), "{name}: {said}");
        // Without `--strict`, what is an error although a start accepts it is a mistake.
        let (code, _, _) = check(&file, &[]);
        mistaken += usize::from(report.is_none() && code == Some(78));
    }
    assert!(mistaken >= 40, "{mistaken}");
    assert!(REFUSED.iter().all(|name| folder().join(format!("{name}.yaml")).is_file()));
}

/// Where there are no secrets, only the form of the references is checked.
#[test]
fn secrets_need_not_be_there() {
    let (code, _, said) = check("secret-file-missing.yaml", &["--no-secrets", "--strict"]);
    assert_eq!((code, &*said), (Some(0), ""));
    let (code, _, said) = check("secret-instead-of-reference.yaml", &["--no-secrets"]);
    assert_eq!(code, Some(78), "{said}");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let examples = root.join("config/examples").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let examples: Vec<PathBuf> = examples.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    for file in examples.into_iter().chain([root.join("config/reference.yaml"), root.join("config/gateway.yaml")]) {
        let mut check = command();
        check.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = check.args(["check", "--no-secrets", "--strict", "-c"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
}

/// What a configuration leaves out has its default: the token and the CA of the pod's service account, which a laptop lacks.
#[test]
fn the_files_of_a_pod_need_not_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "auth": {"tokenReview": {"audiences": ["gateway"], "callers": [{"user": "system:serviceaccount:argocd:*"}]}},
        "argocd": {"refresh": {"namespaces": ["argocd"], "configMaps": ["gateway"]}},
        "cache": {"path": "a.redb"},
        "routes": [{"name": "r", "backend": {"fixed": {"parameters": []}}}],
    });
    std::fs::write(folder.path().join("gateway.yaml"), config.to_string()).unwrap();
    let check = |options: &[&str]| {
        let output =
            command().current_dir(&folder).arg("check").args(options).args(["-c", "gateway.yaml"]).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = check(&["--no-secrets"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = check(&[]);
    assert!(code == Some(78) && said.contains("auth.tokenReview.token"), "{said}");
}

/// A file that is there must be right also where secrets may be missing: the start would refuse it. A missing one leaves the rest to be
/// checked.
#[test]
fn what_is_there_must_be_right_without_secrets_too() {
    let token = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let plugin = "apiVersion: argoproj.io/v1alpha1\nkind: GeneratorPlugin\nmetadata: { name: p }\nspec: { generate: { command: [cat] }, env: { TOKEN: { file: FILE } } }\n";
    let http = |more: Value| {
        let mut http = json!({"url": "https://h.example.com/{{ params.x }}"});
        http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"routes": [{"name": "r", "backend": {"http": http}}]})
    };
    let images = |more: Value| {
        let mut digests = json!({"images": {"app": {"image": "r.example.com/app:{{ params.x }}"}}});
        digests.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"name": "r", "backend": {"digests": digests}})
    };
    let cases: [(&str, Value, &str); 7] = [
        ("ca", http(json!({"ca": "FILE"})), "holds no certificate"),
        ("client", http(json!({"clientCertificate": {"cert": "FILE", "key": "FILE"}})), "holds no certificate"),
        (
            "registry",
            json!({"registries": {"r.example.com": {"ca": "FILE"}}, "routes": [images(json!({}))]}),
            "holds no certificate",
        ),
        (
            "docker",
            json!({"registries": {"r.example.com": {"dockerConfig": "FILE"}}, "routes": [images(json!({}))]}),
            "FILE",
        ),
        ("signer", json!({"routes": [images(json!({"signature": {"any": [{"key": {"file": "FILE"}}]}}))]}), "FILE"),
        (
            "store",
            json!({"cache": {"shared": {"url": "rediss://s.example.com:6379/0", "ca": "FILE", "key": {"file": "missing.key"}}}, "routes": [images(json!({}))]}),
            "holds no certificate",
        ),
        (
            "tls",
            json!({"server": {"tls": {"cert": "FILE", "key": "FILE"}}, "routes": [images(json!({}))]}),
            "holds no certificate",
        ),
    ];
    for (name, mut config, says) in cases {
        let folder = tempfile::tempdir().unwrap();
        config["auth"] = json!({"tokens": [{"name": "argocd", "sha256": token}]});
        if config["cache"].is_null() {
            config["cache"] = json!({"path": "answers.redb"});
        }
        std::fs::write(folder.path().join("gateway.yaml"), config.to_string()).unwrap();
        let check = || {
            let output =
                command().current_dir(&folder).args(["check", "--no-secrets", "-c", "gateway.yaml"]).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(said).unwrap().replace("\n  | ", " "))
        };
        let (code, said) = check();
        assert!(code == Some(0) && said.contains("good, 1 route"), "{name}, which is missing: {said}");
        std::fs::write(folder.path().join("FILE"), "<html>").unwrap();
        let (code, said) = check();
        assert!(code == Some(78) && said.contains(says), "{name}, which is wrong: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("plugins/p")).unwrap();
    std::fs::write(folder.path().join("plugins/p/plugin.yaml"), plugin).unwrap();
    let config = json!({"auth": {"tokens": [{"name": "argocd", "sha256": token}]}, "cache": {"path": "a.redb"}, "plugins": {"path": "plugins"}});
    std::fs::write(folder.path().join("gateway.yaml"), config.to_string()).unwrap();
    let output = command().current_dir(&folder).args(["check", "--no-secrets", "-c", "gateway.yaml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
