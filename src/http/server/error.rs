//! From what went wrong to a status and a flat JSON body: the only place that knows which status a
//! failure has. No code here stands for a 2xx (invariant I1).

use std::{borrow::Cow, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::{Excess, Refused},
    domain::{
        error::{BackendError, ErrorKind},
        generator::Query,
    },
    engine::{
        answer::{Failure, Unknown, Unusable},
        route::Route,
    },
};

/// The longest message, in characters: it stands on an ApplicationSet's condition.
const LONGEST: usize = 2000;

/// When to come again if whoever vouches for callers does not answer.
const VOUCHER_RETRY: Duration = Duration::from_secs(5);

/// The id of what was no request.
const NO_REQUEST: &str = "none";

/// What went wrong, in the words of the contract (`openapi.yaml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is not one of Argo CD's plugin generator.
    InvalidRequest,
    /// The token is missing, wrong, or not for this route.
    Forbidden,
    /// There is nothing at this path.
    NotFound,
    /// No route has this name, or none takes this call.
    UnknownRoute,
    /// The path is right, the method is not.
    MethodNotAllowed,
    /// The body is larger than 1 MiB.
    PayloadTooLarge,
    /// The parameters are not what the route or its backend needs.
    InvalidInput,
    /// The source asks to be left alone.
    Throttled,
    /// The request's head is larger than the gateway reads.
    HeadTooLarge,
    /// A defect of the gateway.
    Internal,
    /// The backend cannot be reached, failed or refuses us.
    BackendFailed,
    /// The backend answered something that cannot be believed.
    BackendOutputInvalid,
    /// Too many requests are under way.
    Overloaded,
    /// Who calls cannot be told now.
    Unavailable,
    /// The answer would delete too much, and is not believed yet.
    Held,
    /// The backend took too long.
    BackendTimeout,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 16] = [
        Self::InvalidRequest,
        Self::Forbidden,
        Self::NotFound,
        Self::UnknownRoute,
        Self::MethodNotAllowed,
        Self::PayloadTooLarge,
        Self::InvalidInput,
        Self::Throttled,
        Self::HeadTooLarge,
        Self::Internal,
        Self::BackendFailed,
        Self::BackendOutputInvalid,
        Self::Overloaded,
        Self::Unavailable,
        Self::Held,
        Self::BackendTimeout,
    ];

    /// The `code` of the body and of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::UnknownRoute => "unknown_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::PayloadTooLarge => "payload_too_large",
            Self::InvalidInput => "invalid_input",
            Self::Throttled => "throttled",
            Self::HeadTooLarge => "head_too_large",
            Self::Internal => "internal",
            Self::BackendFailed => "backend_failed",
            Self::BackendOutputInvalid => "backend_output_invalid",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Held => "held",
            Self::BackendTimeout => "backend_timeout",
        }
    }

    /// The status that goes with it.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::UnknownRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InvalidInput => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Throttled => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::BackendFailed | Self::BackendOutputInvalid => StatusCode::BAD_GATEWAY,
            Self::Overloaded | Self::Unavailable | Self::Held => StatusCode::SERVICE_UNAVAILABLE,
            Self::BackendTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

/// A refusal: what the caller is told.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    /// What went wrong.
    pub(crate) code: Code,
    /// For the operator; holds no secret (invariant I6).
    pub(crate) message: String,
    /// What the log says besides, and the caller is not told.
    pub(crate) reason: Option<Cow<'static, str>>,
    /// Whose token it was that does not do, for the log.
    pub(crate) caller: Option<String>,
    /// Whether it comes so often that the log says it on request only.
    pub(crate) is_often: bool,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

/// The first `most` characters of `text`.
fn cut(text: String, most: usize) -> String {
    if text.chars().count() <= most { text } else { text.chars().take(most.saturating_sub(1)).chain(['…']).collect() }
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
    /// A refusal with `code`. What `message` quotes may hold control characters, some of which JSON does not escape.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into().replace(char::is_control, " ");
        Self {
            code,
            message: cut(message, LONGEST),
            reason: None,
            caller: None,
            is_often: false,
            retry_after: None,
            allow: None,
        }
    }

    /// The same, with the methods that the path does answer.
    #[must_use]
    pub(crate) const fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// The same, with advice when to try again.
    #[must_use]
    pub(crate) const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Who calls is nobody, or is not known. A stranger is `told` something, but not how close it came.
    #[must_use]
    pub(crate) fn of_refused(refused: Refused, told: &str) -> Self {
        match refused {
            Refused::Wrong(why) => Self::new(Code::Forbidden, told).because(why),
            Refused::Unfit { who, why } => Self { caller: who, ..Self::new(Code::Forbidden, why) },
            Refused::Later(after) => {
                let message = "too many tokens that nobody knows came from this address, and whoever vouches for them is not asked \
                               about more now; one that was good a short time ago is answered";
                Self { is_often: true, ..Self::new(Code::Throttled, message).retry_after(after) }
            }
            Refused::Unknown(why) => {
                let message = "whether the token is good cannot be told now, as whoever vouches for it does not answer; the \
                               gateway's log says more";
                Self::new(Code::Unavailable, message).retry_after(VOUCHER_RETRY).because(why.into())
            }
        }
    }

    /// What `caller` wants is more than its entry in the configuration allows.
    #[must_use]
    pub(crate) fn of_excess(caller: &str, excess: Excess) -> Self {
        let (key, after) = match excess {
            Excess::Rate(after) => ("rate", after),
            Excess::Concurrency(after) => ("concurrency", after),
        };
        let message = format!("the caller `{caller}` asks more than its `{key}` in `auth` allows");
        Self::new(Code::Throttled, message).retry_after(after)
    }

    /// The same to somebody at an address from where too much is refused, as it will be until `after`.
    #[must_use]
    pub(crate) fn too_often(self, after: Duration) -> Self {
        let message = "too many calls from this address were refused; one with a token that is good is answered";
        Self { reason: self.reason, is_often: true, ..Self::new(Code::Throttled, message).retry_after(after) }
    }

    /// The same, with what the log says besides.
    #[must_use]
    pub(crate) fn because(self, reason: Cow<'static, str>) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// What a failed answer of `route` means for the caller.
    #[must_use]
    pub(crate) fn of(unknown: Unknown, route: &Route) -> Self {
        let mut error = Self::of_failure(unknown.failure, route);
        // When it is asked again stands in `Retry-After` alone: a message that changes makes Argo CD write its condition anew.
        if let Some(rests) = unknown.rests {
            error = error.retry_after(rests + Duration::from_secs(1));
        }
        error
    }

    /// The same, when nothing stands in for the answer to `query`.
    #[must_use]
    pub(crate) fn of_nothing(unknown: Unknown, route: &Route, query: &Query) -> Self {
        let question = route.describe(query);
        let last = match unknown.unusable {
            None => "there is no last good answer".to_owned(),
            Some(Unusable::TooOld(stored_at)) => {
                format!("the last good answer, of {}, is older than `cache.staleIfError` allows", stored_at.to_date())
            }
            Some(Unusable::OtherConfiguration(stored_at)) => format!(
                "the last good answer, of {}, was made by another configuration of this route",
                stored_at.to_date()
            ),
        };
        let rest = format!("; {last} ({question}), so the ApplicationSet is left as it is");
        let error = Self::of(unknown, route);
        Self { message: cut(error.message, LONGEST.saturating_sub(rest.chars().count())) + &rest, ..error }
    }

    /// A route's command did not say whether it wants a call.
    #[must_use]
    pub(crate) fn of_match(route: &Route, error: BackendError) -> Self {
        Self::of_backend(error.within(format_args!("route {}: whether it wants this call is not known", route.name)))
    }

    /// What `route` understands of a call is not known, or the call is none of it.
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
                Self::new(Code::Held, format!("route {name} ({kind}): {held}")).retry_after(held.apart)
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

    /// The whole bytes of the response, for what is said without a request, and of a connection that then ends.
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
    fn no_code_is_a_success_or_a_redirect() {
        for code in Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        }
    }

    #[test]
    fn a_message_has_an_end() {
        let error = ApiError::new(Code::Internal, "ä".repeat(5000));
        assert_eq!(error.message.chars().count(), LONGEST);
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(ApiError::new(Code::Internal, "a\r\n\u{7f}\u{9b}31mb").message, "a    31mb");
    }
}
