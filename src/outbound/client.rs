//! The HTTP client of a line, and one exchange with it: the request once, and its whole answer.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::BytesMut;
use reqwest::{Certificate, Client, redirect};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::time::{Instant, timeout_at};

use super::{Call, Reply};
use crate::{
    error::{BackendError, ErrorKind},
    secret::Secrets,
};

/// How long a connection may take to open, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take to begin.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Certificates that are trusted besides the system's, read once.
#[derive(Debug, Default)]
pub struct Trusted {
    file: Option<PathBuf>,
    certificates: Vec<Certificate>,
}

/// Why an exchange brought no whole answer.
#[derive(Debug)]
pub struct Failure {
    /// Which way.
    pub how: How,
    /// What happened, without its destination.
    pub what: String,
}

/// The ways in which an exchange ends without a whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// There was no connection, so nothing was asked.
    Connect,
    /// It showed a certificate that is not trusted.
    Untrusted,
    /// It took too long.
    Timeout,
    /// It ended in the middle, or was no HTTP.
    Broken,
    /// It is larger than it may be.
    TooLarge,
}

impl Trusted {
    /// The certificates in the PEM file `file`; none without one.
    ///
    /// # Errors
    /// When there are none that can be used; the text names the file.
    pub fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else { return Ok(Self::default()) };
        let shown = file.display();
        let pem = std::fs::read(file).map_err(|error| format!("cannot read the CA file {shown}: {error}"))?;
        let mut store = RootCertStore::empty();
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| format!("the CA file {shown} is not PEM: {error}"))?;
            let made = Certificate::from_der(&certificate);
            let number = certificates.len() + 1;
            let added = store.add(certificate).map_err(|error| error.to_string());
            certificates.push(
                added
                    .and_then(|()| made.map_err(|error| error.to_string()))
                    .map_err(|error| format!("certificate {number} in the CA file {shown} cannot be used: {error}"))?,
            );
        }
        if certificates.is_empty() {
            return Err(format!(
                "the CA file {shown} holds no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`"
            ));
        }
        Ok(Self { file: Some(file.to_owned()), certificates })
    }

    /// A client that trusts them.
    ///
    /// # Errors
    /// When the system's certificates cannot be used.
    pub fn client(&self) -> Result<Client, BackendError> {
        Client::builder()
            .user_agent(concat!("appset-gateway/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_mins(1))
            .tcp_nodelay(true)
            .tls_certs_merge(self.certificates.iter().cloned())
            .build()
            .map_err(|error| BackendError::unavailable(format!("cannot set up the HTTP client: {}", cause(&error))))
    }

    /// Sends `call` once and reads the whole answer.
    ///
    /// # Errors
    /// When no whole answer arrives in time.
    pub async fn exchange(&self, client: &Client, call: &Call, secrets: &Secrets) -> Result<Reply, Failure> {
        let head_by = call.deadline.min(Instant::now() + HEAD_TIMEOUT);
        let mut request = client.request(call.method.clone(), call.url.clone()).headers(call.headers.clone());
        if let Some(body) = &call.body {
            request = request.body(body.clone());
        }
        let sent = timeout_at(head_by, request.send()).await.map_err(|_| {
            let what = if head_by == call.deadline {
                "no whole answer in time".to_owned()
            } else {
                format!("no answer began within {} s", HEAD_TIMEOUT.as_secs())
            };
            Failure { how: How::Timeout, what }
        })?;
        let mut response = sent.map_err(|error| self.failure(&error))?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        loop {
            let chunk = timeout_at(call.deadline, response.chunk())
                .await
                .map_err(|_| Failure { how: How::Timeout, what: "no whole answer in time".to_owned() })?
                .map_err(|error| self.failure(&error))?;
            let Some(chunk) = chunk else { break };
            if body.len() + chunk.len() > call.most {
                let what = format!("the answer is larger than {} bytes", call.most);
                return Err(Failure { how: How::TooLarge, what });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, headers, body: body.freeze(), secrets: secrets.clone(), rest: None, attempts: 1 })
    }

    fn failure(&self, error: &reqwest::Error) -> Failure {
        let why = cause(error);
        if error.is_timeout() {
            return Failure { how: How::Timeout, what: format!("timed out: {why}") };
        }
        if is_certificate(error) {
            let advice = match &self.file {
                Some(file) => format!("neither the system nor the CA file {} vouches for it", file.display()),
                None => "if a private CA signed it, name that CA's file as `ca`".to_owned(),
            };
            let what = format!("cannot connect: its certificate is not trusted ({why}); {advice}");
            return Failure { how: How::Untrusted, what };
        }
        let (how, what) = if error.is_connect() {
            (How::Connect, "cannot connect")
        } else if error.is_body() || error.is_decode() {
            (How::Broken, "the answer broke off")
        } else {
            (How::Broken, "the request failed")
        };
        Failure { how, what: format!("{what}: {why}") }
    }
}

impl Failure {
    /// The same for whoever asked, after `attempts`.
    pub fn into_error(self, attempts: u32) -> BackendError {
        let kind = match self.how {
            How::Connect | How::Untrusted | How::Broken => ErrorKind::Unavailable,
            How::Timeout => ErrorKind::Timeout,
            How::TooLarge => ErrorKind::InvalidOutput,
        };
        let tried = if attempts > 1 { format!(" (tried {attempts} times)") } else { String::new() };
        BackendError::new(kind, self.what + &tried)
    }
}

/// Whether the other side's certificate is what is wrong, which another attempt would find again.
fn is_certificate(error: &reqwest::Error) -> bool {
    causes(error).any(|mut cause| {
        // An I/O error passes over what it holds when it is asked for its source.
        while let Some(within) = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            cause = within;
        }
        matches!(cause.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
    })
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    let first: &'a (dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

/// The innermost cause, which says what happened; the layers above repeat the URL.
fn cause(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_file_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        assert!(Trusted::read(None).is_ok());
        for (content, says) in [
            (None, "cannot read the CA file"),
            (Some(""), "holds no certificate"),
            (Some("<html>"), "holds no certificate"),
            (Some("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), "holds no certificate"),
            (Some("-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n"), "is not PEM"),
            (Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "certificate 1 in the CA file"),
        ] {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let why = Trusted::read(Some(&file)).unwrap_err();
            assert!(why.contains(says) && why.contains("ca.crt"), "{why}");
        }
    }
}
