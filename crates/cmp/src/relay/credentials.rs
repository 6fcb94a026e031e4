//! Git credentials of a call: taken out of what Argo CD sends, and passed on to the replica that runs the call when git asks there.
//!
//! Argo CD names them by a nonce, for which its askpass service, a socket in the repo-server's pod, gives user name and password. Neither the
//! nonce nor any other way to credentials leaves the relay: variables with them are removed from each call.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Uri};
use hyper::body::Frame;
use prost::Message as _;
use tokio::{
    net::UnixStream,
    sync::mpsc,
    task::AbortHandle,
    time::{timeout, timeout_at},
};

use super::{
    failure::Failure,
    link::{Fields, Link},
    remote::Remote,
};
use crate::{
    askpass,
    exchange::{
        Description,
        credentials::{
            CREDENTIALS, CredentialsMessage, CredentialsPart, CredentialsQuery, CredentialsRequest, Login, OFFER,
        },
    },
    grpc::{
        client::exchange,
        message::{EnvEntry, Metadata},
        reader::MessageReader,
        reply,
        status::{Code, Status},
    },
    served::allow::REPOSITORY,
};
use domain::secret::Secret;

/// The nonce.
const NONCE: &str = "ARGOCD_GIT_ASKPASS_NONCE";
/// Variables by which Argo CD gives a plugin its repository's credentials (util/git/creds.go): the nonce, headers with tokens, and files of keys
/// that only the repo-server has.
const REMOVED: [&str; 13] = [
    NONCE,
    "GIT_ASKPASS",
    "GIT_TERMINAL_PROMPT",
    "ARGOCD_BINARY_NAME",
    "ARGOCD_ASK_PASS_SOCK",
    "ARGOCD_GIT_BASIC_AUTH_HEADER",
    "ARGOCD_GIT_BEARER_AUTH_HEADER",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CERT",
    "GIT_SSL_KEY",
    "GIT_SSL_CAINFO",
    "SOCKS5_USER",
    "SOCKS5_PASSWD",
];
/// Where Argo CD's askpass service is.
const METHOD: &str = "http://localhost/askpass.AskPassService/GetCredentials";
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The credentials of one call.
#[derive(Debug, Clone)]
pub(super) struct GitCredentials {
    nonce: Secret,
    /// The scheme, host and port of the Application's repository.
    origin: Option<(String, String, u16)>,
    /// The socket of Argo CD's askpass service.
    socket: PathBuf,
}

/// An offer that a replica may use. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) offer: Bytes,
    answering: AbortHandle,
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

/// Removes all ways to credentials from `metadata`, and returns the nonce.
pub(super) fn take(metadata: &mut Metadata) -> Option<Secret> {
    let (taken, left): (Vec<EnvEntry>, _) =
        std::mem::take(&mut metadata.env).into_iter().partition(|entry| REMOVED.contains(&entry.name.as_str()));
    metadata.env = left;
    taken.into_iter().rev().find(|entry| entry.name == NONCE).map(|entry| entry.value.into())
}

impl GitCredentials {
    /// Those that `nonce` names at the askpass service behind `socket`, for the repository of `metadata`.
    pub(super) fn new(nonce: Secret, metadata: &Metadata, socket: PathBuf) -> Self {
        let url = metadata.env.iter().rfind(|entry| entry.name == REPOSITORY);
        Self { nonce, origin: url.and_then(|entry| origin(&entry.value)), socket }
    }

    /// The answer to a question of git about `url`.
    ///
    /// # Errors
    /// When it is not about the repository's server, or Argo CD gives none.
    async fn answer(&self, url: &str) -> Result<Login, String> {
        if self.origin.is_none() || origin(url) != self.origin {
            return Err(format!(
                "git asks for those of {}, which is not the server of the Application's repository",
                domain::visible::one_line(&without_user(url))
            ));
        }
        let shown = self.socket.display();
        let asking = async {
            let stream = UnixStream::connect(&self.socket).await.map_err(|error| error.to_string())?;
            let body = reply::frame(&CredentialsRequest { nonce: self.nonce.expose().to_owned() });
            let answer = exchange(stream, METHOD, HeaderMap::new(), body).await;
            let mut answer = answer.map_err(|error| error.message)?;
            Login::decode(&mut answer).map_err(|_| "the answer is malformed".to_owned())
        };
        let asked = timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        asked.map_err(|why| format!("Argo CD's askpass service at {shown} (`askPass`): {why}"))
    }
}

impl Remote {
    /// Offers `credentials`, if there are any, to what is at the other end of `link`, until the offer is dropped.
    ///
    /// # Errors
    /// When the replica cannot be asked.
    pub(super) async fn offer(
        &self,
        link: &Link,
        description: &Description,
        credentials: Option<&Arc<GitCredentials>>,
        fields: &Fields,
    ) -> Result<Option<Offered>, Failure> {
        let Some(credentials) = credentials.filter(|_| description.takes_git_credentials).cloned() else {
            return Ok(None);
        };
        let random = askpass::random::<OFFER>().map_err(|error| Failure::Unreached(error.to_string()))?;
        let offer = Bytes::copy_from_slice(&random);
        let (frames, body) = mpsc::channel(1);
        let first = CredentialsMessage { part: Some(CredentialsPart::Offer(offer.clone())) };
        // There is room for one.
        let _ = frames.try_send(Frame::data(reply::frame(&first)));
        let opening = timeout_at(fields.until, link.open(CREDENTIALS, fields, reply::streamed(body))).await;
        let late = || Failure::Status(Status::new(Code::DeadlineExceeded, "it did not answer in time"));
        let queries = match opening.map_err(|_| late())? {
            Ok(queries) => queries,
            // It does not take credentials any more.
            Err(Failure::Status(status)) if status.code == Code::Unimplemented => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let answering = tokio::spawn(answer_all(self.name.clone(), credentials, queries, frames)).abort_handle();
        Ok(Some(Offered { offer, answering }))
    }
}

/// Answers each question that comes, until the replica or the call ends.
async fn answer_all(
    plugin: String,
    credentials: Arc<GitCredentials>,
    mut queries: MessageReader,
    frames: mpsc::Sender<Frame<Bytes>>,
) {
    while let Ok(Some(CredentialsQuery { url })) = queries.next().await {
        let shown = domain::visible::one_line(&without_user(&url));
        let part = match credentials.answer(&url).await {
            Ok(login) => {
                tracing::info!(plugin, url = %shown, "Git credentials are passed on to a remote");
                CredentialsPart::Login(login)
            }
            Err(why) => {
                tracing::warn!(plugin, url = %shown, why, "Git credentials are not passed on");
                CredentialsPart::Refusal(why)
            }
        };
        if frames.send(Frame::data(reply::frame(&CredentialsMessage { part: Some(part) }))).await.is_err() {
            return;
        }
    }
}

/// The scheme, host and port of `url`, if it is one of HTTP.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_owned();
    let usual = match scheme.as_str() {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    Some((scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
}

/// `url` for messages: a user name may be a token.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: &str) -> EnvEntry {
        EnvEntry { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn no_way_to_credentials_is_left() {
        let left = entry("ARGOCD_ENV_X", "y");
        let env = REMOVED.into_iter().map(|name| entry(name, "secret")).chain([left]).collect();
        let mut metadata = Metadata { env, ..Metadata::default() };
        assert_eq!(take(&mut metadata).unwrap().expose(), "secret");
        assert_eq!(metadata.env, [entry("ARGOCD_ENV_X", "y")]);
        assert!(take(&mut metadata).is_none());
    }

    #[test]
    fn only_the_server_of_the_repository_counts() {
        let of = |url: &str| origin(url);
        assert_eq!(of("https://Example.com/a.git"), of("https://me@example.com:443"));
        for other in
            ["http://example.com", "https://example.com:8443", "https://example.com.evil", "https://evil/example.com"]
        {
            assert_ne!(of("https://example.com"), of(other), "{other}");
        }
        for none in ["git@example.com:a.git", "ssh://git@example.com/a", "", "https://", "file:///a"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(without_user("https://token:x@a@example.com/b"), "https://example.com/b");
    }

    #[tokio::test]
    async fn another_server_gets_nothing() {
        let mut metadata = Metadata::default();
        let credentials = |metadata: &Metadata| GitCredentials::new("n".to_owned().into(), metadata, "/no".into());
        let refused = credentials(&metadata).answer("https://example.com").await.unwrap_err();
        assert!(refused.contains("not the server of the Application's repository"), "{refused}");
        metadata.env.push(entry(REPOSITORY, "https://example.com/a"));
        let refused = credentials(&metadata).answer("https://token@evil.com").await.unwrap_err();
        assert!(refused.contains("https://evil.com, which is not") && !refused.contains("token"), "{refused}");
        let refused = credentials(&metadata).answer("https://example.com").await.unwrap_err();
        assert!(refused.contains("`askPass`"), "{refused}");
    }
}
