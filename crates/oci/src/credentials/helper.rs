//! Credential helpers: `docker-credential-<name> get`, as Docker's documentation describes their protocol.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde::Deserialize;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::RegistryCredential;
use domain::{
    document::excerpt,
    secret::{Secret, Secrets},
};

/// How long a helper may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The user name that marks an identity token.
const IDENTITY: &str = "<token>";
/// How a helper says that it has no credential, by Docker's protocol. The text is all that distinguishes this from a failure.
const NOT_FOUND: &str = "credentials not found";

/// The variables of the gateway's environment that a helper gets, beside those whose names begin with [`PASSED_PREFIXES`].
const PASSED: [&str; 9] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "DOCKER_CONFIG",
    "HTTPS_PROXY",
    "NO_PROXY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "LANG",
    "XDG_CACHE_HOME",
];
/// How the names of the clouds' variables begin: by them a helper finds the pod's identity.
const PASSED_PREFIXES: [&str; 4] = ["AWS_", "AZURE_", "GCE_", "CLOUDSDK_"];
/// How much of the end of a helper's stderr is shown, in bytes.
const SHOWN: usize = 400;

/// Why a helper returned no clear answer. It quotes the end of its stderr, and nothing of its stdout, which may be the secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelperError {
    #[error("the credential helper `{program}` cannot run: {cause}")]
    NotStarted {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error("the credential helper `{program}` failed: {cause}")]
    Broken {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error("the credential helper `{0}` took too long")]
    TooLate(String),
    #[error("the credential helper `{program}` failed for {registry} ({status}){said}")]
    Failed { program: String, registry: String, status: ExitStatus, said: String },
    #[error("the credential helper `{program}` printed no credential for {registry}")]
    NoCredential { program: String, registry: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: Secret,
}

/// Whether a helper gets the variable `name`.
fn is_passed(name: &str) -> bool {
    PASSED.contains(&name) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The last lines of `stderr` for a message. What a line repeats of `stdout`, which may hold the secret, is taken out.
fn last_words(stderr: &[u8], stdout: &[u8]) -> String {
    let stdout = String::from_utf8_lossy(stdout);
    let answer: Option<HelperAnswer> = serde_json::from_str(&stdout).ok();
    let secret = answer.map(|answer| answer.secret).or_else(|| Some(Secret::from(stdout.trim().to_owned())));
    let secrets: Secrets = secret.filter(|secret| !secret.expose().is_empty()).into_iter().collect();
    let text = secrets.redact(&String::from_utf8_lossy(stderr));
    let text = text.trim();
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(SHOWN))..];
    if end.is_empty() { String::new() } else { format!("; stderr: {}", excerpt(end.as_bytes(), SHOWN)) }
}

/// Whether the program of the helper `name` is in a folder of `PATH`.
pub(super) fn is_there(name: &str) -> bool {
    let program = format!("docker-credential-{name}");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(&program).is_file())
}

/// The helper's credential for `registry`. `None` when the helper says that it has none.
///
/// # Errors
/// When the helper returns no clear answer. Its output may be the secret, so no message quotes it.
pub(super) async fn credential(name: &str, registry: &str) -> Result<Option<RegistryCredential>, HelperError> {
    let program = format!("docker-credential-{name}");
    // Docker's name for its own registry.
    let server = if registry == "docker.io" { "https://index.docker.io/v1/" } else { registry };
    let run = async {
        let mut child = Command::new(&program)
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed)))
            .kill_on_drop(true)
            .spawn()
            .map_err(|cause| HelperError::NotStarted { program: program.clone(), cause })?;
        if let Some(mut stdin) = child.stdin.take() {
            // A helper may end without reading its input. Its output decides then.
            let _ = stdin.write_all(server.as_bytes()).await;
        }
        let output = child.wait_with_output().await;
        output.map_err(|cause| HelperError::Broken { program: program.clone(), cause })
    };
    let output = timeout(TIMEOUT, run).await.map_err(|_| HelperError::TooLate(program.clone()))??;
    if !output.status.success() {
        let is_nothing = String::from_utf8_lossy(&output.stdout).contains(NOT_FOUND);
        return if is_nothing {
            Ok(None)
        } else {
            let said = last_words(&output.stderr, &output.stdout);
            Err(HelperError::Failed { program, registry: registry.to_owned(), status: output.status, said })
        };
    }
    // Without serde's error: it may quote a part of the output.
    let answer: HelperAnswer = serde_json::from_slice(&output.stdout)
        .map_err(|_| HelperError::NoCredential { program, registry: registry.to_owned() })?;
    Ok(Some(if answer.username == IDENTITY {
        RegistryCredential::Identity(answer.secret)
    } else {
        RegistryCredential::Password { username: answer.username, password: answer.secret }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_hold_no_secret() {
        let stdout = br#"{"Username": "AWS", "Secret": "hunter2-and-more"}"#;
        let said = last_words(b"first\nAccessDenied: with hunter2-and-more\n", stdout);
        assert_eq!(said, "; stderr: first AccessDenied: with [redacted]");
        assert_eq!(last_words(b" \n", b""), "");
        assert_eq!(last_words("ä".repeat(1000).as_bytes(), b"").chars().filter(|c| *c == 'ä').count(), SHOWN / 2);
    }

    #[test]
    fn a_helper_gets_no_other_secrets() {
        for (name, is) in [("PATH", true), ("AWS_ROLE_ARN", true), ("AZURE_CLIENT_ID", true), ("GITHUB_TOKEN", false)] {
            assert_eq!(is_passed(name), is, "{name}");
        }
        assert!(!is_there("no-such-helper"));
    }
}
