//! A client that connects by TLS.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

/// A client that trusts one CA.
#[derive(Clone)]
pub(crate) struct Visitor(Arc<ClientConfig>);

impl Visitor {
    /// A client that trusts the CA certificate `ca`, shows `certificate` with its key, and offers `protocols` by ALPN.
    pub(crate) fn new(ca: &str, certificate: Option<&(String, String)>, protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    /// A connection to `address`, whose name must be `localhost`.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        self.secure(TcpStream::connect(address).await?).await
    }

    /// A connection over `stream`.
    pub(crate) async fn secure(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::clone(&self.0)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }
}
