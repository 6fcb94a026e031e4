//! Credential helpers: `docker-credential-<name> get`, as Docker's documentation describes their protocol.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde::Deserialize;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use super::RegistryCredential;
use domain::secret::Secret;

/// How long a helper may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The user name that marks an identity token.
const IDENTITY: &str = "<token>";
/// How a helper says that it has no credential, by Docker's protocol. The text is all that distinguishes this from a failure.
const NOT_FOUND: &str = "credentials not found";

/// Why a helper returned no clear answer. It quotes none of its output, which may be the secret.
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
    #[error("the credential helper `{program}` failed for {registry} ({status})")]
    Failed { program: String, registry: String, status: ExitStatus },
    #[error("the credential helper `{program}` printed no credential for {registry}")]
    NoCredential { program: String, registry: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: Secret,
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
            .stderr(Stdio::null())
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
            Err(HelperError::Failed { program, registry: registry.to_owned(), status: output.status })
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
