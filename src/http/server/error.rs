//! Makes a status of a failure and a flat JSON body. No other place sets the status of a failure, and no code here has a 2xx status
//! (invariant I1).

mod code;

use std::{borrow::Cow, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use serde::Serialize;

pub use self::code::Code;
use auth::{Excess, Refused};
use domain::{
    error::{BackendError, ErrorKind},
    visible::one_line,
};
use engine::{
    answer::{Unknown, Unusable},
    failure::Failure,
    route::{ResolvedQuery, Route},
};

/// The longest message, in characters. Argo CD writes it into a condition of the ApplicationSet.
const MAX_MESSAGE_CHARS: usize = 2000;

/// `Retry-After` if an issuer or API server does not answer.
const ISSUER_RETRY: Duration = Duration::from_secs(5);

/// The request id of bytes that were not a request.
const NO_REQUEST: &str = "none";

/// An error answer to a caller.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    /// The error.
    pub(crate) code: Code,
    /// The message for the operator, without secrets (invariant I6).
    pub(crate) message: String,
    /// A reason for the log only.
    pub(crate) reason: Option<Cow<'static, str>>,
    /// The holder of an insufficient token, for the log.
    pub(crate) caller: Option<String>,
    /// Whether it is so frequent that it is logged at debug level only.
    pub(crate) is_often: bool,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

/// The first `max` characters of `text`.
fn cut(text: String, max: usize) -> String {
    if text.chars().count() <= max { text } else { text.chars().take(max.saturating_sub(1)).chain(['…']).collect() }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorBody<'a> {
    message: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    request_id: &'a str,
}

impl ApiError {
    /// An error with `code`. Control characters in `message` become spaces, because JSON does not escape all of them.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = one_line(&message.into());
        Self {
            code,
            message: cut(message, MAX_MESSAGE_CHARS),
            reason: None,
            caller: None,
            is_often: false,
            retry_after: None,
            allow: None,
        }
    }

    /// Adds the methods that the path allows.
    #[must_use]
    pub(crate) const fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Adds `Retry-After`.
    #[must_use]
    pub(crate) const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The error for a refused caller. A wrong token gets only `message`, which does not reveal the reason.
    #[must_use]
    pub(crate) fn of_refused(refused: Refused, message: &str) -> Self {
        match refused {
            Refused::Wrong(why) => Self::new(Code::Forbidden, message).because(why),
            Refused::Unfit { who, why } => Self { caller: who, ..Self::new(Code::Forbidden, why) },
            Refused::Later(after) => {
                let message = "too many unknown tokens came from this address, and no more of them are checked now; calls with a token that \
                               was good a short time ago are answered";
                Self { is_often: true, ..Self::new(Code::Throttled, message).retry_after(after) }
            }
            Refused::Unknown(why) => {
                let message = "the token cannot be checked now, because its issuer or the API server does not answer; the gateway's log \
                               says more";
                Self::new(Code::Unavailable, message).retry_after(ISSUER_RETRY).because(why.into())
            }
        }
    }

    /// The error when `caller` exceeds the limits of its entry in the configuration.
    #[must_use]
    pub(crate) fn of_excess(caller: &str, excess: Excess) -> Self {
        let exceeds = |key: &str| format!("the caller `{caller}` exceeds its `{key}` in `auth`");
        let (message, after) = match excess {
            Excess::Rate(after) => (exceeds("rate"), after),
            Excess::Concurrency(after) => (exceeds("concurrency"), after),
            Excess::Questions(max, after) => {
                let why = format!(
                    "it may ask {max} different questions within a day; those that it sent before are answered"
                );
                (format!("{}: {why}", exceeds("maxQuestions")), after)
            }
        };
        Self::new(Code::Throttled, message).retry_after(after)
    }

    /// The error for an address with too many refusals; it is refused until `after`.
    #[must_use]
    pub(crate) fn too_often(self, after: Duration) -> Self {
        let message = "too many calls from this address were refused; calls with a good token are answered";
        Self { reason: self.reason, is_often: true, ..Self::new(Code::Throttled, message).retry_after(after) }
    }

    /// Adds a reason for the log.
    #[must_use]
    pub(crate) fn because(self, reason: Cow<'static, str>) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// The error for an unknown outcome of `route`.
    #[must_use]
    pub(crate) fn of(unknown: Unknown, route: &Route) -> Self {
        let mut error = Self::of_failure(unknown.failure, route);
        // The time of the next run is in `Retry-After` only. A message that changes would make Argo CD rewrite its condition.
        if let Some(left) = unknown.retry_after {
            error = error.retry_after(left + Duration::from_secs(1));
        }
        error
    }

    /// The same, when there is no earlier answer to `resolved` to serve instead.
    #[must_use]
    pub(crate) fn of_nothing(unknown: Unknown, resolved: &ResolvedQuery) -> Self {
        let question = resolved.describe();
        let last = match unknown.unusable {
            // A last good answer would not be served either.
            None if matches!(unknown.failure, Failure::Store(_)) => {
                "a replica without contact answers nothing".to_owned()
            }
            None => "there is no last good answer".to_owned(),
            Some(Unusable::TooOld(stored_at)) => {
                format!("the last good answer, of {}, is older than `cache.staleIfError` allows", stored_at.to_date())
            }
            Some(Unusable::OtherConfiguration(stored_at)) => {
                // Without signers, nothing is trusted that may change.
                let or_keys =
                    if resolved.route.trust().fingerprint == 0 { "" } else { ", or under other keys of its signers" };
                let date = stored_at.to_date();
                format!("the last good answer, of {date}, was made by another configuration of this route{or_keys}")
            }
            Some(Unusable::OfBefore(stored_at)) => {
                let date = stored_at.to_date();
                format!(
                    "the last good answer, of {date}, is from before the shared store lost writes, and may not be the last"
                )
            }
        };
        let rest = format!("; {last} ({question}), so the ApplicationSet is left as it is");
        let error = Self::of(unknown, &resolved.route);
        Self { message: cut(error.message, MAX_MESSAGE_CHARS.saturating_sub(rest.chars().count())) + &rest, ..error }
    }

    /// A route's command did not answer whether it wants a call.
    #[must_use]
    pub(crate) fn of_match(route: &Route, error: BackendError) -> Self {
        Self::of_backend(error.within(format_args!("route {}: whether it wants this call is not known", route.name)))
    }

    /// The input that `route` accepts is not known, or does not fit the call.
    #[must_use]
    pub(crate) fn of_input(route: &Route, error: BackendError) -> Self {
        Self::of_backend(error.within(format_args!("route {}", route.name)))
    }

    fn of_failure(failure: Failure, route: &Route) -> Self {
        let (name, kind) = (&route.name, route.kind);
        match failure {
            Failure::Backend(error) => Self::of_backend(error.within(format_args!("route {name} ({kind})"))),
            Failure::Deadline => Self::new(
                Code::BackendTimeout,
                format!("route {name} ({kind}): no answer within {} s", route.deadline.as_secs_f32()),
            ),
            Failure::Held(held) => {
                Self::new(Code::Held, format!("route {name} ({kind}): {held}")).retry_after(held.interval)
            }
            Failure::Store(why) => {
                let message = format!("route {name} ({kind}): the shared store cannot be used: {why}");
                Self::new(Code::Unavailable, message).retry_after(Duration::from_secs(5))
            }
            Failure::Crashed => {
                Self::new(Code::Internal, format!("route {name} ({kind}): the gateway failed; its log says where"))
            }
        }
    }

    fn of_backend(error: BackendError) -> Self {
        let code = match error.kind {
            ErrorKind::Unavailable | ErrorKind::Denied => Code::BackendFailed,
            ErrorKind::Timeout => Code::BackendTimeout,
            ErrorKind::Throttled { .. } => Code::Throttled,
            ErrorKind::InvalidInput => Code::InvalidInput,
            ErrorKind::InvalidOutput => Code::BackendOutputInvalid,
        };
        let refusal = Self::new(code, error.message);
        match error.kind {
            ErrorKind::Throttled { retry_after } => refusal.retry_after(retry_after.unwrap_or(Duration::from_mins(1))),
            _ => refusal,
        }
    }

    /// All bytes of the response, for a refusal without a request. The connection then ends.
    #[must_use]
    pub(crate) fn into_bytes(self) -> Bytes {
        let status = self.code.status();
        let reason = status.canonical_reason().unwrap_or_default();
        let body = self.body(None, NO_REQUEST);
        let after = self.retry_after.map(|after| format!("Retry-After: {}\r\n", after.as_secs().max(1)));
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
            status.as_u16(),
            body.len(),
            after.unwrap_or_default()
        );
        [head.into_bytes(), body].concat().into()
    }

    fn body(&self, route: Option<&str>, request_id: &str) -> Vec<u8> {
        let body = ErrorBody { message: &self.message, code: self.code.as_str(), route, request_id };
        // A structure of strings always has a JSON form.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// The response, for a request called `request_id`.
    #[must_use]
    pub(crate) fn into_response(self, route: Option<&str>, request_id: &str) -> Response {
        let body = self.body(route, request_id);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_an_end() {
        let error = ApiError::new(Code::Internal, "ä".repeat(5000));
        assert_eq!(error.message.chars().count(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(ApiError::new(Code::Internal, "a\r\n\u{7f}\u{9b}31mb").message, "a    31mb");
    }
}
