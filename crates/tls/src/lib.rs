//! TLS on the listeners: the gateway's certificate, and the CA of client certificates. The files are read at the start, and again
//! when they may have been renewed.
//!
//! Start at [`TlsConfig::build`]. The program calls [`ServerTls::refresh`] when the files change. [`mod@pem`] reads certificates and keys, also
//! those of `outbound` and `store`. Used by `cmp`, `outbound`, `store` and the program.

pub mod pem;

use std::{path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use x509_cert::{Certificate, der::Decode as _};

use crate::pem::{PemError, content, pair, trusted};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

/// The protocols that a listener offers by ALPN (RFC 7301), in order of preference.
const PROTOCOLS: [&[u8]; 2] = [H2, b"http/1.1"];

/// HTTP/2 over TLS (RFC 9113, section 3.1).
pub const H2: &[u8] = b"h2";

/// TLS on the main listener. The files are watched. A renewed certificate is used for the next connection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the certificate and its intermediate certificates.
    pub cert: PathBuf,
    /// A PEM file with the private key.
    pub key: PathBuf,
    /// A PEM file with the CA of client certificates. A client may then show a certificate, and authenticate with it; see
    /// `auth.certificates`.
    pub client_ca: Option<PathBuf>,
    /// Whether clients must show a certificate, even if something else authenticates them. Needs `clientCa`.
    #[serde(default)]
    pub(crate) require_client_certificate: bool,
}

/// TLS on the admin listener. The files are watched. A renewed certificate is used for the next connection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminTlsConfig {
    /// A PEM file with the certificate and its intermediate certificates.
    cert: PathBuf,
    /// A PEM file with the private key.
    key: PathBuf,
}

/// TLS on one listener.
#[derive(Debug)]
pub struct ServerTls {
    config: TlsConfig,
    /// The key of the configuration, for the log.
    name: String,
    now: ArcSwap<Loaded>,
    /// The problem with the files at the last check, so that it is logged once.
    trouble: Mutex<Option<String>>,
}

/// The content of the files.
#[derive(Debug)]
struct Loaded {
    hash: [u8; 32],
    server: Arc<ServerConfig>,
    not_after: Option<Duration>,
}

impl TlsConfig {
    /// Reads the files. Problems are noted below `path`.
    pub fn build(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Arc<ServerTls>> {
        if self.require_client_certificate && self.client_ca.is_none() {
            problems.error_with_help(
                &path.key("requireClientCertificate"),
                "no client certificate can be verified, so no client could connect",
                "name the file of their CA: `clientCa: ca.crt`",
            );
            return None;
        }
        let config = Self {
            cert: base.resolve(&self.cert),
            key: base.resolve(&self.key),
            client_ca: self.client_ca.as_ref().map(|file| base.resolve(file)),
            ..*self
        };
        let loaded = problems.note_secret(path, Loaded::read(&config))?;
        let (name, now) = (path.to_string(), ArcSwap::from_pointee(loaded));
        Some(Arc::new(ServerTls { config, name, now, trouble: Mutex::default() }))
    }
}

impl AdminTlsConfig {
    /// Reads the files. Problems are noted below `path`.
    pub fn build(&self, base: &BaseDir, path: &Path, problems: &mut Problems) -> Option<Arc<ServerTls>> {
        let Self { cert, key } = self.clone();
        TlsConfig { cert, key, client_ca: None, require_client_certificate: false }.build(base, path, problems)
    }
}

impl ServerTls {
    /// The files to watch.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let Self { config: TlsConfig { cert, key, client_ca, .. }, .. } = self;
        [Some(cert), Some(key), client_ca.as_ref()].into_iter().flatten().cloned().collect()
    }

    /// Reads the files again. Valid content replaces the old one. Otherwise the old content stays, and the problem is logged.
    pub fn refresh(&self) {
        let read = Loaded::read(&self.config).map_err(|error| error.to_string());
        let mut trouble = self.trouble.lock();
        match read {
            Ok(loaded) => {
                *trouble = None;
                if loaded.hash != self.now.load().hash {
                    tracing::info!(not_after = loaded.not_after(), "new certificates are in use ({})", self.name);
                    self.now.store(Arc::new(loaded));
                }
            }
            Err(why) if trouble.as_ref() != Some(&why) => {
                tracing::error!(%why, "the old certificates stay in use ({})", self.name);
                *trouble = Some(why);
            }
            Err(_) => {}
        }
    }

    /// The configuration for the next connection.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.load().server)
    }

    /// When the certificate expires, in seconds since 1970. 0 if that cannot be read.
    #[must_use]
    pub fn not_after(&self) -> u64 {
        self.now.load().not_after()
    }
}

/// Why a listener has no TLS with its files.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The library refuses the versions of TLS.
    #[error(transparent)]
    Versions(#[from] rustls::Error),
    /// No client certificate can be verified with the CA.
    #[error("the CA file {}: {cause}", .file.display())]
    Verifier {
        /// The CA's file.
        file: PathBuf,
        /// The library's error.
        #[source]
        cause: VerifierBuilderError,
    },
}

impl Loaded {
    fn read(config: &TlsConfig) -> Result<Self, TlsError> {
        let TlsConfig { cert, key, client_ca, require_client_certificate } = config;
        let (of_cert, of_key) = (content(cert, "certificate")?, content(key, "key")?);
        let own = pair("server's", cert, &of_cert, key, &of_key)?;
        let mut hash = Sha256::new_with_prefix(Sha256::digest(&of_cert)).chain_update(Sha256::digest(&of_key));
        let not_after = not_after(&own);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let pem = content(file, "client CA")?;
                hash.update(Sha256::digest(&pem));
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(trusted(file, &pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if *require_client_certificate { verifier } else { verifier.allow_unauthenticated() };
                let verifier: Arc<dyn ClientCertVerifier> =
                    verifier.build().map_err(|cause| TlsError::Verifier { file: file.clone(), cause })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut server = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Self { hash: hash.finalize().into(), server: Arc::new(server), not_after })
    }

    fn not_after(&self) -> u64 {
        self.not_after.map_or(0, |since_1970| since_1970.as_secs())
    }
}

fn not_after(own: &CertifiedKey) -> Option<Duration> {
    let certificate = Certificate::from_der(own.cert.first()?).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_unix_duration())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn config(folder: &std::path::Path) -> TlsConfig {
        let at = |name: &str| folder.join(name);
        TlsConfig { cert: at("tls.crt"), key: at("tls.key"), client_ca: None, require_client_certificate: false }
    }

    fn build(config: &TlsConfig) -> Result<Arc<ServerTls>, String> {
        let mut problems = Problems::default();
        let built = config.build(&BaseDir::default(), &Path::root().key("tls"), &mut problems);
        built.ok_or_else(|| problems.into_vec().into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn unusable_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        let put = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
        let key = KeyPair::generate().unwrap();
        let pem = CertificateParams::new(vec!["gateway".into()]).unwrap().self_signed(&key).unwrap().pem();
        assert!(build(&config).unwrap_err().contains("cannot read the certificate file"));
        put("tls.crt", &pem);
        assert!(build(&config).unwrap_err().contains("cannot read the key file"));
        put("tls.key", &KeyPair::generate().unwrap().serialize_pem());
        assert!(build(&config).unwrap_err().contains("is not that of the certificate"));
        put("tls.key", &key.serialize_pem());
        build(&config).unwrap();
        config.client_ca = Some(folder.path().join("ca.crt"));
        assert!(build(&config).unwrap_err().contains("cannot read the client CA file"));
        put("ca.crt", "");
        assert!(build(&config).unwrap_err().contains("ca.crt holds no certificate"));
        put("ca.crt", &pem);
        build(&config).unwrap();
        config = TlsConfig { client_ca: None, require_client_certificate: true, ..config };
        assert!(build(&config).unwrap_err().contains("no client could connect"));
    }

    #[test]
    fn renewed_files_are_used_and_broken_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let renew = |year: i32| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["gateway".into()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            std::fs::write(&config.cert, params.self_signed(&key).unwrap().pem()).unwrap();
            std::fs::write(&config.key, key.serialize_pem()).unwrap();
        };
        renew(2040);
        let tls = build(&config).unwrap();
        let first = tls.server();
        assert_eq!(tls.not_after(), 2_208_988_800);
        tls.refresh();
        assert!(Arc::ptr_eq(&first, &tls.server()), "nothing is new");
        renew(2041);
        let good = std::fs::read(&config.key).unwrap();
        std::fs::write(&config.key, "half a key").unwrap();
        tls.refresh();
        assert!(Arc::ptr_eq(&first, &tls.server()), "broken files are not used");
        std::fs::write(&config.key, good).unwrap();
        tls.refresh();
        assert_eq!(tls.not_after(), 2_240_611_200);
    }
}
