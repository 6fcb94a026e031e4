//! Credential helpers: when they run, what they may do meanwhile, and what is said of their failures.

use std::{net::SocketAddr, os::unix::fs::PermissionsExt};

use super::{
    credentials::{BASIC, basic, with_password},
    *,
};
use crate::support::binary;

/// A helper that asks the server at `address` for what it was asked, prints the reply, and ends with `exit`. It runs contained, so the network
/// is its only way to the test.
fn asking(address: SocketAddr, exit: u8) -> String {
    format!(
        "#!/bin/bash\n[ \"$1\" = get ] || exit 9\nexec 3<>/dev/tcp/127.0.0.1/{}\n\
         printf 'GET /%s HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n' \"$(cat)\" >&3\nsed '1,/^\\r$/d' <&3\nexit {exit}\n",
        address.port()
    )
}

/// Writes a program into `folder`.
fn write_program(folder: &Path, name: &str, text: &str) {
    // A new file, since the old one may still be running.
    let _ = std::fs::remove_file(folder.join(name));
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A configuration of `host` with the helpers `allowed`, which the files in `folder` name as `fake`.
fn write_config(folder: &Path, host: &str, allowed: &str) {
    std::fs::write(folder.join("docker.json"), json!({"credHelpers": {host: "fake"}}).to_string()).unwrap();
    let config = format!(
        "auth: {{ tokens: [ {{ name: argocd, env: PATH, routes: [\"*\"] }} ] }}\n\
         registries: {{ \"{host}\": {{ plainHttp: true, dockerConfig: docker.json, credentialHelpers: {allowed} }} }}\n\
         routes: [ {{ name: d, backend: {{ digests: {{ images: {{ app: {{ image: \"{host}/org/app:1\" }} }} }} }}, \
         output: {{ app: \"{{{{ app.digest }}}}\" }} }} ]\n"
    );
    std::fs::write(folder.join("gateway.yaml"), config).unwrap();
}

/// What the program says with `arguments` in `folder`, which is also in its `PATH`, and whether it succeeded.
async fn run_in(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (String, bool) {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = tokio::process::Command::from(binary::command());
    command.args(arguments).args(["-c", "gateway.yaml"]).current_dir(folder).env("PATH", &path);
    command.envs(variables.iter().copied());
    let output = command.output().await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Reports break their lines.
    (said.replace("\n  | ", " "), output.status.success())
}

/// A helper runs as a separate process and is found by `PATH`, so this test runs the whole program.
#[tokio::test]
async fn a_helper_runs_only_if_allowed() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let folder = tempfile::tempdir().unwrap();
    let says = r#"{"ServerURL":"x","Username":"helped","Secret":"s"}"#;
    for (allowed, prints, exit, expected) in [
        ("[fake]", says, 0, Ok(())),
        ("[]", says, 0, Err("`fake`")),
        ("[fake]", "hunter2", 0, Err("printed no credential")),
        ("[fake]", "hunter2", 1, Err("failed for 127.0.0.1")),
        // Some helpers say this for every failure. Without a credential, the registry could seem to have nothing.
        ("[fake]", "credentials not found in native keychain", 1, Err("failed for 127.0.0.1")),
    ] {
        let source = Upstream::start(move |request: &Request| request.answer(200, "", prints)).await;
        write_program(folder.path(), "docker-credential-fake", &asking(source.address, exit));
        write_config(folder.path(), &host, allowed);
        let (said, is_good) = run_in(folder.path(), &["call", "d"], &[]).await;
        assert!(!said.contains("hunter2"), "{said}");
        let asked: Vec<String> = source.requests().into_iter().map(|request| request.target).collect();
        match expected {
            Ok(()) => {
                assert!(said.contains(manifest_digest().as_str()), "{said}");
                let seen = registry.requests().last().unwrap().header("authorization").map(str::to_owned);
                assert_eq!(seen, Some(basic("helped", "s")));
                assert_eq!(asked, [format!("/{host}")]);
            }
            Err(says) => {
                assert!(!is_good && said.contains(says), "{said}");
                assert_eq!(!asked.is_empty(), allowed != "[]", "{said}");
            }
        }
    }
}

/// A helper gets what it needs to find the pod's identity, and nothing else of the gateway; and its error shows why it failed.
#[tokio::test]
async fn a_helper_runs_contained_and_its_last_words_are_shown() {
    let registry = with_password().await;
    let (folder, tokens) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let token = tokens.path().join("token");
    std::fs::write(&token, "of-the-pod").unwrap();
    write_config(folder.path(), &registry.address.to_string(), "[fake]");
    let config = folder.path().join("docker.json");
    let script = "#!/bin/bash\n\
        echo 'a long story' >&2\n\
        echo \"github=${GITHUB_TOKEN:-none} region=$AWS_REGION token=$(cat $AWS_WEB_IDENTITY_TOKEN_FILE)\" >&2\n\
        cat CONFIG > /dev/null 2>&1 && echo 'the configuration can be read' >&2\n\
        touch FOLDER/written 2> /dev/null && echo 'its folder can be written' >&2\n\
        touch $HOME/cache && echo \"home=$([ $HOME = $PWD ] && echo 'its own')\" >&2\n\
        echo \"AccessDenied with $AWS_SECRET_ACCESS_KEY\" >&2\n\
        exit 7\n";
    let script =
        script.replace("CONFIG", &config.display().to_string()).replace("FOLDER", &folder.path().display().to_string());
    write_program(folder.path(), "docker-credential-fake", &script);
    let token = token.display().to_string();
    let variables = [
        ("GITHUB_TOKEN", "ghp-of-the-gateway"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &*token),
        ("AWS_SECRET_ACCESS_KEY", "hunter2-of-aws"),
    ];
    let (said, is_good) = run_in(folder.path(), &["call", "d"], &variables).await;
    let words = "stderr: a long story github=none region=eu-central-1 token=of-the-pod home=its own AccessDenied with [redacted]";
    assert!(!is_good && said.contains("(exit status 7)") && said.contains(words), "{said}");
    assert!(!folder.path().join("written").exists());
}

/// A helper that could read the store's password is what the error is about, and not a script.
#[tokio::test]
async fn a_helper_may_not_read_the_gateways_own_secrets() {
    let (folder, secrets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_config(folder.path(), "registry.example", "[fake]");
    write_program(folder.path(), "docker-credential-fake", "#!/bin/sh\n");
    let password = secrets.path().join("password");
    std::fs::write(&password, "password-of-the-store").unwrap();
    let config = folder.path().join("gateway.yaml");
    let shared = json!({"url": "redis://localhost", "password": {"file": password}});
    let text = format!("{}cache: {{ shared: {shared} }}\n", std::fs::read_to_string(&config).unwrap());
    std::fs::write(&config, text).unwrap();
    let (said, is_good) = run_in(folder.path(), &["check"], &[]).await;
    assert!(is_good && !said.contains("can read a secret"), "{said}");
    let named = secrets.path().display().to_string();
    let (said, is_good) = run_in(folder.path(), &["check"], &[("CLOUDSDK_CONFIG", &named)]).await;
    let expected = format!(
        "error: credential helpers can read a secret: cache.shared.password: a credential helper may read {named}: a helper that"
    );
    assert!(!is_good && said.contains(&expected), "{said}");
    assert!(!said.lines().any(|line| line.starts_with("error:") && line.contains("script")), "{said}");
}

/// `check` names what would fail at the first call: file, line and path.
#[tokio::test]
async fn a_missing_helper_is_found_by_check() {
    let folder = tempfile::tempdir().unwrap();
    write_config(folder.path(), "registry.example", "[fake]");
    let (said, is_good) = run_in(folder.path(), &["check"], &[]).await;
    assert!(!is_good && said.contains("there is no program `docker-credential-fake` in a folder of PATH"), "{said}");
    assert!(said.contains("gateway.yaml:2:") && said.contains("credentialHelpers[0]"), "{said}");
    // A file that nobody may run is none.
    std::fs::write(folder.path().join("docker-credential-fake"), "#!/bin/sh\n").unwrap();
    let (said, is_good) = run_in(folder.path(), &["check"], &[]).await;
    assert!(!is_good && said.contains("there is no program `docker-credential-fake`"), "{said}");
    write_program(folder.path(), "docker-credential-fake", "#!/bin/sh\n");
    let (said, is_good) = run_in(folder.path(), &["check"], &[]).await;
    assert!(is_good, "{said}");
    // The machine of a pull request's check needs no helper.
    std::fs::remove_file(folder.path().join("docker-credential-fake")).unwrap();
    let (said, is_good) = run_in(folder.path(), &["check", "--no-secrets"], &[]).await;
    assert!(is_good, "{said}");
}

/// A helper is found by `PATH`, so this test runs itself again as a process with another `PATH`.
#[tokio::test]
async fn a_helper_runs_again_when_its_credential_is_refused_or_expired() {
    const FOLDER: &str = "FOLDER_OF_A_HELPER";
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        let name = "oci::helpers::a_helper_runs_again_when_its_credential_is_refused_or_expired";
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let output =
            command.args(["--exact", name]).env("PATH", path).env(FOLDER, folder.path()).output().await.unwrap();
        let combined_output = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && combined_output.contains("1 passed"), "{combined_output}");
        return;
    };
    let wanted = Arc::new(std::sync::Mutex::new(String::new()));
    let good = Arc::clone(&wanted);
    let registry = Upstream::start(move |request| match request.header("authorization") {
        None => request.answer(401, BASIC, ""),
        Some(seen) if seen == *good.lock().unwrap() => found(request),
        Some(_) => request.answer(403, "", ""),
    })
    .await;
    let host = registry.address.to_string();
    let answer = Arc::new(std::sync::Mutex::new(String::new()));
    let printed = Arc::clone(&answer);
    let source = Upstream::start(move |request| request.answer(200, "", &*printed.lock().unwrap())).await;
    write_program(&folder, "docker-credential-turns", &asking(source.address, 0));
    std::fs::write(folder.join("docker.json"), json!({"credHelpers": {&host: "turns"}}).to_string()).unwrap();
    let entry = json!({"plainHttp": true, "dockerConfig": "docker.json", "credentialHelpers": ["turns"]});
    let (registries, _) = build(&folder, &json!({&host: entry}));
    let ask = async || look_up(&registries, &format!("{host}/org/app:1")).await;
    let says = |secret: &str| {
        let says = json!({"ServerURL": host, "Username": "AWS", "Secret": secret});
        *answer.lock().unwrap() = says.to_string();
    };
    let wants = |secret: &str| *wanted.lock().unwrap() = basic("AWS", secret);
    let runs = || source.requests().len();
    wants("old");
    says("old");
    for _ in 0..2 {
        expect_digest(ask().await);
        assert_eq!(runs(), 1, "it is not run for each question");
    }
    // The helper's earlier answer has expired, and it has a new one.
    wants("new");
    says("new");
    for _ in 0..2 {
        expect_digest(ask().await);
        assert_eq!(runs(), 2);
    }
    for (seconds, expected) in [(298, 2), (4, 3), (290, 3)] {
        advance_seconds(seconds).await;
        expect_digest(ask().await);
        assert_eq!(runs(), expected, "{seconds} s later");
    }
    // The helper has no new credential: one more request suffices.
    wants("newer");
    refused(ask().await, ErrorKind::Denied, "403");
    assert_eq!(runs(), 4);
}
