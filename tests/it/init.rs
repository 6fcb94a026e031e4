//! `appset-gateway init` writes a configuration that `check --strict` and `test` call good, and that answers.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::Path,
    process::{Output, Stdio},
};

use crate::{
    gallery::recipes,
    support::{
        binary::{Gateway, command},
        wire::{argo_request, exchange},
    },
};

fn init(folder: &Path, arguments: &[&str], answers: &str) -> Output {
    let mut child = command()
        .current_dir(folder)
        .arg("init")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may not ask anything.
    let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = command().current_dir(folder).args(arguments).output().unwrap();
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {printed}");
    printed
}

#[test]
fn each_source_gives_a_good_configuration() {
    for source in ["fixed", "script", "http", "plugin", "digests"] {
        for name in ["*", "previews: \"x\" *"] {
            let folder = tempfile::tempdir().unwrap();
            let arguments = ["--source", source, "--token", "new", "--application-set", name, "--to", "new/folder"];
            let output = init(folder.path(), &arguments, "");
            let printed = text(&output.stdout);
            assert!(output.status.success(), "{source}: {printed}{}", text(&output.stderr));
            let folder = folder.path().join("new/folder");
            let config = std::fs::read_to_string(folder.join("gateway.yaml")).unwrap();
            assert!(config.contains("\ncache: { path: "), "its guard remembers over a restart: {config}");
            succeeds(&folder, &["check", "--strict", "-c", "gateway.yaml"]);
            let played = succeeds(&folder, &["test", "-c", "gateway.yaml"]);
            assert!(played.ends_with(" passed, 0 failed\n"), "{source}: {played}");
        }
    }
}

/// `--list` has each recipe of `config/gallery`, with the words of the index.
#[test]
fn the_list_is_that_of_the_gallery() {
    let listed = succeeds(Path::new("."), &["init", "--list"]);
    let lines: Vec<(&str, &str)> = listed.lines().map(|line| line.split_once("  ").unwrap()).collect();
    let names: BTreeSet<String> = lines.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!((names, lines.len()), (recipes(), recipes().len()));
    let index = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gallery/README.md");
    let index = std::fs::read_to_string(index).unwrap();
    let rows: Vec<&str> = index.lines().filter(|line| line.contains(".md) |")).collect();
    assert_eq!(rows.len(), lines.len());
    for ((name, source), row) in lines.into_iter().zip(rows) {
        assert!(row.starts_with(&format!("| {} | [", source.trim())) && row.contains(&format!("({name}.md)")), "{row}");
    }
}

/// What is written of a recipe is as in the gallery, but for the token, and is good where it is written.
#[test]
fn each_recipe_is_written_and_passes_its_cases() {
    let gallery = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/gallery");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    for name in recipes() {
        let folder = tempfile::tempdir().unwrap();
        let output = init(folder.path(), &[&name, "--token", "file:secrets/argocd-token", "--to", "new"], "");
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{name}: {printed}{}", text(&output.stderr));
        let folder = folder.path().join("new");
        let file = format!("{name}.yaml");
        let config = read(&folder.join("gateway.yaml")).replace("\"secrets/argocd-token\"", "secrets/argocd-token");
        assert_eq!(config, read(&gallery.join(&file)));
        assert_eq!(read(&folder.join("applicationset.yaml")), read(&gallery.join("applicationsets").join(&file)));
        let played = succeeds(&folder, &["test", "-c", "gateway.yaml"]);
        assert!(played.ends_with(" passed, 0 failed\n") && !played.starts_with('0'), "{name}: {played}");
    }
}

#[test]
fn a_recipe_says_which_files_it_needs_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = init(folder.path(), &["netbox"], "");
    let printed = text(&output.stdout);
    assert!(printed.contains("`serve` needs your own files beside it: secrets/netbox-token\n"), "{printed}");
    assert!(printed.starts_with("token: "), "{printed}");
    let config = std::fs::read_to_string(folder.path().join("gateway.yaml")).unwrap();
    assert!(config.contains("{ name: argocd, sha256: ") && !config.contains("argocd-token"), "{config}");
    for (arguments, says) in [
        (&["netbocks"][..], "netbox"),
        (&["netbox", "--source", "http"], "cannot be used with"),
        (&["netbox", "--application-set", "x"], "cannot be used with"),
        (&["netbox", "--list"], "cannot be used with"),
    ] {
        let output = init(folder.path(), arguments, "");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(says), "{arguments:?}: {said}");
    }
}

/// The three questions are asked, a wrong answer is asked for again, and the token that is shown opens the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn three_answers_make_a_gateway_that_answers() {
    let folder = tempfile::tempdir().unwrap();
    let output = init(folder.path(), &[], "scirpt\nscript\nnew\nteam-*\n");
    let (printed, asked) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}{asked}");
    assert_eq!(asked.matches("Where do the parameter sets come from").count(), 2, "{asked}");
    let token = printed.strip_prefix("token: ").unwrap().lines().next().unwrap();
    assert_eq!(token.len(), 64);
    let file = folder.path().join("gateway.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    assert!(!config.contains(token), "only its hash is written");
    std::fs::write(&file, config + "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n").unwrap();
    let gateway = Gateway::serve(&file);
    let body = br#"{"applicationSetName":"team-a","input":{"parameters":{"env":"test"}}}"#;
    let reply = exchange(gateway.address, &argo_request("/api/v1/getparams.execute", token, body)).await;
    assert_eq!(reply.sets(), r#"[{"name":"shop","env":"test"},{"name":"blog","env":"test"}]"#);
}

#[test]
fn answers_that_are_missing_are_the_usual_ones_and_no_file_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    assert!(init(folder.path(), &[], "").status.success());
    let config = std::fs::read_to_string(folder.path().join("gateway.yaml")).unwrap();
    assert!(config.contains("fixed:") && config.contains("sha256: "), "{config}");
    let output = init(folder.path(), &["--source", "script"], "");
    assert!(text(&output.stderr).contains("gateway.yaml exists already; no file was written"));
    assert_eq!(output.status.code(), Some(1));
    assert!(!folder.path().join("apps.sh").exists());
    assert_eq!(std::fs::read_to_string(folder.path().join("gateway.yaml")).unwrap(), config);
    let output = init(tempfile::tempdir().unwrap().path(), &["--token", "x"], "");
    assert!(text(&output.stderr).contains("write `new`, `file:PATH` or `env:NAME`"));
}

/// A token that is not there yet is no mistake in the files: the configuration is good, and what is missing is told.
#[test]
fn a_token_may_come_later() {
    for (token, missing) in
        [("env:NOPE", "the environment variable NOPE is not set"), ("file:secrets/argocd", "secrets/argocd")]
    {
        let folder = tempfile::tempdir().unwrap();
        let output = init(folder.path(), &["--token", token], "");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("note: the token must be there before the gateway starts") && said.contains(missing),
            "{said}"
        );
        succeeds(folder.path(), &["test", "-c", "gateway.yaml"]);
    }
}

/// A file that cannot be written leaves no other, and no token is shown for a configuration that is not there.
#[test]
fn all_files_are_written_or_none() {
    type Before = fn(&Path) -> std::io::Result<()>;
    let tests_is_a_file: Before = |folder| std::fs::write(folder.join("tests"), "");
    let case_is_a_dangling_link: Before = |folder| {
        std::fs::create_dir(folder.join("tests"))?;
        std::os::unix::fs::symlink("nowhere", folder.join("tests/gateway.yaml"))
    };
    for before in [tests_is_a_file, case_is_a_dangling_link] {
        let folder = tempfile::tempdir().unwrap();
        before(folder.path()).unwrap();
        let output = init(folder.path(), &["--source", "script", "--token", "new"], "");
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.code() == Some(1) && said.contains("no file was written"), "{printed}{said}");
        assert!(!printed.contains("token:"), "{printed}");
        let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["tests"], "{said}");
    }
}
