//! Certificates and keys in PEM files.

use std::path::Path;

use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use zeroize::Zeroizing;

use domain::file;

/// The bytes of `file`, a `what` file.
///
/// # Errors
/// When the file cannot be read. The text names it.
pub fn content(file: &Path, what: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    file::bytes(file).map_err(|error| format!("cannot read the {what} file {}: {error}", file.display()))
}

/// The certificates in the CA file `file` with the content `pem`.
///
/// # Errors
/// When there is none, or one that cannot be trusted. The text names the file.
pub fn trusted(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = file.display();
    let mut store = RootCertStore::empty();
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("the CA file {shown} is not PEM: {error}"))?;
        let number = certificates.len() + 1;
        store
            .add(certificate.clone())
            .map_err(|error| format!("certificate {number} in the CA file {shown} cannot be used: {error}"))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(none_in(&format!("CA file {shown}")));
    }
    Ok(certificates)
}

/// The certificate in `of_cert` with its key in `of_key`. For messages: they are a `whose` certificate and key, from the files
/// `cert` and `key`.
///
/// # Errors
/// When they are no certificate and key, or do not belong together. The text names the files.
pub fn pair(whose: &str, cert: &Path, of_cert: &[u8], key: &Path, of_key: &[u8]) -> Result<CertifiedKey, String> {
    let (cert, key) = (cert.display(), key.display());
    let chain = CertificateDer::pem_slice_iter(of_cert)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the {whose} certificate {cert} is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err(none_in(&format!("{whose} certificate {cert}")));
    }
    // The reason is left out, since it may quote the key.
    let private = PrivateKeyDer::from_pem_slice(of_key)
        .map_err(|_| format!("the {whose} key {key} holds no private key in PEM form"))?;
    CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => format!("the {whose} key {key} is not that of the certificate {cert}"),
        error => format!("the {whose} certificate {cert} with the key {key} cannot be used: {error}"),
    })
}

fn none_in(what: &str) -> String {
    format!("the {what} holds no certificate; it must be PEM, with `-----BEGIN CERTIFICATE-----`")
}
