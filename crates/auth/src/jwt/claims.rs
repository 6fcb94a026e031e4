//! Checks a token's claims (RFC 7519, section 4.1): issuer, audience and time. Only genuine tokens are checked, so the sender may get
//! the reason.

use std::time::Duration;

use serde_json::Value;

use domain::{
    clock::Timestamp,
    document::{excerpt, kind_of},
};

/// How far the issuer's clock may be from ours.
const LEEWAY: Duration = Duration::from_secs(30);

/// Why a token's claims do not make it valid for the gateway.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimsError {
    /// It is from another issuer.
    #[error("the token is from another issuer (`iss`)")]
    OtherIssuer,
    /// It names no audience. It must name one of these.
    #[error("the token names no audience (`aud`); it must be for {0}")]
    NoAudience(String),
    /// It is for others.
    #[error("the token is for another audience (`{named}`); it must be for {expected}")]
    OtherAudience {
        /// Its audiences.
        named: String,
        /// The accepted audiences.
        expected: String,
    },
    /// It is not valid yet.
    #[error("the token is valid from {} (`nbf`){}", .from.to_date(), by_our_clock(*.now))]
    TooEarly {
        /// When it becomes valid.
        from: Timestamp,
        /// The time now.
        now: Timestamp,
    },
    /// It has no expiry.
    #[error("the token never expires (`exp`), and such tokens are not accepted")]
    NeverExpires,
    /// It has expired.
    #[error("the token has expired at {}{}", .expires.to_date(), by_our_clock(*.now))]
    Expired {
        /// When it expired.
        expires: Timestamp,
        /// The time now.
        now: Timestamp,
    },
    /// A time has another type.
    #[error("the token's `{name}` is {kind}, not a number")]
    NotANumber {
        /// The claim.
        name: &'static str,
        /// The type.
        kind: &'static str,
    },
    /// This claim is a number that is not a time.
    #[error("the token's `{0}` is not a time")]
    NotATime(&'static str),
    /// It has no signature, or is signed by no algorithm.
    #[error("the token is not signed")]
    NotSigned,
}

/// The claims that a token must have.
#[derive(Debug)]
pub(super) struct Expected {
    /// The issuer.
    pub issuer: String,
    /// The accepted audiences.
    pub audiences: Vec<String>,
}

impl Expected {
    /// When the token with these `claims` expires.
    ///
    /// # Errors
    /// When the token is for another audience, or not valid at `now`. The text has the reason.
    pub(super) fn check(&self, claims: &Value, now: Timestamp) -> Result<Timestamp, ClaimsError> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(ClaimsError::OtherIssuer);
        }
        check_audience(&self.audiences, claims.get("aud"))?;
        let expires = check_expiry(claims, now)?;
        match time(claims, "nbf")? {
            Some(from) if now.plus(LEEWAY) < from => Err(ClaimsError::TooEarly { from, now }),
            _ => Ok(expires),
        }
    }
}

/// Whether `audience`, a token's `aud`, names one of `audiences`.
///
/// # Errors
/// When it does not.
pub(crate) fn check_audience(audiences: &[String], audience: Option<&Value>) -> Result<(), ClaimsError> {
    let expected = || format!("`{}`", audiences.join("`, `"));
    let named: Vec<&str> = match audience {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Err(ClaimsError::NoAudience(expected())),
    };
    if named.iter().any(|named| audiences.iter().any(|audience| audience == named)) {
        return Ok(());
    }
    let named = excerpt(named.join("`, `").as_bytes(), 200);
    Err(ClaimsError::OtherAudience { named, expected: expected() })
}

/// When the token with these `claims` expires.
///
/// # Errors
/// When the token never expires, or has expired by `now`.
pub(crate) fn check_expiry(claims: &Value, now: Timestamp) -> Result<Timestamp, ClaimsError> {
    let expires = time(claims, "exp")?.ok_or(ClaimsError::NeverExpires)?;
    if now < expires.plus(LEEWAY) {
        return Ok(expires);
    }
    Err(ClaimsError::Expired { expires, now })
}

fn by_our_clock(now: Timestamp) -> String {
    format!("; the gateway's clock says {}", now.to_date())
}

/// The claim `name`, seconds since 1970-01-01 UTC.
pub(super) fn time(claims: &Value, name: &'static str) -> Result<Option<Timestamp>, ClaimsError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let Value::Number(seconds) = value else {
        return Err(ClaimsError::NotANumber { name, kind: kind_of(value) });
    };
    let time = seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    time.map(|time| Some(Timestamp(time))).ok_or(ClaimsError::NotATime(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn check(more: &Value) -> Result<Timestamp, ClaimsError> {
        let mut claims = json!({"iss": "https://i.example", "aud": "gateway", "exp": NOW + 60});
        for (name, value) in more.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().shift_remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        let expected =
            Expected { issuer: "https://i.example".into(), audiences: vec!["gateway".into(), "other".into()] };
        expected.check(&claims, Timestamp(NOW * 1000))
    }

    #[test]
    fn a_valid_token_for_the_gateway_is_accepted() {
        for (good, expires) in [
            (json!({}), NOW + 60),
            (json!({"aud": ["x", "other"]}), NOW + 60),
            (json!({"nbf": NOW + 30, "exp": NOW - 29}), NOW - 29),
            (json!({"nbf": 0, "iat": "whenever"}), NOW + 60),
        ] {
            assert_eq!(check(&good), Ok(Timestamp(expires * 1000)), "{good}");
        }
        assert_eq!(check(&json!({"exp": 1.8e9})), Ok(Timestamp(NOW * 1000)));
    }

    #[test]
    fn refusals_say_why() {
        for (bad, says) in [
            (json!({"iss": "https://i.example/"}), "from another issuer"),
            (json!({"iss": null}), "from another issuer"),
            (json!({"iss": ["https://i.example"]}), "from another issuer"),
            (json!({"aud": "gateway2"}), "another audience (`gateway2`); it must be for `gateway`, `other`"),
            (json!({"aud": ["a", "b"]}), "another audience (`a`, `b`)"),
            (json!({"aud": []}), "another audience"),
            (json!({"aud": [["gateway"]]}), "another audience"),
            (json!({"aud": null}), "names no audience"),
            (json!({"aud": {"gateway": 1}}), "names no audience"),
            (json!({"exp": null}), "never expires"),
            (json!({"exp": (NOW + 60).to_string()}), "`exp` is a string, not a number"),
            (
                json!({"exp": NOW - 30}),
                "has expired at 2027-01-15T07:59:30Z; the gateway's clock says 2027-01-15T08:00:00Z",
            ),
            (json!({"exp": -1}), "`exp` is not a time"),
            (json!({"exp": 1e300}), "`exp` is not a time"),
            (json!({"nbf": NOW + 31}), "is valid from 2027-01-15T08:00:31Z (`nbf`); the gateway's clock"),
            (json!({"nbf": true}), "`nbf` is a boolean, not a number"),
        ] {
            let why = check(&bad).unwrap_err().to_string();
            assert!(why.contains(says), "{bad}: {why}");
        }
    }
}
