//! Certificates and keys in PEM files.

use std::path::{Path, PathBuf};

use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};
use zeroize::Zeroizing;

use domain::file::{self, FileError};

/// Why certificates or keys cannot be used. The text names their files.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// A file cannot be read.
    #[error("cannot read the {kind} file {}: {cause}", .file.display())]
    File {
        /// The kind of file.
        kind: String,
        /// The file.
        file: PathBuf,
        /// Why it cannot be read.
        #[source]
        cause: FileError,
    },
    /// A file is not PEM.
    #[error("the {file} is not PEM: {cause}")]
    NotPem {
        /// The file, with its kind.
        file: String,
        /// The parser's error.
        #[source]
        cause: pem::Error,
    },
    /// This file, which is named with its kind, has no certificate.
    #[error("the {0} holds no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`")]
    NoCertificate(String),
    /// A certificate of a CA is refused.
    #[error("certificate {number} in the CA file {} cannot be used: {cause}", .file.display())]
    Untrusted {
        /// Its place in the file, from 1.
        number: usize,
        /// The file.
        file: PathBuf,
        /// The library's error. In a box, since it is large.
        #[source]
        cause: Box<rustls::Error>,
    },
    /// A file has no key. Without a cause, since it may quote the key.
    #[error("the {whose} key {} holds no private key in PEM form", .key.display())]
    NoKey {
        /// The owner of the key.
        whose: String,
        /// The file.
        key: PathBuf,
    },
    /// A key belongs to another certificate.
    #[error("the {whose} key {} is not that of the certificate {}", .key.display(), .cert.display())]
    OtherKey {
        /// The owner of the key.
        whose: String,
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        cert: PathBuf,
    },
    /// A certificate is refused with its key.
    #[error("the {whose} certificate {} with the key {} cannot be used: {cause}", .cert.display(), .key.display())]
    Unusable {
        /// The owner of the key.
        whose: String,
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The library's error. In a box, since it is large.
        #[source]
        cause: Box<rustls::Error>,
    },
}

/// The bytes of `file`, a `what` file.
///
/// # Errors
/// When the file cannot be read. The text names it.
pub fn content(file: &Path, what: &str) -> Result<Zeroizing<Vec<u8>>, PemError> {
    file::bytes(file).map_err(|cause| PemError::File { kind: what.to_owned(), file: file.to_owned(), cause })
}

/// The certificates in the CA file `file` with the content `pem`.
///
/// # Errors
/// When there is none, or one that cannot be trusted. The text names the file.
pub fn trusted(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let shown = || format!("CA file {}", file.display());
    let mut store = RootCertStore::empty();
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|cause| PemError::NotPem { file: shown(), cause })?;
        let number = certificates.len() + 1;
        store.add(certificate.clone()).map_err(|cause| PemError::Untrusted {
            number,
            file: file.to_owned(),
            cause: Box::new(cause),
        })?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(PemError::NoCertificate(shown()));
    }
    Ok(certificates)
}

/// The certificate in `of_cert` with its key in `of_key`. For messages: they are a `whose` certificate and key, from the files
/// `cert` and `key`.
///
/// # Errors
/// When they are not a certificate and a key, or do not belong together. The text names the files.
pub fn pair(whose: &str, cert: &Path, of_cert: &[u8], key: &Path, of_key: &[u8]) -> Result<CertifiedKey, PemError> {
    let shown = || format!("{whose} certificate {}", cert.display());
    let chain = CertificateDer::pem_slice_iter(of_cert)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|cause| PemError::NotPem { file: shown(), cause })?;
    if chain.is_empty() {
        return Err(PemError::NoCertificate(shown()));
    }
    let (whose, cert, key) = (whose.to_owned(), cert.to_owned(), key.to_owned());
    let Ok(private) = PrivateKeyDer::from_pem_slice(of_key) else { return Err(PemError::NoKey { whose, key }) };
    CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => PemError::OtherKey { whose, key, cert },
        cause => PemError::Unusable { whose, cert, key, cause: Box::new(cause) },
    })
}
