//! What Google's and Azure's token servers reply, and the identity of a bearer token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    exchange::{life, sensitive},
    kept::Issued,
};
use domain::{error::BackendError, secret::Secret};
use outbound::{Call, ExpiresIn, Reply};

/// The life of a token if its server names none.
const TOKEN_LIFE: std::time::Duration = std::time::Duration::from_mins(5);

#[derive(Deserialize)]
struct TokenReply {
    access_token: Secret,
    #[serde(default)]
    expires_in: ExpiresIn,
}

/// The token in `reply`. No error quotes it.
///
/// # Errors
/// When it holds none. `step` names the request.
pub(crate) fn token(step: &str, reply: &Reply) -> Result<Issued<Secret>, BackendError> {
    let bad = |what: &str| BackendError::invalid_output(format!("{step}: {what}"));
    let read: TokenReply =
        serde_json::from_slice(&reply.body).map_err(|_| bad("the reply is not a token, with `access_token`"))?;
    if read.access_token.expose().is_empty() {
        return Err(bad("the token is empty"));
    }
    let lasts = read.expires_in.time().map_err(bad)?.unwrap_or(TOKEN_LIFE);
    if lasts.is_zero() {
        return Err(bad("`expires_in` is 0: the token has ended"));
    }
    Ok(Issued { value: read.access_token, lasts: life(lasts) })
}

/// `call` with `token`.
///
/// # Errors
/// When no header can carry it.
pub(crate) fn bear(mut call: Call, token: &Secret) -> Result<Call, BackendError> {
    call.headers.insert(http::header::AUTHORIZATION, sensitive("Bearer ", token.expose())?);
    Ok(call)
}

/// The claim `name` of the JWT `token`. It is shown or used to plan ahead, and not trusted.
pub(crate) fn claim(token: &Secret, name: &str) -> Option<Value> {
    let claims = token.expose().split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?).ok()?;
    claims.get(name).cloned()
}
