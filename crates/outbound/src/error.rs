//! Why a client cannot be made, or a URL of the configuration cannot be used.

use domain::secret::SecretError;
use tls::pem::PemError;

/// Why there is no client for some options.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file with certificates or keys cannot be read, or holds something else. The text names the file.
    #[error(transparent)]
    File(#[from] PemError),
    /// The HTTP library refuses a certificate.
    #[error("{what} cannot be used: {cause}")]
    Certificate {
        /// The certificate, by its file.
        what: String,
        /// The library's error.
        #[source]
        cause: reqwest::Error,
    },
    /// The server's certificate has another name than its URL, and a proxy would resolve that name.
    #[error(
        "`tlsClientConfig.serverName` does not go with `outbound.proxy`, which would resolve that name; use a URL with the name in the \
         server's certificate"
    )]
    RenamedByProxy,
    /// The password for the proxy cannot be read.
    #[error("{0}")]
    Password(#[from] SecretError),
}

impl From<ClientError> for String {
    fn from(error: ClientError) -> Self {
        error.to_string()
    }
}

/// Why a text is not a URL for requests.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL.
    #[error("`{text}` is not a URL: {cause}")]
    Syntax {
        /// The text.
        text: String,
        /// The parser's error.
        #[source]
        cause: url::ParseError,
    },
    /// It has another scheme, or no host.
    #[error("it must begin with `http://` or `https://` and a host")]
    NotHttp,
    /// It holds a user or a password. The text does not repeat them.
    #[error("it holds a user or a password; use the keys for credentials instead")]
    HasUser,
}

impl From<UrlError> for String {
    fn from(error: UrlError) -> Self {
        error.to_string()
    }
}
