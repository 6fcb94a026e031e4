//! Parses a token into its three parts (RFC 7515, section 3.1), without trusting any of them.

use std::str::FromStr;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::Value;

use super::claims::{ClaimsError, check_audience, check_expiry, time};
use domain::{
    clock::Timestamp,
    document::{excerpt, parse, parse_object},
    secret::Secret,
};

/// A token that is not verified. It must not be printed.
pub(crate) struct Compact<'a> {
    /// The signed part.
    pub signed: &'a str,
    /// The signature, in base64url.
    pub signature: &'a str,
    /// All claims: an object.
    pub claims: Value,
    header: Header,
}

/// Why a token's header is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// It requires something that is not supported.
    #[error("its header requires extensions (`crit`), and none is supported")]
    Extensions,
    /// It names this algorithm, which the issuer does not use.
    #[error("its `alg` is `{0}`, which is not among the issuer's `algorithms`")]
    Algorithm(String),
}

/// The fields of a token's header that are used. Keys and their addresses (`jwk`, `jku`, `x5c`, `x5u`) are ignored, because the sender chose
/// them.
#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

impl<'a> Compact<'a> {
    /// Parses `token`.
    ///
    /// # Errors
    /// When it is not a JWT. The text repeats nothing of it.
    pub(crate) fn parse(token: &'a [u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(token).map_err(|_| "it is not a JWT")?;
        let (signed, signature) = text.rsplit_once('.').ok_or("it is not a JWT")?;
        let (header, claims) = signed.split_once('.').ok_or("it is not a JWT")?;
        let decode = |part| URL_SAFE_NO_PAD.decode(part).map_err(|_| "it is not a JWT");
        let header = parse_object(&decode(header)?).map_err(|_| "it is not a JWT: its header cannot be read")?;
        let claims = parse(&decode(claims)?).ok().filter(Value::is_object);
        let claims = claims.ok_or("it is not a JWT: its claims are not a JSON object")?;
        Ok(Self { signed, signature, claims, header })
    }

    /// The issuer that it claims.
    pub(crate) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// The expiry that it claims.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        time(&self.claims, "exp").ok().flatten()
    }

    /// Checks whether the token could be good for one of `audiences` at `now`, by its own claims: it is signed, has not expired and is not only
    /// for others. This proves nothing, but saves a review.
    ///
    /// # Errors
    /// When it cannot be good. The text is for the log.
    pub(crate) fn check_likely(&self, audiences: &[String], now: Timestamp) -> Result<(), ClaimsError> {
        let is_signed = URL_SAFE_NO_PAD.decode(self.signature).is_ok_and(|signature| !signature.is_empty());
        if !is_signed || self.header.alg.eq_ignore_ascii_case("none") {
            return Err(ClaimsError::NotSigned);
        }
        check_expiry(&self.claims, now)?;
        self.claims.get("aud").map_or(Ok(()), |audience| check_audience(audiences, Some(audience)))
    }

    /// The complete token.
    pub(crate) fn whole(&self) -> Secret {
        format!("{}.{}", self.signed, self.signature).into()
    }

    /// The key id that it claims.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// The algorithm that it claims, which must be one of `pinned`.
    ///
    /// # Errors
    /// When it is not, or when the header requires an extension (`crit`).
    pub(crate) fn algorithm(&self, pinned: &[Algorithm]) -> Result<Algorithm, HeaderError> {
        if self.header.crit.is_some() {
            return Err(HeaderError::Extensions);
        }
        let named = Algorithm::from_str(&self.header.alg).ok().filter(|algorithm| pinned.contains(algorithm));
        named.ok_or_else(|| HeaderError::Algorithm(excerpt(self.header.alg.as_bytes(), 20)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn three_parts_of_base64url_with_json() {
        let good = token(r#"{"alg":"RS256","kid":"k","jku":"https://evil.example"}"#, r#"{"iss":"i"}"#);
        let compact = Compact::parse(good.as_bytes()).unwrap();
        assert_eq!((compact.issuer(), compact.key_id(), compact.signature), (Some("i"), Some("k"), "c2ln"));
        assert_eq!(compact.signed, good.strip_suffix(".c2ln").unwrap());
        assert_eq!(compact.whole().expose(), good);
        for bad in [
            String::new(),
            "strong-password".into(),
            "a.b".into(),
            "..".into(),
            good.replacen('.', "..", 1),
            format!("{good}.x"),
            good.replacen('.', "=.", 1),
            token("[]", "{}"),
            token("{}", "{}"),
            token(r#"{"alg":5}"#, "{}"),
            token(r#"{"alg":"RS256","alg":"none"}"#, "{}"),
            token(r#"{"alg":"RS256"}"#, "[]"),
            token(r#"{"alg":"RS256"}"#, "{"),
            token(r#"{"alg":"RS256"}"#, r#"{"aud":"a","aud":"b"}"#),
        ] {
            assert!(Compact::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Compact::parse(b"\xff.e30.x").is_err());
    }

    #[test]
    fn a_token_that_cannot_be_good_is_refused_without_a_review() {
        let now = Timestamp(1_800_000_000_000);
        let likely = |header: &str, claims: &str, signature: &str| {
            let token = token(header, claims).replace("c2ln", signature);
            Compact::parse(token.as_bytes()).unwrap().check_likely(&["gateway".to_owned()], now)
        };
        let signed = r#"{"alg":"RS256"}"#;
        for claims in [
            r#"{"exp":1800000001}"#,
            r#"{"exp":1799999971,"aud":"gateway"}"#,
            r#"{"exp":1800000001,"aud":["other","gateway"]}"#,
        ] {
            assert_eq!(likely(signed, claims, "c2ln"), Ok(()), "{claims}");
        }
        let good = r#"{"exp":1800000001,"aud":"gateway"}"#;
        for (header, claims, signature, says) in [
            (signed, good, "", "not signed"),
            (signed, good, "c2l=", "not signed"),
            (signed, good, "c*ln", "not signed"),
            (r#"{"alg":"nOne"}"#, good, "c2ln", "not signed"),
            (signed, "{}", "c2ln", "never expires"),
            (signed, r#"{"exp":"1800000001"}"#, "c2ln", "not a number"),
            (signed, r#"{"exp":1799999970}"#, "c2ln", "has expired"),
            (signed, r#"{"exp":1800000001,"aud":"gateway2"}"#, "c2ln", "another audience"),
            (signed, r#"{"exp":1800000001,"aud":[]}"#, "c2ln", "another audience"),
            (signed, r#"{"exp":1800000001,"aud":null}"#, "c2ln", "names no audience"),
        ] {
            let why = likely(header, claims, signature).unwrap_err().to_string();
            assert!(why.contains(says), "{claims}: {why}");
        }
    }

    #[test]
    fn an_algorithm_is_one_that_is_pinned() {
        let algorithm = |header: &str| {
            let token = token(header, "{}");
            Compact::parse(token.as_bytes()).unwrap().algorithm(&[Algorithm::RS256, Algorithm::EdDSA])
        };
        assert_eq!(algorithm(r#"{"alg":"EdDSA"}"#), Ok(Algorithm::EdDSA));
        for bad in ["none", "None", "NONE", "", "HS256", "RS512", "rs256", "ES512"] {
            let why = algorithm(&format!(r#"{{"alg":"{bad}"}}"#)).unwrap_err().to_string();
            assert!(why.contains(&format!("`alg` is `{bad}`")), "{why}");
        }
        assert!(algorithm(r#"{"alg":"RS256","crit":["exp"],"exp":1}"#).unwrap_err().to_string().contains("`crit`"));
    }
}
