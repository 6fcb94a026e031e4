//! The signed content of a bundle: a DSSE envelope around an in-toto statement (<https://github.com/secure-systems-lab/dsse>,
//! <https://in-toto.io/Statement/v1>).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use domain::document::{self, Document, excerpt};

/// The media type of an in-toto statement.
const IN_TOTO: &str = "application/vnd.in-toto+json";
/// The versions of in-toto statements, which have the same fields. cosign writes the earlier one for attestations.
const STATEMENTS: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
/// The predicate of a signature by cosign 3.
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
/// The predicate of SLSA provenance.
const PROVENANCE: &str = "https://slsa.dev/provenance/v1";

/// A DSSE envelope with one signature.
#[derive(Debug)]
pub(super) struct Envelope {
    payload: Vec<u8>,
    /// The signature.
    pub(super) signature: Vec<u8>,
}

/// An in-toto statement about one of the expected digests.
#[derive(Debug)]
pub(super) struct Statement {
    /// The digest.
    #[cfg_attr(not(feature = "keyless"), allow(dead_code, reason = "no certificate is verified"))]
    pub(super) digest: String,
    /// The type of the statement.
    pub(super) says: Says,
}

/// The type of a statement.
#[derive(Debug)]
pub(super) enum Says {
    /// That it is a signature of the image.
    Signed,
    /// How the image was built: the predicate of SLSA provenance.
    Built(Value),
    /// Anything else, such as a list of its packages; the type of its predicate.
    Other(String),
}

impl Envelope {
    /// Reads an envelope.
    ///
    /// # Errors
    /// When it does not have exactly one signature and a statement as its payload.
    pub(super) fn read(envelope: &Document<'_>) -> Result<Self, String> {
        let text = |key: &str| envelope.get(key).and_then(Document::as_text);
        let payload_type = text("payloadType").ok_or("its envelope has no `payloadType`")?;
        if payload_type != IN_TOTO {
            let shown = excerpt(payload_type.as_bytes(), 80);
            return Err(format!("the payload type of its envelope is `{shown}`, not `{IN_TOTO}`"));
        }
        let payload = text("payload").ok_or("its envelope has no `payload`")?;
        let payload = STANDARD.decode(payload).map_err(|_| "the payload of its envelope is not in base64")?;
        let signatures = envelope.get("signatures").and_then(Document::as_list).unwrap_or_default();
        let [signature] = signatures else {
            return Err(format!("its envelope has {} signatures, not exactly one", signatures.len()));
        };
        let signature = signature.get("sig").and_then(Document::as_text).ok_or("its signature has no `sig`")?;
        let signature = STANDARD.decode(signature).map_err(|_| "its signature is not in base64")?;
        Ok(Self { payload, signature })
    }

    /// The bytes that are signed: the "Pre-Authentication Encoding" of DSSE.
    pub(super) fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("DSSEv1 {} {IN_TOTO} {} ", IN_TOTO.len(), self.payload.len()).into_bytes();
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// The statement, about one of `digests`.
    ///
    /// # Errors
    /// When it is not a statement, or about something else.
    pub(super) fn statement(&self, digests: &[String]) -> Result<Statement, String> {
        let document =
            document::read(&self.payload).map_err(|why| format!("its statement is not one JSON document: {why}"))?;
        let text = |key: &str| document.get(key).and_then(Document::as_text);
        let version = text("_type").ok_or("its payload is not a statement: it has no `_type`")?;
        if !STATEMENTS.contains(&version) {
            return Err(format!("its payload is not a statement, but `{}`", excerpt(version.as_bytes(), 80)));
        }
        let subjects = document.get("subject").and_then(Document::as_list).unwrap_or_default();
        let named = subjects.iter().filter_map(|subject| subject.get("digest")?.get("sha256")?.as_text());
        let named: Vec<&str> = named.collect();
        let Some(digest) = digests.iter().find(|digest| named.contains(&digest.as_str())) else {
            let Some(other) = named.first() else { return Err("its statement names no SHA-256 digest".to_owned()) };
            return Err(format!("its statement is about another digest, sha256:{}", excerpt(other.as_bytes(), 64)));
        };
        let says = match text("predicateType") {
            None => return Err("its statement has no `predicateType`".to_owned()),
            Some(SIGN) => Says::Signed,
            Some(PROVENANCE) => {
                Says::Built(document.get("predicate").map_or(Value::Null, |predicate| predicate.clone().into()))
            }
            Some(other) => Says::Other(excerpt(other.as_bytes(), 120)),
        };
        Ok(Statement { digest: digest.clone(), says })
    }
}
