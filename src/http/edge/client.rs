//! The client at the other end of a connection: its address and its certificate.

use std::{net::IpAddr, sync::Arc};

use rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::Decode as _,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::budget::{Budget, Share};

/// The client of a connection. Each request carries it in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionInfo {
    /// Its address, or the address of the proxy in between.
    pub(crate) peer: IpAddr,
    /// The address as text, for log lines.
    pub(crate) peer_text: Arc<str>,
    /// Its certificate, which was verified by `server.tls.clientCa`.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
    /// The connection's share of the memory budget of unauthenticated clients.
    pub(super) share: Arc<Share>,
    /// The budget of the bodies of authenticated requests.
    pub(super) bodies: Arc<Budget>,
}

impl ConnectionInfo {
    /// The client has authenticated: the memory budget of unauthenticated clients no longer limits its connection.
    pub(crate) fn admit(&self) {
        self.share.admit();
    }

    /// A share for a body. Until its sender has authenticated, the body counts against the budget of unauthenticated clients. That also holds on a
    /// connection that others have authenticated on: a proxy sends the requests of others on it, too.
    pub(crate) fn body(&self, is_proven: bool) -> Share {
        if is_proven { self.bodies.body() } else { self.share.budget().body() }
    }
}

/// The names in a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerCertificate {
    /// The subject in the form of RFC 4514: `CN=argocd,O=platform`, the most specific part first.
    pub(crate) subject: String,
    /// The alternative names of type URI, such as a SPIFFE ID.
    pub(crate) uris: Vec<String>,
}

impl PeerCertificate {
    /// Reads a certificate that is already verified.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(certificate: &CertificateDer<'_>) -> Result<Self, x509_cert::der::Error> {
        let certificate = Certificate::from_der(certificate)?;
        let certificate = certificate.tbs_certificate();
        let names = certificate.get_extension::<SubjectAltName>()?.map(|(_, names)| names.0).unwrap_or_default();
        let uris = names.into_iter().filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str().to_owned()),
            _ => None,
        });
        Ok(Self { subject: certificate.subject().to_string(), uris: uris.collect() })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_read() {
        let mut params = CertificateParams::new(vec!["argocd.example.com".into()]).unwrap();
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "Platform, Inc.");
        name.push(DnType::CommonName, "argocd");
        params.distinguished_name = name;
        params.subject_alt_names.push(SanType::URI("spiffe://example.com/ns/argocd".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = PeerCertificate::read(certificate.der()).unwrap();
        assert_eq!(read.subject, r"CN=argocd,O=Platform\, Inc.");
        assert_eq!(read.uris, ["spiffe://example.com/ns/argocd"]);
        let bare = CertificateParams::new(Vec::new()).unwrap().self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(PeerCertificate::read(bare.der()).unwrap().uris.len(), 0);
    }
}
