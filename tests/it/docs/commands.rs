//! Commands with a shown output print it: those that ask the gateway of `make run` (`config/gateway.yaml`), and those of the
//! program that name a configuration of this repository. In the shown output, `…` stands for any text.

use std::{path::Path, process::Command};

use regex::Regex;
use serde_json::Value;

use super::page::{Block, Page, repository};
use crate::support::binary::Gateway;

/// A command with one of these texts can be run here.
const CAN_RUN: [&str; 3] = ["localhost:4355", " config/", "appset-gateway hash-token"];

/// A command and the output that its page shows.
struct Shown {
    /// The position of the command.
    position: String,
    command: String,
    output: String,
    /// Whether the output is one JSON document, however it is laid out.
    is_json: bool,
}

/// The commands of `page` that can be run here: `` ```sh `` with `` ```json `` right after, and the lines `$ …` of
/// `` ```console ``.
fn shown_on(page: &Page) -> Vec<Shown> {
    let blocks = page.blocks();
    let prose = page.prose();
    let mut found: Vec<Shown> =
        blocks.iter().filter(|block| block.language == "console").flat_map(in_console).collect();
    for pair in blocks.windows(2) {
        let [command, output] = pair else { continue };
        let is_between = |line: usize| (command.end..output.line).contains(&line);
        let is_right_after = prose.iter().all(|(line, text)| !is_between(*line) || text.is_empty());
        if (command.language.as_str(), output.language.as_str()) == ("sh", "json") && is_right_after {
            found.push(Shown {
                position: command.position(),
                command: command.text.clone(),
                output: output.text.clone(),
                is_json: true,
            });
        }
    }
    found.retain(|shown| CAN_RUN.iter().any(|words| shown.command.contains(words)));
    found
}

/// The commands of a `console` block, each with the lines up to the next one.
fn in_console(block: &Block) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            found.push(Shown { position: block.position(), command, output: String::new(), is_json: false });
        } else if let Some(last) = found.last_mut() {
            last.output.extend([line, "\n"]);
        }
    }
    found.retain(|shown| !shown.output.trim().is_empty());
    found
}

/// Whether `text` is as `shown`, where `…` stands for any text.
fn fits(shown: &str, text: &str) -> bool {
    let parts: Vec<String> = shown.split('…').map(regex::escape).collect();
    Regex::new(&format!("(?s)^{}$", parts.join(".*"))).unwrap().is_match(text)
}

/// The gateway of `make run`, on ports of its own.
fn gateway(folder: &Path) -> Gateway {
    let copied = Command::new("cp").arg("-r").arg(repository().join("config/demo")).arg(folder).status().unwrap();
    assert!(copied.success());
    let mut config = std::fs::read_to_string(repository().join("config/gateway.yaml")).unwrap();
    for (usual, own) in
        [("127.0.0.1:4355", "127.0.0.1:0"), ("127.0.0.1:4356", "127.0.0.1:0"), ("format: text", "format: json")]
    {
        assert!(config.contains(usual), "{usual}");
        config = config.replace(usual, own);
    }
    let file = folder.join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    Gateway::serve(&file)
}

/// The output of `command`, stdout and then stderr, without measurements.
fn run(command: &str, gateway: &Gateway) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_appset-gateway"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let command = command
        .replace("localhost:4355", &gateway.address.to_string())
        .replace("target/debug/appset-gateway", "appset-gateway")
        .replace("curl ", "curl --silent --show-error ");
    let output = Command::new("sh")
        .args(["-euc", &command])
        .current_dir(repository())
        .envs([("PATH", path.as_str()), ("APPSET_GATEWAY_TOKEN", "a-token"), ("NO_COLOR", "1")])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    without_measurements(&String::from_utf8(text).unwrap())
}

/// `text` without times and sizes, which differ from run to run.
fn without_measurements(text: &str) -> String {
    Regex::new(r"\d+(\.\d+)? (ms|MiB)").unwrap().replace_all(text.trim(), "0 $2").into_owned()
}

/// The problem with `shown`, if there is one.
fn problem(shown: &Shown, gateway: &Gateway) -> Option<String> {
    let text = run(&shown.command, gateway);
    let expected = without_measurements(&shown.output);
    let is_as_shown = if shown.is_json {
        let compact = |text: &str| serde_json::from_str::<Value>(text).map(|document| document.to_string());
        match (compact(&expected), compact(&text)) {
            (Ok(expected), Ok(text)) => fits(&expected, &text),
            _ => false,
        }
    } else {
        fits(&expected, &text)
    };
    let why = format!("{}: shown is\n{expected}\nand printed is\n{text}\n", shown.position);
    (!is_as_shown).then_some(why)
}

#[test]
fn every_command_prints_the_shown_output() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let shown: Vec<Shown> = Page::all().iter().flat_map(shown_on).collect();
    for page in ["README.md", "docs/pipelines.md"] {
        assert!(shown.iter().any(|shown| shown.position.starts_with(page)), "nothing is run of {page}");
    }
    let problems: Vec<String> = shown.iter().filter_map(|shown| problem(shown, &gateway)).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn an_ellipsis_matches_any_text() {
    assert!(fits("a … c…", "a b\n c d"));
    assert!(!fits("a … c", "a b d"));
    assert!(!fits("a", "a b"));
}

/// The reader can also do what operators do, with the token that the README names.
#[test]
fn the_gateway_of_make_run_can_be_operated() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let token = folder.path().join("demo/admin-token");
    for arguments in [&["status"][..], &["held", "list"], &["answers", "list"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_appset-gateway"))
            .args(arguments)
            .args(["--admin", &format!("http://{}", gateway.admin), "--token-file"])
            .arg(&token)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(readme.contains(std::fs::read_to_string(token).unwrap().trim()));
}
