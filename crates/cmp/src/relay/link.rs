//! A connection to one replica: TLS, HTTP/2, and the replica's description.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName, sign::SingleCertAndKey};
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;

use super::{
    answers::{AnswerRoom, not_one_message},
    failure::{Failure, chain},
};
use crate::{
    exchange::{DESCRIBE, Description},
    grpc::{
        client::percent_decoded,
        message::{CheckPluginConfigurationResponse, Empty},
        reader::MessageReader,
        reply::{self, GRPC, ReplyBody},
        status::{Code, Status},
    },
};
use domain::{file::base_dir::BaseDir, visible::one_line};
use tls::{
    H2,
    pem::{PemError, content, pair, trusted},
};

/// How long TCP and TLS may take together.
const CONNECT: Duration = Duration::from_secs(2);
/// How long the first answer may take.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// How often a silent replica is asked whether it is there, and how long it may take. argocd-cmp-server's library takes more for an attack.
const ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// How much a replica may send ahead on a call, in bytes.
const WINDOW: u32 = 1024 * 1024;
/// The same for all calls of a connection together: answers that wait for room do not stop others.
const ALL_WINDOWS: u32 = 32 * WINDOW;
/// The service of plugins.
pub(super) const PLUGIN_SERVICE: &str = "/plugin.ConfigManagementPluginService/";

/// The files of TLS. They are read for each connection, so renewed ones are used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TlsFiles {
    /// The CA of the remote's certificate.
    ca: PathBuf,
    /// The relay's certificate.
    cert: Option<PathBuf>,
    /// Its key.
    key: Option<PathBuf>,
    /// The name in the remote's certificate. The host of the address unless set.
    server_name: Option<String>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFilesError {
    /// A file.
    #[error("{0}")]
    Pem(#[from] PemError),
    /// The library refuses.
    #[error("{0}")]
    Library(#[from] rustls::Error),
    /// Half a pair.
    #[error("`cert` and `key` belong together")]
    Half,
}

impl TlsFiles {
    /// Whether the relay shows a certificate.
    pub(super) const fn has_certificate(&self) -> bool {
        self.cert.is_some()
    }

    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(super) fn client(&self, base: &BaseDir) -> Result<ClientConfig, TlsFilesError> {
        let ca = base.resolve(&self.ca);
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted(&ca, &content(&ca, "CA")?)?);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let (cert, key) = (base.resolve(cert), base.resolve(key));
                let own = pair("relay's", &cert, &content(&cert, "certificate")?, &key, &content(&key, "key")?)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
            (None, None) => builder.with_no_client_auth(),
            _ => return Err(TlsFilesError::Half),
        };
        config.alpn_protocols = vec![H2.to_vec()];
        Ok(config)
    }
}

/// What a replica is.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// cmp-gateway.
    Ours(Arc<Description>),
    /// Another server of Argo CD's service.
    Plain(CheckPluginConfigurationResponse),
}

/// A connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    sender: SendRequest<ReplyBody>,
    authority: Arc<str>,
    answers: AnswerRoom,
    /// What is at the other end.
    pub(super) kind: Kind,
}

/// What is sent with each call of a remote.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    /// The plugin, the token, and the place in a trace.
    pub(super) map: HeaderMap,
    /// When the caller gives up.
    pub(super) until: Instant,
}

impl Link {
    /// Connects to `address`, whose name is `host`, and asks what is there. It must be the plugin `name`-`version`.
    ///
    /// # Errors
    /// Why the replica cannot be used.
    pub(super) async fn connect(
        files: &TlsFiles,
        base: &BaseDir,
        (address, host): (SocketAddr, &str),
        (name, version): (&str, &str),
        (fields, answers): (HeaderMap, AnswerRoom),
    ) -> Result<Self, String> {
        let (reading, at) = (files.clone(), base.clone());
        let config = tokio::task::spawn_blocking(move || reading.client(&at)).await;
        let config = config.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let shown = files.server_name.as_deref().unwrap_or(host);
        let server = ServerName::try_from(shown.to_owned()).map_err(|_| format!("`{shown}` is not a server's name"))?;
        let connecting = async {
            let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            let stream = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
            stream.map_err(|error| format!("TLS: {error}"))
        };
        let connected = timeout(CONNECT, connecting).await;
        let stream = connected.map_err(|_| format!("no connection within {CONNECT:?}"))??;
        if stream.get_ref().1.alpn_protocol() != Some(H2) {
            return Err("it does not speak HTTP/2".to_owned());
        }
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(ALL_WINDOWS)
            .keep_alive_interval(ALIVE.0)
            .keep_alive_timeout(ALIVE.1)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| shown_error(&error))?;
        // Ends when the last sender is gone, and all calls have ended.
        tokio::spawn(connection);
        let kind = Kind::Plain(CheckPluginConfigurationResponse::default());
        let mut link = Self { sender, authority: shown.into(), answers, kind };
        link.kind = link.describe(name, version, fields).await?;
        Ok(link)
    }

    /// Whether calls can be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Asks what is there now.
    ///
    /// # Errors
    /// When it does not answer in time, or is another plugin.
    pub(super) async fn describe(&self, name: &str, version: &str, map: HeaderMap) -> Result<Kind, String> {
        let fields = Fields { map, until: Instant::now() + FIRST_ANSWER };
        let body = reply::whole(&Empty {});
        match self.ask(DESCRIBE, &fields, body).await {
            Ok(answer) => {
                let found: Description = decoded(answer)?;
                if (found.name.as_str(), found.version.as_str()) == (name, version) {
                    return Ok(Kind::Ours(Arc::new(found)));
                }
                let (other, of) = (one_line(&found.name), one_line(&found.version));
                Err(format!("it serves the plugin `{other}` of version `{of}`"))
            }
            Err(Failure::Status(status)) if status.code == Code::Unimplemented => {
                let path = format!("{PLUGIN_SERVICE}CheckPluginConfiguration");
                match self.ask(&path, &fields, reply::whole(&Empty {})).await {
                    Ok(answer) => Ok(Kind::Plain(decoded(answer)?)),
                    Err(failure) => Err(failure.to_string()),
                }
            }
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Calls the method at `path`. The answer is one message.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn ask(&self, path: &str, fields: &Fields, body: ReplyBody) -> Result<Bytes, Failure> {
        let left = fields.until.saturating_duration_since(Instant::now());
        match timeout(left, self.ask_within(path, fields, left, body)).await {
            Ok(answered) => answered,
            Err(_) => Err(Failure::Status(Status::new(Code::DeadlineExceeded, "it did not answer in time"))),
        }
    }

    /// Opens a call at `path` whose answers come one after the other.
    ///
    /// # Errors
    /// When the replica refuses it, or cannot be reached.
    pub(super) async fn open(&self, path: &str, fields: &Fields, body: ReplyBody) -> Result<MessageReader, Failure> {
        let left = fields.until.saturating_duration_since(Instant::now());
        let (head, body) = self.begin(path, fields, left, body).await?.into_parts();
        // It was refused before the first answer.
        if head.headers.contains_key("grpc-status") {
            status(&HeaderMap::new(), &head.headers)?;
        }
        Ok(MessageReader::new(body))
    }

    /// Sends the request, and returns the beginning of the answer.
    async fn begin(
        &self,
        path: &str,
        fields: &Fields,
        left: Duration,
        body: ReplyBody,
    ) -> Result<Response<Incoming>, Failure> {
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|error| Failure::Unreached(shown_error(&error)))?;
        let request = Request::post(format!("https://{}{path}", authority(&self.authority)));
        let request = request.header(CONTENT_TYPE, GRPC).header("te", "trailers");
        let mut request = request.body(body).map_err(|error| Failure::Unreached(error.to_string()))?;
        request.headers_mut().extend(fields.map.clone());
        // At most eight digits.
        let millis = left.as_millis().min(99_999_999).to_string() + "m";
        if let Ok(value) = HeaderValue::try_from(millis) {
            request.headers_mut().insert("grpc-timeout", value);
        }
        let response = sender.send_request(request).await.map_err(|error| Failure::Broken(shown_error(&error)))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            other => Err(Failure::Unreached(format!("it answered with the HTTP status {other}"))),
        }
    }

    async fn ask_within(&self, path: &str, fields: &Fields, left: Duration, body: ReplyBody) -> Result<Bytes, Failure> {
        let (head, body) = self.begin(path, fields, left, body).await?.into_parts();
        let (message, trailers) = self.answers.read(body, fields.until).await?;
        status(&trailers, &head.headers)?;
        message.ok_or_else(not_one_message)
    }
}

/// # Errors
/// When the call has failed.
fn status(trailers: &HeaderMap, headers: &HeaderMap) -> Result<(), Failure> {
    let of = |name: &str| trailers.get(name).or_else(|| headers.get(name)).and_then(|value| value.to_str().ok());
    let Some(code) = of("grpc-status") else {
        return Err(Failure::Broken("the answer has no status: it is cut off, or not gRPC".to_owned()));
    };
    if code == "0" {
        return Ok(());
    }
    let code = Code::of(code.parse().unwrap_or_default());
    let message = percent_decoded(of("grpc-message").unwrap_or("no reason is given"));
    Err(Failure::Status(Status { code, message }))
}

fn decoded<M: Message + Default>(mut bytes: Bytes) -> Result<M, String> {
    M::decode(&mut bytes).map_err(|error| format!("its answer is malformed: {error}"))
}

/// A host as an authority has it.
fn authority(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn shown_error(error: &hyper::Error) -> String {
    format!("the connection failed: {}", chain(error))
}
