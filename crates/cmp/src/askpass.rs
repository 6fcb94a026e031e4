//! Git credentials for one run: a socket that lives as long as the run, and the program that git calls to ask there.
//!
//! Git starts `GIT_ASKPASS` with its question as the only argument, and reads a line. The program is `cmp-gateway` itself, so no image needs another
//! one. It connects to the socket of the run, proves by a token that it belongs to this run, and prints what it gets. What it may get is decided
//! by the relay (`relay::credentials`).

use std::{
    env,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream as BlockingStream,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use subtle::ConstantTimeEq as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};

use crate::exchange::credentials::Login;
use domain::secret::Secret;

/// The variable with the path of the socket.
const SOCKET: &str = "CMP_GATEWAY_ASKPASS_SOCKET";
/// The variable with the token of the run. By its name, no message repeats the value.
const TOKEN: &str = "CMP_GATEWAY_ASKPASS_TOKEN";
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest question, with the token, in bytes.
const MAX_QUESTION: u64 = 16 * 1024;
/// The first byte of an answer: a value, or the reason why there is none.
const GIVEN: u8 = b'+';
/// See [`GIVEN`].
const REFUSED: u8 = b'-';

/// A question of git, and where the answer goes.
#[derive(Debug)]
pub(crate) struct Query {
    /// The URL in it.
    pub(crate) url: String,
    /// For the answer, or the reason why there is none.
    pub(crate) answer: oneshot::Sender<Result<Login, String>>,
}

/// Passwords that a run got after its start, so that no message repeats them.
pub(crate) type Received = Arc<Mutex<Vec<Secret>>>;

/// The socket of one run. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct AskpassSocket {
    path: PathBuf,
    token: Secret,
    received: Received,
    serving: AbortHandle,
}

/// What git wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Username,
    Password,
}

impl AskpassSocket {
    /// Makes a socket in `folder`, whose questions go to `queries`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(folder: &Path, queries: mpsc::Sender<Query>) -> io::Result<Self> {
        let (name, token) = (base16ct::lower::encode_string(&random::<8>()?), random::<32>()?);
        let token = Secret::from(base16ct::lower::encode_string(&token));
        let path = folder.join(name);
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let received = Received::default();
        let (own, seen) = (token.clone(), Arc::clone(&received));
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // One after the other: git asks for one thing at a time.
                let _ = timeout(PATIENCE, answer(&mut stream, &own, &queries, &seen)).await;
            }
        });
        Ok(Self { path, token, received, serving: serving.abort_handle() })
    }

    /// The variables of a run that may ask. `program` is this program.
    pub(crate) fn variables(&self, program: &Path) -> [(&'static str, String); 4] {
        [
            ("GIT_ASKPASS", program.display().to_string()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            (SOCKET, self.path.display().to_string()),
            (TOKEN, self.token.expose().to_owned()),
        ]
    }

    /// What was answered.
    pub(crate) fn received(&self) -> Received {
        Arc::clone(&self.received)
    }
}

impl Drop for AskpassSocket {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Random bytes, for what must not be guessed.
///
/// # Errors
/// When the system gives none.
pub(crate) fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let filled = aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| io::Error::other("the system has no random bytes"))
}

/// Answers the question of one client.
async fn answer(
    stream: &mut UnixStream,
    token: &Secret,
    queries: &mpsc::Sender<Query>,
    received: &Received,
) -> io::Result<()> {
    let mut text = String::new();
    (&mut *stream).take(MAX_QUESTION).read_to_string(&mut text).await?;
    let answered = match text.split_once('\n') {
        Some((shown, question)) if bool::from(shown.as_bytes().ct_eq(token.expose().as_bytes())) => {
            ask(question, queries).await
        }
        _ => Err("the token is not that of a run".to_owned()),
    };
    let (first, text) = match &answered {
        Ok((_, secret)) => (GIVEN, secret.expose()),
        Err(why) => (REFUSED, why.as_str()),
    };
    stream.write_all(&[first]).await?;
    stream.write_all(text.as_bytes()).await?;
    // A user name occurs in many messages that are worth reading.
    if let Ok((Wanted::Password, secret)) = answered {
        received.lock().push(secret);
    }
    Ok(())
}

async fn ask(question: &str, queries: &mpsc::Sender<Query>) -> Result<(Wanted, Secret), String> {
    let (wanted, url) = parsed(question).ok_or("git's question has no URL")?;
    let gone = || "the relay's call has ended".to_owned();
    let (answer, answered) = oneshot::channel();
    queries.send(Query { url: url.to_owned(), answer }).await.map_err(|_| gone())?;
    let (username, password) = answered.await.map_err(|_| gone())??.into_secrets();
    Ok((wanted, if wanted == Wanted::Username { username } else { password }))
}

/// A question as git asks it: `Password for 'https://user@example.com': `.
fn parsed(question: &str) -> Option<(Wanted, &str)> {
    let wanted = if question.starts_with("Username") {
        Wanted::Username
    } else if question.starts_with("Password") {
        Wanted::Password
    } else {
        return None;
    };
    let (_, url) = question.split_once('\'')?;
    Some((wanted, url.rsplit_once('\'')?.0))
}

/// Whether git has started this process to ask `question`.
pub(crate) fn is_asked(question: Option<&str>) -> bool {
    env::var_os(SOCKET).is_some() && question.and_then(parsed).is_some()
}

/// Prints the answer to `question`. Returns the exit status.
pub(crate) fn run(question: &str) -> ExitCode {
    match ask_socket(question) {
        Ok(value) => {
            println!("{}", value.expose());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cmp-gateway: no Git credentials: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask_socket(question: &str) -> io::Result<Secret> {
    let socket = env::var_os(SOCKET).unwrap_or_default();
    let mut stream = BlockingStream::connect(&socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let token = env::var(TOKEN).map_err(io::Error::other)?;
    stream.write_all(format!("{token}\n{question}").as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let mut characters = text.chars();
    match characters.next() {
        Some('+') => Ok(Secret::from(characters.as_str().to_owned())),
        Some('-') => Err(io::Error::other(characters.as_str())),
        _ => Err(io::Error::other("the run has ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_git_writes_them() {
        let of = |text| parsed(text).map(|(wanted, url)| (wanted == Wanted::Username, url));
        assert_eq!(of("Username for 'https://example.com': "), Some((true, "https://example.com")));
        assert_eq!(of("Password for 'https://o'hara@example.com': "), Some((false, "https://o'hara@example.com")));
        for text in ["Enter passphrase for key '/id': ", "Username", "Password for 'x", "launch", ""] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn a_socket_answers_its_run_only_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (queries, mut asked) = mpsc::channel(1);
        let socket = AskpassSocket::new(folder.path(), queries).unwrap();
        tokio::spawn(async move {
            while let Some(Query { url, answer }) = asked.recv().await {
                let login = Login { username: "me".to_owned(), password: "hunter2".to_owned() };
                let _ = answer.send(if url == "https://a" { Ok(login) } else { Err(format!("not for {url}")) });
            }
        });
        let ask = async |token: &str, question: &str| {
            let mut stream = UnixStream::connect(&socket.path).await.unwrap();
            stream.write_all(format!("{token}\n{question}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        };
        let token = socket.token.expose();
        assert_eq!(ask(token, "Username for 'https://a': ").await, "+me");
        assert_eq!(ask(token, "Password for 'https://me@a': ").await, "-not for https://me@a");
        assert_eq!(ask(token, "Password for 'https://a': ").await, "+hunter2");
        assert!(ask("guess", "Password for 'https://a': ").await.starts_with("-the token"));
        assert!(ask(&token[1..], "Password for 'https://a': ").await.starts_with("-the token"));
        assert_eq!(socket.received().lock().iter().map(Secret::expose).collect::<Vec<_>>(), ["hunter2"]);
        drop(socket);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
