//! Credential helpers: `docker-credential-<name> get`, as Docker's documentation describes their protocol.

use std::{process::Stdio, time::Duration};

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
pub(super) async fn credential(name: &str, registry: &str) -> Result<Option<RegistryCredential>, String> {
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
            .map_err(|error| format!("the credential helper `{program}` cannot run: {error}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A helper may end without reading its input. Its output decides then.
            let _ = stdin.write_all(server.as_bytes()).await;
        }
        child.wait_with_output().await.map_err(|error| format!("the credential helper `{program}` failed: {error}"))
    };
    let output =
        timeout(TIMEOUT, run).await.map_err(|_| format!("the credential helper `{program}` took too long"))??;
    if !output.status.success() {
        let is_nothing = String::from_utf8_lossy(&output.stdout).contains(NOT_FOUND);
        return if is_nothing {
            Ok(None)
        } else {
            Err(format!("the credential helper `{program}` failed for {registry} ({})", output.status))
        };
    }
    let answer: HelperAnswer = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("the credential helper `{program}` printed no credential for {registry}"))?;
    Ok(Some(if answer.username == IDENTITY {
        RegistryCredential::Identity(answer.secret)
    } else {
        RegistryCredential::Password { username: answer.username, password: answer.secret }
    }))
}
