//! Each `yaml` block is a gateway's configuration, or a part of one, and passes `check`. Kubernetes manifests are not looked at, nor
//! is a block that begins with `` ```yaml fragment ``. A part is completed here: `routes:`, `auth:` and `server.hooks`, a route around
//! a `backend:`, the files that it names.

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use appset_gateway::{app::App, config::Loaded};
use domain::{clock::SystemClock, file::base_dir::BaseDir};
use serde_json::Value;

use super::page::{Block, Page, repository};
use crate::support::{TestApp, authority::Ca};

/// The keys whose values are files or folders.
const PATHS: [&str; 13] = [
    "trustedRoot",
    "file",
    "ca",
    "clientCa",
    "cert",
    "key",
    "dockerConfig",
    "publicKey",
    "folder",
    "path",
    "read",
    "write",
    "command",
];
/// A plugin for an entry of `plugins.sources`.
const PLUGIN: &str =
    "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nspec: { generate: { command: [cat] } }\n";

/// The part of a configuration that a block shows.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    Routes,
    Route,
    Backend,
    Digests,
    GeneratorPlugin,
}

/// The keys that `config/schema.json` knows: of a configuration, of a route, of a backend, and of the backend `digests`.
struct KnownKeys([BTreeSet<String>; 4]);

impl KnownKeys {
    fn read() -> Self {
        let text = std::fs::read_to_string(repository().join("config/schema.json")).unwrap();
        let schema: Value = serde_json::from_str(&text).unwrap();
        let keys = |value: &Value| value["properties"].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let of = &schema["$defs"];
        let kinds = of["BackendConfig"]["oneOf"].as_array().unwrap().iter().flat_map(keys).collect();
        Self([keys(&schema), keys(&of["RouteConfig"]), kinds, keys(&of["DigestsBackend"])])
    }

    /// What `document` may be a part of: both a configuration and a route have a `cache`.
    fn parts(&self, document: &Value) -> Vec<Part> {
        let Value::Object(map) = document else { return vec![Part::Routes] };
        if map.get("kind").is_some_and(|kind| kind == "GeneratorPlugin") {
            return vec![Part::GeneratorPlugin];
        }
        let parts = [Part::Whole, Part::Route, Part::Backend, Part::Digests].into_iter().zip(&self.0);
        parts.filter(|(_, known)| map.keys().all(|key| known.contains(key))).map(|(part, _)| part).collect()
    }
}

/// `block` as a configuration file. Its lines have the same numbers as on the page.
fn in_its_place(block: &Block, part: Part) -> String {
    let around: &[&str] = match part {
        Part::Whole | Part::GeneratorPlugin => &[],
        Part::Routes => &["routes:"],
        Part::Route => &["routes:", "  - name: example"],
        Part::Backend => &["routes:", "  - name: example", "    backend:"],
        Part::Digests => &["routes:", "  - name: example", "    backend:", "      digests:"],
    };
    let mut text = "\n".repeat(block.line - around.len());
    for line in around {
        text.extend([line, "\n"]);
    }
    for line in block.text.lines() {
        text.extend([&*"  ".repeat(around.len()), line, "\n"]);
    }
    text
}

/// All texts in `value`, each with its key; of a command only the program.
fn texts<'a>(key: &'a str, value: &'a Value) -> Vec<(&'a str, &'a str)> {
    match value {
        Value::String(text) => vec![(key, text)],
        Value::Array(items) if key == "command" => {
            items.first().and_then(Value::as_str).map(|program| (key, program)).into_iter().collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| texts(key, item)).collect(),
        Value::Object(map) => map.iter().flat_map(|(key, value)| texts(key, value)).collect(),
        _ => Vec::new(),
    }
}

fn write(file: &Path, content: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, content).unwrap();
}

/// Makes the files that `document` names in `folder`, and changes their paths in `text`.
fn make_files(folder: &Path, document: &Value, mut text: String) -> String {
    let ca = Ca::new("docs");
    let (certificate, private_key) = ca.certificate(&["gateway.example.com"]);
    let mut replaced = BTreeSet::new();
    for (key, name) in texts("", document).into_iter().filter(|(key, _)| PATHS.contains(key)) {
        let own = folder.join(name.trim_start_matches('/'));
        if name.starts_with('/') && replaced.insert(name) {
            text = text.replace(name, own.to_str().unwrap());
        }
        match key {
            "folder" => std::fs::create_dir_all(own).unwrap(),
            "read" | "write" => make_allowed(&own),
            "path" => std::fs::create_dir_all(own.parent().unwrap()).unwrap(),
            "command" if name.contains('/') => write_program(&own),
            "command" => write_program(&folder.join("plugins/example/bin").join(name)),
            "ca" | "clientCa" => write(&own, &ca.pem),
            "cert" | "publicKey" => write(&own, &certificate),
            "key" => write(&own, &private_key),
            // The key of an image's signer.
            "file" if own.extension().is_some_and(|end| end == "pub") => {
                write(&own, include_str!("../../../config/demo/cosign.pub"));
            }
            "trustedRoot" => write(&own, include_str!("../../signatures/public/root.json")),
            "dockerConfig" => write(&own, r#"{"auths": {}}"#),
            _ => write(&own, &format!("a-secret-of-at-least-32-bytes-for-{}", name.replace('/', "-"))),
        }
    }
    if let Some(sources) = document["plugins"]["sources"].as_object() {
        let plugins = folder.join(document["plugins"]["path"].as_str().unwrap());
        for name in sources.keys() {
            write(&plugins.join(name).join("plugin.yaml"), &format!("{PLUGIN}metadata: {{ name: {name} }}\n"));
        }
    }
    text
}

/// Makes a file if the name has an extension, else a folder.
fn make_allowed(path: &Path) {
    if path.extension().is_some() {
        write(path, "");
    } else {
        std::fs::create_dir_all(path).unwrap();
    }
}

fn write_program(path: &Path) {
    write(path, "#!/bin/sh\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// `block`, which is `part` of a configuration, as a whole one whose files are in `folder`.
fn completed(block: &Block, part: Part, document: &Value, folder: &Path) -> String {
    let text = make_files(folder, document, in_its_place(block, part));
    let has = |key: &str| document.get(key).is_some();
    let missing = match part {
        Part::Whole if !has("routes") && !has("plugins") => {
            "routes: [ { name: example, backend: { fixed: { parameters: [] } } } ]\n"
        }
        Part::Route if !has("backend") => "    backend: { fixed: { parameters: [] } }\n",
        Part::Digests if !has("images") && !has("list") => {
            "        images: { app: { image: \"registry.example.com/app:{{ params.head_sha }}\" } }\n"
        }
        Part::GeneratorPlugin => {
            write(&folder.join("plugins/example/plugin.yaml"), &text);
            return format!("{}plugins: {{ path: plugins }}\n", TestApp::auth());
        }
        _ => "",
    };
    let auth = if matches!(part, Part::Whole) && has("auth") { String::new() } else { TestApp::auth() };
    let server = if has("hooks") && !has("server") { "server: { hooks: 0.0.0.0:4357 }\n" } else { "" };
    format!("{text}{missing}{server}{auth}")
}

/// The errors of `check` for `block` as `part` of a configuration.
fn errors(block: &Block, part: Part, document: &Value) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let text = completed(block, part, document, folder.path());
    let gateway = Path::new(env!("CARGO_BIN_EXE_appset-gateway"));
    let built = Loaded::parse(&block.page, text, BaseDir::new(folder.path()))
        .and_then(|loaded| App::build(loaded, Arc::new(SystemClock), gateway));
    let report = match built {
        // Users copy whole configurations. Those remember over a restart.
        Ok((_, report)) if !report.has_errors() => {
            let is_whole = ["auth", "routes"].iter().all(|key| document.get(key).is_some());
            let forgets = |line: &String| is_whole && line.contains("without `cache.path`");
            return report.lines().into_iter().filter(forgets).collect();
        }
        Ok((_, report)) | Err(report) => report,
    };
    report.lines().into_iter().map(|line| format!("{}: {line}", block.position())).collect()
}

/// The problems of `block`; empty if it is valid as one of its possible parts.
fn problems(block: &Block, known: &KnownKeys) -> Vec<String> {
    let document: Value = match serde_saphyr::from_str(&block.text) {
        Ok(document) => document,
        Err(error) => return vec![format!("{}: {error}", block.position())],
    };
    let parts = known.parts(&document);
    if parts.is_empty() {
        let why = "this is no part of a configuration; if it should be none, begin it with ```yaml fragment";
        return vec![format!("{}: {why}", block.position())];
    }
    let tried: Vec<Vec<String>> = parts.into_iter().map(|part| errors(block, part, &document)).collect();
    if tried.iter().any(Vec::is_empty) { Vec::new() } else { tried.concat() }
}

/// Whether `block` is a configuration or a part of one.
fn is_meant(block: &Block) -> bool {
    let has_line = |start: &str| block.text.lines().any(|line| line.starts_with(start));
    block.language == "yaml" && (!has_line("apiVersion:") || has_line("kind: GeneratorPlugin"))
}

#[tokio::test]
async fn every_configuration_passes_check() {
    let known = KnownKeys::read();
    let blocks: Vec<Block> = Page::all().iter().flat_map(Page::blocks).filter(is_meant).collect();
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    let problems: Vec<String> = blocks.iter().flat_map(|block| problems(block, &known)).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
