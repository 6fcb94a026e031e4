//! Public keys in PEM files. Only the kind of the key decides the algorithm, never the document that was signed.

use aws_lc_rs::{
    error::KeyRejected,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
        VerificationAlgorithm,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use x509_cert::{
    der::{
        Decode as _, Error, Reader as _, SliceReader,
        asn1::{ObjectIdentifier, UintRef},
    },
    spki::SubjectPublicKeyInfoRef,
};

/// RFC 5480, section 2.1.1: keys on elliptic curves, and two of the curves.
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
/// RFC 8410, section 3.
const ED25519_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
/// RFC 8017, appendix A.1.
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// The length of an uncompressed point on P-256, and on P-384, in bytes.
const P256_POINT: usize = 65;
const P384_POINT: usize = 97;
const ED25519_BYTES: usize = 32;

/// Why a file has no public key that can be used. The text shows nothing of its content.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// The file has a private key.
    #[error("it holds a private key, which the gateway must not have; name the file of the public key")]
    Private,
    /// The file has a certificate.
    #[error("it holds a certificate, not a public key; `openssl x509 -pubkey -noout` prints its key")]
    Certificate,
    /// The key has an older form.
    #[error("its key has the form of PKCS #1; `openssl rsa -RSAPublicKey_in -pubout` writes the usual form")]
    Pkcs1,
    /// The file has another content.
    #[error("it holds no public key in PEM form, with `-----BEGIN PUBLIC KEY-----`")]
    NotPem,
    /// The file has this many keys.
    #[error("it holds {0} keys; write each to a file of its own, and name all of them as signers")]
    Several(usize),
    /// The key has no end, or is not in base64.
    #[error("its block `PUBLIC KEY` is not whole")]
    Torn(#[source] Option<base64::DecodeError>),
    /// The key is malformed.
    #[error("its public key cannot be read")]
    Unreadable(#[source] Option<Error>),
    /// The key's numbers are refused.
    #[error("its public key cannot be read")]
    Refused(#[source] KeyRejected),
    /// The curve is not supported.
    #[error("the curve of its key is not P-256 or P-384, or the point is compressed")]
    Curve,
    /// The kind is not supported.
    #[error("its key is not of ECDSA, Ed25519 or RSA")]
    Kind,
    /// The RSA key is too short or too long.
    #[error("its RSA key has less than 2048 or more than 8192 bits")]
    RsaBits,
}

/// A public key, with its one algorithm.
#[derive(Debug)]
pub(super) struct PublicKey {
    key: ParsedPublicKey,
    /// How a bundle names the key: the SHA-256 of its `SubjectPublicKeyInfo` in base64.
    hint: String,
    /// Why the key did not sign something, for messages.
    refusal: &'static str,
}

impl PublicKey {
    /// The one public key in `text`.
    ///
    /// # Errors
    /// When it is not exactly one, or cannot be used.
    pub(super) fn of_pem(text: &str) -> Result<Self, KeyError> {
        let der = public_key(text)?;
        let info = SubjectPublicKeyInfoRef::from_der(&der).map_err(|error| KeyError::Unreadable(Some(error)))?;
        let raw = info.subject_public_key.as_bytes().ok_or(KeyError::Unreadable(None))?;
        let curve = info.algorithm.parameters.and_then(|any| any.decode_as::<ObjectIdentifier>().ok());
        let algorithm: &'static dyn VerificationAlgorithm = match (info.algorithm.oid, curve, raw.len()) {
            (EC, Some(P256), P256_POINT) => &ECDSA_P256_SHA256_ASN1,
            (EC, Some(P384), P384_POINT) => &ECDSA_P384_SHA384_ASN1,
            (EC, ..) => return Err(KeyError::Curve),
            (ED25519_KEY, None, ED25519_BYTES) => &ED25519,
            (RSA, ..) => &RSA_PKCS1_2048_8192_SHA256,
            _ => return Err(KeyError::Kind),
        };
        if info.algorithm.oid == RSA && !rsa_bits(raw).is_some_and(|bits| (2048..=8192).contains(&bits)) {
            return Err(KeyError::RsaBits);
        }
        let key = ParsedPublicKey::new(algorithm, raw).map_err(KeyError::Refused)?;
        let refusal = if info.algorithm.oid == ED25519_KEY {
            "the key did not sign it by Ed25519; cosign 3 signs by Ed25519ph, which is not supported"
        } else {
            "the key did not sign it"
        };
        Ok(Self { key, hint: STANDARD.encode(Sha256::digest(&der)), refusal })
    }

    /// How a bundle names the key.
    pub(super) fn hint(&self) -> &str {
        &self.hint
    }

    /// Verifies that the key's owner signed `message`.
    ///
    /// # Errors
    /// When that is not so.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), &'static str> {
        self.key.verify_sig(message, signature).map_err(|_| self.refusal)
    }
}

/// Whether `hint` names some key as cosign does it.
pub(super) fn is_hint(hint: &str) -> bool {
    STANDARD.decode(hint).is_ok_and(|hash| hash.len() == 32)
}

/// The length of the modulus of an RSA key (RFC 8017, appendix A.1.1). Verification checks it too, and would refuse every signature.
fn rsa_bits(raw: &[u8]) -> Option<usize> {
    let mut reader = SliceReader::new(raw).ok()?;
    let modulus = reader.sequence(|numbers| {
        let modulus = UintRef::decode(numbers)?;
        UintRef::decode(numbers)?;
        Ok::<_, Error>(modulus)
    });
    let modulus = modulus.ok()?.as_bytes();
    Some(8 * modulus.len() - modulus.first()?.leading_zeros() as usize)
}

/// The content of the one block of `text`, which must be a public key.
fn public_key(text: &str) -> Result<Vec<u8>, KeyError> {
    const BEGIN: &str = "-----BEGIN ";
    if text.trim().is_empty() {
        return Err(KeyError::Empty);
    }
    let labels: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix(BEGIN)?.strip_suffix("-----")).collect();
    if labels.iter().any(|label| label.ends_with("PRIVATE KEY")) {
        return Err(KeyError::Private);
    }
    if labels.contains(&"CERTIFICATE") {
        return Err(KeyError::Certificate);
    }
    match *labels {
        ["PUBLIC KEY"] => {}
        ["RSA PUBLIC KEY"] => return Err(KeyError::Pkcs1),
        [] | [_] => return Err(KeyError::NotPem),
        _ => return Err(KeyError::Several(labels.len())),
    }
    let (_, after) = text.split_once("-----BEGIN PUBLIC KEY-----").unwrap_or_default();
    let (body, _) = after.split_once("-----END PUBLIC KEY-----").ok_or(KeyError::Torn(None))?;
    let body: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(body).map_err(|error| KeyError::Torn(Some(error)))
}
