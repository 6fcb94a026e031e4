//! Credential helpers: `docker-credential-<name> get`, as Docker's documentation describes their protocol. They run contained, as scripts do.

use std::{
    borrow::Cow,
    env,
    ffi::OsString,
    io::PipeReader,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::Receiver,
    time::{Duration, Instant, timeout_at},
};

use super::RegistryCredential;
use domain::{
    document::excerpt,
    file::base_dir::BaseDir,
    secret::{Secret, Secrets},
};
use launcher::{ExitKind, LaunchOptions, LauncherPool, Launchers, ProcessLimits, Program, Reader, Running, belongings};

/// How long a helper may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The user name that marks an identity token.
const IDENTITY: &str = "<token>";
/// How a helper says that it has no credential, by Docker's protocol. The text is all that distinguishes this from a failure.
const NOT_FOUND: &str = "credentials not found";

/// The variables of the gateway's environment that a helper gets, beside those whose names begin with [`PASSED_PREFIXES`].
const PASSED: [&str; 7] =
    ["PATH", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "LANG"];
/// How the names of the clouds' variables begin: by them a helper finds the pod's identity.
const PASSED_PREFIXES: [&str; 4] = ["AWS_", "AZURE_", "GCE_", "CLOUDSDK_"];
/// How much of the end of a helper's stderr is shown, in bytes.
const SHOWN: usize = 400;
/// How much of the end of what it writes is kept, in bytes. No credential is as long.
const KEPT: usize = 64 * 1024;
/// The limits of each of its processes, which are those of scripts that set none.
const LIMITS: ProcessLimits = ProcessLimits {
    cpu: None,
    memory: Some(1024 * 1024 * 1024),
    file_size: Some(64 * 1024 * 1024),
    open_files: Some(256),
    processes: None,
};

/// Why a helper returned no clear answer. It quotes the end of its stderr, and nothing of its stdout, which may be the secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelperError {
    #[error("there is no program `{0}` in a folder of PATH")]
    NotThere(String),
    #[error("the credential helper `{program}` cannot run: {why}")]
    NotStarted { program: String, why: String },
    #[error("the credential helper `{program}` did not end in time ({} s at most){said}", TIMEOUT.as_secs())]
    TooLate { program: String, said: String },
    #[error("the credential helper `{program}` failed for {registry} ({how}){said}")]
    Failed { program: String, registry: String, how: String, said: String },
    #[error("the credential helper `{program}` printed no credential for {registry}{said}")]
    NoCredential { program: String, registry: String, said: String },
}

/// The helpers that may run.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    allowed: Vec<String>,
    /// Starts them. `None` if no file can name one.
    launchers: Option<LauncherPool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: Secret,
}

/// What a helper wrote: the end of it.
#[derive(Debug, Default)]
struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Helpers {
    /// The helpers called `allowed`. They may read their own files, and those that the clouds' variables name.
    pub(crate) fn new(allowed: Vec<String>, launchers: &Arc<Launchers>, base: &BaseDir) -> Self {
        let programs = allowed.iter().filter_map(|name| find(name));
        let mut readable: Vec<_> = programs.flat_map(|program| belongings::of_program(&program, base)).collect();
        let named = variables().into_iter().filter(|(name, _)| name != "PATH");
        readable.extend(named.filter_map(|(_, value)| named_files(Path::new(&value), base)));
        readable.sort_unstable();
        readable.dedup();
        let terms = LaunchOptions { limits: LIMITS, readable, ..LaunchOptions::default() };
        Self { allowed, launchers: Some(LauncherPool::for_reader(launchers, Reader::Helper, terms, 1)) }
    }

    /// Whether the helper `name` may run.
    pub(super) fn allow(&self, name: &str) -> bool {
        self.launchers.is_some() && self.allowed.iter().any(|allowed| allowed == name)
    }

    /// The credential of the helper `name` for `registry`. `None` when the helper says that it has none, unless one is `wanted`: many helpers say
    /// "not found" for every failure, and a registry that hides what others may not see would then seem to have nothing.
    ///
    /// # Errors
    /// When the helper returns no clear answer by `deadline`. Its output may be the secret, so no message quotes it.
    pub(super) async fn credential(
        &self,
        name: &str,
        registry: &str,
        wanted: bool,
        deadline: Instant,
    ) -> Result<Option<RegistryCredential>, HelperError> {
        let program = program(name);
        // Docker's name for its own registry.
        let server = if registry == "docker.io" { "https://index.docker.io/v1/" } else { registry };
        let (output, how) = self.run(name, &program, server, deadline).await?;
        let said = || last_words(&output.stderr, &output.stdout);
        if how != ExitKind::Code(0) {
            let is_nothing = !wanted && String::from_utf8_lossy(&output.stdout).contains(NOT_FOUND);
            return if is_nothing {
                Ok(None)
            } else {
                Err(HelperError::Failed { program, registry: registry.to_owned(), how: shown(how), said: said() })
            };
        }
        // Without serde's error: it may quote a part of the output.
        let answer: HelperAnswer = serde_json::from_slice(&output.stdout).map_err(|_| HelperError::NoCredential {
            program,
            registry: registry.to_owned(),
            said: said(),
        })?;
        Ok(Some(if answer.username == IDENTITY {
            RegistryCredential::Identity(answer.secret)
        } else {
            RegistryCredential::Password { username: answer.username, password: answer.secret }
        }))
    }

    /// What the helper wrote for `server`, and how it ended.
    async fn run(
        &self,
        name: &str,
        program: &str,
        server: &str,
        deadline: Instant,
    ) -> Result<(Output, ExitKind), HelperError> {
        let path = find(name).ok_or_else(|| HelperError::NotThere(program.to_owned()))?;
        let not_started = |why: String| HelperError::NotStarted { program: program.to_owned(), why };
        let launchers = self.launchers.as_ref().ok_or_else(|| not_started("none may run".to_owned()))?;
        let until = deadline.min(Instant::now() + TIMEOUT);
        let command =
            Program { path, argv0: None, arguments: vec!["get".to_owned()], folder: None, first: None, copy: None };
        let variables = variables();
        let environment = variables.iter().map(|(name, value)| (name.as_str().into(), Cow::from(value.as_os_str())));
        // Without a permit, so that no script can keep a registry's credential waiting. Each registry runs one helper at once.
        let running = launchers.start_staying(&command, &environment.collect(), until).await;
        let Running { stdin, stdout, stderr, mut charge, .. } =
            running.map_err(|error| not_started(error.to_string()))?;
        let mut output = Output::default();
        let Output { stdout: out, stderr: err } = &mut output;
        let feeding = async {
            if let Some(mut stdin) = stdin {
                // A helper may end without reading its input. Its output decides then.
                let _ = stdin.write_all(server.as_bytes()).await;
            }
        };
        let all = async { tokio::join!(feeding, read(stdout, out), read(stderr, err), charge.over()).3 };
        let ended = timeout_at(until, all).await;
        let said = || last_words(&output.stderr, &output.stdout);
        let ended = ended.map_err(|_| HelperError::TooLate { program: program.to_owned(), said: said() })?;
        let ended = ended.map_err(|error| not_started(error.to_string()))?;
        Ok((output, ended.how))
    }
}

/// The program of the helper `name`.
fn program(name: &str) -> String {
    format!("docker-credential-{name}")
}

/// The file of the helper `name` in a folder of `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut files = env::split_paths(&path).map(|folder| folder.join(program(name)));
    let can_run = |file: &PathBuf| {
        file.is_absolute() && file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    files.find(can_run)
}

/// Whether the program of the helper `name` is in a folder of `PATH`, and can run.
pub(crate) fn has_helper(name: &str) -> bool {
    find(name).is_some()
}

/// Whether a helper gets the variable `name`.
fn is_passed(name: &str) -> bool {
    PASSED.contains(&name) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The variables that a helper gets.
fn variables() -> Vec<(String, OsString)> {
    let all = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    all.filter(|(name, _)| is_passed(name)).collect()
}

/// The file or folder that a helper may read because a variable has the value `path`. Launchers notice when Kubernetes puts another file in
/// its place.
fn named_files(path: &Path, base: &BaseDir) -> Option<PathBuf> {
    if !path.is_absolute() || !path.exists() {
        return None;
    }
    (path.is_file() || belongings::is_harmless(path, base)).then(|| path.to_owned())
}

/// Reads `pipe` to its end, and keeps at least the last [`KEPT`] bytes. What cannot be read counts as not written.
async fn read(pipe: PipeReader, bytes: &mut Vec<u8>) {
    let Ok(mut pipe) = Receiver::from_owned_fd_unchecked(pipe.into()) else { return };
    while pipe.read_buf(bytes).await.is_ok_and(|count| count > 0) {
        if bytes.len() > 2 * KEPT {
            bytes.drain(..bytes.len() - KEPT);
        }
    }
}

/// How a program ended, in words.
fn shown(how: ExitKind) -> String {
    match how {
        ExitKind::Code(code) => format!("exit status {code}"),
        ExitKind::Signal(signal) => format!("signal {signal}"),
        ExitKind::Unknown => "no exit status".to_owned(),
    }
}

/// The last lines of `stderr` for a message. What a line repeats of `stdout`, which may hold the secret, is taken out.
fn last_words(stderr: &[u8], stdout: &[u8]) -> String {
    let stdout = String::from_utf8_lossy(stdout);
    let answer: Option<HelperAnswer> = serde_json::from_str(&stdout).ok();
    let secret = answer.map(|answer| answer.secret).or_else(|| Some(Secret::from(stdout.trim().to_owned())));
    let passed = variables().into_iter().filter(|(name, _)| is_secret(name));
    let passed = passed.filter_map(|(_, value)| value.to_str().map(|value| Secret::from(value.to_owned())));
    let secrets: Secrets = secret.into_iter().chain(passed).filter(|secret| !secret.expose().is_empty()).collect();
    let text = secrets.redact(&String::from_utf8_lossy(stderr));
    let text = text.trim();
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(SHOWN))..];
    if end.is_empty() { String::new() } else { format!("; stderr: {}", excerpt(end.as_bytes(), SHOWN)) }
}

/// Whether the variable `name` holds a secret, such as `AWS_SECRET_ACCESS_KEY`, and not a file or a name.
fn is_secret(name: &str) -> bool {
    let is_named_so = ["SECRET", "TOKEN", "PASSWORD"].iter().any(|part| name.contains(part));
    is_named_so && !name.ends_with("_FILE") && !name.ends_with("_URI")
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
        assert!(!has_helper("no-such-helper"));
        for (name, is) in [
            ("AWS_SECRET_ACCESS_KEY", true),
            ("AWS_SESSION_TOKEN", true),
            ("AZURE_CLIENT_SECRET", true),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", false),
            ("AWS_REGION", false),
        ] {
            assert_eq!(is_secret(name), is, "{name}");
        }
    }

    #[test]
    fn the_files_that_variables_name_may_be_read_but_not_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for inner in ["config", "tokens"] {
            std::fs::create_dir_all(path(inner)).unwrap();
        }
        for inner in ["config/key.json", "tokens/token"] {
            std::fs::write(path(inner), "").unwrap();
        }
        let base = BaseDir::new(path("config"));
        let found = |name: &str| named_files(&path(name), &base);
        assert_eq!(found("tokens/token"), Some(path("tokens/token")));
        assert_eq!(found("tokens"), Some(path("tokens")));
        assert_eq!(found("config/key.json"), Some(path("config/key.json")));
        assert_eq!(found("config"), None);
        assert_eq!(found("none"), None);
        assert_eq!(named_files(Path::new("eu-central-1"), &base), None);
    }
}
