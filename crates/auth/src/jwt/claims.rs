//! Checks a token's claims (RFC 7519, section 4.1): issuer, audience and time. Only genuine tokens are checked, so the sender may be told what
//! is wrong.

use std::time::Duration;

use serde_json::Value;

use domain::{
    clock::Timestamp,
    document::{excerpt, kind_of},
};

/// How far the issuer's clock may be from ours.
const LEEWAY: Duration = Duration::from_secs(30);

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
    pub(super) fn check(&self, claims: &Value, now: Timestamp) -> Result<Timestamp, String> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err("the token is from another issuer (`iss`)".to_owned());
        }
        check_audience(&self.audiences, claims.get("aud"))?;
        let expires = check_expiry(claims, now)?;
        match time(claims, "nbf")? {
            Some(from) if now.plus(LEEWAY) < from => {
                Err(format!("the token is valid from {} (`nbf`){}", from.to_date(), by_our_clock(now)))
            }
            _ => Ok(expires),
        }
    }
}

/// Whether `audience`, a token's `aud`, names one of `audiences`.
///
/// # Errors
/// When it does not.
pub(crate) fn check_audience(audiences: &[String], audience: Option<&Value>) -> Result<(), String> {
    let expected = || format!("`{}`", audiences.join("`, `"));
    let named: Vec<&str> = match audience {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Err(format!("the token names no audience (`aud`); it must be for {}", expected())),
    };
    if named.iter().any(|named| audiences.iter().any(|audience| audience == named)) {
        return Ok(());
    }
    let named = excerpt(named.join("`, `").as_bytes(), 200);
    Err(format!("the token is for another audience (`{named}`); it must be for {}", expected()))
}

/// When the token with these `claims` expires.
///
/// # Errors
/// When the token never expires, or has expired by `now`.
pub(crate) fn check_expiry(claims: &Value, now: Timestamp) -> Result<Timestamp, String> {
    let expires = time(claims, "exp")?.ok_or("the token never expires (`exp`), and such tokens are not accepted")?;
    if now < expires.plus(LEEWAY) {
        return Ok(expires);
    }
    Err(format!("the token has expired at {}{}", expires.to_date(), by_our_clock(now)))
}

fn by_our_clock(now: Timestamp) -> String {
    format!("; the gateway's clock says {}", now.to_date())
}

/// The claim `name`, seconds since 1970-01-01 UTC.
pub(super) fn time(claims: &Value, name: &str) -> Result<Option<Timestamp>, String> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let Value::Number(seconds) = value else {
        return Err(format!("the token's `{name}` is {}, not a number", kind_of(value)));
    };
    let time = seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    time.map(|time| Some(Timestamp(time))).ok_or_else(|| format!("the token's `{name}` is not a time"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn check(more: &Value) -> Result<Timestamp, String> {
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
            let why = check(&bad).unwrap_err();
            assert!(why.contains(says), "{bad}: {why}");
        }
    }
}
