//! TLS in the test itself, with the files of `Certificates`.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig, crypto::aws_lc_rs, pki_types::ServerName, sign::SingleCertAndKey,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Connects as a relay does.
pub(crate) fn connector(folder: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let ca = folder.join("ca.pem");
    roots.add_parsable_certificates(tls::pem::trusted(&ca, &std::fs::read(&ca).unwrap()).unwrap());
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = builder.with_client_cert_resolver(own(folder, "caller.crt", "caller.key"));
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config).into()
}

/// Accepts as a service does, and any client.
pub(crate) fn acceptor(folder: &Path) -> TlsAcceptor {
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_cert_resolver(own(folder, "tls.crt", "tls.key"));
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config).into()
}

/// The name in the certificate of a service.
pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

/// The certificate and key in these files of `folder`.
fn own(folder: &Path, cert: &str, key: &str) -> Arc<SingleCertAndKey> {
    let (cert, key) = (folder.join(cert), folder.join(key));
    let (of_cert, of_key) = (std::fs::read(&cert).unwrap(), std::fs::read(&key).unwrap());
    Arc::new(tls::pem::pair("test's", &cert, &of_cert, &key, &of_key).unwrap().into())
}
