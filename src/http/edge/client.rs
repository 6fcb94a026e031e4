//! Who is at the other end of a connection, as far as the connection tells.

use std::{net::IpAddr, sync::Arc};

use rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::Decode as _,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::strangers::Stranger;

/// Who is at the other end. Each request has it among its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Its address; that of a proxy, if there is one in between.
    pub(crate) peer: IpAddr,
    /// The same as text, for the log lines of all that it asks.
    pub(crate) peer_text: Arc<str>,
    /// The certificate that it showed, which comes from `server.tls.clientCa`.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// What its connection holds as long as nobody has authenticated on it.
    pub(super) stranger: Arc<Stranger>,
}

impl Client {
    /// Notes that it has shown who it is: what strangers may hold together no longer limits its connection.
    pub(crate) fn admit(&self) {
        self.stranger.admit();
    }
}

/// What a client's certificate says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// Its subject as RFC 4514 writes it: `CN=argocd,O=platform`, the nearest part first.
    pub(crate) subject: String,
    /// Its names of the kind URI, such as a SPIFFE ID.
    pub(crate) uris: Vec<String>,
}

impl ClientCertificate {
    /// Reads a certificate that was verified before.
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
    fn a_certificate_says_who_it_is_for() {
        let mut params = CertificateParams::new(vec!["argocd.example.com".into()]).unwrap();
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "Platform, Inc.");
        name.push(DnType::CommonName, "argocd");
        params.distinguished_name = name;
        params.subject_alt_names.push(SanType::URI("spiffe://example.com/ns/argocd".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = ClientCertificate::read(certificate.der()).unwrap();
        assert_eq!(read.subject, r"CN=argocd,O=Platform\, Inc.");
        assert_eq!(read.uris, ["spiffe://example.com/ns/argocd"]);
        let bare = CertificateParams::new(Vec::new()).unwrap().self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(ClientCertificate::read(bare.der()).unwrap().uris.len(), 0);
    }
}
