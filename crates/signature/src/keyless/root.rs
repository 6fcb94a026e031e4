//! Trusted roots: the authorities and logs that are trusted, in the JSON form of Sigstore
//! (<https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_trustroot.proto>).

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sigstore_verify::{Verifier, trust_root::TrustedRoot, types::TimeRange};
use x509_cert::{
    Certificate,
    der::{Decode as _, Encode as _},
    ext::pkix::{AuthorityKeyIdentifier, SubjectKeyIdentifier},
};

use domain::document::{self, Document, DocumentError};

/// Why a file is not a trusted root that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error(
        "it is not one JSON document: {0}. `gh attestation trusted-root` writes several roots, one in a line: keep one"
    )]
    NotJson(#[source] DocumentError),
    #[error("it is not a trusted root: its `mediaType` is not that of one")]
    OtherType,
    #[error("it is not a trusted root: {0}")]
    Form(#[source] Cause),
    #[error("it is not a usable trusted root: {0}")]
    Unusable(#[source] Cause),
    /// It has none of these.
    #[error("it has {0}")]
    Lacks(&'static str),
}

/// An error of Sigstore's crates.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The object identifier of the extension with the entries of certificate logs, in DER (RFC 6962, section 3.3).
const ENTRIES_OF_LOGS: &[u8] = b"\x06\x0a\x2b\x06\x01\x04\x01\xd6\x79\x02\x04\x02";

/// Where a bundle has its entries of transparency logs.
const LOG_ENTRIES: [&str; 2] = ["verificationMaterial", "tlogEntries"];

/// How the media types of trusted roots begin.
const KIND: &str = "application/vnd.dev.sigstore.trustedroot";

/// A trusted root.
pub(crate) struct Root {
    pub(super) verifier: Verifier,
    /// The authorities that issue certificates.
    authorities: Vec<Certificate>,
    /// The signers of time stamps. A time stamp names its signer by `issuerAndSerialNumber` in DER, here without its header (RFC 5652,
    /// section 5.3).
    time_signers: Vec<Named>,
    /// The ids of the logs of certificates.
    certificate_logs: Vec<Vec<u8>>,
    /// The logs of signatures, by their ids.
    logs: Vec<Named>,
}

/// An authority or log.
struct Named {
    /// How documents name it.
    name: Vec<u8>,
    /// When it begins to be valid, in seconds since 1970.
    begins: i64,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").finish_non_exhaustive()
    }
}

impl Root {
    /// Reads a trusted root.
    ///
    /// # Errors
    /// When it is none, or lacks an authority or log without which nothing could be verified.
    pub(crate) fn read(text: &str, needs_log: bool) -> Result<Self, RootError> {
        let document = document::read(text.as_bytes()).map_err(RootError::NotJson)?;
        if !document.get("mediaType").and_then(Document::as_text).is_some_and(|kind| kind.starts_with(KIND)) {
            return Err(RootError::OtherType);
        }
        let root = TrustedRoot::from_json(text).map_err(|error| RootError::Form(error.into()))?;
        let verifier = Verifier::new(&root).map_err(|error| RootError::Unusable(error.into()))?;
        let logs = || root.tlogs.is_empty() || root.ctlogs.is_empty();
        let lacks = match needs_log {
            _ if root.certificate_authorities.is_empty() => Some("no authority for certificates"),
            true if logs() => Some(
                "no transparency log, or none of certificates; for an authority without one, set `transparencyLog: false`",
            ),
            false if root.timestamp_authorities.is_empty() => Some("no authority for time stamps"),
            _ => None,
        };
        if let Some(lacks) = lacks {
            return Err(RootError::Lacks(lacks));
        }
        // For any time of the clock: the root's own lists leave out authorities that begin to be valid later.
        let chains = root.certificate_authorities.iter().flat_map(|authority| &authority.cert_chain.certificates);
        let authorities = chains.filter_map(|entry| Certificate::from_der(entry.raw_bytes.as_bytes()).ok()).collect();
        let time_signers = root.timestamp_authorities.iter().filter_map(|authority| {
            let leaf = authority.cert_chain.certificates.first()?;
            let name = name_in_time_stamp(leaf.raw_bytes.as_bytes())?;
            Some(Named { name, begins: begin(authority.valid_for) })
        });
        let certificate_logs = root.ctlogs.iter().map(|log| log.log_id.key_id.as_bytes().to_vec());
        let logs = root.tlogs.iter().map(|log| {
            let name = log.log_id.key_id.as_bytes().to_vec();
            Named { name, begins: begin(log.public_key.valid_for) }
        });
        Ok(Self {
            verifier,
            authorities,
            time_signers: time_signers.collect(),
            certificate_logs: certificate_logs.collect(),
            logs: logs.collect(),
        })
    }

    /// Whether the root has the authority that `leaf`, or one of the intermediate certificates of the bundle in `bytes`, names as its own.
    pub(super) fn has_authority(&self, leaf: &[u8], bytes: &[u8]) -> bool {
        let others = each_text(bytes, &["verificationMaterial", "x509CertificateChain", "certificates"], &["rawBytes"]);
        let certificates = [leaf.to_vec()].into_iter().chain(others);
        certificates
            .filter_map(|der| Certificate::from_der(&der).ok())
            .any(|certificate| self.authorities.iter().any(|authority| is_issued_by(&certificate, authority)))
    }

    /// Whether `leaf` names logs of certificates, and the root has none of them.
    pub(super) fn lacks_certificate_log(&self, leaf: &[u8]) -> bool {
        contains(leaf, ENTRIES_OF_LOGS) && !self.certificate_logs.iter().any(|id| contains(leaf, id))
    }

    /// Whether the bundle in `bytes` names a transparency log that the root does not have.
    pub(super) fn lacks_log(&self, bytes: &[u8]) -> bool {
        named_logs(bytes).iter().any(|id| !self.logs.iter().any(|log| log.name == *id))
    }

    /// Whether a time stamp of the bundle in `bytes` names a signer that the root does not have.
    pub(super) fn lacks_time_authority(&self, bytes: &[u8]) -> bool {
        let stamps = time_stamps(bytes);
        stamps.iter().any(|stamp| !self.time_signers.iter().any(|signer| contains(stamp, &signer.name)))
    }

    /// Whether the bundle in `bytes` names a log, or a signer of time stamps, that begins to be valid in the future. Nothing that it signed
    /// is verified until then. Real ones have signed already, so the clock of the machine is wrong, or the root.
    pub(super) fn begins_later(&self, bytes: &[u8]) -> bool {
        let (now, logs, stamps) = (now(), named_logs(bytes), time_stamps(bytes));
        let later = |named: &&Named| named.begins > now;
        self.logs.iter().filter(later).any(|log| logs.contains(&log.name))
            || self
                .time_signers
                .iter()
                .filter(later)
                .any(|signer| stamps.iter().any(|stamp| contains(stamp, &signer.name)))
    }
}

/// Whether the bundle in `bytes` has a log time in the future.
pub(super) fn is_ahead(bytes: &[u8]) -> bool {
    let Ok(document) = document::read(bytes) else { return false };
    let entries = at(&document, &LOG_ENTRIES).and_then(Document::as_list).unwrap_or_default();
    let times = entries.iter().filter_map(|entry| entry.get("integratedTime")?.as_text()?.parse::<i64>().ok());
    times.max().is_some_and(|time| time > now())
}

/// The seconds since 1970, by the clock of the machine.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().try_into().unwrap_or(i64::MAX)
}

fn begin(validity: Option<TimeRange>) -> i64 {
    validity.map_or(i64::MIN, |validity| validity.start.as_second())
}

fn named_logs(bytes: &[u8]) -> Vec<Vec<u8>> {
    each_text(bytes, &LOG_ENTRIES, &["logId", "keyId"])
}

fn time_stamps(bytes: &[u8]) -> Vec<Vec<u8>> {
    let path = ["verificationMaterial", "timestampVerificationData", "rfc3161Timestamps"];
    each_text(bytes, &path, &["signedTimestamp"])
}

/// Whether `certificate` names `authority` as its issuer, by its name, and by its key if it names one.
fn is_issued_by(certificate: &Certificate, authority: &Certificate) -> bool {
    let (own, issuer) = (certificate.tbs_certificate(), authority.tbs_certificate());
    let named = own.get_extension::<AuthorityKeyIdentifier>().ok().flatten().and_then(|(_, id)| id.key_identifier);
    let key = issuer.get_extension::<SubjectKeyIdentifier>().ok().flatten().map(|(_, id)| id.0);
    let is_key = match (named, key) {
        (Some(named), Some(key)) => named == key,
        _ => true,
    };
    own.issuer() == issuer.subject() && is_key
}

fn name_in_time_stamp(leaf: &[u8]) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(leaf).ok()?;
    let own = certificate.tbs_certificate();
    Some([own.issuer().to_der().ok()?, own.serial_number().to_der().ok()?].concat())
}

/// The bytes at `key` of each item of the list at `path`, which are in base64.
fn each_text(bytes: &[u8], path: &[&str], key: &[&str]) -> Vec<Vec<u8>> {
    let Ok(document) = document::read(bytes) else { return Vec::new() };
    let list = at(&document, path).and_then(Document::as_list);
    let texts = list.unwrap_or_default().iter().filter_map(|item| STANDARD.decode(at(item, key)?.as_text()?).ok());
    texts.collect()
}

fn at<'a, 'b>(document: &'a Document<'b>, path: &[&str]) -> Option<&'a Document<'b>> {
    path.iter().try_fold(document, |value, key| value.get(key))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}
