//! Checks that a reply is a complete answer. The error for any other reply comes with an advice.

use std::{borrow::Cow, time::Duration};

use headers::{Age, CacheControl, HeaderMapExt as _};
use http::{HeaderMap, header};

use domain::error::BackendError;
use outbound::Reply;

/// The longest time to live that an answer may set.
const LONGEST_LIFE: Duration = Duration::from_hours(24);

/// What was asked, for the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A JSON API.
    Json,
    /// A JSON API with the key `absent`, which does not hold.
    WithAbsent,
    /// A plugin, whose answer is always page 1.
    Plugin,
}

/// Checks that page `number` is a complete answer.
pub(super) fn check_whole(reply: &Reply, number: usize, asked: Asked) -> Result<(), BackendError> {
    if !reply.status.is_success() {
        let error = reply.refusal();
        let advice = match asked {
            Asked::Plugin => advice_on_plugin(reply),
            _ => advice(reply, number, asked == Asked::WithAbsent),
        };
        return Err(BackendError { message: format!("{}{advice}", error.message), ..error });
    }
    reply.check_whole()
}

/// The advice for an answer of a plugin.
fn advice_on_plugin(reply: &Reply) -> String {
    match reply.status.as_u16() {
        300..=399 => format!("; it redirects{}: write the address that answers as `baseUrl`", target(reply)),
        404 | 405 | 410 => "; check `baseUrl`, to which `/api/v1/getparams.execute` is added".to_owned(),
        _ => String::new(),
    }
}

/// The target of a redirect, without query and fragment, which may hold secrets.
fn target(reply: &Reply) -> String {
    let location = text(reply, header::LOCATION);
    let location = location.split(['?', '#']).next().unwrap_or_default();
    let shown = reply.secrets.excerpt(location.as_bytes(), 200);
    if shown.is_empty() { String::new() } else { format!(" to `{shown}`") }
}

/// The advice for an answer of a JSON API.
fn advice(reply: &Reply, number: usize, has_absent: bool) -> String {
    match reply.status.as_u16() {
        300..=399 => format!(
            "; it redirects{}: write the URL that answers, or `redirects: sameOrigin` if it is on the same host",
            target(reply)
        ),
        400 | 422 => "; check the URL and what else is sent".to_owned(),
        410 if number > 1 => {
            "; the list has changed too much since its first page; the next call reads it from the beginning".to_owned()
        }
        404 | 410 if has_absent && number == 1 => {
            "; it is not the proof that `absent` describes: check the URL, then `absent`".to_owned()
        }
        404 | 410 => "; check the URL: where there is nothing, an API must say so by an empty list, or by a reply that `absent` describes"
            .to_owned(),
        405 => "; check the `method`".to_owned(),
        _ => String::new(),
    }
}

/// How long the reply is fresh by its own headers: `max-age` minus `Age` (RFC 9111, section 4.2), or zero with `no-store` or
/// `no-cache`. `s-maxage` and `private` are ignored. They are meant for caches that serve several users, and all answers here
/// belong to one credential.
pub(crate) fn time_to_live(headers: &HeaderMap) -> Option<Duration> {
    let control: CacheControl = headers.typed_get()?;
    if control.no_store() || control.no_cache() {
        return Some(Duration::ZERO);
    }
    let age = headers.typed_get::<Age>().map_or(Duration::ZERO, |age| Duration::from_secs(age.as_secs()));
    control.max_age().map(|life| life.saturating_sub(age).min(LONGEST_LIFE))
}

fn text(reply: &Reply, name: header::HeaderName) -> Cow<'_, str> {
    reply.headers.get(name).map_or_else(Default::default, |value| String::from_utf8_lossy(value.as_bytes()))
}
