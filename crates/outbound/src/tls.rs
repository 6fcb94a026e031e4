//! Trusted certificates and the client certificate. Their files are read at the start, and again while the gateway runs,
//! since they are renewed.

use std::path::PathBuf;

use reqwest::{Certificate, Identity};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{ClientError, given::GivenTls};
use domain::problem;
use tls::pem::{content, pair, trusted};

/// A client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCertificate {
    /// A PEM file with the certificate and its intermediate certificates, relative to the configuration file.
    pub cert: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

/// How the server's certificate is checked, and the client certificate. Paths are complete.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tls {
    /// A PEM file with certificates that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate.
    pub client: Option<ClientCertificate>,
    /// Whether the server's certificate is checked.
    pub is_checked: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self { ca: None, client: None, is_checked: true }
    }
}

/// The content of the files of a [`Tls`].
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadedCertificates {
    /// The hashes of the files, to notice changes.
    files: Vec<[u8; 32]>,
    trusted: Vec<Certificate>,
    identity: Option<Identity>,
}

impl Tls {
    /// The path below `path` of the key that names the faulty file.
    #[must_use]
    pub fn at(&self, path: &problem::Path) -> problem::Path {
        match self {
            Self { ca: Some(_), client: None, .. } => path.key("ca"),
            Self { ca: None, client: Some(_), .. } => path.key("clientCertificate"),
            _ => path.clone(),
        }
    }

    /// Whether there are files that may change.
    #[must_use]
    pub(crate) const fn has_files(&self) -> bool {
        self.ca.is_some() || self.client.is_some()
    }
}

impl LoadedCertificates {
    /// Reads the files of `tls`.
    ///
    /// # Errors
    /// When a file cannot be used. The text names it.
    pub(crate) fn read(tls: &Tls) -> Result<Self, ClientError> {
        let mut read = Self::default();
        if let Some(file) = &tls.ca {
            let pem = content(file, "CA")?;
            let unusable = |cause| ClientError::Certificate { what: format!("the CA file {}", file.display()), cause };
            for certificate in trusted(file, &pem)? {
                read.trusted.push(Certificate::from_der(&certificate).map_err(unusable)?);
            }
            read.files.push(Sha256::digest(&pem).into());
        }
        if let Some(ClientCertificate { cert, key }) = &tls.client {
            let of_cert = content(cert, "client certificate")?;
            let of_key = content(key, "client key")?;
            pair("client", cert, &of_cert, key, &of_key)?;
            let pem = Zeroizing::new([&of_cert[..], b"\n", &of_key[..]].concat());
            let unusable =
                |cause| ClientError::Certificate { what: format!("the client certificate {}", cert.display()), cause };
            read.identity = Some(Identity::from_pem(&pem).map_err(unusable)?);
            read.files.push(Sha256::digest(&pem).into());
        }
        Ok(read)
    }

    /// Those of a document.
    ///
    /// # Errors
    /// When one cannot be used. The text names it.
    pub(crate) fn of(given: &GivenTls) -> Result<Self, ClientError> {
        let (trusted, identity) = given.read()?;
        Ok(Self { files: Vec::new(), trusted, identity })
    }

    /// Whether `other` was read from the same bytes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.files == other.files
    }

    /// Certificates that are trusted besides those of the system.
    pub(crate) fn trusted(&self) -> &[Certificate] {
        &self.trusted
    }

    /// The client certificate and its key.
    pub(crate) const fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn an_invalid_ca_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        assert!(LoadedCertificates::read(&Tls::default()).is_ok());
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
            let why =
                LoadedCertificates::read(&Tls { ca: Some(file.clone()), ..Tls::default() }).unwrap_err().to_string();
            assert!(why.contains(says) && why.contains("ca.crt"), "{why}");
        }
    }

    #[test]
    fn a_client_certificate_needs_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let tls = Tls { client: Some(ClientCertificate { cert: cert.clone(), key: key.clone() }), ..Tls::default() };
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let pem = CertificateParams::new(Vec::new()).unwrap().self_signed(&one).unwrap().pem();
        let (one, other) = (one.serialize_pem(), other.serialize_pem());
        for (certificate, private, says) in [
            (None, None, "cannot read the client certificate file"),
            (Some(&*pem), None, "cannot read the client key file"),
            (Some(&*one), Some(&*one), "tls.crt holds no certificate"),
            (Some(&*pem), Some(&*pem), "tls.key holds no private key"),
            (Some(&*pem), Some(&*other), "is not that of the certificate"),
        ] {
            for (file, content) in [(&cert, certificate), (&key, private)] {
                if let Some(content) = content {
                    std::fs::write(file, content).unwrap();
                }
            }
            let why = LoadedCertificates::read(&tls).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
        std::fs::write(&key, &one).unwrap();
        let first = LoadedCertificates::read(&tls).unwrap();
        assert!(first.is_same(&LoadedCertificates::read(&tls).unwrap()) && first.identity().is_some());
        // A new certificate for the same key.
        let renewed = CertificateParams::new(vec!["new".into()]).unwrap();
        let renewed = renewed.self_signed(&KeyPair::from_pem(&one).unwrap()).unwrap().pem();
        std::fs::write(&cert, renewed).unwrap();
        assert!(!first.is_same(&LoadedCertificates::read(&tls).unwrap()));
    }
}
