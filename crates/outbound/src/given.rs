//! Certificates that are in a document and not in files, such as those of a cluster in a Secret of Argo CD. A client with them lives as long as
//! somebody uses it: the certificates of a document change, and nobody may keep a client for each that there ever was.

use std::{
    fmt,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Weak},
};

use reqwest::{
    Certificate, Identity,
    dns::{Addrs, Name, Resolve, Resolving},
};
use sha2::{Digest as _, Sha256};
use url::Host;
use zeroize::Zeroizing;

use super::{ClientOptions, HttpClient, Outbound, addresses::Addresses, error::ClientError};
use tls::pem::{pair, trusted};

/// How the certificate of one server is checked, and the client certificate for it, as a document has them.
#[derive(Clone)]
pub struct GivenTls {
    /// The host of the server's URL.
    pub host: Host<String>,
    /// The only CAs that are trusted, in PEM. Without them, those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client certificate and its key, in PEM.
    pub client: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
    /// The name in the server's certificate, if it is not the host of its URL.
    pub server_name: Option<String>,
    /// Whether the server's certificate is checked.
    pub is_checked: bool,
    /// What messages call the CAs, the client certificate and its key.
    pub names: [&'static str; 3],
}

impl GivenTls {
    /// What distinguishes it from others.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let host = self.host.to_string();
        let (cert, key) = self.client.as_ref().map_or((&[][..], &[][..]), |(cert, key)| (&cert[..], &key[..]));
        let name = self.server_name.as_deref().unwrap_or_default();
        let parts = [host.as_bytes(), self.ca.as_deref().unwrap_or_default(), cert, key, name.as_bytes()];
        for part in parts.into_iter().chain([&[u8::from(self.is_checked)][..]]) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// The CAs and the client certificate.
    ///
    /// # Errors
    /// When one cannot be used. The text has its name.
    pub(crate) fn read(&self) -> Result<(Vec<Certificate>, Option<Identity>), ClientError> {
        let [ca, cert, key] = self.names;
        let unusable = |name: &str| {
            let what = name.to_owned();
            |cause| ClientError::Certificate { what, cause }
        };
        let mut authorities = Vec::new();
        for certificate in
            self.ca.iter().map(|pem| trusted(Path::new(ca), pem)).collect::<Result<Vec<_>, _>>()?.concat()
        {
            authorities.push(Certificate::from_der(&certificate).map_err(unusable(ca))?);
        }
        let Some((of_cert, of_key)) = &self.client else { return Ok((authorities, None)) };
        pair("client", Path::new(cert), of_cert, Path::new(key), of_key)?;
        let pem = Zeroizing::new([&of_cert[..], b"\n", &of_key[..]].concat());
        Ok((authorities, Some(Identity::from_pem(&pem).map_err(unusable(cert))?)))
    }

    /// The name to connect as, and how it is resolved: as the host of the URL.
    pub(crate) fn renamed(&self, addresses: &Addresses) -> Option<Renamed> {
        let name = self.server_name.clone()?;
        Some(Renamed { name, host: self.host.clone(), addresses: addresses.clone() })
    }
}

impl fmt::Debug for GivenTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenTls").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Outbound {
    /// The client with the certificates of a document. Users of equal ones share one client, which lives as long as they do.
    ///
    /// # Errors
    /// When the certificates cannot be used. The text names them.
    pub fn client_given(&self, given: GivenTls) -> Result<Arc<HttpClient>, ClientError> {
        let (fingerprint, mut clients) = (given.fingerprint(), self.given.lock());
        if let Some(client) = clients.get(&fingerprint).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let options = ClientOptions::default();
        let transport = self.transport(options.tls.clone())?.with_given(given)?;
        let client = Arc::new(self.client_over(transport, options));
        clients.retain(|_, client| client.strong_count() > 0);
        clients.insert(fingerprint, Arc::downgrade(&client));
        Ok(client)
    }
}

/// A server whose certificate has another name than its URL. Requests go to that name, which has the addresses of the URL's host: the name is
/// then also what TLS sends and checks.
#[derive(Debug, Clone)]
pub(crate) struct Renamed {
    pub name: String,
    host: Host<String>,
    addresses: Addresses,
}

impl Resolve for Renamed {
    fn resolve(&self, name: Name) -> Resolving {
        match &self.host {
            _ if name.as_str() != self.name => self.addresses.resolve(name),
            Host::Domain(host) => match host.parse() {
                Ok(host) => self.addresses.resolve(host),
                Err(error) => Box::pin(async move { Err(Box::new(error) as _) }),
            },
            // Checked before the request, as the address in the URL.
            Host::Ipv4(ip) => found((*ip).into()),
            Host::Ipv6(ip) => found((*ip).into()),
        }
    }
}

fn found(ip: std::net::IpAddr) -> Resolving {
    Box::pin(async move { Ok(Box::new(std::iter::once(SocketAddr::new(ip, 0))) as Addrs) })
}
