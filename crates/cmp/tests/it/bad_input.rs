//! What no honest client sends, or sends by accident.

use crate::support::{DEMO, Gateway, answers, script};

#[test]
fn bad_conversations_are_errors_with_a_reason() {
    let gateway = Gateway::sidecar(DEMO);
    gateway.file("demo.yaml", "a: b\n");
    for (app, flags, expected) in [
        (".", &["-no-metadata"][..], "the first message has none"),
        (".", &["-checksum", "00"], "checksum is not the one that was announced"),
        (".", &["-twice"], "data after its end"),
        ("../..", &[], "illegal appPath"),
        ("/etc", &[], "illegal appPath"),
        ("demo.yaml", &[], "is not a folder"),
        ("missing", &[], "is not a folder"),
    ] {
        let answer = gateway.ask("GenerateManifest", app, flags);
        assert!(answer.error().contains(expected), "{answer:?}: {expected}");
    }
    // The server goes on.
    assert_eq!(gateway.ask("GenerateManifest", ".", &[]).manifests().len(), 1);
}

/// 100,000 pieces after the archive, which is refused at its end: the reason arrives, not `EOF`.
#[test]
fn the_reason_arrives_when_all_is_sent() {
    let gateway = Gateway::sidecar(DEMO);
    gateway.file("demo.yaml", "a: b\n");
    let answer = gateway.ask("GenerateManifest", ".", &["-pad", "102400000"]);
    assert!(answer.error().contains("the archive cannot be read"), "{answer:?}");
}

#[test]
fn a_client_that_goes_away_ends_its_run() {
    let mut gateway = Gateway::sidecar(&script("echo $$ > $SHARED/pid; sleep 1000; echo 'a: b'"));
    gateway.file("x", "");
    assert!(gateway.ask("GenerateManifest", ".", &["-leave", "1"]).error().contains("left"));
    let mut client = gateway.begin("demo-v1.0", "GenerateManifest", ".", &[]);
    let pid = gateway.path("pid");
    gateway.wait_until(|| std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    let process = std::path::PathBuf::from(format!("/proc/{}", std::fs::read_to_string(&pid).unwrap().trim()));
    assert!(process.exists());
    client.kill().unwrap();
    client.wait().unwrap();
    gateway.wait_until(|| !process.exists());
}

/// A command may decide by them.
#[test]
fn discovery_sees_the_variables_of_the_call() {
    let plugin = "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  version: v1.0\n  generate: {command: [echo, 'a: b']}\n  \
                  discover: {find: {command: [sh, -c, 'echo $ARGOCD_ENV_KIND']}}\n";
    let gateway = Gateway::sidecar(plugin);
    gateway.file("x", "");
    assert!(gateway.ask("MatchRepository", ".", &["-env", "ARGOCD_ENV_KIND=demo"]).is_supported());
    assert!(!gateway.ask("MatchRepository", ".", &["-env", "OTHER=demo"]).is_supported());
}

/// Argo CD reads a failed discovery as "not this plugin's", and prunes.
#[test]
fn discovery_fails_closed() {
    let plugin = "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  version: v1.0\n  generate: {command: [echo, 'a: b']}\n  \
                  discover: {find: {command: [sh, -c, 'test -e broken && exit 3; ls found 2>/dev/null; true']}}\n";
    let gateway = Gateway::sidecar(plugin);
    let of = |app: &str| {
        gateway.ask("MatchRepository", app, &["-env", "ARGOCD_APP_SOURCE_REPO_URL=https://x/y"]).is_supported()
    };
    gateway.file("known/found", "").file("plain/x", "").file("new/broken", "").file("new/found", "");
    assert!(of("known") && !of("plain"));
    // Never seen and broken: claimed, and its manifests fail.
    assert!(of("new"));
    let flags = ["-env", "ARGOCD_APP_SOURCE_REPO_URL=https://x/y"];
    let answer = gateway.ask("GenerateManifest", "new", &flags);
    assert!(answer.error().contains("discovery failed") && answer.error().contains("exit status 3"), "{answer:?}");
    // Seen before: the last verdict.
    gateway.file("known/broken", "").file("plain/broken", "");
    assert!(of("known") && !of("plain"));
    assert_eq!(gateway.ask("GenerateManifest", "known", &flags).manifests().len(), 1);
    // It works again.
    std::fs::remove_file(gateway.path("repository/new/broken")).unwrap();
    assert!(of("new"));
    assert_eq!(gateway.ask("GenerateManifest", "new", &flags).manifests().len(), 1);
    // An archive that cannot be read is a failure too.
    let broken = gateway.ask("MatchRepository", "other", &["-checksum", "00"]);
    assert!(broken.is_supported());
    let client = gateway.begin("demo-v1.0", "MatchRepository", "late", &["-timeout", "5s", "-checksum", "00"]);
    assert!(answers(client)[0].is_supported());
}

const FAILING: &str = "kind: ConfigManagementPlugin\nmetadata: {name: demo}\nspec:\n  version: v1.0\n  generate: {command: [echo, 'a: b']}\n  \
                       discover: {find: {command: [sh, -c, 'exit 3']}}\n";

#[test]
fn a_caller_who_is_not_allowed_changes_no_verdict() {
    let config = "plugins:\n- {config: first, allow: {projects: ['team-*']}}\n";
    let gateway = Gateway::serve(config, &[("first", FAILING)]);
    gateway.file("app/x", "");
    let of = |flags: &[&str]| gateway.ask("MatchRepository", "app", flags).is_supported();
    // Argo CD asks for an Application's details without its project.
    assert!(!of(&[]));
    assert!(of(&["-env", "ARGOCD_APP_PROJECT_NAME=team-a"]), "nobody has learned what is there");
}

#[test]
fn a_doubt_is_about_the_path_in_the_repository() {
    let gateway = Gateway::sidecar(FAILING);
    gateway.file("sub/app/x", "").file("app/x", "");
    let flags = ["-env", "ARGOCD_APP_SOURCE_PATH=sub/app"];
    assert!(gateway.ask("MatchRepository", "sub/app", &flags).is_supported());
    // With `manifest-generate-paths`, the archive begins further down.
    let generated = gateway.ask("GenerateManifest", "app", &flags);
    assert!(generated.error().contains("discovery failed"), "{generated:?}");
}
